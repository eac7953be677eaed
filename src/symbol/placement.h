/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_PLACEMENT_H
#define UNIPROF_SYMBOL_PLACEMENT_H

/*
 * Where in a guest's memory the code of a file is, found by comparing the two:
 * what stands at addresses that the guest works with (program counters, return
 * addresses) is looked for in the file. A file lies at its linked address or a
 * whole number of pages from there. What a guest changes in its own code when
 * it starts (Linux's alternatives, a hypercall page, relocations) is allowed
 * for. Everything in the guest is read by bounded numbers of pages.
 */

#include "symbol/images/code.h"
#include "symbol/guest_memory.h"

/* What memory says to the claim that a file is there with a certain slide. */
enum place_check {
	PLACE_SAME,
	PLACE_OTHER,  /* something else is there */
	PLACE_UNSEEN, /* nothing can be read there that would tell */
};

struct place_finding {
	uint64_t slide; /* that was checked last: where it is, or where something else is */
	/* PLACE_OTHER: the build id of what is there, in hex; "" if none was found. */
	char build_id[2 * CODE_BUILD_ID_MAX + 1];
	uint64_t build_id_va;
};

/* Is the file there? `at`: PLACE_SIGHTS addresses whose pages must be looked at as well. */
enum place_check placement_check(const struct elf_code *code, uint64_t slide,
				 const struct guest_memory *memory, const uint64_t *at, size_t n_at,
				 struct place_finding *finding);

/*
 * Finds the file. `at` are addresses in the guest that may be in its code, the
 * program counter first; of PLACE_SIGHTS distinct pages at most.
 */
#define PLACE_SIGHTS 24
enum place_check placement_find(const struct elf_code *code, const struct guest_memory *memory,
				const uint64_t *at, size_t n_at, struct place_finding *finding);

/*
 * Looks for the note of a build id in the pages around `va`, upwards and
 * downwards, as far as there is memory, up to `pages` of them on each side.
 */
bool placement_find_note(const struct guest_memory *memory, uint64_t va, size_t pages,
			 char *build_id, uint64_t *note_va);

/* Private to src/symbol: the file's code with this slide, against one page of the guest. */
struct page_tally {
	size_t compared, different; /* bytes; none compared: the page says nothing */
	bool same;
	bool empty; /* only zeros in the guest: nothing has been loaded there yet */
};
#define PLACE_PAGE 4096u
void placement_compare(const struct elf_code *code, uint64_t slide, uint64_t page_va,
		       const uint8_t *page, size_t len, struct page_tally *tally);

/* The index of the first piece that ends behind `va`; n if none does. */
size_t placement_piece(const struct elf_code *code, uint64_t va);

#endif
