/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/format.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"

/* No guest runs more images than this. */
#define RECORDED_IMAGES_MAX 65536

enum field_type {
	FIELD_STRING,
	FIELD_U32,
	FIELD_U64,
	FIELD_ADDRESS,
	FIELD_DOUBLE,
	FIELD_BOOL,
	FIELD_IMAGES,
};

struct field {
	const char *key;
	enum field_type type;
	size_t offset;
};

#define FIELD(part, name, type)                          \
	{                                                \
#name, type, offsetof(struct part, name) \
	}
#define IMAGE(name, type) FIELD(recorded_image, name, type)
#define INFO(name, type)  FIELD(recording_info, name, type)
#define END(name, type)	  FIELD(recording_end, name, type)

static const struct field image_fields[] = {
	IMAGE(path, FIELD_STRING), IMAGE(build_id, FIELD_STRING), IMAGE(start, FIELD_ADDRESS),
	IMAGE(end, FIELD_ADDRESS), IMAGE(slide, FIELD_ADDRESS),	  IMAGE(checked, FIELD_BOOL),
};
static const struct field info_fields[] = {
	INFO(tool, FIELD_STRING),
	INFO(target, FIELD_STRING),
	INFO(guest_name, FIELD_STRING),
	INFO(guest_id, FIELD_STRING),
	INFO(guest_type, FIELD_STRING),
	INFO(host, FIELD_STRING),
	INFO(arch, FIELD_STRING),
	INFO(unwind, FIELD_STRING),
	INFO(image, FIELD_STRING),
	INFO(build_id, FIELD_STRING),
	INFO(vcpus, FIELD_U32),
	INFO(rate_hz, FIELD_DOUBLE),
	INFO(wanted_rate_hz, FIELD_DOUBLE),
	INFO(max_cpu, FIELD_DOUBLE),
	INFO(duration_ns, FIELD_U64),
	INFO(start_unix_ns, FIELD_U64),
	INFO(jitter, FIELD_BOOL),
	INFO(weight_unit, FIELD_STRING),
	INFO(scheduler, FIELD_STRING),
	INFO(rate_limit_us, FIELD_U32),
	INFO(images, FIELD_IMAGES),
};
static const struct field end_fields[] = {
	END(elapsed_ns, FIELD_U64),	 END(missed, FIELD_U64),    END(retakes, FIELD_U64),
	END(failed, FIELD_U64),		 END(given_up, FIELD_U64),  END(reason, FIELD_STRING),
	END(max_overhead, FIELD_DOUBLE), END(lacked, FIELD_STRING), END(images, FIELD_IMAGES),
	END(waiting, FIELD_U64),	 END(unproven, FIELD_U64),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Bytes of the UTF-8 character at `text`, 0 if there is none; jansson judges. */
static size_t character(const char *text)
{
	for (size_t len = 1; len <= 4 && len <= strnlen(text, len); len++) {
		json_t *one = json_stringn(text, len);

		json_decref(one);
		if (one)
			return len;
	}
	return 0;
}

/* Text as a JSON string, with '?' for each byte that is no UTF-8; NULL: no memory. */
static json_t *recorded_text(const char *text)
{
	json_t *string = json_string(text);
	FREED char *valid = NULL;

	if (string)
		return string;
	valid = strdup(text);
	for (char *at = valid; at && *at;) {
		const size_t len = character(at);

		if (!len)
			*at = '?';
		at += len ?: 1;
	}
	return valid ? json_string(valid) : NULL;
}

/* Addresses are text: JSON's numbers are not sure to hold 64 bits. */
static json_t *address(uint64_t value)
{
	return json_sprintf("0x%" PRIx64, value);
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

uint64_t recording_period_ns(const struct recording_info *info)
{
	const double period_ns = info->rate_hz > 0 ? 1e9 / info->rate_hz : 1;

	return period_ns < 1e18 ? (uint64_t)llround(fmax(1, period_ns)) : 1;
}

void recording_info_follow(struct recording_info *info, const struct recording_info *next)
{
	const struct recording_info before = *info;

	*info = *next;
	if (before.wanted_rate_hz <= 0 ||
	    (next->wanted_rate_hz > 0 && next->rate_hz < before.rate_hz))
		return;
	info->rate_hz = before.rate_hz;
	info->wanted_rate_hz = before.wanted_rate_hz;
	info->max_cpu = before.max_cpu;
}

const char *sample_state_text(unsigned state)
{
	static const char *const texts[SAMPLE_STATES] = {
		[VCPU_RUNNING] = "running",   [VCPU_RUNNABLE] = "runnable",
		[VCPU_BLOCKED] = "blocked",   [WAIT_QUEUED] = "queued",
		[WAIT_SLEEPING] = "sleeping", [WAIT_DISK] = "disk",
		[WAIT_STOPPED] = "stopped",
	};

	return state < SAMPLE_STATES ? texts[state] : "unknown";
}

static json_t *integer(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *write_images(const struct recorded_images *images);
static bool read_images(const json_t *value, struct recorded_images *images);
static void free_images(struct recorded_images *images);
static bool copy_images(const struct recorded_images *from, struct recorded_images *to);

static bool add_field(json_t *object, const struct field *field, const void *from)
{
	const void *at = (const char *)from + field->offset;
	json_t *value = NULL;

	switch (field->type) {
	case FIELD_STRING:
		if (!*(char *const *)at)
			return true;
		value = recorded_text(*(char *const *)at);
		break;
	case FIELD_U32:
		value = integer(*(const uint32_t *)at);
		break;
	case FIELD_U64:
		value = integer(*(const uint64_t *)at);
		break;
	case FIELD_ADDRESS:
		value = address(*(const uint64_t *)at);
		break;
	case FIELD_DOUBLE:
		value = json_real(*(const double *)at);
		break;
	case FIELD_BOOL:
		value = json_boolean(*(const bool *)at);
		break;
	case FIELD_IMAGES:
		if (!((const struct recorded_images *)at)->at)
			return true;
		value = write_images(at);
		break;
	}
	return json_object_set_new(object, field->key, value) == 0;
}

/* NULL: no memory. */
static json_t *write_fields(const struct field *fields, size_t n, const void *from)
{
	json_t *object = json_object();

	for (size_t i = 0; i < n; i++) {
		if (add_field(object, &fields[i], from))
			continue;
		json_decref(object);
		return NULL;
	}
	return object;
}

static struct error *put_fields(const struct field *fields, size_t n, const void *from,
				struct bytes *out)
{
	json_auto_t *object = write_fields(fields, n, from);
	FREED char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	if (!text)
		return error_no_memory();
	TRY(bytes_reserve(out, strlen(text)));
	put_bytes(out, text, strlen(text));
	return NULL;
}

static bool read_field(const json_t *value, const struct field *field, void *to)
{
	void *at = (char *)to + field->offset;

	switch (field->type) {
	case FIELD_STRING:
		if (!json_is_string(value))
			return false;
		return (*(char **)at = strdup(json_string_value(value))) != NULL;
	case FIELD_U32:
		*(uint32_t *)at = (uint32_t)json_integer_value(value);
		return json_is_integer(value) && json_integer_value(value) >= 0 &&
		       json_integer_value(value) <= UINT32_MAX;
	case FIELD_U64:
		*(uint64_t *)at = (uint64_t)json_integer_value(value);
		return json_is_integer(value) && json_integer_value(value) >= 0;
	case FIELD_ADDRESS:
		return read_address(value, at);
	case FIELD_DOUBLE:
		*(double *)at = json_number_value(value);
		return json_is_number(value) && json_number_value(value) >= 0;
	case FIELD_BOOL:
		*(bool *)at = json_is_true(value);
		return json_is_boolean(value);
	case FIELD_IMAGES:
		return read_images(value, at);
	}
	return false;
}

static void free_fields(const struct field *fields, size_t n, void *from)
{
	for (size_t i = 0; i < n; i++) {
		void *at = (char *)from + fields[i].offset;

		if (fields[i].type == FIELD_IMAGES)
			free_images(at);
		if (fields[i].type != FIELD_STRING)
			continue;
		free(*(char **)at);
		*(char **)at = NULL;
	}
}

static bool read_fields(const json_t *object, const struct field *fields, size_t n, void *to)
{
	bool good = json_is_object(object);

	for (size_t i = 0; i < n && good; i++) {
		const json_t *value = json_object_get(object, fields[i].key);

		good = !value || read_field(value, &fields[i], to);
	}
	if (!good)
		free_fields(fields, n, to);
	return good;
}

static bool parse_fields(const void *text, size_t len, const struct field *fields, size_t n,
			 void *to)
{
	json_auto_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);

	return read_fields(object, fields, n, to);
}

/* `to` is a flat copy of `from`: gives it strings and images of its own; false: no memory, and it has none. */
static bool copy_fields(const struct field *fields, size_t n, const void *from, void *to)
{
	bool whole = true;

	for (size_t i = 0; i < n; i++) {
		const void *source = (const char *)from + fields[i].offset;
		void *copy = (char *)to + fields[i].offset;

		if (fields[i].type == FIELD_IMAGES)
			whole = copy_images(source, copy) && whole;
		if (fields[i].type != FIELD_STRING || !*(char *const *)source)
			continue;
		*(char **)copy = strdup(*(char *const *)source);
		whole = whole && *(char **)copy;
	}
	if (!whole)
		free_fields(fields, n, to);
	return whole;
}

static json_t *write_images(const struct recorded_images *images)
{
	json_t *list = json_array();

	for (size_t i = 0; i < images->n && list; i++)
		if (json_array_append_new(list, write_fields(image_fields, COUNT(image_fields),
							     &images->at[i]))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static void free_images(struct recorded_images *images)
{
	for (size_t i = 0; i < images->n; i++)
		free_fields(image_fields, COUNT(image_fields), &images->at[i]);
	free(images->at);
	*images = (struct recorded_images){0};
}

static bool read_image(const json_t *value, struct recorded_image *image)
{
	return json_object_get(value, "start") && json_object_get(value, "end") &&
	       json_object_get(value, "slide") &&
	       read_fields(value, image_fields, COUNT(image_fields), image) &&
	       (image->path || image->build_id);
}

/* False if the value is malformed; then there is nothing to free. */
static bool read_images(const json_t *value, struct recorded_images *images)
{
	const size_t n = json_array_size(value);
	bool good = json_is_array(value) && n <= RECORDED_IMAGES_MAX;

	*images = (struct recorded_images){.at = good ? calloc(n + 1, sizeof(*images->at)) : NULL};
	good = good && images->at;
	for (; images->n < n && good; images->n++)
		good = read_image(json_array_get(value, images->n), &images->at[images->n]);
	if (!good)
		free_images(images);
	return good;
}

static bool copy_images(const struct recorded_images *from, struct recorded_images *to)
{
	bool whole = true;

	*to = (struct recorded_images){.at = from->at ? calloc(from->n + 1, sizeof(*to->at))
						      : NULL};
	for (; to->at && to->n < from->n && whole; to->n++) {
		to->at[to->n] = from->at[to->n];
		whole = copy_fields(image_fields, COUNT(image_fields), &from->at[to->n],
				    &to->at[to->n]);
	}
	if (!whole)
		free_images(to);
	return whole && !to->at == !from->at;
}

struct error *recording_info_write(const struct recording_info *info, struct bytes *out)
{
	return put_fields(info_fields, COUNT(info_fields), info, out);
}

struct error *recording_end_write(const struct recording_end *end, struct bytes *out)
{
	return put_fields(end_fields, COUNT(end_fields), end, out);
}

bool recording_info_read(const void *text, size_t len, struct recording_info *info)
{
	*info = (struct recording_info){0};
	return parse_fields(text, len, info_fields, COUNT(info_fields), info);
}

bool recording_end_read(const void *text, size_t len, struct recording_end *end)
{
	*end = (struct recording_end){0};
	return parse_fields(text, len, end_fields, COUNT(end_fields), end);
}

void recording_info_free(struct recording_info *info)
{
	free_fields(info_fields, COUNT(info_fields), info);
}

void recording_end_free(struct recording_end *end)
{
	free_fields(end_fields, COUNT(end_fields), end);
}

struct error *recording_info_copy(const struct recording_info *from, struct recording_info *to)
{
	*to = *from;
	return copy_fields(info_fields, COUNT(info_fields), from, to) ? NULL : error_no_memory();
}

struct error *recording_end_copy(const struct recording_end *from, struct recording_end *to)
{
	*to = *from;
	return copy_fields(end_fields, COUNT(end_fields), from, to) ? NULL : error_no_memory();
}

struct error *recorded_thread_copy(const struct recorded_thread *from, struct recorded_thread *to)
{
	*to = *from;
	to->name = strdup(from->name);
	to->process = strdup(from->process);
	to->container = from->container ? strdup(from->container) : NULL;
	if (to->name && to->process && !to->container == !from->container)
		return NULL;
	recorded_thread_free(to);
	return error_no_memory();
}

void recorded_thread_free(struct recorded_thread *thread)
{
	free((char *)thread->name);
	free((char *)thread->process);
	free((char *)thread->container);
}

struct error *recorded_thread_intern(struct pool *pool, struct recorded_thread *thread)
{
	const char **texts[] = {&thread->name, &thread->process, &thread->container};

	for (size_t i = 0; i < COUNT(texts); i++)
		if (*texts[i])
			TRY(pool_intern(pool, *texts[i], strlen(*texts[i]), texts[i]));
	return NULL;
}

#define CONTAINER_DIGITS       64u /* of a container's number, in hex */
#define CONTAINER_DIGITS_SHOWN 12u

/* The digits of "docker-DIGITS.scope", "DIGITS"; NULL: it is no container's. */
static const char *digits_of(const char *part, size_t len)
{
	const char *dash = memrchr(part, '-', len), *at = dash ? dash + 1 : part;
	const size_t rest = len - (size_t)(at - part), digits = strspn(at, "0123456789abcdef");

	return digits == CONTAINER_DIGITS &&
			       (rest == digits ||
				(rest == digits + 6 && !strncmp(at + digits, ".scope", 6)))
		       ? at
		       : NULL;
}

static size_t put_part(const char *part, size_t len, char *to)
{
	const char *digits = digits_of(part, len);
	size_t before;

	if (!digits) {
		memcpy(to, part, len);
		return len;
	}
	before = (size_t)(digits - part);
	memcpy(to, part, before + CONTAINER_DIGITS_SHOWN);
	if (before)
		to[before - 1] = ':';
	return before + CONTAINER_DIGITS_SHOWN;
}

static bool is_slice(const char *part, size_t len)
{
	return len > 6 && !strncmp(part + len - 6, ".slice", 6);
}

void recorded_container_name(const char *path, char name[CONTAINER_NAME_ROOM])
{
	bool inside = false;
	size_t n = 0, len;

	for (const char *part = path + strspn(path, "/"); *part; part += strspn(part, "/")) {
		const char *rest = part + strcspn(part, "/");

		len = (size_t)(rest - part);
		/* A name begins at the outermost container; a slice is left out where anything follows. */
		if ((!inside && digits_of(part, len)) || (n && is_slice(name, n)))
			n = 0;
		inside |= digits_of(part, len) != NULL;
		if (!n || !is_slice(part, len)) {
			if (n)
				name[n++] = '/';
			n += put_part(part, len, name + n);
		}
		part = rest;
	}
	memcpy(name + n, n ? "" : "/", n ? 1 : 2);
}

bool recorded_container_id(const char *path, char id[CONTAINER_ID_ROOM])
{
	const char *last = NULL;

	for (const char *part = path + strspn(path, "/"); *part; part += strspn(part, "/")) {
		const size_t len = strcspn(part, "/");

		last = digits_of(part, len) ?: last;
		part += len;
	}
	if (last)
		snprintf(id, CONTAINER_ID_ROOM, "%.*s", (int)CONTAINER_DIGITS, last);
	return last;
}

bool recorded_image_replaced(const struct recorded_image *before,
			     const struct recorded_image *after)
{
	return before->build_id && after->build_id && is_mapped_file(before->slide) &&
	       before->slide == after->slide && strcmp(before->build_id, after->build_id) != 0;
}
