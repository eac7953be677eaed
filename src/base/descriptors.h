/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_DESCRIPTORS_H
#define UNIPROF_BASE_DESCRIPTORS_H

/* Sets of file descriptors, for libraries that do not tell which ones they have opened. */

#include <stdint.h>

/* Higher descriptors are ignored: they are opened long after those that matter here. */
#define DESCRIPTORS_MAX 4096

struct descriptors {
	uint64_t bits[DESCRIPTORS_MAX / 64];
};

/* Those that are open now. */
void descriptors_collect(struct descriptors *set);

/* Removes the descriptors of `others` from the set. */
void descriptors_subtract(struct descriptors *set, const struct descriptors *others);

void descriptors_add(struct descriptors *set, int fd);

/* Closes all that are not in the set. */
void descriptors_close_others(const struct descriptors *keep);

#endif
