/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/recording_images.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* As text: JSON's numbers are not sure to hold 64 bits. */
static json_t *address(uint64_t value)
{
	return json_sprintf("0x%" PRIx64, value);
}

static json_t *write_one(const struct recorded_image *image)
{
	json_t *object = json_object();

	if ((image->path && json_object_set_new(object, "path", recorded_text(image->path))) ||
	    (image->build_id &&
	     json_object_set_new(object, "build_id", recorded_text(image->build_id))) ||
	    json_object_set_new(object, "start", address(image->start)) ||
	    json_object_set_new(object, "end", address(image->end)) ||
	    json_object_set_new(object, "slide", address(image->slide)) ||
	    json_object_set_new(object, "checked", json_boolean(image->checked))) {
		json_decref(object);
		return NULL;
	}
	return object;
}

json_t *recorded_images_write(const struct recorded_images *images)
{
	json_t *list = json_array();

	for (size_t i = 0; i < images->n && list; i++)
		if (json_array_append_new(list, write_one(&images->at[i]))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static bool read_address(const json_t *value, uint64_t *out)
{
	const char *text = json_string_value(value);
	char *end;

	if (!text || strncmp(text, "0x", 2))
		return false;
	errno = 0;
	*out = strtoull(text + 2, &end, 16);
	return !*end && end != text + 2 && !errno && text[2] != '-' && text[2] != '+';
}

static bool read_one(const json_t *value, struct recorded_image *image)
{
	const json_t *id = json_object_get(value, "build_id");
	const json_t *path = json_object_get(value, "path");

	if ((path && !json_is_string(path)) || (id && !json_is_string(id)) || (!path && !id) ||
	    !read_address(json_object_get(value, "start"), &image->start) ||
	    !read_address(json_object_get(value, "end"), &image->end) ||
	    !read_address(json_object_get(value, "slide"), &image->slide))
		return false;
	image->checked = json_is_true(json_object_get(value, "checked"));
	image->path = path ? strdup(json_string_value(path)) : NULL;
	image->build_id = id ? strdup(json_string_value(id)) : NULL;
	return (!path || image->path) && (!id || image->build_id);
}

bool recorded_images_read(const json_t *value, struct recorded_images *images)
{
	size_t n = json_array_size(value);

	*images = (struct recorded_images){0};
	if (!json_is_array(value) || n > RECORDED_IMAGES_MAX)
		return false;
	images->at = calloc(n + 1, sizeof(*images->at));
	if (!images->at)
		return false;
	while (images->n < n) {
		struct recorded_image *image = &images->at[images->n];

		if (!read_one(json_array_get(value, images->n++), image)) {
			recorded_images_free(images);
			return false;
		}
	}
	return true;
}

bool recorded_images_copy(const struct recorded_images *from, struct recorded_images *to)
{
	*to = (struct recorded_images){0};
	if (!from->at)
		return true;
	to->at = calloc(from->n + 1, sizeof(*to->at));
	if (!to->at)
		return false;
	for (size_t i = 0; i < from->n; i++) {
		struct recorded_image *copy = &to->at[to->n++];
		const struct recorded_image *one = &from->at[i];

		*copy = *one;
		copy->path = one->path ? strdup(one->path) : NULL;
		copy->build_id = one->build_id ? strdup(one->build_id) : NULL;
		if ((one->path && !copy->path) || (one->build_id && !copy->build_id)) {
			recorded_images_free(to);
			return false;
		}
	}
	return true;
}

void recorded_images_free(struct recorded_images *images)
{
	for (size_t i = 0; i < images->n; i++) {
		free(images->at[i].path);
		free(images->at[i].build_id);
	}
	free(images->at);
	*images = (struct recorded_images){0};
}
