/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Puts names into a classic trace (see format/format.h), ours or the 2017 tool's:
 * a text filter that holds one block of the trace at a time.
 *
 * Lines of the form 0x1234 become "name+0xOFFSET" or stay when no function
 * holds the address. The first address of a stack is where the vCPU stood;
 * the following ones are return addresses, looked up minus one. Counts (lines
 * of decimal digits) and empty lines end a stack. Every other line passes
 * through as it is, names that are already there included, whatever bytes and
 * however many are in it. Line ends (LF, CRLF, none at the end of the file)
 * stay.
 */

#include "base/progress.h"
#include "symbol/images/images.h"

struct resolve_result {
	uint64_t addresses; /* lines that held one */
	uint64_t unresolved;
};

/*
 * From descriptor `in`, which messages call `in_name`, to `out`, standard output.
 * ERR_INPUT when reading fails, ERR_OUTPUT when writing does. What came
 * through an interactive pipe is passed on at once. `progress` may be NULL.
 */
struct error *resolve_trace(const struct images *images, int in, const char *in_name, int out,
			    struct progress_sink *progress, struct resolve_result *result);
