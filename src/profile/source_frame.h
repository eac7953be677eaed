/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_SOURCE_FRAME_H
#define UNIPROF_PROFILE_SOURCE_FRAME_H

#include <stdint.h>

/*
 * One of the functions that are at an address, as the file has them, innermost
 * first: all but the last were inlined into the next one.
 */
struct source_frame {
	const char *function; /* NULL: not known; of the last one the symbol says it */
	const char *file;     /* NULL: not known */
	uint32_t line;	      /* 0: not known */
};

/* Functions inlined into one another that are told of; if there are more, the innermost. */
#define SOURCE_DEPTH 64

#endif
