/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * OpenTelemetry's profiles signal (opentelemetry-proto 1.10, v1development): an
 * ExportProfilesServiceRequest, as receivers take it by HTTP. One profile of
 * CPU time, whose samples carry the vCPU, its state and the thread that it ran
 * as attributes.
 */

#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "format/format.h"
#include "format/protobuf.h"
#include "format/tables.h"

/* Numbers of fields in profiles_service.proto, profiles.proto, resource.proto and common.proto. */
enum { REQUEST_RESOURCE_PROFILES = 1, REQUEST_DICTIONARY };
enum { RESOURCE_PROFILES_RESOURCE = 1, RESOURCE_PROFILES_SCOPE };
enum { RESOURCE_ATTRIBUTE = 1 };
enum { SCOPE_PROFILES_SCOPE = 1, SCOPE_PROFILES_PROFILE };
enum { SCOPE_NAME = 1, SCOPE_VERSION };
enum { KEY_VALUE_KEY = 1, KEY_VALUE_VALUE };
enum { ANY_STRING = 1, ANY_INT = 3 };
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE,
	PROFILE_TIME,
	PROFILE_DURATION,
	PROFILE_PERIOD_TYPE,
	PROFILE_PERIOD,
	PROFILE_ID,
};
enum { VALUE_TYPE = 1, VALUE_UNIT };
enum { SAMPLE_STACK = 1, SAMPLE_ATTRIBUTES, SAMPLE_VALUES = 4 };
enum {
	DICTIONARY_MAPPING = 1,
	DICTIONARY_LOCATION,
	DICTIONARY_FUNCTION,
	DICTIONARY_LINK,
	DICTIONARY_STRING,
	DICTIONARY_ATTRIBUTE,
	DICTIONARY_STACK,
};
enum { MAPPING_START = 1, MAPPING_LIMIT, MAPPING_OFFSET, MAPPING_FILE, MAPPING_ATTRIBUTES };
enum { LOCATION_MAPPING = 1, LOCATION_ADDRESS, LOCATION_LINE, LOCATION_ATTRIBUTES };
enum { LINE_FUNCTION = 1, LINE_LINE };
enum { FUNCTION_NAME = 1, FUNCTION_SYSTEM_NAME, FUNCTION_FILE };
enum { STACK_LOCATIONS = 1 };
enum { ATTRIBUTE_KEY = 1, ATTRIBUTE_VALUE };

/* Bytes of a profile's id. */
#define ID_LEN 16

struct otlp {
	const struct format_job *job;
	struct location_table *table;
	/* Numbers in the dictionary, less 1: entry 0 of each table is the zero value. */
	struct ids *strings, *attributes, *locations, *stacks;
	struct sample_group *groups;
	uint32_t n_groups;
	struct protobuf dictionary, profile;
	struct protobuf entry, inner, packed, stack; /* at work */
	struct error *err; /* the first; afterwards nothing is put any more */
};

static void fail(struct otlp *o, struct error *err)
{
	o->err = error_first(o->err, err);
}

/* Moves o->entry to the end of a table. */
static void add_entry(struct otlp *o, unsigned table)
{
	protobuf_message(&o->dictionary, table, &o->entry);
	protobuf_clear(&o->entry);
}

static void add_zero_values(struct otlp *o)
{
	for (unsigned table = DICTIONARY_MAPPING; table <= DICTIONARY_STACK; table++)
		add_entry(o, table);
}

/* The number of a text that belongs to the symbolizer. */
static uint64_t string_of(struct otlp *o, const char *text)
{
	uint32_t id = 0;
	bool added = false;

	if (!text || !*text)
		return 0;
	fail(o, ids_get(o->strings, (uintptr_t)text, 0, &id, &added));
	if (added)
		protobuf_text(&o->dictionary, DICTIONARY_STRING, text);
	return id + 1ull;
}

/* The same text, cleaned, in memory of the symbolizer. */
static const char *own_text(struct otlp *o, const char *text)
{
	const char *kept = NULL;

	fail(o, symbolizer_intern(o->job->symbolizer, text, &kept));
	return kept ?: "";
}

static uint64_t literal(struct otlp *o, const char *text)
{
	return string_of(o, own_text(o, text));
}

/* Adds a value to o->entry: `text`, or if that is NULL, the number. */
static void put_any(struct otlp *o, unsigned field, const char *text, uint64_t number)
{
	protobuf_clear(&o->inner);
	if (text) {
		protobuf_text(&o->inner, ANY_STRING, text);
	} else {
		/* Not left out if zero: one of several kinds. */
		protobuf_element(&o->inner, ANY_INT << 3);
		protobuf_element(&o->inner, number);
	}
	protobuf_message(&o->entry, field, &o->inner);
}

/* The number of an attribute; `text` belongs to the symbolizer, or is NULL. */
static uint64_t attribute(struct otlp *o, const char *key, const char *text, uint64_t number)
{
	const uint64_t name = literal(o, key);
	uint32_t id = 0;
	bool added = false;

	fail(o, ids_get(o->attributes, name, text ? (uintptr_t)text : number, &id, &added));
	if (added) {
		protobuf_number(&o->entry, ATTRIBUTE_KEY, name);
		put_any(o, ATTRIBUTE_VALUE, text, number);
		add_entry(o, DICTIONARY_ATTRIBUTE);
	}
	return id + 1ull;
}

static void add_mappings(struct otlp *o)
{
	for (uint32_t i = 0; i < o->table->n_images && !o->err; i++) {
		const struct location_image *image = &o->table->images[i];
		const uint64_t file = string_of(o, image->path);
		const uint64_t id = image->build_id
					    ? attribute(o, "process.executable.build_id.gnu",
							own_text(o, image->build_id), 0)
					    : 0;

		protobuf_number(&o->entry, MAPPING_START, image->start);
		protobuf_number(&o->entry, MAPPING_LIMIT, image->end);
		protobuf_number(&o->entry, MAPPING_OFFSET, image->offset);
		protobuf_number(&o->entry, MAPPING_FILE, file);
		protobuf_clear(&o->packed);
		if (id) {
			protobuf_element(&o->packed, id);
			protobuf_message(&o->entry, MAPPING_ATTRIBUTES, &o->packed);
		}
		add_entry(o, DICTIONARY_MAPPING);
	}
}

static void add_functions(struct otlp *o)
{
	for (uint32_t i = 0; i < o->table->n_functions && !o->err; i++) {
		const struct location_function *function = &o->table->functions[i];
		const uint64_t name = string_of(o, function->name);
		const uint64_t symbol = string_of(o, function->symbol);
		const uint64_t file = string_of(o, function->file);

		protobuf_number(&o->entry, FUNCTION_NAME, name);
		protobuf_number(&o->entry, FUNCTION_SYSTEM_NAME, symbol);
		protobuf_number(&o->entry, FUNCTION_FILE, file);
		add_entry(o, DICTIONARY_FUNCTION);
	}
}

static void put_location(struct otlp *o, const struct location_entry *at)
{
	/* The upper half of the addresses is the kernel's, where there are programs. */
	const char *type = own_text(o, at->code >> 63 ? "kernel" : "native");
	const uint64_t kind = attribute(o, "profile.frame.type", type, 0);

	if (at->image != LOCATION_NONE)
		protobuf_number(&o->entry, LOCATION_MAPPING, at->image + 1);
	protobuf_number(&o->entry, LOCATION_ADDRESS, at->code);
	for (uint32_t k = 0; k < at->n_lines; k++) {
		const struct location_line *line = &o->table->lines[at->lines + k];

		protobuf_clear(&o->inner);
		protobuf_number(&o->inner, LINE_FUNCTION, line->function + 1);
		protobuf_number(&o->inner, LINE_LINE, line->line);
		protobuf_message(&o->entry, LOCATION_LINE, &o->inner);
	}
	protobuf_clear(&o->packed);
	protobuf_element(&o->packed, kind);
	protobuf_message(&o->entry, LOCATION_ATTRIBUTES, &o->packed);
	add_entry(o, DICTIONARY_LOCATION);
}

/*
 * The number of a location. An instruction that was executed, and one that a
 * call returns behind, are one here; names without addresses are not.
 */
static uint64_t location_of(struct otlp *o, uint32_t i)
{
	const struct location_entry *at = &o->table->at[i];
	const uint32_t function = o->table->lines[at->lines].function;
	uint32_t id = 0;
	bool added = false;

	fail(o, ids_get(o->locations, at->code, (uint64_t)at->image << 32 | function, &id, &added));
	if (added)
		put_location(o, at);
	return id + 1ull;
}

/* The number of a stack; that of none is 0. */
static uint64_t stack_of(struct otlp *o, uint32_t stack)
{
	const struct stacks *stacks = o->job->profile->stacks;
	uint32_t number = 0;
	bool added = false;

	if (stack == STACK_ROOT)
		return 0;
	fail(o, ids_get(o->stacks, stack, 0, &number, &added));
	if (added) {
		protobuf_clear(&o->stack);
		for (uint32_t id = stack; id != STACK_ROOT; id = stacks_node(stacks, id)->parent)
			protobuf_element(&o->stack, location_of(o, o->table->of_node[id]));
		protobuf_message(&o->entry, STACK_LOCATIONS, &o->stack);
		add_entry(o, DICTIONARY_STACK);
	}
	return number + 1ull;
}

/* Makes a list of attributes in o->packed. */
static void pack_attributes(struct otlp *o, const struct sample_group *group)
{
	const struct recorded_thread *thread = sample_thread(o->job, group->thread);
	const char *state = own_text(o, sample_state_text(group->state));

	protobuf_clear(&o->packed);
	protobuf_element(&o->packed, attribute(o, "cpu.logical_number", NULL, group->vcpu));
	protobuf_element(&o->packed, attribute(o, "uniprof.vcpu.state", state, 0));
	if (!thread)
		return;
	if (thread->pid != RECORDED_ID_UNKNOWN)
		protobuf_element(&o->packed, attribute(o, "process.pid", NULL, thread->pid));
	protobuf_element(&o->packed,
			 attribute(o, "process.executable.name", own_text(o, thread->process), 0));
	if (thread->tid != RECORDED_ID_UNKNOWN)
		protobuf_element(&o->packed, attribute(o, "thread.id", NULL, thread->tid));
	protobuf_element(&o->packed, attribute(o, "thread.name", own_text(o, thread->name), 0));
}

static void put_sample(struct otlp *o, const struct sample_group *group)
{
	const uint64_t stack = stack_of(o, group->stack);

	if (!format_is_imported(o->job)) {
		pack_attributes(o, group);
		protobuf_message(&o->entry, SAMPLE_ATTRIBUTES, &o->packed);
	}
	protobuf_number(&o->entry, SAMPLE_STACK, stack);
	protobuf_clear(&o->packed);
	protobuf_element(&o->packed, group->weight);
	protobuf_message(&o->entry, SAMPLE_VALUES, &o->packed);
	protobuf_message(&o->profile, PROFILE_SAMPLE, &o->entry);
	protobuf_clear(&o->entry);
}

static void put_value_type(struct otlp *o, unsigned field, const char *type)
{
	const char *unit = NULL;
	uint64_t numbers[2];

	fail(o, format_unit(o->job, &unit));
	numbers[0] = literal(o, type);
	numbers[1] = string_of(o, unit);
	protobuf_clear(&o->inner);
	protobuf_number(&o->inner, VALUE_TYPE, numbers[0]);
	protobuf_number(&o->inner, VALUE_UNIT, numbers[1]);
	protobuf_message(&o->profile, field, &o->inner);
}

/* FNV-1a, 64 bits. */
static uint64_t hash(uint64_t from, const void *data, size_t len)
{
	for (const uint8_t *at = data, *end = at + len; at < end; at++)
		from = (from ^ *at) * 0x100000001b3ull;
	return from;
}

/* An id that is the same each time for a recording, so that receivers know it again; never 0. */
static void put_id(struct otlp *o)
{
	const struct recording_info *info = &o->job->profile->info;
	const char *name = info->guest_name ?: "";
	const uint64_t facts[] = {info->start_unix_ns, profile_elapsed_ns(o->job->profile),
				  o->job->profile->selected.samples};
	uint8_t id[ID_LEN];

	for (unsigned half = 0; half < 2; half++) {
		uint64_t sum = hash(0xcbf29ce484222325ull + half, facts, sizeof(facts));

		sum = hash(sum, name, strlen(name)) | 1;
		memcpy(id + half * sizeof(sum), &sum, sizeof(sum));
	}
	protobuf_bytes(&o->profile, PROFILE_ID, id, sizeof(id));
}

static void put_profile(struct otlp *o)
{
	const struct recording_info *info = &o->job->profile->info;
	const bool time = format_unit_is_time(o->job);

	put_value_type(o, PROFILE_SAMPLE_TYPE, time ? "cpu" : "weight");
	protobuf_fixed64(&o->profile, PROFILE_TIME, info->start_unix_ns);
	protobuf_number(&o->profile, PROFILE_DURATION, profile_elapsed_ns(o->job->profile));
	if (time && info->rate_hz > 0) {
		put_value_type(o, PROFILE_PERIOD_TYPE, "cpu");
		protobuf_number(&o->profile, PROFILE_PERIOD, (uint64_t)(1e9 / info->rate_hz + 0.5));
	}
	put_id(o);
	for (uint32_t i = 0; i < o->n_groups && !o->err; i++)
		put_sample(o, &o->groups[i]);
}

static void put_fact(struct otlp *o, struct protobuf *resource, const char *key, const char *text)
{
	if (!text)
		return;
	protobuf_text(&o->entry, KEY_VALUE_KEY, key);
	put_any(o, KEY_VALUE_VALUE, own_text(o, text), 0);
	protobuf_message(resource, RESOURCE_ATTRIBUTE, &o->entry);
	protobuf_clear(&o->entry);
}

/* The guest, as what the profile is of. */
static void put_resource(struct otlp *o, struct protobuf *resource)
{
	const struct recording_info *info = &o->job->profile->info;
	const char *name = NULL;

	fail(o, format_guest_name(o->job, &name));
	put_fact(o, resource, "service.name", name);
	put_fact(o, resource, "uniprof.target", info->target);
	put_fact(o, resource, "uniprof.guest.id", info->guest_id);
	put_fact(o, resource, "uniprof.guest.type", info->guest_type);
}

/* Writes `message` as a field of the request. */
static void write_field(struct otlp *o, unsigned field, const struct protobuf *message, FILE *out)
{
	struct protobuf head = {0};

	protobuf_head(&head, field, message->bytes.len);
	if (head.no_memory || message->no_memory)
		fail(o, error_no_memory());
	if (!o->err) {
		fwrite(head.bytes.data, 1, head.bytes.len, out);
		fwrite(message->bytes.data, 1, message->bytes.len, out);
	}
	protobuf_free(&head);
}

static void write_request(struct otlp *o, FILE *out)
{
	struct protobuf resource = {0}, scope = {0}, scope_profiles = {0}, resource_profiles = {0};

	put_resource(o, &resource);
	protobuf_text(&scope, SCOPE_NAME, "uniprof");
	protobuf_text(&scope, SCOPE_VERSION, UNIPROF_VERSION);
	protobuf_message(&scope_profiles, SCOPE_PROFILES_SCOPE, &scope);
	protobuf_message(&scope_profiles, SCOPE_PROFILES_PROFILE, &o->profile);
	protobuf_message(&resource_profiles, RESOURCE_PROFILES_RESOURCE, &resource);
	protobuf_message(&resource_profiles, RESOURCE_PROFILES_SCOPE, &scope_profiles);
	write_field(o, REQUEST_RESOURCE_PROFILES, &resource_profiles, out);
	write_field(o, REQUEST_DICTIONARY, &o->dictionary, out);
	protobuf_free(&resource);
	protobuf_free(&scope);
	protobuf_free(&scope_profiles);
	protobuf_free(&resource_profiles);
}

static struct error *put_all(struct otlp *o, FILE *out)
{
	struct error *err = samples_group(o->job, &o->groups, &o->n_groups);

	if (err)
		return err;
	add_zero_values(o);
	add_mappings(o);
	add_functions(o);
	put_profile(o);
	write_request(o, out);
	return o->err;
}

static struct error *write_otlp(const struct format_job *job, FILE *out)
{
	struct otlp o = {.job = job};
	struct error *err = location_table_new(job, &o.table);

	if (!err)
		err = ids_new(&o.strings);
	if (!err)
		err = ids_new(&o.attributes);
	if (!err)
		err = ids_new(&o.locations);
	if (!err)
		err = ids_new(&o.stacks);
	if (!err)
		err = put_all(&o, out);
	location_table_free(o.table);
	ids_free(o.strings);
	ids_free(o.attributes);
	ids_free(o.locations);
	ids_free(o.stacks);
	free(o.groups);
	protobuf_free(&o.dictionary);
	protobuf_free(&o.profile);
	protobuf_free(&o.entry);
	protobuf_free(&o.inner);
	protobuf_free(&o.packed);
	protobuf_free(&o.stack);
	return err;
}

const struct format format_otlp = {.name = "otlp", .ending = ".otlp", .write = write_otlp};
