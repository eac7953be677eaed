/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * OpenTelemetry's profiles signal (opentelemetry-proto 1.10, v1development): an
 * ExportProfilesServiceRequest, as receivers take it by HTTP. One profile of
 * CPU time, whose samples carry the vCPU, its state and the thread that it ran,
 * with its container, as attributes.
 */

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "format/tables.h"
#include "import/protobuf.h"

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

/* A message that is written as it goes: its length stands before it, so it is counted first. */
struct part {
	uint64_t len;
	FILE *out; /* NULL: it is counted alone */
};

/* Bytes of a profile's id. */
#define ID_LEN 16

struct otlp {
	const struct format_job *job;
	struct location_table *table;
	/* Numbers in the dictionary, less 1: entry 0 of each table is the zero value. */
	struct ids *strings, *attributes;
	uint32_t *same;	     /* [entries]: the first one with the same location */
	uint32_t *locations; /* [entries]: its number in the dictionary; 0: none yet */
	uint32_t *stacks; /* [cells.n]: number of a cell's stack in the dictionary; 0: none yet */
	uint32_t n_locations, n_stacks;
	uint64_t frame_types[2];  /* attributes of programs' code, and the kernel's; 0: none yet */
	struct stack_texts texts; /* packed locations */
	struct ids *kinds;	  /* of samples: thread, vCPU and state */
	struct kind {
		uint64_t attributes[8];
		unsigned n;
	} * kind;
	size_t kinds_room;
	struct sample_group *groups;
	uint32_t n_groups;
	struct part dictionary, profile;
	struct protobuf fields, entry, inner, packed; /* at work */
	struct error *err; /* the first; afterwards nothing is put any more */
};

static void fail(struct otlp *o, struct error *err)
{
	o->err = error_first(o->err, err);
}

/* Moves o->fields to the end of a part. */
static void add_fields(struct otlp *o, struct part *part)
{
	const struct bytes *bytes = &o->fields.bytes;

	if (o->fields.no_memory)
		fail(o, error_no_memory());
	part->len += bytes->len;
	if (part->out && bytes->len)
		fwrite_unlocked(bytes->data, 1, bytes->len, part->out);
	protobuf_clear(&o->fields);
}

/* Moves o->entry to the end of a table. */
static void add_entry(struct otlp *o, unsigned table)
{
	protobuf_message(&o->fields, table, &o->entry);
	protobuf_clear(&o->entry);
	add_fields(o, &o->dictionary);
}

/* The number of a text that belongs to the symbolizer. */
static uint64_t string_of(struct otlp *o, const char *text)
{
	uint32_t id = 0;
	bool added = false;

	if (!text || !*text)
		return 0;
	fail(o, ids_get(o->strings, (uintptr_t)text, 0, &id, &added));
	if (added) {
		protobuf_text(&o->fields, DICTIONARY_STRING, text);
		add_fields(o, &o->dictionary);
	}
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

static void put_location(struct otlp *o, uint32_t i)
{
	const struct location_answer *answer = location_answer(o->table, i);
	const uint64_t code = location_code(o->table, i);
	const uint32_t image = o->table->at[i].image;
	/* The upper half of the addresses is the kernel's, where there are programs. */
	const bool kernel = code >> 63;

	if (!o->frame_types[kernel])
		o->frame_types[kernel] = attribute(o, "profile.frame.type",
						   own_text(o, kernel ? "kernel" : "native"), 0);

	if (image != LOCATION_NONE)
		protobuf_number(&o->entry, LOCATION_MAPPING, image + 1);
	protobuf_number(&o->entry, LOCATION_ADDRESS, code);
	for (uint32_t k = 0; k < answer->n; k++) {
		const struct location_place *place = &o->table->places[answer->places + k];

		protobuf_clear(&o->inner);
		protobuf_number(&o->inner, LINE_FUNCTION, place->function + 1);
		protobuf_number(&o->inner, LINE_LINE, place->line);
		protobuf_message(&o->entry, LOCATION_LINE, &o->inner);
	}
	protobuf_clear(&o->packed);
	protobuf_element(&o->packed, o->frame_types[kernel]);
	protobuf_message(&o->entry, LOCATION_ATTRIBUTES, &o->packed);
	add_entry(o, DICTIONARY_LOCATION);
}

static uint32_t inner_function(const struct location_table *table, uint32_t entry)
{
	return location_place(table, entry, 0)->function;
}

/*
 * An instruction that was executed, and one that a call returns behind, are one
 * location here; names without addresses are not.
 */
static bool is_same(const struct location_table *table, uint32_t a, uint32_t b)
{
	return location_code(table, a) == location_code(table, b) &&
	       table->at[a].image == table->at[b].image &&
	       inner_function(table, a) == inner_function(table, b);
}

static uint32_t same_slot(const struct location_table *table, uint32_t i, uint32_t room)
{
	const uint64_t key =
		location_code(table, i) ^ inner_function(table, i) * UINT64_C(0xff51afd7ed558ccd);

	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (room - 1);
}

/* So many entries ahead memory is asked for: most of the table is in no cache. */
#define AHEAD 16u

/* Makes the arrays, and fills `same` by a table of the first ones, by their code: two thirds full at most. */
static struct error *find_same_locations(struct otlp *o)
{
	const uint32_t n = o->table->n;
	FREED uint32_t *slots = NULL;
	uint32_t room = 1024;

	while (room < n * UINT64_C(3) / 2)
		room *= 2;
	slots = array_zeros(room, sizeof(*slots));
	o->same = malloc((n + (size_t)1) * sizeof(*o->same));
	o->locations = malloc((n + (size_t)1) * sizeof(*o->locations));
	o->stacks = array_resize(NULL, o->job->profile->cells.n, sizeof(*o->stacks));
	if (!slots || !o->same || !o->locations || !o->stacks)
		return error_no_memory();
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = same_slot(o->table, i, room);

		if (i + AHEAD < n)
			__builtin_prefetch(&slots[same_slot(o->table, i + AHEAD, room)], 1);
		while (slots[slot] && !is_same(o->table, slots[slot] - 1, i))
			slot = (slot + 1) & (room - 1);
		if (!slots[slot])
			slots[slot] = i + 1;
		o->same[i] = slots[slot] - 1;
	}
	return NULL;
}

static struct error *give_frame(void *ctx, uint32_t node, struct bytes *scratch,
				struct format_text *out)
{
	struct otlp *o = ctx;
	const uint32_t entry = o->same[location_entry_of(o->table, node)];

	TRY(bytes_reserve(scratch, VARINT_MAX));
	if (!o->locations[entry]) {
		put_location(o, entry);
		o->locations[entry] = ++o->n_locations;
	}
	scratch->len = 0;
	put_varint(scratch, o->locations[entry]);
	*out = (struct format_text){scratch->data, scratch->len};
	return NULL;
}

/* The number of a stack; that of none is 0. */
static uint64_t stack_of(struct otlp *o, uint32_t stack)
{
	const struct profile_cells *cells = &o->job->profile->cells;
	uint32_t *number = &o->stacks[profile_cell_number(cells, stack)];
	struct format_text locations = {0};

	if (stack == STACK_ROOT)
		return 0;
	if (!*number) {
		fail(o, stack_texts_get(&o->texts, stack, &locations));
		protobuf_bytes(&o->entry, STACK_LOCATIONS, locations.data, locations.len);
		add_entry(o, DICTIONARY_STACK);
		*number = ++o->n_stacks;
	}
	return *number;
}

static void add_attributes(struct otlp *o, const struct sample_group *group, struct kind *kind)
{
	const struct recorded_thread *thread = sample_thread(o->job, group->thread);
	const char *state = own_text(o, sample_state_text(group->state));
	uint64_t *at = kind->attributes;
	char id[CONTAINER_ID_ROOM];

	*at++ = attribute(o, "cpu.logical_number", NULL, group->vcpu);
	*at++ = attribute(o, "uniprof.vcpu.state", state, 0);
	if (thread && thread->pid != RECORDED_ID_UNKNOWN)
		*at++ = attribute(o, "process.pid", NULL, thread->pid);
	if (thread)
		*at++ = attribute(o, "process.executable.name", own_text(o, thread->process), 0);
	if (thread && thread->tid != RECORDED_ID_UNKNOWN)
		*at++ = attribute(o, "thread.id", NULL, thread->tid);
	if (thread)
		*at++ = attribute(o, "thread.name", own_text(o, thread->name), 0);
	if (thread && thread->container)
		*at++ = attribute(o, "process.linux.cgroup", own_text(o, thread->container), 0);
	if (thread && thread->container && recorded_container_id(thread->container, id))
		*at++ = attribute(o, "container.id", own_text(o, id), 0);
	kind->n = (unsigned)(at - kind->attributes);
}

/* Makes a list of attributes in o->packed; they are found once for all samples of their kind. */
static struct error *pack_attributes(struct otlp *o, const struct sample_group *group)
{
	const uint64_t state = (uint64_t)group->vcpu << 8 | group->state;
	uint32_t id = 0;
	bool added = false;

	TRY(ids_get(o->kinds, group->thread, state, &id, &added));
	TRY(ARRAY_RESERVE(&o->kind, &o->kinds_room, id + (size_t)1));
	if (added)
		add_attributes(o, group, &o->kind[id]);
	protobuf_clear(&o->packed);
	for (unsigned i = 0; i < o->kind[id].n; i++)
		protobuf_element(&o->packed, o->kind[id].attributes[i]);
	return NULL;
}

static void put_sample(struct otlp *o, const struct sample_group *group)
{
	const uint64_t stack = stack_of(o, group->stack);

	if (!format_is_imported(o->job)) {
		fail(o, pack_attributes(o, group));
		protobuf_message(&o->entry, SAMPLE_ATTRIBUTES, &o->packed);
	}
	protobuf_number(&o->entry, SAMPLE_STACK, stack);
	protobuf_clear(&o->packed);
	protobuf_element(&o->packed, group->weight);
	protobuf_message(&o->entry, SAMPLE_VALUES, &o->packed);
	protobuf_message(&o->fields, PROFILE_SAMPLE, &o->entry);
	protobuf_clear(&o->entry);
	add_fields(o, &o->profile);
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
	protobuf_message(&o->fields, field, &o->inner);
	add_fields(o, &o->profile);
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
		uint64_t sum = hash_bytes(HASH_BEGIN + half, facts, sizeof(facts));

		sum = hash_bytes(sum, name, strlen(name)) | 1;
		memcpy(id + half * sizeof(sum), &sum, sizeof(sum));
	}
	protobuf_bytes(&o->fields, PROFILE_ID, id, sizeof(id));
	add_fields(o, &o->profile);
}

static void put_profile(struct otlp *o)
{
	const struct recording_info *info = &o->job->profile->info;
	const bool time = format_unit_is_time(o->job);

	put_value_type(o, PROFILE_SAMPLE_TYPE, time ? "cpu" : "weight");
	protobuf_fixed64(&o->fields, PROFILE_TIME, info->start_unix_ns);
	protobuf_number(&o->fields, PROFILE_DURATION, profile_elapsed_ns(o->job->profile));
	add_fields(o, &o->profile);
	if (time && info->rate_hz > 0) {
		put_value_type(o, PROFILE_PERIOD_TYPE, "cpu");
		protobuf_number(&o->fields, PROFILE_PERIOD, (uint64_t)(1e9 / info->rate_hz + 0.5));
		add_fields(o, &o->profile);
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
	put_fact(o, resource, "host.name", o->job->host);
	put_fact(o, resource, "uniprof.target", info->target);
	put_fact(o, resource, "uniprof.guest.id", info->guest_id);
	put_fact(o, resource, "uniprof.guest.type", info->guest_type);
}

/* Makes the dictionary from the start, with the profile that tells what is in it. */
static void make(struct otlp *o, FILE *dictionary)
{
	ids_free(o->strings);
	ids_free(o->attributes);
	ids_free(o->kinds);
	o->strings = o->attributes = o->kinds = NULL;
	fail(o, ids_new(&o->strings));
	fail(o, ids_new(&o->attributes));
	fail(o, ids_new(&o->kinds));
	if (o->err)
		return;
	o->profile = (struct part){0};
	o->dictionary = (struct part){.out = dictionary};
	o->n_locations = o->n_stacks = 0;
	memset(o->frame_types, 0, sizeof(o->frame_types));
	memset(o->locations, 0, o->table->n * sizeof(*o->locations));
	memset(o->stacks, 0, o->job->profile->cells.n * sizeof(*o->stacks));
	stack_texts_clear(&o->texts);
	/* Entry 0 of each table. */
	for (unsigned table = DICTIONARY_MAPPING; table <= DICTIONARY_STACK; table++)
		add_entry(o, table);
	add_mappings(o);
	add_functions(o);
	put_profile(o);
}

/* Writes `head`, which ends with the head of a field of so many bytes more. */
static void write_head(struct otlp *o, struct protobuf *head, FILE *out)
{
	if (head->no_memory)
		fail(o, error_no_memory());
	if (!o->err)
		fwrite(head->bytes.data, 1, head->bytes.len, out);
	protobuf_free(head);
}

static void write_request(struct otlp *o, FILE *out)
{
	struct protobuf resource = {0}, scope = {0}, scope_profiles = {0}, resource_profiles = {0},
			request = {0}, dictionary = {0};
	const uint64_t profile_len = o->profile.len;

	protobuf_head(&dictionary, REQUEST_DICTIONARY, o->dictionary.len);
	put_resource(o, &resource);
	protobuf_text(&scope, SCOPE_NAME, "uniprof");
	protobuf_text(&scope, SCOPE_VERSION, UNIPROF_VERSION);
	protobuf_message(&scope_profiles, SCOPE_PROFILES_SCOPE, &scope);
	protobuf_head(&scope_profiles, SCOPE_PROFILES_PROFILE, profile_len);
	protobuf_message(&resource_profiles, RESOURCE_PROFILES_RESOURCE, &resource);
	protobuf_head(&resource_profiles, RESOURCE_PROFILES_SCOPE,
		      scope_profiles.bytes.len + profile_len);
	protobuf_head(&request, REQUEST_RESOURCE_PROFILES,
		      resource_profiles.bytes.len + scope_profiles.bytes.len + profile_len);
	write_head(o, &request, out);
	write_head(o, &resource_profiles, out);
	write_head(o, &scope_profiles, out);
	/* All that it names is in the dictionary already. */
	o->profile.out = out;
	put_profile(o);
	write_head(o, &dictionary, out);
	make(o, out);
	protobuf_free(&resource);
	protobuf_free(&scope);
}

static struct error *write_otlp(const struct format_job *job, FILE *out)
{
	struct otlp o = {
		.job = job,
		.texts = {.frames = {.stacks = job->profile->stacks, .give = give_frame, .ctx = &o},
			  .leaf_first = true}};
	/* First the groups: that takes memory which the table can have afterwards. */
	struct error *err = samples_group(job, &o.groups, &o.n_groups);

	if (!err)
		err = location_table_new(job, &o.table);
	if (!err)
		err = find_same_locations(&o);
	if (!err) {
		make(&o, NULL);
		write_request(&o, out);
		err = o.err;
	}
	location_table_free(o.table);
	ids_free(o.strings);
	ids_free(o.attributes);
	ids_free(o.kinds);
	stack_texts_free(&o.texts);
	free(o.same);
	free(o.locations);
	free(o.stacks);
	free(o.kind);
	free(o.groups);
	protobuf_free(&o.fields);
	protobuf_free(&o.entry);
	protobuf_free(&o.inner);
	protobuf_free(&o.packed);
	return err;
}

const struct format format_otlp = {.name = "otlp", .ending = ".otlp", .write = write_otlp};
