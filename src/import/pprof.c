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
#include "base/owned.h"
#include "import/importer.h"
#include "import/protobuf.h"

/* Entries of a table, at most; kinds of values that a sample has. */
#define TABLE_MAX (1u << 24)
#define TYPES_MAX 64

/* Later versions may have more fields, up to this number. */
#define FIELDS_MAX 32

struct value_type {
	uint64_t type, unit;
};

struct function {
	const char *name, *file;
};

struct numbers {
	uint64_t *at;
	size_t n, room;
};

struct pprof {
	struct import *import;
	struct cursor all;
	struct cursor *strings;
	size_t n_strings, strings_room;
	struct value_type types[TYPES_MAX], period_type;
	unsigned n_types, chosen;
	bool has_counts; /* the value before the chosen one is the number of samples */
	uint64_t default_type, period;
	double scale; /* of the chosen value to nanoseconds; 0: it is no time */
	/* Rows of tables, by the IDs that the file gave them: */
	struct row_ids function_ids, mapping_ids, location_ids;
	struct function *functions;
	uint32_t *mappings;  /* numbers of images */
	uint64_t *locations; /* addresses */
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
	if (p->n_strings == TABLE_MAX)
		return import_damaged(p->import, "too many texts");
	TRY(ARRAY_RESERVE(&p->strings, &p->strings_room, p->n_strings + 1));
	p->strings[p->n_strings++] = field->bytes;
	return NULL;
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

	TRY(read_numbers(p, in, at, PPROF_VALUE_UNIT + 1));
	*type = (struct value_type){at[PPROF_VALUE_TYPE], at[PPROF_VALUE_UNIT]};
	return NULL;
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
	struct protobuf_field field;

	while (protobuf_next(&in, &field))
		TRY(fits(&field) ? read(p, &field) : damaged(p));
	return in.at ? NULL : damaged(p);
}

/* The text of this number; "" if there is none. */
static struct error *text_of(struct pprof *p, uint64_t number, const char **out)
{
	const struct cursor none = {p->all.at, p->all.at};
	const struct cursor text = number < p->n_strings ? p->strings[number] : none;

	return import_text(p->import, (const char *)text.at, (size_t)(text.end - text.at), out);
}

static bool same_text(const struct pprof *p, uint64_t number, const char *text)
{
	const size_t len = strlen(text);

	return number < p->n_strings &&
	       p->strings[number].end - p->strings[number].at == (ptrdiff_t)len &&
	       !memcmp(p->strings[number].at, text, len);
}

/* Chooses the value that counts, and what it is. */
static struct error *choose_value(struct pprof *p)
{
	const char *type = "", *unit = "";

	if (!p->n_types)
		return import_damaged(p->import, "it does not say what its values are");
	p->chosen = p->n_types - 1;
	for (unsigned i = 0; i < p->n_types && p->default_type; i++)
		if (p->types[i].type == p->default_type)
			p->chosen = i;
	TRY(text_of(p, p->types[p->chosen].type, &type));
	TRY(text_of(p, p->types[p->chosen].unit, &unit));
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

static struct error *add_row(struct pprof *p, struct row_ids *ids, uint64_t id, void *rows,
			     size_t size, uint32_t *number)
{
	if (row_ids_count(ids) == TABLE_MAX)
		return import_damaged(p->import, "a table is too long");
	return row_ids_get(ids, id, 0, rows, size, number);
}

#define ADD_ROW(p, ids, id, rows, number) add_row(p, ids, id, rows, sizeof(**(rows)), number)

static struct error *read_function(struct pprof *p, struct cursor in)
{
	uint64_t at[PPROF_FUNCTION_FILE + 1];
	struct function *row;
	uint32_t number;

	TRY(read_numbers(p, in, at, PPROF_FUNCTION_FILE + 1));
	TRY(ADD_ROW(p, &p->function_ids, at[PPROF_FUNCTION_ID], &p->functions, &number));
	row = &p->functions[number];
	*row = (struct function){0};
	TRY(text_of(p, at[PPROF_FUNCTION_NAME] ?: at[PPROF_FUNCTION_SYSTEM_NAME], &row->name));
	return at[PPROF_FUNCTION_FILE] ? text_of(p, at[PPROF_FUNCTION_FILE], &row->file) : NULL;
}

static struct error *read_mapping(struct pprof *p, struct cursor in)
{
	uint64_t at[PPROF_MAPPING_BUILD_ID + 1];
	struct import_image image = {0};
	uint32_t number;

	TRY(read_numbers(p, in, at, PPROF_MAPPING_BUILD_ID + 1));
	TRY(ADD_ROW(p, &p->mapping_ids, at[PPROF_MAPPING_ID], &p->mappings, &number));
	p->mappings[number] = 0;
	if (!at[PPROF_MAPPING_FILE])
		return NULL;
	image.start = at[PPROF_MAPPING_START];
	image.end = at[PPROF_MAPPING_LIMIT];
	image.offset = at[PPROF_MAPPING_OFFSET];
	TRY(text_of(p, at[PPROF_MAPPING_FILE], &image.path));
	if (at[PPROF_MAPPING_BUILD_ID])
		TRY(text_of(p, at[PPROF_MAPPING_BUILD_ID], &image.build_id));
	return import_image(p->import, &image, &p->mappings[number]);
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
	uint32_t number;

	TRY(read_numbers(p, in, at, PPROF_LINE_LINE + 1));
	frame.line = at[PPROF_LINE_LINE] < UINT32_MAX ? (uint32_t)at[PPROF_LINE_LINE] : 0;
	if (row_ids_find(&p->function_ids, at[PPROF_LINE_FUNCTION], 0, &number)) {
		frame.function = p->functions[number].name;
		frame.file = p->functions[number].file;
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
	uint32_t number;

	TRY(ADD_ROW(p, &p->location_ids, id, &p->locations, &number));
	if (lines->n) {
		const struct source_frame *outer = &lines->at[lines->n - 1];

		code.name = outer->function;
		code.file = outer->file;
		code.line = outer->line;
		code.inlined = lines->at;
		code.n_inlined = lines->n - 1;
	}
	return import_code(p->import, &code, &p->locations[number]);
}

static struct error *read_location(struct pprof *p, const struct protobuf_field *of)
{
	struct cursor in = of->bytes;
	struct import_code code = {.addr = IMPORT_NO_ADDR};
	struct lines lines = {.n = 0};
	struct protobuf_field field;
	uint64_t id = 0;
	uint32_t number;

	if (of->number != PPROF_LOCATION)
		return NULL;
	while (protobuf_next(&in, &field)) {
		if (field.number == PPROF_LOCATION_ID)
			id = field.value;
		else if (field.number == PPROF_LOCATION_MAPPING)
			code.image = row_ids_find(&p->mapping_ids, field.value, 0, &number)
					     ? p->mappings[number]
					     : 0;
		else if (field.number == PPROF_LOCATION_ADDRESS && field.value)
			code.addr = field.value;
		else if (field.number == PPROF_LOCATION_LINE)
			TRY(read_line(p, field.bytes, &lines));
	}
	if (!in.at)
		return damaged(p);
	if (!lines.n && code.addr == IMPORT_NO_ADDR)
		code.addr = 0;
	return add_location(p, id, &lines, code);
}

static struct error *add_number(struct numbers *numbers, uint64_t value)
{
	TRY(ARRAY_RESERVE(&numbers->at, &numbers->room, numbers->n + 1));
	numbers->at[numbers->n++] = value;
	return NULL;
}

/* A repeated number, packed or one by one. */
static struct error *add_numbers(const struct pprof *p, const struct protobuf_field *field,
				 struct numbers *numbers)
{
	struct cursor in = field->bytes;
	uint64_t value;

	if (field->wire == PROTOBUF_VARINT)
		return add_number(numbers, field->value);
	while (in.at < in.end) {
		if (!get_varint(&in, &value))
			return damaged(p);
		TRY(add_number(numbers, value));
	}
	return NULL;
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

	TRY(read_numbers(p, in, at, PPROF_LABEL_NUM + 1));
	TRY(text_of(p, at[PPROF_LABEL_STR], &value));
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

	thread.name = thread.name ?: thread.process;
	if (!thread.name && thread.pid == RECORDED_ID_UNKNOWN && thread.tid == RECORDED_ID_UNKNOWN)
		return NULL;
	if (!thread.name)
		TRY(import_text(p->import, "", 0, &thread.name));
	return import_thread(p->import, &thread, number);
}

/* Leaf first, as the file has it. */
static struct error *find_stack(struct pprof *p, uint32_t *stack)
{
	uint32_t number;

	*stack = STACK_ROOT;
	if (p->stack.n > IMPORT_FRAMES_MAX)
		return import_damaged(p->import, "a stack with too many frames");
	for (size_t i = p->stack.n; i > 0; i--) {
		if (!row_ids_find(&p->location_ids, p->stack.at[i - 1], 0, &number))
			return import_damaged(p->import, "a sample has a location that is missing");
		TRY(import_frame(p->import, *stack, p->locations[number], FRAME_PC, stack));
	}
	return NULL;
}

static struct error *add_sample(struct pprof *p, const struct labels *labels)
{
	struct import_sample sample = {.vcpu = labels->vcpu, .state = labels->state};
	double value, weight;
	uint64_t count, whole;

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
	TRY(find_stack(p, &sample.stack));
	TRY(find_thread(p, labels, &sample.thread));
	return import_samples(p->import, sample, whole);
}

static struct error *read_sample(struct pprof *p, const struct protobuf_field *of)
{
	struct labels labels = {.thread = {.pid = RECORDED_ID_UNKNOWN, .tid = RECORDED_ID_UNKNOWN}};
	struct cursor in = of->bytes;
	struct protobuf_field field;

	if (of->number != PPROF_SAMPLE)
		return NULL;
	p->stack.n = p->values.n = 0;
	while (protobuf_next(&in, &field)) {
		if (field.number == PPROF_SAMPLE_LOCATION)
			TRY(add_numbers(p, &field, &p->stack));
		else if (field.number == PPROF_SAMPLE_VALUE)
			TRY(add_numbers(p, &field, &p->values));
		else if (field.number == PPROF_SAMPLE_LABEL)
			TRY(read_label(p, field.bytes, &labels));
	}
	return in.at ? add_sample(p, &labels) : damaged(p);
}

static void pprof_free(struct pprof *p)
{
	free(p->strings);
	free(p->stack.at);
	free(p->values.at);
	ids_free(p->function_ids.ids);
	ids_free(p->mapping_ids.ids);
	ids_free(p->location_ids.ids);
	free(p->functions);
	free(p->mappings);
	free(p->locations);
}

static struct error *read_pprof(struct import *import)
{
	ENDED_BY(pprof_free) struct pprof p = {.import = import};
	const uint8_t *data;
	size_t len;

	import->timeless = true;
	TRY(import_whole(import->input, &data, &len));
	p.all = (struct cursor){data, data + len};
	TRY(each_field(&p, read_head_field));
	TRY(choose_value(&p));
	TRY(each_field(&p, read_tables));
	TRY(each_field(&p, read_location));
	return each_field(&p, read_sample);
}

const struct importer import_pprof = {.name = "pprof",
				      .title = "pprof profiles",
				      .has_head = has_head,
				      .read = read_pprof};
