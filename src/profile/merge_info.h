/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_MERGE_INFO_H
#define UNIPROF_PROFILE_MERGE_INFO_H

/* What is said of several recordings that become one; private to merge.c. */

#include "recording/recording.h"

struct merge_guest {
	const char *path;
	struct recording_info info;
	struct recording_end end;
	bool cut;
	uint32_t first_vcpu;		 /* what its vCPU 0 becomes */
	uint64_t offset_ns;		 /* what its times are moved by; merge_align */
	size_t first_look, behind_looks; /* which looks are its own */
};

/* Moves all to the time of the first, by the wall clock. */
void merge_align(struct merge_guest *guests, size_t n);

/* What a guest's own frame is called; the caller frees it. NULL: no memory. */
char *merge_name(const struct merge_guest *guests, size_t n, size_t guest);

/* What is true of all; freed as a copy is. */
struct error *merge_info(const struct merge_guest *guests, size_t n, struct recording_info *out);
struct error *merge_end(const struct merge_guest *guests, size_t n, struct recording_end *out);

#endif
