/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/load_images.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/preopen.h"
#include "symbol/images/debuginfod.h"

struct loading {
	const struct profile *profile;
	struct images *images;
	char *doubt;
};

static bool same_id(const struct recorded_image *recorded, const char *id)
{
	return recorded->build_id && *id && !strcmp(recorded->build_id, id);
}

/* Where this file was by what the recording has of it: its code, or the note with its build id. */
static uint64_t slide_of(const struct recorded_image *recorded, const struct image_file *file)
{
	if (recorded->path || !file->code || !file->code->note_len)
		return recorded->slide;
	return recorded->start - file->code->note_va;
}

/* Puts file `i` to every place where the recording has it. */
static struct error *put_by_id(struct loading *l, size_t i, bool *found)
{
	const struct recorded_images *recorded = profile_images(l->profile);
	struct error *err = NULL;

	*found = false;
	for (size_t k = 0; k < recorded->n && !err; k++) {
		if (!same_id(&recorded->at[k], images_file(l->images, i)->build_id))
			continue;
		err = images_put(l->images, i,
				 slide_of(&recorded->at[k], images_file(l->images, i)),
				 recorded->at[k].checked);
		*found = true;
	}
	return err;
}

/* A build id's note is so near to the code of its file, bytes. */
#define NOTE_REACH (1u << 20)

/* A file of the recording that lies where this one belongs, and is another. */
static const struct recorded_image *rival(const struct loading *l, const struct image_file *file)
{
	const struct recorded_images *recorded = profile_images(l->profile);

	for (size_t k = 0; k < recorded->n; k++) {
		const struct recorded_image *other = &recorded->at[k];

		uint64_t reach = other->path ? 0 : NOTE_REACH;

		if (other->build_id && *file->build_id &&
		    other->start - other->slide < file->code->end + reach &&
		    other->end - other->slide + reach > file->code->start)
			return other;
	}
	return NULL;
}

/*
 * Where a file goes that is not in the recording by its build id: where one
 * without a build id was, or where it was linked.
 */
static struct error *put_on_trust(struct loading *l, size_t i)
{
	const struct image_file *file = images_file(l->images, i);
	const struct recorded_image *other = rival(l, file);
	const struct recorded_images *recorded = profile_images(l->profile);
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
	return images_put(l->images, i, slide, false);
}

static struct error *put_given(struct loading *l)
{
	struct error *err = NULL;

	for (size_t i = 0; i < images_files(l->images) && !err; i++) {
		const struct image_file *file = images_file(l->images, i);
		bool found;

		/* A table of symbols, or a file whose place the user has told. */
		if (file->places)
			continue;
		err = put_by_id(l, i, &found);
		if (!err && !found)
			err = put_on_trust(l, i);
	}
	return err;
}

/* Before recordings told of images they told of one, which was where it was linked. */
static struct error *load_first(struct loading *l)
{
	const struct recording_info *info = &l->profile->info;
	const struct image_spec spec = {.path = info->image, .names = true, .needs_names = true};
	const struct image_file *file;
	struct error *err;
	size_t i;

	if (!info->image || !is_regular_file(info->image))
		return NULL;
	err = images_load(l->images, &spec, &i);
	if (err) {
		error_free(err);
		return NULL;
	}
	file = images_file(l->images, i);
	if (info->build_id && strcmp(file->build_id, info->build_id)) {
		images_lift(l->images, i);
		return NULL;
	}
	return images_put(l->images, i, 0, false);
}

/* The file that the recording names, if it still is what it was. */
static struct error *load_named(struct loading *l, const struct recorded_image *one, bool *found)
{
	const struct image_spec spec = {.path = one->path, .names = true, .needs_names = true};
	struct error *err = debuginfod_ahead(one->path);
	size_t i;

	if (err || !is_regular_file(one->path))
		return err;
	err = images_load(l->images, &spec, &i);
	if (err) {
		error_free(err);
		return NULL;
	}
	images_lift(l->images, i);
	*found = !one->build_id || same_id(one, images_file(l->images, i)->build_id);
	return *found ? images_put(l->images, i, one->slide, one->checked) : NULL;
}

/* What is kept of a file that was given some other time. */
static struct error *load_kept(struct loading *l, const struct recorded_image *one)
{
	const char *name = one->path ? one->path : one->build_id;
	struct error *err;
	bool found;
	size_t i;

	err = images_load_kept(l->images, one->build_id, name, &i, &found);
	if (err || !found)
		return err;
	return images_put(l->images, i, slide_of(one, images_file(l->images, i)), one->checked);
}

static struct error *load_recorded(struct loading *l)
{
	const struct recorded_images *recorded = profile_images(l->profile);
	struct error *err = NULL;

	for (size_t k = 0; k < recorded->n && !err; k++) {
		const struct recorded_image *one = &recorded->at[k];
		bool found = false;

		if (one->path)
			err = load_named(l, one, &found);
		if (!err && !found && one->build_id)
			err = load_kept(l, one);
	}
	return recorded->at ? err : load_first(l);
}

struct error *load_images(const struct image_args *args, const struct profile *profile,
			  struct images **out, char **doubt)
{
	struct loading l = {.profile = profile};
	struct error *err = images_new(&l.images);

	if (!err && args->n)
		err = image_args_load(args, l.images);
	if (!err && args->n)
		err = put_given(&l);
	else if (!err && !profile->n_names)
		err = load_recorded(&l);
	if (err) {
		images_free(l.images);
		free(l.doubt);
		return err;
	}
	*out = l.images;
	*doubt = l.doubt;
	return NULL;
}
