/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_IMAGE_APART_H
#define UNIPROF_SYMBOL_IMAGE_APART_H

#include "symbol/images/images.h"

/*
 * Like image_file_load, in a process that holds nothing but the files that
 * were opened ahead (base/ahead.h) and a pipe: neither rights nor handles. A
 * file that makes the parser crash is an error like others; what a parser that
 * was taken over can do is to tell wrong names and wrong code.
 */
struct error *image_apart_load(const struct image_spec *spec, struct image_file *file);

#endif
