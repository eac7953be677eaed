/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Finds the code of a file in a guest's memory by comparing the two: the bytes
 * at addresses that the guest works with (program counters, return addresses)
 * are looked for in the file. A file lies at its linked address or a whole
 * number of pages from there. Changes that a guest makes to its own code when
 * it starts (Linux's alternatives, a hypercall page, relocations) are allowed
 * for. All reads of the guest are bounded numbers of pages. Once the memory's
 * budget is exhausted, no answer counts.
 */

#include "symbol/images/code.h"
#include "symbol/kernel/guest_memory.h"

/* Result of checking that a file is at a certain slide. */
enum placement_verdict {
	PLACEMENT_SAME,
	PLACEMENT_OTHER,  /* something else is there */
	PLACEMENT_UNSEEN, /* nothing can be read there that would tell */
};

struct placement_finding {
	uint64_t slide; /* that was checked last: where it is, or where something else is */
	/* PLACEMENT_OTHER: build id of the file that is there, in hex; "" if none was found. */
	char build_id[2 * BUILD_ID_MAX + 1];
	uint64_t build_id_va;
};

/*
 * Checks that the file is there. `at`: PLACEMENT_SIGHTS addresses whose pages must
 * be compared as well.
 */
enum placement_verdict placement_check(const struct elf_code *code, uint64_t slide,
				       const struct guest_memory *memory, const uint64_t *at,
				       size_t n_at, struct placement_finding *finding);

/*
 * Finds the file. `at` are addresses in the guest that may be in its code, the
 * program counter first; of PLACEMENT_SIGHTS distinct pages at most.
 */
#define PLACEMENT_SIGHTS 24
enum placement_verdict placement_find(const struct elf_code *code,
				      const struct guest_memory *memory, const uint64_t *at,
				      size_t n_at, struct placement_finding *finding);

/*
 * Looks for the note of a build id in the pages around `va`, upwards and
 * downwards, as far as there is memory, up to `pages` of them on each side.
 */
bool placement_find_note(const struct guest_memory *memory, uint64_t va, size_t pages,
			 char *build_id, uint64_t *note_va);
