/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/images.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/preopen.h"
#include "symbol/image_apart.h"
#include "symbol/image_file.h"
#include "symbol/symbol_cache.h"

#define PAGE_MASK 4095ull

struct images {
	struct image_file **file;
	size_t n_files, files_room;
	struct image *place;
	size_t n, room;
	unsigned changes;
	bool apart;
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
	free(images->place);
	free(images);
}

/* Of a table that tells no sections: from its first to its last function. */
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

/* As linked. */
static void file_range(const struct image_file *file, uint64_t *start, uint64_t *end)
{
	if (file->code) {
		*start = file->code->start;
		*end = file->code->end;
	} else {
		table_range(file->symbols, start, end);
	}
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

static struct error *add_file(struct images *images, struct image_file *file)
{
	if (images->n_files == images->files_room) {
		size_t room = images->files_room ? 2 * images->files_room : 8;
		struct image_file **list =
			reallocarray(images->file, room, sizeof(struct image_file *));

		if (!list)
			return error_no_memory();
		images->file = list;
		images->files_room = room;
	}
	images->file[images->n_files++] = file;
	return NULL;
}

void images_load_apart(struct images *images)
{
	images->apart = true;
}

static uint64_t size_of(const char *path)
{
	int fd = is_regular_file(path) ? open_to_read(path) : -1;
	struct stat st = {0};

	if (fd < 0)
		return 0;
	if (fstat(fd, &st))
		st.st_size = 0;
	close(fd);
	return (uint64_t)st.st_size;
}

/* A file with unwind tables that may be the same as one of this size. */
static const struct image_file *find_twin(const struct images *images, uint64_t size)
{
	for (size_t i = 0; i < images->n_files && size; i++) {
		const struct image_file *file = images->file[i];

		if (file->size == size && file->rows && *file->build_id)
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

	if (twin)
		with_twin.tables_known = twin->build_id;
	err = images->apart ? image_apart_load(&with_twin, file)
			    : image_file_load(&with_twin, file);
	file->size = size;
	if (!err && twin && !file->rows && !strcmp(file->build_id, twin->build_id))
		file->rows = rows_share(twin->rows);
	return err;
}

struct error *images_load(struct images *images, const struct image_spec *spec, size_t *out)
{
	struct image_file *file = calloc(1, sizeof(*file));
	struct error *err = file ? load(images, spec, file) : error_no_memory();
	size_t i = images->n_files;

	if (!err)
		err = add_file(images, file);
	if (err) {
		image_file_free(file);
		return err;
	}
	if (out)
		*out = i;
	if (spec->has_address)
		return images_put(images, i, image_slide_for(file, spec->address), false);
	return file->code ? NULL : images_put(images, i, 0, false);
}

struct error *images_load_kept(struct images *images, const char *build_id, const char *path,
			       size_t *out, bool *found)
{
	struct image_file *file = calloc(1, sizeof(*file));
	struct error *err = NULL;

	*found = file && symbol_cache_load(build_id, file);
	if (*found) {
		file->path = strdup(path);
		file->names = true;
		*out = images->n_files;
		err = file->path ? add_file(images, file) : error_no_memory();
	}
	if (err || !*found)
		image_file_free(file);
	return err;
}

struct error *images_add_tables(struct images *images, const char *name, struct symbols *symbols,
				struct rows *rows)
{
	struct image_file *file = calloc(1, sizeof(*file));
	const char *id = symbols_build_id(symbols);
	struct error *err;

	if (!file) {
		symbols_free(symbols);
		rows_free(rows);
		return error_no_memory();
	}
	*file = (struct image_file){.path = strdup(name),
				    .symbols = symbols,
				    .rows = rows,
				    .names = true};
	snprintf(file->build_id, sizeof(file->build_id), "%s", id ? id : "");
	err = file->path ? add_file(images, file) : error_no_memory();
	if (err) {
		image_file_free(file);
		return err;
	}
	return images_put(images, images->n_files - 1, 0, false);
}

size_t images_files(const struct images *images)
{
	return images->n_files;
}

struct image_file *images_file(struct images *images, size_t i)
{
	return images->file[i];
}

/* Where a place of file `i` belongs among the others. */
static size_t rank(const struct images *images, size_t i)
{
	size_t at = 0;

	for (size_t f = 0; f <= i; f++)
		at += images->file[f]->places;
	return at;
}

struct error *images_put(struct images *images, size_t i, uint64_t slide, bool checked)
{
	struct image_file *file = images->file[i];
	struct image place = {.file = file, .slide = slide, .checked = checked};
	size_t at = rank(images, i);

	for (size_t k = at - file->places; k < at; k++) {
		if (images->place[k].slide != slide)
			continue;
		images->place[k].checked |= checked;
		return NULL;
	}
	if (file->places == IMAGE_PLACES_MAX)
		return NULL;
	if (images->n == images->room) {
		size_t room = images->room ? 2 * images->room : 8;
		struct image *list = reallocarray(images->place, room, sizeof(*list));

		if (!list)
			return error_no_memory();
		images->place = list;
		images->room = room;
	}
	file_range(file, &place.start, &place.end);
	place.start += slide;
	place.end += slide;
	memmove(images->place + at + 1, images->place + at,
		(images->n - at) * sizeof(*images->place));
	images->place[at] = place;
	images->n++;
	images->changes++;
	file->places++;
	return NULL;
}

void images_lift(struct images *images, size_t i)
{
	size_t n = images->file[i]->places, end = rank(images, i);

	if (!n)
		return;
	memmove(images->place + end - n, images->place + end,
		(images->n - end) * sizeof(*images->place));
	images->n -= n;
	images->changes++;
	images->file[i]->places = 0;
}

/* Modulo 2^64: an image may reach the top of the address space. */
static bool holds(const struct image *image, uint64_t va)
{
	return va - image->start < image->end - image->start;
}

const struct image *images_at(const struct images *images, uint64_t va)
{
	for (size_t i = 0; i < images->n; i++)
		if (holds(&images->place[i], va))
			return &images->place[i];
	return NULL;
}

const struct image *images_find_in(const struct images *images, uint64_t va, bool names,
				   struct symbol *out)
{
	for (size_t i = 0; i < images->n; i++) {
		const struct image *image = &images->place[i];

		if (!holds(image, va) || !image->file->symbols || (names && !image->file->names) ||
		    !symbols_find(image->file->symbols, va - image->slide, out))
			continue;
		out->start += image->slide;
		out->end += image->slide;
		return image;
	}
	return NULL;
}

bool images_find(const struct images *images, uint64_t va, bool names, struct symbol *out)
{
	return images_find_in(images, va, names, out);
}

const struct rows *images_rows(const struct images *images, uint64_t va, uint64_t *slide)
{
	for (size_t i = 0; i < images->n; i++) {
		const struct image *image = &images->place[i];

		if (!holds(image, va) || !image->file->rows)
			continue;
		*slide = image->slide;
		return image->file->rows;
	}
	return NULL;
}

size_t images_count(const struct images *images)
{
	return images->n;
}

const struct image *images_get(const struct images *images, size_t i)
{
	return &images->place[i];
}

unsigned images_changes(const struct images *images)
{
	return images->changes;
}

struct error *images_write_nm(const struct images *images, FILE *out)
{
	struct error *err = NULL;

	for (size_t i = 0; i < images->n && !err; i++)
		if (images->place[i].file->symbols)
			err = symbols_write_nm(images->place[i].file->symbols,
					       images->place[i].slide, out);
	return err;
}
