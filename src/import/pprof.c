/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * pprof's profile.proto (github.com/google/pprof/proto), compressed or not. Of
 * several values the default one counts, or the last, as in pprof itself; one
 * in "count" before it is the number of samples. Samples have no times. Labels
 * tell the thread, and in exports of uniprof vCPU and state.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "import/importer.h"
#include "import/protobuf.h"

/* Entries of a table, at most; kinds of values that a sample has. */
#define TABLE_MAX (1u << 24)
#define TYPES_MAX 64

/* Later versions may have more fields, up to this number. */
#define FIELDS_MAX 32

struct string {
	const char *at;
	size_t len;
};

struct value_type {
	uint64_t type, unit;
};

struct function {
	const char *name, *file;
};

/* Rows of a table by the IDs that the file gave them. */
struct table {
	struct ids *ids;
	void *rows;
	size_t room;
};

struct numbers {
	uint64_t *at;
	size_t n, room;
};

struct pprof {
	struct import *import;
	struct cursor all;
	struct string *strings;
	size_t n_strings, strings_room;
	struct value_type types[TYPES_MAX], period_type;
	unsigned n_types, chosen;
	bool has_counts; /* the value before the chosen one is the number of samples */
	uint64_t default_type, period;
	double scale; /* of the chosen value to nanoseconds; 0: it is no time */
	struct table functions, mappings, locations; /* struct function, uint32_t, uint64_t */
	struct numbers stack, values;
};

static struct error *damaged(const struct pprof *p)
{
	return import_damaged(p->import, "it is no whole pprof profile");
}

/* False for fields that are what a profile has not, or another type of it. */
static bool fits(const struct protobuf_field *field)
{
	const bool is_message =
		(field->number >= PPROF_SAMPLE_TYPE && field->number <= PPROF_STRING) ||
		field->number == PPROF_PERIOD_TYPE;

	if (field->number > FIELDS_MAX)
		return false;
	/* Comments are packed or not. */
	return field->number == PPROF_COMMENT || field->number > PPROF_DEFAULT_SAMPLE_TYPE ||
	       field->wire == (is_message ? PROTOBUF_LEN : PROTOBUF_VARINT);
}

/* The first message that is cut by the end of the head says nothing. */
static bool has_head(const uint8_t *head, size_t len)
{
	struct cursor in = {head, head + len};
	struct protobuf_field field;
	unsigned fields = 0, types = 0;

	while (protobuf_next(&in, &field)) {
		if (!fits(&field))
			return false;
		types += field.number == PPROF_SAMPLE_TYPE || field.number == PPROF_STRING;
		fields++;
	}
	return fields > 1 && types && (in.at || len >= IMPORT_HEAD);
}

static struct error *add_string(struct pprof *p, const struct protobuf_field *field)
{
	struct error *err;

	if (p->n_strings == TABLE_MAX)
		return import_damaged(p->import, "too many texts");
	err = ARRAY_RESERVE(&p->strings, &p->strings_room, p->n_strings + 1);
	if (!err)
		p->strings[p->n_strings++] =
			(struct string){(const char *)field->bytes.at,
					(size_t)(field->bytes.end - field->bytes.at)};
	return err;
}

/* Numbers of a message's fields, at[1] to at[n - 1]; what is absent is zero. */
static struct error *read_numbers(const struct pprof *p, struct cursor in, uint64_t *at, size_t n)
{
	struct protobuf_field field;

	memset(at, 0, n * sizeof(*at));
	while (protobuf_next(&in, &field))
		if (field.number < n)
			at[field.number] = field.value;
	return in.at ? NULL : damaged(p);
}

static struct error *read_type(const struct pprof *p, struct cursor in, struct value_type *type)
{
	uint64_t at[PPROF_VALUE_UNIT + 1];
	struct error *err = read_numbers(p, in, at, PPROF_VALUE_UNIT + 1);

	*type = (struct value_type){at[PPROF_VALUE_TYPE], at[PPROF_VALUE_UNIT]};
	return err;
}

static struct error *read_head_field(struct pprof *p, const struct protobuf_field *field)
{
	switch (field->number) {
	case PPROF_STRING:
		return add_string(p, field);
	case PPROF_SAMPLE_TYPE:
		if (p->n_types == TYPES_MAX)
			return import_damaged(p->import, "too many kinds of values");
		return read_type(p, field->bytes, &p->types[p->n_types++]);
	case PPROF_PERIOD_TYPE:
		return read_type(p, field->bytes, &p->period_type);
	case PPROF_PERIOD:
		p->period = field->value;
		return NULL;
	case PPROF_TIME_NANOS:
		p->import->start_unix_ns = field->value <= INT64_MAX ? field->value : 0;
		return NULL;
	case PPROF_DURATION_NANOS:
		p->import->elapsed_ns = field->value <= INT64_MAX ? field->value : 0;
		return NULL;
	case PPROF_DEFAULT_SAMPLE_TYPE:
		p->default_type = field->value;
		return NULL;
	default:
		return NULL;
	}
}

/* Calls `read` for each field of the profile. */
static struct error *each_field(struct pprof *p,
				struct error *(*read)(struct pprof *p,
						      const struct protobuf_field *field))
{
	struct cursor in = p->all;
	struct error *err = NULL;
	struct protobuf_field field;

	while (!err && protobuf_next(&in, &field))
		err = fits(&field) ? read(p, &field) : damaged(p);
	return err || in.at ? err : damaged(p);
}

/* The text of this number; "" if there is none. */
static struct error *text_of(struct pprof *p, uint64_t number, const char **out)
{
	const struct string empty = {"", 0};
	const struct string *string = number < p->n_strings ? &p->strings[number] : &empty;

	return import_text(p->import, string->at, string->len, out);
}

static bool same_text(const struct pprof *p, uint64_t number, const char *text)
{
	return number < p->n_strings && p->strings[number].len == strlen(text) &&
	       !memcmp(p->strings[number].at, text, strlen(text));
}

/* Chooses the value that counts, and what it is. */
static struct error *choose_value(struct pprof *p)
{
	const char *type = "", *unit = "";
	struct error *err;

	if (!p->n_types)
		return import_damaged(p->import, "it does not say what its values are");
	p->chosen = p->n_types - 1;
	for (unsigned i = 0; i < p->n_types && p->default_type; i++)
		if (p->types[i].type == p->default_type)
			p->chosen = i;
	err = text_of(p, p->types[p->chosen].type, &type);
	if (!err)
		err = text_of(p, p->types[p->chosen].unit, &unit);
	if (err)
		return err;
	p->scale = import_unit_ns(unit);
	p->has_counts = p->chosen && same_text(p, p->types[p->chosen - 1].unit, "count") &&
			strcmp(unit, "count") != 0;
	snprintf(p->import->host, sizeof(p->import->host), "pprof, %s", type);
	if (!(p->scale > 0))
		snprintf(p->import->unit, sizeof(p->import->unit), "%s",
			 strcmp(unit, "count") && *unit ? unit : type);
	if (p->period && p->period <= INT64_MAX && same_text(p, p->period_type.unit, "nanoseconds"))
		p->import->rate_hz = 1e9 / (double)p->period;
	return NULL;
}

/* The row of an ID; *added: it is new, and zero. */
static struct error *add_row(struct pprof *p, struct table *table, uint64_t id, size_t size,
			     void *out)
{
	uint32_t number;
	bool added;
	struct error *err = table->ids ? NULL : ids_new(&table->ids);

	if (!err && ids_count(table->ids) == TABLE_MAX)
		err = import_damaged(p->import, "a table is too long");
	if (!err)
		err = ids_get(table->ids, id, 0, &number, &added);
	if (!err)
		err = array_reserve(&table->rows, &table->room, number + (size_t)1, size);
	if (!err) {
		char *row = (char *)table->rows + number * size;

		memcpy(out, &row, sizeof(row));
	}
	return err;
}

/* NULL: there is no such row. */
static const void *find_row(const struct table *table, uint64_t id, size_t size)
{
	uint32_t number;

	if (!table->ids || !ids_find(table->ids, id, 0, &number))
		return NULL;
	return (const char *)table->rows + number * size;
}

static struct error *read_function(struct pprof *p, struct cursor in)
{
	uint64_t at[PPROF_FUNCTION_FILE + 1];
	const uint64_t *name = &at[PPROF_FUNCTION_NAME];
	struct function *row;
	struct error *err = read_numbers(p, in, at, PPROF_FUNCTION_FILE + 1);

	if (!err)
		err = add_row(p, &p->functions, at[PPROF_FUNCTION_ID], sizeof(*row), &row);
	if (err)
		return err;
	*row = (struct function){0};
	err = text_of(p, *name ? *name : at[PPROF_FUNCTION_SYSTEM_NAME], &row->name);
	if (!err && at[PPROF_FUNCTION_FILE])
		err = text_of(p, at[PPROF_FUNCTION_FILE], &row->file);
	return err;
}

static struct error *read_mapping(struct pprof *p, struct cursor in)
{
	uint64_t at[PPROF_MAPPING_BUILD_ID + 1];
	struct import_image image = {0};
	uint32_t *row;
	struct error *err = read_numbers(p, in, at, PPROF_MAPPING_BUILD_ID + 1);

	if (!err)
		err = add_row(p, &p->mappings, at[PPROF_MAPPING_ID], sizeof(*row), &row);
	if (!err)
		*row = 0;
	if (err || !at[PPROF_MAPPING_FILE])
		return err;
	image.start = at[PPROF_MAPPING_START];
	image.end = at[PPROF_MAPPING_LIMIT];
	image.offset = at[PPROF_MAPPING_OFFSET];
	err = text_of(p, at[PPROF_MAPPING_FILE], &image.path);
	if (!err && at[PPROF_MAPPING_BUILD_ID])
		err = text_of(p, at[PPROF_MAPPING_BUILD_ID], &image.build_id);
	return err ? err : import_image(p->import, &image, row);
}

static struct error *read_tables(struct pprof *p, const struct protobuf_field *field)
{
	if (field->number == PPROF_FUNCTION)
		return read_function(p, field->bytes);
	return field->number == PPROF_MAPPING ? read_mapping(p, field->bytes) : NULL;
}

/* The functions at a location, innermost first, SOURCE_DEPTH of the outermost at most. */
struct lines {
	struct source_frame at[SOURCE_DEPTH];
	uint32_t n;
};

static struct error *read_line(struct pprof *p, struct cursor in, struct lines *lines)
{
	struct source_frame frame = {.function = ""};
	uint64_t at[PPROF_LINE_LINE + 1];
	struct error *err = read_numbers(p, in, at, PPROF_LINE_LINE + 1);
	const struct function *function =
		find_row(&p->functions, at[PPROF_LINE_FUNCTION], sizeof(*function));

	if (err)
		return err;
	frame.line = at[PPROF_LINE_LINE] < UINT32_MAX ? (uint32_t)at[PPROF_LINE_LINE] : 0;
	if (function) {
		frame.function = function->name;
		frame.file = function->file;
	}
	if (lines->n == SOURCE_DEPTH) {
		memmove(lines->at, lines->at + 1, (SOURCE_DEPTH - 1) * sizeof(lines->at[0]));
		lines->n--;
	}
	lines->at[lines->n++] = frame;
	return NULL;
}

static struct error *add_location(struct pprof *p, uint64_t id, const struct lines *lines,
				  struct import_code code)
{
	uint64_t *row;
	struct error *err = add_row(p, &p->locations, id, sizeof(*row), &row);

	if (lines->n) {
		const struct source_frame *outer = &lines->at[lines->n - 1];

		code.name = outer->function;
		code.file = outer->file;
		code.line = outer->line;
		code.inlined = lines->at;
		code.n_inlined = lines->n - 1;
	}
	return err ? err : import_code(p->import, &code, row);
}

static struct error *read_location(struct pprof *p, const struct protobuf_field *of)
{
	struct cursor in = of->bytes;
	struct import_code code = {.addr = IMPORT_NO_ADDR};
	struct lines lines = {.n = 0};
	const uint32_t *image = NULL;
	struct protobuf_field field;
	struct error *err = NULL;
	uint64_t id = 0;

	if (of->number != PPROF_LOCATION)
		return NULL;
	while (!err && protobuf_next(&in, &field)) {
		if (field.number == PPROF_LOCATION_ID)
			id = field.value;
		else if (field.number == PPROF_LOCATION_MAPPING)
			image = find_row(&p->mappings, field.value, sizeof(*image));
		else if (field.number == PPROF_LOCATION_ADDRESS && field.value)
			code.addr = field.value;
		else if (field.number == PPROF_LOCATION_LINE)
			err = read_line(p, field.bytes, &lines);
	}
	if (err || !in.at)
		return err ? err : damaged(p);
	code.image = image ? *image : 0;
	if (!lines.n && code.addr == IMPORT_NO_ADDR)
		code.addr = 0;
	return add_location(p, id, &lines, code);
}

/* A repeated number, packed or one by one. */
static struct error *add_numbers(const struct pprof *p, const struct protobuf_field *field,
				 struct numbers *numbers)
{
	struct cursor in = field->bytes;
	uint64_t value = field->value;
	struct error *err = NULL;

	if (field->wire == PROTOBUF_VARINT) {
		err = ARRAY_RESERVE(&numbers->at, &numbers->room, numbers->n + 1);
		if (!err)
			numbers->at[numbers->n++] = value;
		return err;
	}
	while (!err && in.at < in.end) {
		if (!get_varint(&in, &value))
			return damaged(p);
		err = ARRAY_RESERVE(&numbers->at, &numbers->room, numbers->n + 1);
		if (!err)
			numbers->at[numbers->n++] = value;
	}
	return err;
}

/* The labels that tell what ran. */
struct labels {
	struct recorded_thread thread; /* texts that are not told are NULL */
	uint16_t vcpu;
	uint8_t state;
};

static uint8_t state_of(const char *text)
{
	for (uint8_t state = 0; state < VCPU_STATES; state++)
		if (!strcmp(text, sample_state_text(state)))
			return state;
	return VCPU_RUNNING;
}

static struct error *read_label(struct pprof *p, struct cursor in, struct labels *labels)
{
	uint64_t at[PPROF_LABEL_NUM + 1], key, number, vcpu;
	const char *value;
	struct error *err = read_numbers(p, in, at, PPROF_LABEL_NUM + 1);

	if (!err)
		err = text_of(p, at[PPROF_LABEL_STR], &value);
	if (err)
		return err;
	key = at[PPROF_LABEL_KEY];
	number = at[PPROF_LABEL_NUM];
	vcpu = strncmp(value, "vcpu", 4) ? 0 : strtoul(value + 4, NULL, 10);
	number = number < RECORDED_ID_UNKNOWN ? number : RECORDED_ID_UNKNOWN;
	if (same_text(p, key, "pid"))
		labels->thread.pid = (uint32_t)number;
	else if (same_text(p, key, "tid"))
		labels->thread.tid = (uint32_t)number;
	else if (same_text(p, key, "comm"))
		labels->thread.process = value;
	else if (same_text(p, key, "thread_comm"))
		labels->thread.name = value;
	else if (same_text(p, key, "container"))
		labels->thread.container = value;
	else if (same_text(p, key, "state"))
		labels->state = state_of(value);
	else if (same_text(p, key, "vcpu") && vcpu < RECORDING_MAX_VCPUS)
		labels->vcpu = (uint16_t)vcpu;
	return NULL;
}

static struct error *find_thread(struct pprof *p, const struct labels *labels, uint32_t *number)
{
	struct recorded_thread thread = labels->thread;
	struct error *err = NULL;

	thread.name = thread.name ?: thread.process;
	if (!thread.name && thread.pid == RECORDED_ID_UNKNOWN && thread.tid == RECORDED_ID_UNKNOWN)
		return NULL;
	if (!thread.name)
		err = import_text(p->import, "", 0, &thread.name);
	return err ? err : import_thread(p->import, &thread, number);
}

/* Leaf first, as the file has it. */
static struct error *find_stack(struct pprof *p, uint32_t *stack)
{
	struct error *err = NULL;

	*stack = STACK_ROOT;
	if (p->stack.n > IMPORT_FRAMES_MAX)
		return import_damaged(p->import, "a stack with too many frames");
	for (size_t i = p->stack.n; i > 0 && !err; i--) {
		const uint64_t *addr = find_row(&p->locations, p->stack.at[i - 1], sizeof(*addr));

		if (!addr)
			return import_damaged(p->import, "a sample has a location that is missing");
		err = import_frame(p->import, *stack, *addr, FRAME_PC, stack);
	}
	return err;
}

static struct error *add_sample(struct pprof *p, const struct labels *labels)
{
	struct import_sample sample = {.vcpu = labels->vcpu, .state = labels->state};
	double value, weight;
	uint64_t count, whole;
	struct error *err;

	if (p->values.n != p->n_types)
		return damaged(p);
	value = (double)(int64_t)p->values.at[p->chosen];
	weight = p->scale > 0 ? value * p->scale : value;
	count = p->has_counts ? p->values.at[p->chosen - 1] : 1;
	if (value < 0 || (p->has_counts && count > INT64_MAX))
		return import_damaged(p->import,
				      "it has negative values: a difference, and no profile");
	if (weight > 9e18)
		return import_damaged(p->import, "a value is too large");
	/* Doubles would round what is nanoseconds already. */
	whole = p->scale > 1 ? (uint64_t)weight : p->values.at[p->chosen];
	sample.times = count ? count : whole > 0;
	if (p->scale <= 0 && same_text(p, p->types[p->chosen].unit, "count"))
		sample.times = whole;
	err = find_stack(p, &sample.stack);
	if (!err)
		err = find_thread(p, labels, &sample.thread);
	return err ? err : import_samples(p->import, sample, whole);
}

static struct error *read_sample(struct pprof *p, const struct protobuf_field *of)
{
	struct labels labels = {.thread = {.pid = RECORDED_ID_UNKNOWN, .tid = RECORDED_ID_UNKNOWN}};
	struct cursor in = of->bytes;
	struct error *err = NULL;
	struct protobuf_field field;

	if (of->number != PPROF_SAMPLE)
		return NULL;
	p->stack.n = p->values.n = 0;
	while (!err && protobuf_next(&in, &field)) {
		if (field.number == PPROF_SAMPLE_LOCATION)
			err = add_numbers(p, &field, &p->stack);
		else if (field.number == PPROF_SAMPLE_VALUE)
			err = add_numbers(p, &field, &p->values);
		else if (field.number == PPROF_SAMPLE_LABEL)
			err = read_label(p, field.bytes, &labels);
	}
	if (err || !in.at)
		return err ? err : damaged(p);
	return add_sample(p, &labels);
}

static void table_free(struct table *table)
{
	ids_free(table->ids);
	free(table->rows);
}

static struct error *read_pprof(struct import *import)
{
	struct pprof p = {.import = import};
	const uint8_t *data;
	size_t len;
	struct error *err = import_whole(import->input, &data, &len);

	import->timeless = true;
	if (!err) {
		p.all = (struct cursor){data, data + len};
		err = each_field(&p, read_head_field);
	}
	if (!err)
		err = choose_value(&p);
	if (!err)
		err = each_field(&p, read_tables);
	if (!err)
		err = each_field(&p, read_location);
	if (!err)
		err = each_field(&p, read_sample);
	free(p.strings);
	free(p.stack.at);
	free(p.values.at);
	table_free(&p.functions);
	table_free(&p.mappings);
	table_free(&p.locations);
	return err;
}

const struct importer import_pprof = {.name = "pprof",
				      .title = "pprof profiles",
				      .has_head = has_head,
				      .read = read_pprof};
