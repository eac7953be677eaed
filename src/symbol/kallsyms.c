/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kallsyms_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "symbol/names/table.h"

void kallsyms_free(struct kallsyms *kallsyms)
{
	if (!kallsyms)
		return;
	free(kallsyms->offset);
	free(kallsyms->names);
	free(kallsyms->tokens);
	free(kallsyms);
}

static uint64_t address_of(const struct kallsyms *kallsyms, uint32_t i)
{
	int32_t offset = kallsyms->offset[i];

	if (!kallsyms->percpu)
		return kallsyms->base + (uint32_t)offset;
	return offset >= 0 ? (uint64_t)offset : kallsyms->base - 1 - (uint64_t)(int64_t)offset;
}

/* Writes the name at `at` in full, type first; moves on to the next. False if it is damaged. */
static bool expand(const struct kallsyms *kallsyms, size_t *at, char text[KALLSYMS_NAME_MAX + 1])
{
	size_t first, n, len = 0;

	if (!kallsyms_name_at(kallsyms->names, kallsyms->names_len, *at, &first, &n))
		return false;
	for (size_t i = 0; i < n; i++) {
		const char *token = kallsyms->tokens + kallsyms->index[kallsyms->names[first + i]];
		size_t more = strlen(token);

		if (more > KALLSYMS_NAME_MAX - len)
			return false;
		memcpy(text + len, token, more);
		len += more;
	}
	text[len] = '\0';
	*at = first + n;
	return len > 1;
}

bool kallsyms_address(const struct kallsyms *kallsyms, const char *name, uint64_t *address)
{
	char text[KALLSYMS_NAME_MAX + 1];
	size_t at = 0;

	for (uint32_t i = 0; i < kallsyms->n && expand(kallsyms, &at, text); i++)
		if (!strcmp(text + 1, name)) {
			*address = address_of(kallsyms, i);
			return true;
		}
	return false;
}

/* A name with a newline in it would be taken for a line of its own. */
static bool is_plain(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name <= ' ')
			return false;
	return true;
}

static void print_all(const struct kallsyms *kallsyms, FILE *out)
{
	char text[KALLSYMS_NAME_MAX + 1];
	size_t at = 0;

	for (uint32_t i = 0; i < kallsyms->n && expand(kallsyms, &at, text); i++)
		if (is_plain(text))
			fprintf(out, "%016" PRIx64 " %c %s\n", address_of(kallsyms, i), text[0],
				text + 1);
}

/* By way of the text that the kernel itself would show, so that the same rules hold. */
struct error *kallsyms_symbols(const struct kallsyms *kallsyms, const char *path,
			       struct symbols **out)
{
	char *text = NULL;
	size_t len;
	FILE *stream = open_memstream(&text, &len);

	if (!stream)
		return error_no_memory();
	print_all(kallsyms, stream);
	if (fclose(stream)) {
		free(text);
		return error_no_memory();
	}
	return nm_read(path, text, len, out);
}
