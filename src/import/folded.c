/* SPDX-License-Identifier: BSD-3-Clause */

/* Folded stacks: "root;caller;leaf 12" in a line. Empty lines and those that begin with '#' are none. */

#include <stdio.h>
#include <string.h>

#include "import/importer.h"

/* The blank in front of the count, NULL if there is none; *len becomes the length of the stack. */
static const char *find_count(const char *line, size_t *len)
{
	size_t end = *len, at;

	while (end && (line[end - 1] == ' ' || line[end - 1] == '\t'))
		end--;
	for (at = end; at && line[at - 1] >= '0' && line[at - 1] <= '9';)
		at--;
	if (at == end || !at || (line[at - 1] != ' ' && line[at - 1] != '\t'))
		return NULL;
	*len = at - 1;
	return line + at;
}

static bool has_line(const char *line, size_t len)
{
	return find_count(line, &len) != NULL;
}

static bool read_count(const char *text, uint64_t *count)
{
	*count = 0;
	for (; *text >= '0' && *text <= '9'; text++) {
		*count = *count * 10 + (uint64_t)(*text - '0');
		if (*count > IMPORT_WEIGHT_MAX)
			return false;
	}
	return true;
}

static struct error *add_stack(struct import *import, const char *line, size_t len, uint32_t *stack)
{
	const char *end = line + len;

	*stack = STACK_ROOT;
	while (len) {
		const char *semicolon = memchr(line, ';', (size_t)(end - line));
		const char *stop = semicolon ? semicolon : end;

		TRY(import_function(import, *stack, line, (size_t)(stop - line), stack));
		if (!semicolon)
			break;
		line = semicolon + 1;
	}
	return NULL;
}

static struct error *add_line(void *ctx, char *line, size_t len)
{
	struct import *import = ctx;
	struct import_sample sample = {.weight = 1};
	const char *count;

	if (!len || *line == '#')
		return NULL;
	count = find_count(line, &len);
	if (!count)
		return import_error(import->input, "it does not end with a count of samples");
	if (!read_count(count, &sample.times))
		return import_error(import->input, "its count is too large");
	if (!sample.times)
		return NULL;
	TRY(add_stack(import, line, len, &sample.stack));
	return import_sample(import, &sample);
}

static struct error *read_folded(struct import *import)
{
	import->timeless = true;
	strcpy(import->host, "folded stacks");
	strcpy(import->unit, "samples");
	return import_lines(import->input, add_line, import);
}

const struct importer import_folded = {.name = "folded",
				       .title = "folded stacks",
				       .has_line = has_line,
				       .read = read_folded};
