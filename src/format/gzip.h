/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_FORMAT_GZIP_H
#define UNIPROF_FORMAT_GZIP_H

/* Compressed output in pieces; the same input gives the same bytes. Errors of writing stay with `out`. */

#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

struct gzip;

struct error *gzip_new(FILE *out, struct gzip **gzip);
void gzip_put(struct gzip *gzip, const void *data, size_t len);

/* Writes the end, and frees. */
void gzip_end(struct gzip *gzip);

/* A stream in front of `out`, which stays open; fclose(*packed) writes the end. */
struct error *gzip_open(FILE *out, FILE **packed);

#endif
