/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_RECORDING_IMAGES_H
#define UNIPROF_PROFILE_RECORDING_IMAGES_H

/* The images in a recording's JSON. Private to src/profile. */

#include <jansson.h>

#include "recording/recording.h"

/* No guest runs more than this. */
#define RECORDED_IMAGES_MAX 65536

/* NULL: no memory. */
json_t *recorded_images_write(const struct recorded_images *images);

/* False if it is not what it should be; then there is nothing to free. */
bool recorded_images_read(const json_t *value, struct recorded_images *images);

/* `to` is a flat copy of `from`: gives it its own; false: no memory, and `to` is empty. */
bool recorded_images_copy(const struct recorded_images *from, struct recorded_images *to);

void recorded_images_free(struct recorded_images *images);

/* Text as a JSON string, with '?' for each byte that is no UTF-8; NULL: no memory. */
json_t *recorded_text(const char *text);

#endif
