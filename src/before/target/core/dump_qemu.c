/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Dumps of QEMU's dump-guest-memory: memory in segments by physical address,
 * and a note "QEMU" for each vCPU (target/i386/arch_dump.c in QEMU), which has
 * what the notes of ordinary core files lack: control registers.
 */

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "target/core/dump.h"

#define STATE_VERSION 1u

/* Notes are some hundred bytes for each vCPU. */
#define NOTES_MAX (16u << 20)

/* Bits of a descriptor's upper word (SDM vol. 3, 3.4.5). */
#define SEGMENT_LONG (1u << 21)
#define RPL	     3u

#define CR4_PAE	 (1ull << 5)
#define EFER_LMA (1ull << 10)

struct segment {
	uint32_t selector, limit, flags, pad;
	uint64_t base;
};

struct state {
	uint32_t version, size;
	uint64_t ax, bx, cx, dx, si, di, sp, bp, r8_to_15[8];
	uint64_t ip, flags;
	struct segment cs, ds, es, fs, gs, ss, ldt, tr, gdt, idt;
	uint64_t cr[5];
};

/* The machine of the file is the 64-bit one if vCPUs are in long mode; EFER is not told. */
static void take_state(const struct dump *dump, const struct state *from, struct x86_regs *to)
{
	const uint64_t gp[] = {from->ax, from->cx, from->dx, from->bx,
			       from->sp, from->bp, from->si, from->di};

	memcpy(to->gp, gp, sizeof(gp));
	memcpy(to->gp + 8, from->r8_to_15, sizeof(from->r8_to_15));
	to->rip = from->ip;
	to->rflags = from->flags;
	to->cr0 = from->cr[0];
	to->cr3 = from->cr[3];
	to->cr4 = from->cr[4];
	to->efer = dump->elf.machine == EM_X86_64 && from->cr[4] & CR4_PAE ? EFER_LMA : 0;
	to->cs_base = from->cs.base;
	to->ss_base = from->ss.base;
	to->cs_long = from->cs.flags & SEGMENT_LONG;
	to->cpl = from->cs.selector & RPL;
}

static bool is_state(const struct elf_note *note)
{
	return !strcmp(note->name, "QEMU") && note->type == 0 && note->len >= sizeof(struct state);
}

static struct error *take_notes(struct dump *dump, const uint8_t *bytes, size_t len)
{
	struct elf_note note;
	struct state state;
	struct error *err;
	uint32_t n = 0;

	for (size_t at = 0; elf_note_next(bytes, len, &at, &note);)
		n += is_state(&note);
	if (!n || dump->vcpu)
		return NULL;
	err = dump_new_vcpus(dump, n);
	n = 0;
	for (size_t at = 0; !err && elf_note_next(bytes, len, &at, &note);) {
		if (!is_state(&note))
			continue;
		memcpy(&state, note.desc, sizeof(state));
		if (state.version != STATE_VERSION)
			return error_new(ERR_INPUT, "it was written by a newer QEMU");
		take_state(dump, &state, &dump->vcpu[n++]);
	}
	return err;
}

static struct error *read_notes(struct dump *dump, const struct elf_part *part)
{
	const size_t len = part->size < NOTES_MAX ? (size_t)part->size : NOTES_MAX;
	uint8_t *bytes = malloc(len ? len : 1);
	struct error *err = NULL;

	if (!bytes)
		return error_no_memory();
	if (elf_core_read(&dump->elf, part->at, bytes, len))
		err = take_notes(dump, bytes, len);
	free(bytes);
	return err;
}

/* Whole frames of it. */
static struct error *add_memory(struct dump *dump, const struct elf_part *part)
{
	const uint64_t before = -part->physical & (FRAME_SIZE - 1);

	if (part->size < before + FRAME_SIZE || part->physical > UINT64_MAX - part->size)
		return NULL;
	return frame_map_add(&dump->frames, (part->physical + before) >> FRAME_SHIFT,
			     (part->size - before) >> FRAME_SHIFT, part->at + before);
}

struct error *dump_read_qemu(struct dump *dump)
{
	struct elf_part part;
	struct error *err = NULL;

	dump->type = "qemu";
	dump->writer = "QEMU's dump-guest-memory";
	dump->arch = &arch_x86_64;
	for (uint32_t i = 0; i < dump->elf.segments && !err; i++) {
		if (!elf_core_segment(&dump->elf, i, &part))
			return error_new(ERR_INPUT, "it is cut off");
		if (part.type == PT_NOTE)
			err = read_notes(dump, &part);
		else if (part.type == PT_LOAD)
			err = add_memory(dump, &part);
	}
	if (!err && !dump->vcpu)
		err = error_new(ERR_INPUT,
				"neither `xl dump-core` nor QEMU's dump-guest-memory of an x86 "
				"guest wrote it (others do not tell where the page tables are)");
	return err;
}
