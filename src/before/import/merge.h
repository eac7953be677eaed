/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_MERGE_H
#define UNIPROF_PROFILE_MERGE_H

/*
 * Several recordings as one. Above the stacks of each guest stands a frame with
 * its name (and its id, where two have the same name); its vCPUs are numbered
 * behind those of the guests before it. Times are from the start of the
 * recording that began first, by the wall clock.
 *
 * Guests have different code at the same addresses: in the result they all have
 * stand-ins (profile/import.h), with the names and places in the source that
 * the recordings carry, but without the files these came from.
 */

#include <stddef.h>

#include "base/error.h"

/*
 * Reads the recordings, each of them twice, and writes `output` ("-": standard
 * output). Holds some 32 bytes in memory for each entry of a tick. If one of
 * them stops in the middle, so does the result. ERR_INPUT, ERR_OUTPUT.
 */
struct error *merge_recordings(char *const *paths, size_t n, const char *output);

#endif
