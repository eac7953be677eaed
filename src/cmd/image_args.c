/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/image_args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/preopen.h"
#include "symbol/images/debuginfod.h"
#include "symbol/symbol_cache.h"

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
	struct image_spec spec;
	struct error *err;
	char *path;

	if (args->n == IMAGE_ARGS_MAX)
		return error_new(ERR_USAGE, "more than %d files of symbols are too many",
				 IMAGE_ARGS_MAX);
	err = split(text, &path, &spec);
	if (!err)
		err = ahead_input(path);
	if (!err)
		err = debuginfod_ahead(path);
	if (!err && names)
		symbol_cache_keep(path);
	free(path);
	if (!err)
		args->at[args->n++] = (struct image_arg){text, names};
	return err;
}

struct error *image_args_load(const struct image_args *args, struct images *images)
{
	struct error *err = NULL;

	for (size_t i = 0; i < args->n && !err; i++) {
		struct image_spec spec;
		char *path;

		err = split(args->at[i].text, &path, &spec);
		spec.names = args->at[i].names;
		/* One of several may be there for its code only, and another for its names. */
		spec.needs_names = spec.names && args->n == 1;
		if (!err)
			err = images_load(images, &spec, NULL);
		free(path);
	}
	return err;
}

struct error *image_places(const struct images *images, const char *seen, uint64_t seen_va,
			   struct recorded_images *out)
{
	size_t n = images_count(images);

	*out = (struct recorded_images){.at = calloc(n + 2, sizeof(*out->at)), .n = n};
	if (!out->at)
		return error_no_memory();
	for (size_t i = 0; i < n; i++) {
		const struct image *image = images_get(images, i);
		const char *id = image->file->build_id;

		out->at[i] = (struct recorded_image){.path = image->file->path,
						     .build_id = *id ? (char *)id : NULL,
						     .start = image->start,
						     .end = image->end,
						     .slide = image->slide,
						     .checked = image->checked};
	}
	if (seen)
		out->at[out->n++] =
			(struct recorded_image){.build_id = (char *)seen,
						.start = seen_va,
						.end = seen_va + CODE_NOTE_HEAD + strlen(seen) / 2,
						.checked = true};
	return NULL;
}

bool image_places_equal(const struct recorded_images *a, const struct recorded_images *b)
{
	bool equal = a->n == b->n;

	for (size_t i = 0; i < a->n && equal; i++)
		equal = a->at[i].path == b->at[i].path && a->at[i].start == b->at[i].start &&
			a->at[i].slide == b->at[i].slide && a->at[i].checked == b->at[i].checked;
	return equal;
}
