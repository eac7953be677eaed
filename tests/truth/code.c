/* SPDX-License-Identifier: BSD-3-Clause */
#include "code.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT      (16u << 20)
#define MAX_FUNCTIONS 65536

static FILE *open_in(const char *directory, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return fopen(path, "r");
}

static bool load_text(struct code *code, const char *directory)
{
	FILE *file = open_in(directory, "text");

	code->text = malloc(MAX_TEXT);
	if (file && code->text)
		code->size = fread(code->text, 1, MAX_TEXT, file);
	if (file)
		fclose(file);
	return code->size > 0;
}

static enum function_kind kind_of(char letter)
{
	return letter == 'h'   ? FUNCTION_HANDLER
	       : letter == 'w' ? FUNCTION_WRITTEN
			       : FUNCTION_CALLED;
}

static bool load_functions(struct code *code, const char *directory)
{
	FILE *file = open_in(directory, "functions");
	struct function function;
	uint64_t size;
	char kind;

	code->functions = calloc(MAX_FUNCTIONS, sizeof(*code->functions));
	if (!file || !code->functions)
		return false;
	if (fscanf(file, "%" SCNx64, &code->start) == 1)
		while (code->n_functions < MAX_FUNCTIONS &&
		       fscanf(file, "%" SCNx64 " %" SCNx64 " %c %63s", &function.start, &size,
			      &kind, function.name) == 4) {
			function.end = function.start + size;
			function.kind = kind_of(kind);
			code->functions[code->n_functions++] = function;
		}
	fclose(file);
	return code->n_functions > 0;
}

struct code *code_load(const char *directory)
{
	struct code *code = calloc(1, sizeof(*code));

	if (!code || !load_text(code, directory) || !load_functions(code, directory))
		return NULL;
	return code;
}

const struct function *code_function(const struct code *code, uint64_t address)
{
	size_t low = 0, high = code->n_functions;

	while (low < high) {
		size_t middle = (low + high) / 2;
		const struct function *function = &code->functions[middle];

		if (address < function->start)
			high = middle;
		else if (address >= function->end)
			low = middle + 1;
		else
			return function;
	}
	return NULL;
}

bool code_has(const struct code *code, uint64_t address, const void *bytes, size_t size)
{
	const struct function *function = code_function(code, address);

	if (!function || address < code->start || address - code->start + size > code->size)
		return false;
	return function->kind == FUNCTION_WRITTEN ||
	       !memcmp(code->text + (address - code->start), bytes, size);
}
