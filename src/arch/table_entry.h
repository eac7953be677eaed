/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_TABLE_ENTRY_H
#define UNIPROF_ARCH_TABLE_ENTRY_H

/* Helpers that the page walks of all instruction sets share: check the address, read an entry, compute the page. */

#include <string.h>

#include "arch/arch.h"

static inline void xlate_note(struct xlate_log *log, const void *at, size_t size, uint64_t entry)
{
	if (log->n < XLATE_LOG) {
		log->size = size;
		log->read[log->n].at = at;
		log->read[log->n].entry = entry;
	}
	log->n++;
}

/* Reads an entry of `size` bytes, which never crosses a frame; false: XLATE_MISSING, out->gfn is set. */
static inline bool xlate_read_entry(const struct physmem *mem, uint64_t addr, size_t size,
				    uint64_t *entry, struct xlate *out)
{
	const uint8_t *frame;

	out->gfn = addr >> FRAME_SHIFT;
	frame = mem->frame(mem->ctx, out->gfn);
	if (!frame)
		return false;
	*entry = 0;
	frame += addr & (FRAME_SIZE - size);
	memcpy(entry, frame, size);
	if (out->log)
		xlate_note(out->log, frame, size, *entry);
	return true;
}

/* All bits above the translated ones must equal the highest translated one. */
static inline bool xlate_is_canonical(uint64_t va, unsigned bits)
{
	const uint64_t high = va >> (bits - 1);

	return high == 0 || high == UINT64_MAX >> (bits - 1);
}

/* `va` is in a page of 2^shift bytes, whose address is `base` but for the bits within the page. */
static inline enum xlate_status xlate_found(uint64_t base, unsigned shift, uint64_t va,
					    struct xlate *out)
{
	const uint64_t size = 1ull << shift, offset = va & (size - 1);

	out->addr = (base & ~(size - 1)) + offset;
	out->left = size - offset;
	return XLATE_OK;
}

#endif
