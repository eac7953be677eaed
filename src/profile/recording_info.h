/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_RECORDING_INFO_H
#define UNIPROF_PROFILE_RECORDING_INFO_H

/*
 * The JSON in recordings: what is known at the start and at the end. Fields
 * that a reader does not know are passed over; those that are absent are 0 or
 * NULL. Private to src/profile.
 */

#include "base/bytes.h"
#include "recording/recording.h"

/*
 * Appends the JSON to `out`. Strings that are no UTF-8 get a '?' for each
 * byte that is not; numbers above INT64_MAX become that.
 */
struct error *recording_info_write(const struct recording_info *info, struct bytes *out);
struct error *recording_end_write(const struct recording_end *end, struct bytes *out);

/*
 * Fills `info` or `end`; false if the text is no JSON, or a field not what it
 * should be. Frees nothing that was there; after false there is nothing to
 * free.
 */
bool recording_info_read(const void *text, size_t len, struct recording_info *info);
bool recording_end_read(const void *text, size_t len, struct recording_end *end);

#endif
