/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/source.h"

#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/debug_file.h"
#include "base/preopen.h"
#include "symbol/kernel/kernel.h"

static bool has_debug_info(Elf *elf)
{
	GElf_Shdr shdr;

	return elf_find_section(elf, ".debug_info", &shdr) ||
	       elf_find_section(elf, ".zdebug_info", &shdr);
}

void elf_build_id(Elf *elf, char *hex)
{
	const void *id;
	const ssize_t len = dwelf_elf_gnu_build_id(elf, &id);

	*hex = '\0';
	for (ssize_t i = 0; i < len && len <= BUILD_ID_MAX; i++)
		sprintf(hex + 2 * i, "%02x", ((const unsigned char *)id)[i]);
}

static bool open_elf(int fd, struct dwarf_file *file)
{
	file->fd = fd;
	file->elf = fd < 0 ? NULL : elf_begin(fd, ELF_C_READ, NULL);
	return file->elf && elf_kind(file->elf) == ELF_K_ELF;
}

/* An ELF file that is packed. A Linux kernel's image holds no debugging information. */
static bool open_packed(const char *path, struct dwarf_file *file)
{
	size_t len = 0;

	if (!kernel_image_at(path))
		error_free(kernel_image_load(path, &file->unpacked, &len));
	file->elf = file->unpacked ? elf_memory(file->unpacked, len) : NULL;
	return file->elf && elf_kind(file->elf) == ELF_K_ELF;
}

static bool open_at(const char *path, struct dwarf_file *file)
{
	if (open_elf(open_to_read(path), file))
		return true;
	dwarf_file_close(file);
	return open_packed(path, file);
}

/* Replaces a stripped file by its debug file. */
static bool go_to_debug_file(const char *path, struct dwarf_file *file)
{
	const int fd = debug_file_open(path, file->elf);

	dwarf_file_close(file);
	return open_elf(fd, file) && has_debug_info(file->elf);
}

/* The directory of an open file, by which libdw finds others; false: it cannot be told. */
static bool directory_of(int fd, char *directory, size_t size)
{
	char link[32];
	ssize_t len;
	char *slash;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, directory, size - 1);
	if (len <= 0)
		return false;
	directory[len] = '\0';
	slash = strrchr(directory, '/');
	if (slash)
		slash[1] = '\0';
	return slash;
}

/* Is there nothing but a regular file, or nothing? Each part goes before the next ones that are no whole paths. */
static bool is_regular_or_none(const char *first, const char *second, const char *name)
{
	char path[3 * PATH_MAX];
	struct stat st;
	int len;

	if (*name == '/')
		len = snprintf(path, sizeof(path), "%s", name);
	else if (*second == '/')
		len = snprintf(path, sizeof(path), "%s/%s", second, name);
	else
		len = snprintf(path, sizeof(path), "%s%s/%s", first, second, name);
	return len >= (int)sizeof(path) || stat(path, &st) || S_ISREG(st.st_mode);
}

bool dwarf_split_is_regular(const struct dwarf_file *file, const char *directory, const char *name)
{
	char own[PATH_MAX];

	if (!directory_of(file->fd, own, sizeof(own)))
		strcpy(own, "./");
	return is_regular_or_none(own, "", name) &&
	       (!directory || is_regular_or_none(own, directory, name));
}

/* The same of the file that others share parts with (dwz(1)). */
static bool shared_is_regular(const struct dwarf_file *file)
{
	const char *name;
	const void *id;

	return dwelf_dwarf_gnu_debugaltlink(file->dwarf, &name, &id) <= 0 ||
	       dwarf_split_is_regular(file, NULL, name);
}

bool dwarf_file_open(const char *path, const char *build_id, struct dwarf_file *file)
{
	char own[2 * BUILD_ID_MAX + 1];

	*file = (struct dwarf_file){.fd = -1};
	elf_version(EV_CURRENT);
	if (!open_at(path, file))
		return false;
	elf_build_id(file->elf, own);
	if (*build_id && strcmp(build_id, own) != 0)
		return false;
	if (!has_debug_info(file->elf) && !go_to_debug_file(path, file))
		return false;
	/* Opened by descriptor: libdw derives from it where supplementary files are. */
	file->dwarf = file->unpacked ? dwarf_begin_elf(file->elf, DWARF_C_READ, NULL)
				     : dwarf_begin(file->fd, DWARF_C_READ);
	return file->dwarf && shared_is_regular(file);
}

bool dwarf_file_lacks(const char *path, char *hex)
{
	struct dwarf_file file = {.fd = -1};
	bool lacks = false;

	elf_version(EV_CURRENT);
	*hex = '\0';
	if (open_at(path, &file)) {
		elf_build_id(file.elf, hex);
		lacks = *hex && !has_debug_info(file.elf) && !go_to_debug_file(path, &file);
	}
	dwarf_file_close(&file);
	return lacks;
}

void dwarf_file_close(struct dwarf_file *file)
{
	dwarf_end(file->dwarf);
	elf_end(file->elf);
	free(file->unpacked);
	if (file->fd > 0)
		close(file->fd);
	*file = (struct dwarf_file){.fd = -1};
}

/* Entries that are read in all; the largest kernels have a few million units' worth. */
#define ENTRIES_MAX (1u << 25)
/* Namespaces in namespaces; classes in classes. */
#define DEPTH_MAX 16
/* Stretches of one function, and of one unit. */
#define RANGES_MAX 1024
/* No name is longer, bytes; nor are all names together. */
#define NAME_MAX_LEN 65536u
#define STRINGS_MAX  (1u << 29)

/* Suffix that gcc and clang give to a function's unlikely part. */
#define COLD ".cold"

#define NO_NAME SIZE_MAX

struct stretch {
	uint64_t start, end;
	size_t name; /* offset in the names; NO_NAME: of a unit */
};

struct dwarf_reading {
	struct stretch *stretch;
	size_t n, room;
	struct bytes names;
	unsigned entries; /* that may still be read */
};

static struct error *add_stretch(struct dwarf_reading *r, uint64_t start, uint64_t end, size_t name)
{
	const struct stretch one = {start, end, name};

	return ARRAY_ADD(&r->stretch, &r->room, &r->n, &one);
}

/* *at: its offset, NO_NAME if it is too long. */
static struct error *add_name(struct dwarf_reading *r, const char *name, const char *suffix,
			      size_t *at)
{
	size_t len = strlen(name), all = len + strlen(suffix) + 1;

	*at = NO_NAME;
	if (len > NAME_MAX_LEN || all > STRINGS_MAX - r->names.len)
		return NULL;
	TRY(bytes_reserve(&r->names, all));
	*at = r->names.len;
	put_bytes(&r->names, name, len);
	put_bytes(&r->names, suffix, strlen(suffix) + 1);
	return NULL;
}

/* The first stretch is where a function begins, or DW_AT_entry_pc says which. */
static struct error *add_function(struct dwarf_reading *r, Dwarf_Die *die)
{
	size_t name = NO_NAME, cold = NO_NAME;
	const char *text = dwarf_function_name(die);
	Dwarf_Addr base, start, end, entry;
	ptrdiff_t at = 0;

	if (!text || dwarf_entrypc(die, &entry))
		return NULL;
	for (int i = 0; i < RANGES_MAX; i++) {
		size_t *which;

		at = dwarf_ranges(die, at, &base, &start, &end);
		if (at <= 0)
			return NULL;
		if (end <= start)
			continue;
		which = entry - start < end - start ? &name : &cold;
		if (*which == NO_NAME)
			TRY(add_name(r, text, which == &cold ? COLD : "", which));
		if (*which != NO_NAME)
			TRY(add_stretch(r, start, end, *which));
	}
	return NULL;
}

static struct error *add_unit(struct dwarf_reading *r, Dwarf_Die *die)
{
	Dwarf_Addr base, start, end;
	ptrdiff_t at = 0;

	for (int i = 0; i < RANGES_MAX; i++) {
		at = dwarf_ranges(die, at, &base, &start, &end);
		if (at <= 0)
			break;
		if (end > start)
			TRY(add_stretch(r, start, end, NO_NAME));
	}
	return NULL;
}

static bool may_hold_functions(int tag)
{
	return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_class_type ||
	       tag == DW_TAG_structure_type;
}

/* Reads all entries below one, at any depth. */
static struct error *walk(struct dwarf_reading *r, Dwarf_Die *parent, unsigned depth)
{
	Dwarf_Die die;
	int none = dwarf_child(parent, &die);

	for (; !none && r->entries; none = dwarf_siblingof(&die, &die)) {
		const int tag = dwarf_tag(&die);

		r->entries--;
		if (tag == DW_TAG_subprogram)
			TRY(add_function(r, &die));
		else if (depth < DEPTH_MAX && may_hold_functions(tag))
			TRY(walk(r, &die, depth + 1));
	}
	return NULL;
}

static struct error *read_units(struct dwarf_reading *r, Dwarf *dwarf)
{
	Dwarf_CU *unit = NULL;
	Dwarf_Die die;

	while (r->entries && !dwarf_get_units(dwarf, unit, &unit, NULL, NULL, &die, NULL)) {
		r->entries--;
		if (dwarf_tag(&die) != DW_TAG_compile_unit)
			continue;
		TRY(add_unit(r, &die));
		TRY(walk(r, &die, 0));
	}
	return NULL;
}

/*
 * Linkers leave functions that they have thrown away at address 0. Where text
 * really begins there, one function does, or a symbol.
 */
static bool is_thrown_away(const struct dwarf_reading *r, const struct symbol_candidates *list)
{
	unsigned n = 0;

	for (size_t i = 0; i < r->n; i++)
		n += !r->stretch[i].start && r->stretch[i].name != NO_NAME;
	for (size_t i = 0; i < list->n && n < 2; i++)
		n += !list->at[i].start;
	return n > 1;
}

static struct error *append(const struct dwarf_reading *r, struct symbol_candidates *list,
			    char **strings, size_t len)
{
	const bool none_at_zero = is_thrown_away(r, list);
	char *all = malloc(len + r->names.len + 1);

	if (!all)
		return error_no_memory();
	if (len)
		memcpy(all, *strings, len);
	if (r->names.len)
		memcpy(all + len, r->names.data, r->names.len);
	for (size_t i = 0; i < list->n; i++)
		if (list->at[i].name)
			list->at[i].name = all + (list->at[i].name - *strings);
	free(*strings);
	*strings = all;
	for (size_t i = 0; i < r->n; i++) {
		const struct stretch *from = &r->stretch[i];
		struct symbol_candidate one = {.start = from->start, .bind = BIND_DEBUG};

		if (none_at_zero && !from->start)
			continue;
		if (from->name != NO_NAME) {
			one.name = all + len + from->name;
			one.size = from->end - from->start;
		}
		TRY(symbol_candidates_add(list, &one));
		one.start = from->end;
		if (!one.name)
			TRY(symbol_candidates_add(list, &one));
	}
	return NULL;
}

struct error *dwarf_functions(const char *path, struct symbol_candidates *list, char **strings,
			      size_t len)
{
	struct dwarf_reading r = {.entries = ENTRIES_MAX};
	struct error *err = NULL;
	struct dwarf_file file;

	/* A pipe has been read already. */
	if (!is_regular_file(path))
		return NULL;
	if (dwarf_file_open(path, "", &file))
		err = read_units(&r, file.dwarf);
	dwarf_file_close(&file);
	if (!err && r.n)
		err = append(&r, list, strings, len);
	free(r.stretch);
	bytes_free(&r.names);
	return err;
}
