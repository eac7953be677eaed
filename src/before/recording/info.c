/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/recording_info.h"

#include <stdlib.h>

#include "profile/recording_images.h"

enum field_type { FIELD_STRING, FIELD_U32, FIELD_U64, FIELD_DOUBLE, FIELD_BOOL, FIELD_IMAGES };

struct field {
	const char *key;
	enum field_type type;
	size_t offset;
};

#define INFO(name, type)                                           \
	{                                                          \
#name, type, offsetof(struct recording_info, name) \
	}
#define END(name, type)                                           \
	{                                                         \
#name, type, offsetof(struct recording_end, name) \
	}

static const struct field info_fields[] = {
	INFO(tool, FIELD_STRING),	INFO(target, FIELD_STRING),
	INFO(guest_name, FIELD_STRING), INFO(guest_id, FIELD_STRING),
	INFO(guest_type, FIELD_STRING), INFO(host, FIELD_STRING),
	INFO(arch, FIELD_STRING),	INFO(unwind, FIELD_STRING),
	INFO(image, FIELD_STRING),	INFO(build_id, FIELD_STRING),
	INFO(vcpus, FIELD_U32),		INFO(rate_hz, FIELD_DOUBLE),
	INFO(duration_ns, FIELD_U64),	INFO(start_unix_ns, FIELD_U64),
	INFO(jitter, FIELD_BOOL),	INFO(weight_unit, FIELD_STRING),
	INFO(images, FIELD_IMAGES),
};
static const struct field end_fields[] = {
	END(elapsed_ns, FIELD_U64), END(missed, FIELD_U64),   END(retakes, FIELD_U64),
	END(failed, FIELD_U64),	    END(given_up, FIELD_U64), END(reason, FIELD_STRING),
	END(images, FIELD_IMAGES),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *vcpu_state_text(enum vcpu_state state)
{
	switch (state) {
	case VCPU_RUNNING:
		return "running";
	case VCPU_RUNNABLE:
		return "runnable";
	case VCPU_BLOCKED:
		return "blocked";
	default:
		return "unknown";
	}
}

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

json_t *recorded_text(const char *text)
{
	json_t *string = json_string(text);
	size_t n = 0;
	char *clean;

	if (string)
		return string;
	clean = malloc(strlen(text) + 1);
	if (!clean)
		return NULL;
	while (*text) {
		size_t len = character(text);

		memcpy(clean + n, len ? text : "?", len ? len : 1);
		n += len ? len : 1;
		text += len ? len : 1;
	}
	string = json_stringn(clean, n);
	free(clean);
	return string;
}

static json_t *integer(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

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
	case FIELD_DOUBLE:
		value = json_real(*(const double *)at);
		break;
	case FIELD_BOOL:
		value = json_boolean(*(const bool *)at);
		break;
	case FIELD_IMAGES:
		if (!((const struct recorded_images *)at)->at)
			return true;
		value = recorded_images_write(at);
		break;
	}
	return json_object_set_new(object, field->key, value) == 0;
}

static struct error *write_fields(const struct field *fields, size_t n, const void *from,
				  struct bytes *out)
{
	json_t *object = json_object();
	struct error *err = NULL;
	char *text = NULL;

	for (size_t i = 0; i < n && !err; i++)
		if (!add_field(object, &fields[i], from))
			err = error_no_memory();
	if (!err) {
		text = json_dumps(object, JSON_COMPACT);
		err = text ? bytes_reserve(out, strlen(text)) : error_no_memory();
	}
	if (!err)
		put_bytes(out, text, strlen(text));
	free(text);
	json_decref(object);
	return err;
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
	case FIELD_DOUBLE:
		*(double *)at = json_number_value(value);
		return json_is_number(value) && json_number_value(value) >= 0;
	case FIELD_BOOL:
		*(bool *)at = json_is_true(value);
		return json_is_boolean(value);
	case FIELD_IMAGES:
		return recorded_images_read(value, at);
	}
	return false;
}

static void free_fields(const struct field *fields, size_t n, void *from)
{
	for (size_t i = 0; i < n; i++) {
		void *at = (char *)from + fields[i].offset;

		if (fields[i].type == FIELD_IMAGES)
			recorded_images_free(at);
		if (fields[i].type != FIELD_STRING)
			continue;
		free(*(char **)at);
		*(char **)at = NULL;
	}
}

static bool read_fields(const void *text, size_t len, const struct field *fields, size_t n,
			void *to)
{
	json_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	bool good = json_is_object(object);

	for (size_t i = 0; i < n && good; i++) {
		const json_t *value = json_object_get(object, fields[i].key);

		good = !value || read_field(value, &fields[i], to);
	}
	json_decref(object);
	if (!good)
		free_fields(fields, n, to);
	return good;
}

struct error *recording_info_write(const struct recording_info *info, struct bytes *out)
{
	return write_fields(info_fields, COUNT(info_fields), info, out);
}

struct error *recording_end_write(const struct recording_end *end, struct bytes *out)
{
	return write_fields(end_fields, COUNT(end_fields), end, out);
}

bool recording_info_read(const void *text, size_t len, struct recording_info *info)
{
	*info = (struct recording_info){0};
	return read_fields(text, len, info_fields, COUNT(info_fields), info);
}

bool recording_end_read(const void *text, size_t len, struct recording_end *end)
{
	*end = (struct recording_end){0};
	return read_fields(text, len, end_fields, COUNT(end_fields), end);
}

void recording_info_free(struct recording_info *info)
{
	free_fields(info_fields, COUNT(info_fields), info);
}

void recording_end_free(struct recording_end *end)
{
	free_fields(end_fields, COUNT(end_fields), end);
}

/* `to` is a flat copy of `from`: gives it strings and images of its own. */
static struct error *copy_strings(const struct field *fields, size_t n, const void *from, void *to)
{
	bool whole = true;

	for (size_t i = 0; i < n; i++) {
		const void *source = (const char *)from + fields[i].offset;
		void *copy = (char *)to + fields[i].offset;

		if (fields[i].type == FIELD_IMAGES)
			whole = recorded_images_copy(source, copy) && whole;
		if (fields[i].type != FIELD_STRING || !*(char *const *)source)
			continue;
		*(char **)copy = strdup(*(char *const *)source);
		whole = whole && *(char **)copy;
	}
	if (whole)
		return NULL;
	free_fields(fields, n, to);
	return error_no_memory();
}

struct error *recording_info_copy(const struct recording_info *from, struct recording_info *to)
{
	*to = *from;
	return copy_strings(info_fields, COUNT(info_fields), from, to);
}

struct error *recording_end_copy(const struct recording_end *from, struct recording_end *to)
{
	*to = *from;
	return copy_strings(end_fields, COUNT(end_fields), from, to);
}
