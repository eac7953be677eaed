/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/images.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "symbol/images/file.h"

#define PAGE_MASK 4095ull

struct images {
	struct image_file **file;
	size_t n_files, files_room;
	struct image *mapping;
	size_t n, room;
	unsigned changes;
	bool programs;	/* some mapping is or was that of a program */
	bool sandboxed; /* files are parsed in a process of their own */
	bool names_only;
	bool keeps_code;
};

struct error *images_new(struct images **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? NULL : error_no_memory();
}

void images_free(struct images *images)
{
	if (!images)
		return;
	for (size_t i = 0; i < images->n_files; i++)
		image_file_free(images->file[i]);
	free(images->file);
	free(images->mapping);
	free(images);
}

/* Range of a table that has no sections: from its first to its last function. */
static void table_range(const struct symbols *symbols, uint64_t *start, uint64_t *end)
{
	struct symbol symbol = {0};

	*start = *end = 0;
	for (size_t i = 0; i < symbols_count(symbols); i++) {
		symbols_get(symbols, i, &symbol);
		if (!i)
			*start = symbol.start;
		if (symbol.end > *end)
			*end = symbol.end;
	}
}

/* Range of the file's code, as linked. */
static void file_range(const struct image_file *file, uint64_t *start, uint64_t *end)
{
	if (file->code) {
		*start = file->code->start;
		*end = file->code->end;
	} else {
		table_range(file->symbols, start, end);
	}
}

/* Takes over the file, also when it fails. */
static struct error *add_file(struct images *images, struct image_file *file)
{
	struct error *err =
		file->path ? ARRAY_ADD(&images->file, &images->files_room, &images->n_files, &file)
			   : error_no_memory();

	if (err)
		image_file_free(file);
	return err;
}

/* A file that is not parsed here; NULL: no memory. */
static struct image_file *new_file(const char *path, const char *build_id)
{
	struct image_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->path = strdup(path);
	file->names = true;
	snprintf(file->build_id, sizeof(file->build_id), "%s", build_id);
	return file;
}

void images_sandbox(struct images *images)
{
	images->sandboxed = true;
}

void images_names_only(struct images *images)
{
	images->names_only = true;
}

void images_names_and_code(struct images *images)
{
	images->names_only = true;
	images->keeps_code = true;
}

static uint64_t size_of(const char *path)
{
	CLOSED const int fd = is_regular_file(path) ? open_to_read(path) : -1;
	struct stat st;

	return fd < 0 || fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
}

/* A file with unwind tables that may be the same as one of this size. */
static const struct image_file *find_twin(const struct images *images, uint64_t size)
{
	for (size_t i = 0; i < images->n_files && size; i++) {
		const struct image_file *file = images->file[i];

		if (file->size == size && file->table && *file->build_id)
			return file;
	}
	return NULL;
}

static struct error *load(const struct images *images, const struct image_spec *spec,
			  struct image_file *file)
{
	const uint64_t size = size_of(spec->path);
	const struct image_file *twin = find_twin(images, size);
	struct image_spec with_twin = *spec;
	struct error *err;

	with_twin.names_only |= images->names_only;
	with_twin.keeps_code |= images->keeps_code;
	if (twin)
		with_twin.tables_known = twin->build_id;
	err = images->sandboxed ? image_file_load_sandboxed(&with_twin, file)
				: image_file_load(&with_twin, file);
	file->size = size;
	if (!err && twin && !file->table && !strcmp(file->build_id, twin->build_id))
		file->table = unwind_table_share(twin->table);
	return err;
}

/*
 * A page's address means the page in which the code begins, as in
 * /proc/PID/maps; any other the code's first byte.
 */
uint64_t image_slide_for(const struct image_file *file, uint64_t address)
{
	uint64_t start, end;

	file_range(file, &start, &end);
	return address & PAGE_MASK ? address - start : address - (start & ~PAGE_MASK);
}

struct error *images_read(const struct images *images, const struct image_spec *spec,
			  struct image_file **out)
{
	struct image_file *file = calloc(1, sizeof(*file));
	struct error *err = file ? load(images, spec, file) : error_no_memory();

	*out = err ? NULL : file;
	if (err)
		image_file_free(file);
	return err;
}

struct error *images_load_copy(struct images *images, const struct image_spec *spec,
			       const char *path, size_t *out)
{
	struct image_file *file;

	TRY(images_load(images, spec, out));
	file = images->file[*out];
	file->opened = file->path;
	file->path = strdup(path);
	return file->path ? NULL : error_no_memory();
}

struct error *images_load(struct images *images, const struct image_spec *spec, size_t *out)
{
	const size_t i = images->n_files;
	struct image_file *file;

	TRY(images_read(images, spec, &file));
	TRY(add_file(images, file));
	if (out)
		*out = i;
	if (spec->has_address)
		return images_map(images, i, image_slide_for(file, spec->address), false);
	return file->code ? NULL : images_map(images, i, 0, false);
}

struct error *images_load_kept(struct images *images, const char *build_id, const char *path,
			       size_t *out, bool *found)
{
	struct image_file *file = new_file(path, build_id);

	*found = file && symbol_cache_load(build_id, file);
	*out = images->n_files;
	if (*found)
		return add_file(images, file);
	image_file_free(file);
	return NULL;
}

struct error *images_add_tables(struct images *images, const char *name, struct symbols *symbols,
				struct unwind_table *table)
{
	struct image_file *file = new_file(name, symbols_build_id(symbols) ?: "");

	if (!file) {
		symbols_free(symbols);
		unwind_table_free(table);
		return error_no_memory();
	}
	file->symbols = symbols;
	file->table = table;
	TRY(add_file(images, file));
	return images_map(images, images->n_files - 1, 0, false);
}

size_t images_files(const struct images *images)
{
	return images->n_files;
}

struct image_file *images_file(struct images *images, size_t i)
{
	return images->file[i];
}

/* Index behind the last mapping of file `i`: mappings are ordered by file. */
static size_t rank(const struct images *images, size_t i)
{
	size_t at = 0;

	for (size_t f = 0; f <= i; f++)
		at += images->file[f]->mappings;
	return at;
}

/* The mapping of file `i` with this slide; NULL if there is none. */
static struct image *find_mapping(struct images *images, size_t i, uint64_t slide)
{
	const size_t end = rank(images, i);

	for (size_t k = end - images->file[i]->mappings; k < end; k++)
		if (images->mapping[k].slide == slide)
			return &images->mapping[k];
	return NULL;
}

/* Adds a mapping of file `i`. */
static struct error *insert(struct images *images, size_t i, const struct image *mapping)
{
	const size_t at = rank(images, i);

	TRY(ARRAY_RESERVE(&images->mapping, &images->room, images->n + 1));
	memmove(images->mapping + at + 1, images->mapping + at,
		(images->n - at) * sizeof(*images->mapping));
	images->mapping[at] = *mapping;
	images->n++;
	images->changes++;
	images->file[i]->mappings++;
	return NULL;
}

struct error *images_map(struct images *images, size_t i, uint64_t slide, bool checked)
{
	struct image_file *file = images->file[i];
	struct image mapping = {.file = file, .slide = slide, .checked = checked};
	struct image *known = find_mapping(images, i, slide);

	if (known) {
		known->checked |= checked;
		return NULL;
	}
	if (file->mappings == IMAGE_MAPPINGS_MAX)
		return NULL;
	file_range(file, &mapping.start, &mapping.end);
	mapping.start += slide;
	mapping.end += slide;
	return insert(images, i, &mapping);
}

static bool is_taken(const struct images *images, uint64_t base)
{
	for (size_t i = 0; i < images->n; i++)
		if (images->mapping[i].start - base < MAPPED_FILE_SIZE)
			return true;
	return false;
}

/* There are far more addresses than images. */
static uint64_t choose_base(const struct images *images, const struct mapped_file *mapped)
{
	const uint64_t room = MAPPED_FILES_END - MAPPED_FILES_ADDR;
	uint64_t at = hash_bytes(HASH_BEGIN, mapped->path, strlen(mapped->path)) ^
		      mapped->start / MAPPED_FILE_SIZE;

	at ^= at >> 32;
	at = at * MAPPED_FILE_SIZE % room;
	while (is_taken(images, MAPPED_FILES_ADDR + at))
		at = (at + MAPPED_FILE_SIZE) % room;
	return MAPPED_FILES_ADDR + at;
}

struct error *images_add_mapped(struct images *images, const struct mapped_file *mapped,
				uint64_t *base)
{
	struct image_file *file = new_file(mapped->path, mapped->build_id);
	struct image mapping = {.file = file, .checked = true};

	*base = choose_base(images, mapped) - mapped->start / MAPPED_FILE_SIZE * MAPPED_FILE_SIZE;
	if (!file)
		return error_no_memory();
	TRY(add_file(images, file));
	mapping.slide = *base;
	mapping.start = *base + mapped->start;
	mapping.end = *base + mapped->end;
	return insert(images, images->n_files - 1, &mapping);
}

void images_tell_mapped(struct images *images, size_t i, const struct mapped_file *file)
{
	struct image *mapping = &images->mapping[rank(images, i) - images->file[i]->mappings];

	snprintf(images->file[i]->build_id, sizeof(images->file[i]->build_id), "%s",
		 file->build_id);
	mapping->start = mapping->slide + file->start;
	mapping->end = mapping->slide + file->end;
	images->changes++;
}

void images_name_mapped(struct images *images, size_t i, struct symbols *symbols)
{
	symbols_free(images->file[i]->symbols);
	images->file[i]->symbols = symbols;
	images->changes++;
}

void images_take_copy(struct images *images, size_t i, struct image_file *copy)
{
	struct image_file *file = images->file[i];

	if (copy->symbols)
		images_name_mapped(images, i, copy->symbols);
	copy->symbols = NULL;
	file->code = copy->code;
	file->table = copy->table;
	file->opened = copy->path;
	file->size = copy->size;
	copy->code = NULL;
	copy->table = NULL;
	copy->path = NULL;
	image_file_free(copy);
	images->changes++;
}

void images_compared(struct images *images, size_t i, uint64_t slide, uint64_t space, bool program)
{
	struct image *mapping = find_mapping(images, i, slide);

	if (!mapping || mapping->compared)
		return;
	mapping->compared = true;
	mapping->space = space;
	mapping->program = program;
	images->programs |= program;
	images->changes++;
}

void images_unmap(struct images *images, size_t i)
{
	size_t n = images->file[i]->mappings, end = rank(images, i);

	if (!n)
		return;
	memmove(images->mapping + end - n, images->mapping + end,
		(images->n - end) * sizeof(*images->mapping));
	images->n -= n;
	images->changes++;
	images->file[i]->mappings = 0;
}

/* Modulo 2^64: an image may reach the top of the address space. */
static bool holds(const struct image *image, uint64_t va)
{
	return va - image->start < image->end - image->start;
}

const struct image *images_at(const struct images *images, uint64_t va)
{
	for (size_t i = 0; i < images->n; i++)
		if (holds(&images->mapping[i], va))
			return &images->mapping[i];
	return NULL;
}

bool images_have_programs(const struct images *images)
{
	return images->programs;
}

bool images_have_unmapped(const struct images *images)
{
	for (size_t i = 0; i < images->n_files; i++)
		if (images->file[i]->code && !images->file[i]->mappings)
			return true;
	return false;
}

const struct image *images_program_at(const struct images *images, uint64_t va)
{
	for (size_t i = 0; images->programs && i < images->n; i++)
		if (images->mapping[i].program && holds(&images->mapping[i], va))
			return &images->mapping[i];
	return NULL;
}

size_t images_code(const struct images *images, uint64_t va, uint64_t space, void *buf, size_t len)
{
	const struct image *image = images->mapping;

	for (size_t i = 0; i < images->n; i++, image++)
		if (holds(image, va) && image->compared && image->space == space)
			return elf_code_copy(image->file->code, va - image->slide, buf, len);
	return 0;
}

const struct image *images_find(const struct images *images, uint64_t va, bool names,
				struct symbol *out)
{
	for (size_t i = 0; i < images->n; i++) {
		const struct image *image = &images->mapping[i];

		if (!holds(image, va) || !image->file->symbols || (names && !image->file->names) ||
		    !symbols_find(image->file->symbols, va - image->slide, out))
			continue;
		out->start += image->slide;
		out->end += image->slide;
		return image;
	}
	return NULL;
}

const struct unwind_table *images_unwind_table(const struct images *images, uint64_t va,
					       uint64_t *slide)
{
	for (size_t i = 0; i < images->n; i++) {
		const struct image *image = &images->mapping[i];

		if (!holds(image, va) || !image->file->table)
			continue;
		*slide = image->slide;
		return image->file->table;
	}
	return NULL;
}

size_t images_count(const struct images *images)
{
	return images->n;
}

const struct image *images_get(const struct images *images, size_t i)
{
	return &images->mapping[i];
}

unsigned images_changes(const struct images *images)
{
	return images->changes;
}

struct error *images_write_nm(const struct images *images, FILE *out)
{
	for (size_t i = 0; i < images->n; i++)
		if (images->mapping[i].file->symbols)
			TRY(symbols_write_nm(images->mapping[i].file->symbols,
					     images->mapping[i].slide, out));
	return NULL;
}
