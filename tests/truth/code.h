/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A guest's image: its functions, and its text, by which its instructions are told from others'. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum function_kind {
	FUNCTION_CALLED,
	FUNCTION_HANDLER, /* entered by an interrupt */
	FUNCTION_WRITTEN, /* its code is not in the image: the hypercall page */
};

struct function {
	uint64_t start, end;
	enum function_kind kind;
	char name[64];
};

struct code {
	struct function *functions; /* in order of start */
	size_t n_functions;
	uint8_t *text;
	uint64_t start;
	size_t size;
};

/*
 * From two files of a directory, `text` (the bytes) and `functions`: first a line "START" of the
 * text, then "START SIZE KIND NAME" in order, numbers in hexadecimal, KIND one of c, h and w. NULL
 * if that cannot be read. Never freed: translated code goes on to point to it.
 */
struct code *code_load(const char *directory);

/* The function that holds the address, or NULL. */
const struct function *code_function(const struct code *code, uint64_t address);
/* True if these bytes are the image's own instruction. */
bool code_has(const struct code *code, uint64_t address, const void *bytes, size_t size);
