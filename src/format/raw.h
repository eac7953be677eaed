/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_FORMAT_RAW_H
#define UNIPROF_FORMAT_RAW_H

/*
 * The lines of the classic trace, for its writers and its readers: three lines
 * of head, and for each stack its frames, leaf first, one a line, a line with
 * the count, an empty line.
 *
 *	#unikernel stack tracer using libxencall hypercall interface
 *	#tracing domid 7 on 2026-11-21 09:00:00 UTC (+0000)
 *
 *	console_write+0x4f
 *	main
 *	0x100041
 *	1
 *
 * FlameGraph's stackcollapse.pl reads it, skipping three lines whatever they
 * are. Some names it does not leave as they are: it deletes a leading 'L'
 * (LZ4_compress becomes Z4_compress), makes several frames of a name with
 * "->" in it, cuts C++ names with "::" at the last '(' or '<' behind it, and
 * turns ';' into ':'.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "recording/recording.h"
#include "symbol/names/symbolizer.h"

/* Stands for the frames of a stack that has none. */
#define RAW_NO_STACK "[no stack]"

/* Needs target, host, guest_id and start_unix_ns; time is shown in the local zone. */
void raw_write_head(const struct recording_info *info, FILE *out);

/* One frame, by its name in the file; `named` may be NULL: only the address. */
void raw_write_frame(uint64_t addr, const struct named *named, FILE *out);

/* Ends a stack of `n_frames` that was seen `times` times. */
void raw_write_end(size_t n_frames, uint64_t times, FILE *out);

/*
 * Formats the offset behind a name: "+0x1f". Nothing for offset 0, unless
 * readers would take the bare name for something else (a count, an address, a
 * comment, or a name that ends at its '+'). Writes no NUL; returns bytes.
 */
#define RAW_OFFSET_MAX 19
size_t raw_offset(const char *name, uint64_t offset, char out[RAW_OFFSET_MAX]);

#endif
