/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/image_args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/debug_file.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "symbol/images/file.h"

/*
 * Cuts "@0xADDRESS" off; the caller frees *path. A file that is really called
 * so goes by its name.
 */
static struct error *split(const char *text, char **path, struct image_spec *spec)
{
	const char *at = strrchr(text, '@');
	char *end = NULL;

	*spec = (struct image_spec){.given = true};
	if (!at || strncmp(at, "@0x", 3) || !access(text, F_OK))
		at = text + strlen(text);
	*path = strndup(text, (size_t)(at - text));
	if (!*path)
		return error_no_memory();
	spec->path = *path;
	if (!*at)
		return NULL;
	errno = 0;
	spec->has_address = true;
	spec->address = strtoull(at + 3, &end, 16);
	if (errno || *end || end == at + 3 || strspn(at + 3, "-+ \t"))
		return error_new(ERR_USAGE, "%s: what follows the @ is no address", text);
	return NULL;
}

struct error *image_args_add(struct image_args *args, const char *text, bool names)
{
	FREED char *path = NULL;
	struct image_spec spec;

	if (args->n == IMAGE_ARGS_MAX)
		return error_new(ERR_USAGE, "more than %d files of symbols are too many",
				 IMAGE_ARGS_MAX);
	TRY(split(text, &path, &spec));
	TRY(preopen_bounded_input(path));
	TRY(debug_file_preopen_beside(path));
	TRY(debuginfod_preopen(path));
	if (names)
		symbol_cache_keep(path);
	args->at[args->n++] = (struct image_arg){text, names};
	return NULL;
}

struct error *take_symbols(const struct option_row *row, const char *value, void *options)
{
	return image_args_add((void *)((char *)options + row->at), value, true);
}

struct error *image_args_load(const struct image_args *args, struct images *images)
{
	for (size_t i = 0; i < args->n; i++) {
		FREED char *path = NULL;
		struct image_spec spec;

		TRY(split(args->at[i].text, &path, &spec));
		spec.names = args->at[i].names;
		/* One of several may be there for its code only, and another for its names. */
		spec.needs_names = spec.names && args->n == 1;
		TRY(images_load(images, &spec, NULL));
	}
	return NULL;
}

struct image_match {
	const struct recording_info *info;
	const struct recorded_images *recorded;
	struct images *images;
	char *doubt;
};

static bool same_id(const struct recorded_image *recorded, const char *id)
{
	return recorded->build_id && *id && !strcmp(recorded->build_id, id);
}

/*
 * Slide of this file in the recorded guest. An image without a path is but a
 * build id that was seen: `start` is the address of its note.
 */
static uint64_t slide_of(const struct recorded_image *recorded, const struct image_file *file)
{
	if (recorded->path || !file->code || !file->code->note_len)
		return recorded->slide;
	return recorded->start - file->code->note_va;
}

/* Puts file `i` to every place where the recording has it. */
static struct error *put_by_id(struct image_match *l, size_t i, bool *found)
{
	*found = false;
	for (size_t k = 0; k < l->recorded->n; k++) {
		const struct recorded_image *one = &l->recorded->at[k];
		const struct image_file *file = images_file(l->images, i);

		if (!same_id(one, file->build_id))
			continue;
		TRY(images_map(l->images, i, slide_of(one, file), one->checked));
		*found = true;
	}
	return NULL;
}

/* A build id's note is so near to the code of its file, bytes. */
#define NOTE_REACH (1u << 20)

/* A file of the recording that lies where this one belongs, and is another. */
static const struct recorded_image *rival(const struct image_match *l,
					  const struct image_file *file)
{
	for (size_t k = 0; k < l->recorded->n; k++) {
		const struct recorded_image *other = &l->recorded->at[k];
		const uint64_t reach = other->path ? 0 : NOTE_REACH;

		if (other->build_id && *file->build_id &&
		    other->start - other->slide < file->code->end + reach &&
		    other->end - other->slide + reach > file->code->start)
			return other;
	}
	return NULL;
}

/*
 * Places a file whose build id is not in the recording: with the slide of the
 * only recorded image if neither has a build id, else where it was linked.
 */
static struct error *put_on_trust(struct image_match *l, size_t i)
{
	const struct image_file *file = images_file(l->images, i);
	const struct recorded_image *other = rival(l, file);
	const struct recorded_images *recorded = l->recorded;
	uint64_t slide = 0;

	if (other)
		return error_new(ERR_INPUT,
				 "%s (build id %s) is not what ran in the guest of this recording, "
				 "%s (build id %s): give that one, or %s@0xADDRESS if it must be "
				 "this",
				 file->path, file->build_id,
				 other->path ? other->path : "another file", other->build_id,
				 file->path);
	if (recorded->n == 1 && !recorded->at[0].build_id && !*file->build_id)
		slide = recorded->at[0].slide;
	else if (recorded->n && !l->doubt &&
		 asprintf(&l->doubt,
			  "%s is not among the files that the recording tells of: its names may be "
			  "wrong",
			  file->path) < 0)
		return error_no_memory();
	return images_map(l->images, i, slide, false);
}

static struct error *put_given(struct image_match *l)
{
	for (size_t i = 0; i < images_files(l->images); i++) {
		bool found;

		/* A table of symbols, or a file whose place the user has told. */
		if (images_file(l->images, i)->mappings)
			continue;
		TRY(put_by_id(l, i, &found));
		if (!found)
			TRY(put_on_trust(l, i));
	}
	return NULL;
}

/* A recording without a list of images may name a single one, at its linked address. */
static struct error *load_first(struct image_match *l)
{
	const struct recording_info *info = l->info;
	const struct image_spec spec = {.path = info->image, .names = true, .needs_names = true};
	struct error *err;
	size_t i;

	if (!info->image || !is_regular_file(info->image))
		return NULL;
	err = images_load(l->images, &spec, &i);
	if (err) {
		error_free(err);
		return NULL;
	}
	if (info->build_id && strcmp(images_file(l->images, i)->build_id, info->build_id)) {
		images_unmap(l->images, i);
		return NULL;
	}
	return images_map(l->images, i, 0, false);
}

/* The file that the recording names, if it has not changed. */
static struct error *load_named(struct image_match *l, const struct recorded_image *one,
				bool *found)
{
	const struct image_spec spec = {.path = one->path, .names = true, .needs_names = true};
	/* A path of a guest's program leads to a file of ours, which only a build id proves to be the same. */
	const bool unproven = is_mapped_file(one->start) && !one->build_id;
	struct error *err = unproven ? NULL : debuginfod_preopen(one->path);
	size_t i;

	if (err || unproven || !is_regular_file(one->path))
		return err;
	err = images_load(l->images, &spec, &i);
	if (err) {
		error_free(err);
		return NULL;
	}
	images_unmap(l->images, i);
	*found = !one->build_id || same_id(one, images_file(l->images, i)->build_id);
	return *found ? images_map(l->images, i, one->slide, one->checked) : NULL;
}

/* Loads the cached symbols (symbol/images/file.h) of a recorded image that is not given now. */
static struct error *load_kept(struct image_match *l, const struct recorded_image *one)
{
	bool found;
	size_t i;

	TRY(images_load_kept(l->images, one->build_id, one->path ?: one->build_id, &i, &found));
	if (!found)
		return NULL;
	return images_map(l->images, i, slide_of(one, images_file(l->images, i)), one->checked);
}

static struct error *load_recorded(struct image_match *l)
{
	for (size_t k = 0; k < l->recorded->n; k++) {
		const struct recorded_image *one = &l->recorded->at[k];
		bool found = false;

		if (one->path)
			TRY(load_named(l, one, &found));
		if (!found && one->build_id)
			TRY(load_kept(l, one));
	}
	return l->recorded->at ? NULL : load_first(l);
}

/* Copies of a guest's files that are read for one recording at most. */
#define COPIES_MAX 256u

/* Loads the copy of a recorded file below the user's directory, and puts it to where the recording has it. */
static struct error *load_copy(struct image_match *l, const struct recorded_image *one)
{
	struct image_spec spec = {.names = true};
	FREED char *name = NULL;
	struct error *err = sysroot_adopt(one->path, &name);
	bool found;
	size_t i;

	if (!err && !name && errno == EACCES && !l->doubt &&
	    asprintf(&l->doubt,
		     "%s cannot be read below --sysroot: only files that all users may read can",
		     one->path) < 0)
		return error_no_memory();
	if (err || !name)
		return err;
	spec.path = name;
	err = images_load_copy(l->images, &spec, one->path, &i);
	if (err == error_no_memory())
		return err;
	if (err) {
		error_free(err);
		return NULL;
	}
	if (images_file(l->images, i)->code && same_id(one, images_file(l->images, i)->build_id))
		return put_by_id(l, i, &found);
	images_unmap(l->images, i);
	return NULL;
}

/* True if an image before this one in the list is the same file. */
static bool is_listed_before(const struct recorded_images *list, size_t k)
{
	for (size_t i = 0; i < k; i++)
		if (list->at[i].path && same_id(&list->at[i], list->at[k].build_id) &&
		    !strcmp(list->at[i].path, list->at[k].path))
			return true;
	return false;
}

static struct error *load_copies(struct image_match *l)
{
	unsigned copies = 0;

	for (size_t k = 0; k < l->recorded->n && copies < COPIES_MAX; k++) {
		const struct recorded_image *one = &l->recorded->at[k];

		if (!one->path || !one->build_id || is_listed_before(l->recorded, k))
			continue;
		TRY(load_copy(l, one));
		copies++;
	}
	return NULL;
}

void load_addresses(struct recorded_images *images)
{
	for (size_t i = 0; i < images->n; i++) {
		struct recorded_image *image = &images->at[i];
		uint64_t va;

		if (!image->by_offset || !image->path ||
		    !elf_address(image->path, image->start - image->slide, &va))
			continue;
		image->slide = image->start - va;
		image->by_offset = false;
	}
}

struct error *load_images(const struct image_args *args, const struct profile *profile,
			  struct images **out, char **doubt)
{
	struct image_match l = {.info = &profile->info, .recorded = profile_images(profile)};
	struct error *err = NULL;

	TRY(images_new(&l.images));
	images_sandbox(l.images);
	images_names_only(l.images);
	if (args->n)
		err = image_args_load(args, l.images);
	if (!err && args->n)
		err = put_given(&l);
	else if (!err && !profile->n_names)
		err = load_recorded(&l);
	if (!err && sysroot_is_given())
		err = load_copies(&l);
	if (err) {
		images_free(l.images);
		free(l.doubt);
		return err;
	}
	*out = l.images;
	*doubt = l.doubt;
	return NULL;
}
