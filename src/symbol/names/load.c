/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/symbols.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "symbol/kernel/kernel.h"
#include "symbol/names/table.h"

/*
 * The text tables: `nm` with or without -S, System.map and /proc/kallsyms all
 * have lines "ADDRESS [SIZE] TYPE NAME", and further information behind a tab
 * (kallsyms the module, `nm -l` the source line). perf's map of
 * code of a JIT compiler (perf-PID.map) has "ADDRESS SIZE NAME", in the order of
 * time: later functions overwrote earlier ones.
 */

/* Reads up to 16 digits, behind "0x" or not, and the blank behind them; leaves *at alone if that is not there. */
static bool take_number(char **at, uint64_t *value)
{
	char *first = *at + (strncmp(*at, "0x", 2) ? 0 : 2), *end = first;

	while (isxdigit((unsigned char)*end))
		end++;
	if (end == first || end - first > 16 || *end != ' ')
		return false;
	*at = end + 1;
	*value = strtoull(first, NULL, 16);
	return true;
}

/*
 * Text, weak and indirect functions. Everything else (data, absolute, TLS
 * that nm shows as data, undefined) would hide code at the same addresses.
 */
static bool is_function(char type, struct symbol_candidate *one)
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

/* Ends the name at what is no part of it; false if none is left. */
static bool take_name(char *text, struct symbol_candidate *one)
{
	text[strcspn(text, "\t\r")] = '\0';
	if (!text[0] || is_mapping_symbol(text))
		return false;
	one->name = is_end_mark(text) ? NULL : text;
	return true;
}

/* One line, without its newline; false if it names no function. *jit: it is one of perf-PID.map. */
static bool parse(char *line, struct symbol_candidate *one, bool *jit)
{
	*one = (struct symbol_candidate){0};
	*jit = false;
	if (!take_number(&line, &one->start))
		return false;
	/* A type is one character and no digit; a size begins with a digit, or is longer. */
	if (line[0] && (line[1] != ' ' || isdigit((unsigned char)line[0])) &&
	    !take_number(&line, &one->size))
		return false;
	if (line[0] && line[1] == ' ')
		return is_function(line[0], one) && take_name(line + 2, one);
	*jit = one->size > 0;
	return *jit && take_name(line, one);
}

/* By address; of one address, the last one first. */
static int by_start(const void *a, const void *b)
{
	const struct symbol_candidate *const *x = a, *const *y = b;

	return COMPARE((*x)->start, (*y)->start) ?: COMPARE(*y, *x);
}

static bool overlap(const struct symbol_candidate *first, const struct symbol_candidate *second)
{
	return second->start - first->start < first->size;
}

/* Drops what was overwritten: functions that a later one overlaps. */
static struct error *keep_latest(struct symbol_candidates *list)
{
	FREED const struct symbol_candidate **sorted = calloc(list->n + 1, sizeof(*sorted));
	struct symbol_candidate *kept = sorted ? calloc(list->n + 1, sizeof(*kept)) : NULL;
	size_t n = 0;

	if (!kept)
		return error_no_memory();
	for (size_t i = 0; i < list->n; i++)
		sorted[i] = &list->at[i];
	qsort(sorted, list->n, sizeof(*sorted), by_start);
	/* Those that are kept are in front, up to n; they overlap nothing before them. */
	for (size_t i = 0; i < list->n; i++) {
		while (n && overlap(sorted[n - 1], sorted[i]) && sorted[i] > sorted[n - 1])
			n--;
		if (!n || !overlap(sorted[n - 1], sorted[i]))
			sorted[n++] = sorted[i];
	}
	for (size_t i = 0; i < n; i++)
		kept[i] = *sorted[i];
	free(list->at);
	*list = (struct symbol_candidates){.at = kept, .n = n, .room = n};
	return NULL;
}

static struct error *parse_all(char *text, size_t len, struct symbol_candidates *list)
{
	char *end = text + len;
	size_t n_jit = 0;

	for (char *line = text; line < end;) {
		char *newline = memchr(line, '\n', (size_t)(end - line));
		struct symbol_candidate one;
		bool jit;

		if (!newline)
			newline = end;
		*newline = '\0';
		if (parse(line, &one, &jit)) {
			TRY(symbol_candidates_add(list, &one));
			n_jit += jit;
		}
		line = newline + 1;
	}
	return 2 * n_jit <= list->n ? NULL : keep_latest(list);
}

/* True if all addresses are 0, as kallsyms shows them to users without rights. */
static bool all_hidden(const struct symbol_candidates *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->at[i].start)
			return false;
	return list->n > 1;
}

static bool has_functions(const struct symbol_candidates *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->at[i].name)
			return true;
	return false;
}

struct error *nm_read(const char *path, char *text, size_t len, struct symbols **out)
{
	ENDED_BY(symbol_candidates_free) struct symbol_candidates list = {0};
	FREED char *strings = text;

	TRY(parse_all(text, len, &list));
	if (!has_functions(&list))
		return error_new(ERR_INPUT,
				 "%s: no function symbols in it; give an ELF file that is not "
				 "stripped, or the output of nm -n",
				 path);
	if (all_hidden(&list))
		return error_new(ERR_INPUT,
				 "%s: all addresses are 0; the kernel hides them "
				 "(kernel.kptr_restrict), read the file as root",
				 path);
	return symbols_build(&list, &strings, out);
}

/* Enough to tell text from everything else. */
#define HEAD_SIZE 4096

/* No table of symbols in text form is larger; a device may have no end. */
#define TEXT_MAX (1u << 30)

/* Reads until `upto` bytes are there or the file ends; a NUL is behind them. */
static struct error *read_upto(const char *path, int fd, size_t upto, struct bytes *c)
{
	ssize_t got = 1;

	for (; c->len < upto && got; c->len += (size_t)got) {
		size_t room;

		TRY(bytes_reserve(c, HEAD_SIZE + 1));
		room = c->cap - c->len - 1;
		do
			got = read(fd, c->data + c->len,
				   room < upto - c->len ? room : upto - c->len);
		while (got < 0 && errno == EINTR);
		if (got < 0)
			return error_errno(ERR_INPUT, errno, "%s: cannot read", path);
	}
	c->data[c->len] = '\0';
	return NULL;
}

/* Takes over `elf`, which may be NULL. */
static struct error *read_elf(const char *path, Elf *elf, struct symbols **out)
{
	ENDED_BY(end_elf) Elf *own = elf;

	return own ? elf_read(path, own, out)
		   : error_new(ERR_INPUT, "%s: damaged ELF file: %s", path, elf_errmsg(-1));
}

/* A file is read piece by piece; a pipe holding an ELF file has to be swallowed whole. */
static struct error *load_elf(const char *path, int fd, struct bytes *c, struct symbols **out)
{
	if (lseek(fd, 0, SEEK_SET) == 0)
		return read_elf(path, elf_begin(fd, ELF_C_READ, NULL), out);
	TRY(read_upto(path, fd, TEXT_MAX, c));
	return read_elf(path, elf_memory((char *)c->data, c->len), out);
}

/* The ELF file inside of a packed kernel. */
static struct error *load_kernel(const char *path, int fd, struct bytes *c, struct symbols **out)
{
	FREED char *elf = NULL;
	size_t len;

	TRY(read_upto(path, fd, TEXT_MAX, c));
	TRY(kernel_image_unpack(path, c->data, c->len, &elf, &len));
	return read_elf(path, elf_memory(elf, len), out);
}

static struct error *load_text(const char *path, int fd, struct bytes *c, struct symbols **out)
{
	char *text;

	TRY(read_upto(path, fd, TEXT_MAX, c));
	if (c->len == TEXT_MAX)
		return error_new(ERR_INPUT, "%s: too large to be a table of symbols", path);
	text = (char *)c->data;
	c->data = NULL;
	return nm_read(path, text, c->len, out);
}

/* Recognises the format by the first bytes. */
static struct error *load_contents(const char *path, int fd, struct bytes *c, struct symbols **out)
{
	elf_version(EV_CURRENT);
	if (c->len == 0)
		return error_new(ERR_INPUT, "%s: the symbol file is empty", path);
	if (c->len >= SELFMAG && !memcmp(c->data, ELFMAG, SELFMAG))
		return load_elf(path, fd, c, out);
	if (kernel_image_has_elf(c->data, c->len))
		return load_kernel(path, fd, c, out);
	if (memchr(c->data, '\0', c->len))
		return error_new(ERR_INPUT,
				 "%s: a binary file, but not an ELF file (if it is compressed, "
				 "unpack it first)",
				 path);
	return load_text(path, fd, c, out);
}

struct error *symbols_load(const char *path, struct symbols **out)
{
	CLOSED const int fd = open_to_read(path);
	ENDED_BY(bytes_free) struct bytes c = {0};
	struct stat st;

	if (fd < 0)
		return error_errno(ERR_INPUT, errno, "%s: cannot open the symbol file", path);
	if (!fstat(fd, &st) && S_ISDIR(st.st_mode))
		return error_new(ERR_INPUT, "%s: is a directory, not a symbol file", path);
	TRY(read_upto(path, fd, HEAD_SIZE, &c));
	return load_contents(path, fd, &c, out);
}
