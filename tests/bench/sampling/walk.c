/* SPDX-License-Identifier: BSD-3-Clause */
#define XC_WANT_COMPAT_MAP_FOREIGN_API 1
#include "walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xenctrl.h>

#define MAX_PAGES  256
#define MAX_FRAMES 4096
/* The file begins anew after this many stacks: it lies in dom0's memory. */
#define REWIND_STACKS 1000

struct page {
	uint64_t va;
	const uint8_t *bytes;
};

struct walk {
	xc_interface *xc;
	uint32_t domid;
	unsigned int word; /* bytes of an address */
	FILE *file;
	uint32_t printed; /* stacks */
	struct page pages[MAX_PAGES];
	uint32_t n;
};

struct error *walk_new(uint32_t domid, struct walk **out)
{
	struct walk *walk = calloc(1, sizeof(*walk));

	if (!walk)
		return error_no_memory();
	*out = walk;
	walk->domid = domid;
	walk->xc = xc_interface_open(NULL, NULL, 0);
	if (!walk->xc)
		return error_errno(ERR_DENIED, errno, "cannot open Xen's control interface");
	/* Xen tells no width of HVM guests: those here have 64 bits. */
	if (xc_domain_get_guest_width(walk->xc, domid, &walk->word) ||
	    walk->word > sizeof(uint64_t))
		walk->word = sizeof(uint64_t);
	walk->file = tmpfile();
	if (!walk->file)
		return error_errno(ERR_OUTPUT, errno, "cannot make a temporary file");
	return NULL;
}

void walk_free(struct walk *walk)
{
	if (!walk)
		return;
	for (uint32_t i = 0; i < walk->n; i++)
		munmap((void *)walk->pages[i].bytes, XC_PAGE_SIZE);
	if (walk->file)
		fclose(walk->file);
	if (walk->xc)
		xc_interface_close(walk->xc);
	free(walk);
}

static const uint8_t *map(struct walk *walk, uint32_t vcpu, uint64_t va)
{
	unsigned long frame;
	const uint8_t *bytes;

	if (walk->n == MAX_PAGES)
		return NULL;
	frame = xc_translate_foreign_address(walk->xc, walk->domid, (int)vcpu, va);
	if (!frame)
		return NULL;
	bytes = xc_map_foreign_range(walk->xc, walk->domid, XC_PAGE_SIZE, PROT_READ, frame);
	if (!bytes)
		return NULL;
	walk->pages[walk->n++] = (struct page){va, bytes};
	return bytes;
}

/* The word at `va`, or false where there is no memory. */
static bool read_word(struct walk *walk, uint32_t vcpu, uint64_t va, uint64_t *word)
{
	uint64_t page_va = va & ~(XC_PAGE_SIZE - 1ull);
	const uint8_t *bytes = NULL;

	if (va % walk->word)
		return false;
	for (uint32_t i = 0; i < walk->n && !bytes; i++)
		if (walk->pages[i].va == page_va)
			bytes = walk->pages[i].bytes;
	if (!bytes)
		bytes = map(walk, vcpu, page_va);
	if (!bytes)
		return false;
	*word = 0;
	memcpy(word, bytes + (va - page_va), walk->word);
	return true;
}

uint32_t walk_print(struct walk *walk, uint32_t vcpu, const void *context)
{
	const vcpu_guest_context_any_t *any = context;
	const bool wide = walk->word == sizeof(uint64_t);
	uint64_t pc = wide ? any->x64.user_regs.rip : any->x32.user_regs.eip;
	uint64_t fp = wide ? any->x64.user_regs.rbp : any->x32.user_regs.ebp;
	uint32_t frames = 0;

	if (++walk->printed % REWIND_STACKS == 0)
		rewind(walk->file);
	while (fp && frames++ < MAX_FRAMES) {
		fprintf(walk->file, "%#" PRIx64 "\n", pc);
		if (!read_word(walk, vcpu, fp + walk->word, &pc) || !read_word(walk, vcpu, fp, &fp))
			break;
	}
	fprintf(walk->file, "1\n\n");
	return frames;
}
