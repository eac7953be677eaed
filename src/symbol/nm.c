/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The text tables: `nm` with or without -S, System.map and /proc/kallsyms all
 * have lines "ADDRESS [SIZE] TYPE NAME", and put what else they know behind
 * a tab (kallsyms the module, `nm -l` the source line).
 */

#include "symbol/names/table.h"

#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads up to 16 digits and the blank behind them; leaves *at alone if that is not there. */
static bool take_number(char **at, uint64_t *value)
{
	char *p = *at;
	uint64_t v = 0;

	for (; hex_digit(*p) >= 0; p++)
		v = v << 4 | (uint64_t)hex_digit(*p);
	if (p == *at || p - *at > 16 || *p != ' ')
		return false;
	*at = p + 1;
	*value = v;
	return true;
}

/*
 * Text, weak and indirect functions. Everything else (data, absolute, TLS
 * that nm shows as data, undefined) would hide code at the same addresses.
 */
static bool is_function(char type, struct candidate *one)
{
	switch (type) {
	case 'T':
	case 'i':
		one->bind = BIND_GLOBAL;
		return true;
	case 'W':
	case 'w':
		one->bind = BIND_WEAK;
		return true;
	case 't':
		one->bind = BIND_LOCAL;
		return true;
	}
	return false;
}

/* The linker's marks for the end of code are listed like functions. */
static bool is_end_mark(const char *name)
{
	return !strcmp(name, "_etext") || !strcmp(name, "etext") || !strcmp(name, "__etext");
}

/* One line, without its newline; false if it names no function. */
static bool parse(char *line, struct candidate *one)
{
	char type;

	*one = (struct candidate){0};
	if (!take_number(&line, &one->start))
		return false;
	/* A type is one character, a size never is. */
	if (line[0] && line[1] != ' ' && !take_number(&line, &one->size))
		return false;
	type = line[0];
	if (!type || line[1] != ' ' || !is_function(type, one))
		return false;
	line += 2;
	line[strcspn(line, "\t\r")] = '\0';
	if (!line[0] || is_mapping_symbol(line))
		return false;
	one->name = is_end_mark(line) ? NULL : line;
	return true;
}

static struct error *parse_all(char *text, size_t len, struct candidates *list)
{
	char *end = text + len;
	struct error *err = NULL;

	for (char *line = text; line < end && !err;) {
		char *newline = memchr(line, '\n', (size_t)(end - line));
		struct candidate one;

		if (!newline)
			newline = end;
		*newline = '\0';
		if (parse(line, &one))
			err = candidates_add(list, &one);
		line = newline + 1;
	}
	return err;
}

/* What kallsyms shows to those who may not see addresses. */
static bool all_hidden(const struct candidates *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->at[i].start)
			return false;
	return list->n > 1;
}

static size_t count_functions(const struct candidates *list)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++)
		n += list->at[i].name != NULL;
	return n;
}

struct error *nm_read(const char *path, char *text, size_t len, struct symbols **out)
{
	struct candidates list = {0};
	struct error *err = parse_all(text, len, &list);

	if (!err && !count_functions(&list))
		err = error_new(ERR_INPUT,
				"%s: no function symbols in it; give an ELF file that is not "
				"stripped, or the output of nm -n",
				path);
	else if (!err && all_hidden(&list))
		err = error_new(ERR_INPUT,
				"%s: all addresses are 0; the kernel hides them "
				"(kernel.kptr_restrict), read the file as root",
				path);
	if (err)
		free(text);
	else
		err = symbols_build(&list, text, out);
	candidates_free(&list);
	return err;
}
