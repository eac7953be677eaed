/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * pprof's profile.proto, compressed (github.com/google/pprof/proto), for `go
 * tool pprof` and many continuous profilers. Samples carry the vCPU and its
 * state as labels, the thread that it ran as perf_data_converter does, and its container. If
 * images are known, locations say which one they are in, with its build id.
 */

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "format/tables.h"
#include "import/protobuf.h"

/* Of zlib: locations of stacks get no smaller by its default, 6, and take half as long again. */
#define GZIP_LEVEL 4

struct pprof {
	const struct format_job *job;
	struct location_table *table;
	struct gzip *out;
	struct ids *strings;
	struct sample_group *groups;
	uint32_t n_groups;
	struct stack_texts texts; /* packed locations */
	struct ids *kinds;	  /* of samples: thread, vCPU and state */
	struct bytes labels;	  /* of all kinds */
	struct {
		size_t at, len;
	} * label_of; /* kinds, in `labels` */
	size_t labels_room;
	struct protobuf head, message, inner, packed;
	struct error *err; /* the first; afterwards nothing is put any more */
};

static void fail(struct pprof *p, struct error *err)
{
	p->err = error_first(p->err, err);
}

/* Writes `head` as it is. */
static void put_head(struct pprof *p)
{
	if (p->head.no_memory)
		fail(p, error_no_memory());
	if (!p->err)
		gzip_put(p->out, p->head.bytes.data, p->head.bytes.len);
	protobuf_clear(&p->head);
}

/* The number of a text that belongs to the symbolizer; strings are written when they are met. */
static uint64_t number_of(struct pprof *p, const char *text)
{
	uint32_t id = 0;
	bool added = false;

	if (!text)
		return 0;
	fail(p, ids_get(p->strings, (uintptr_t)text, 0, &id, &added));
	if (added) {
		protobuf_text(&p->head, PPROF_STRING, text);
		put_head(p);
	}
	return id;
}

static uint64_t literal(struct pprof *p, const char *text)
{
	const char *kept = NULL;

	fail(p, symbolizer_intern(p->job->symbolizer, text, &kept));
	return number_of(p, kept);
}

/* Writes `message` as a field of the profile. */
static void put(struct pprof *p, unsigned field)
{
	if (p->message.no_memory || p->inner.no_memory || p->packed.no_memory)
		fail(p, error_no_memory());
	protobuf_head(&p->head, field, p->message.bytes.len);
	put_head(p);
	if (!p->err)
		gzip_put(p->out, p->message.bytes.data, p->message.bytes.len);
	protobuf_clear(&p->message);
}

/* The first string must be empty: an absent string has number 0. */
static void put_empty_string(struct pprof *p)
{
	uint32_t id;
	bool added;

	fail(p, ids_get(p->strings, 0, 0, &id, &added));
	put(p, PPROF_STRING);
}

static void put_value_type(struct pprof *p, unsigned field, const char *type, uint64_t unit)
{
	uint64_t name = literal(p, type);

	protobuf_number(&p->message, PPROF_VALUE_TYPE, name);
	protobuf_number(&p->message, PPROF_VALUE_UNIT, unit);
	put(p, field);
}

static void put_number(struct pprof *p, unsigned field, uint64_t value)
{
	protobuf_number(&p->head, field, value);
	put_head(p);
}

static void put_facts(struct pprof *p)
{
	const struct recording_info *info = &p->job->profile->info;
	bool time = format_unit_is_time(p->job);
	const char *unit = NULL, *title = NULL;

	put_empty_string(p);
	fail(p, format_unit(p->job, &unit));
	fail(p, format_guest_title(p->job, &title));
	put_value_type(p, PPROF_SAMPLE_TYPE, "samples", literal(p, "count"));
	put_value_type(p, PPROF_SAMPLE_TYPE, time ? "cpu" : "weight", number_of(p, unit));
	put_number(p, PPROF_DEFAULT_SAMPLE_TYPE, literal(p, time ? "cpu" : "weight"));
	put_number(p, PPROF_COMMENT, number_of(p, title));
	put_number(p, PPROF_TIME_NANOS, info->start_unix_ns);
	put_number(p, PPROF_DURATION_NANOS, profile_elapsed_ns(p->job->profile));
	if (time && info->rate_hz > 0) {
		put_value_type(p, PPROF_PERIOD_TYPE, "cpu", number_of(p, unit));
		put_number(p, PPROF_PERIOD, (uint64_t)(1e9 / info->rate_hz + 0.5));
	}
}

static void put_mappings(struct pprof *p)
{
	for (uint32_t i = 0; i < p->table->n_images && !p->err; i++) {
		const struct location_image *image = &p->table->images[i];
		uint64_t path = number_of(p, image->path), id = number_of(p, image->build_id);

		protobuf_number(&p->message, PPROF_MAPPING_ID, i + 1);
		protobuf_number(&p->message, PPROF_MAPPING_START,
				image->unplaced ? 0 : image->start);
		protobuf_number(&p->message, PPROF_MAPPING_LIMIT, image->unplaced ? 0 : image->end);
		protobuf_number(&p->message, PPROF_MAPPING_OFFSET, image->offset);
		protobuf_number(&p->message, PPROF_MAPPING_FILE, path);
		protobuf_number(&p->message, PPROF_MAPPING_BUILD_ID, id);
		/* Tells readers not to symbolize again: everything known is here. */
		for (unsigned what = PPROF_MAPPING_HAS_FUNCTIONS; what <= PPROF_MAPPING_HAS_INLINE;
		     what++)
			protobuf_number(&p->message, what, 1);
		put(p, PPROF_MAPPING);
	}
}

/* Readers demangle what has the same name twice: they cut "<u64 as Ord>::lt" to "::lt". */
static uint64_t number_of_symbol(struct pprof *p, const struct location_function *function)
{
	const bool is_demangled = strpbrk(function->symbol, "<( ") != NULL;

	return number_of(p, is_demangled ? NULL : function->symbol);
}

static void put_functions(struct pprof *p)
{
	for (uint32_t i = 0; i < p->table->n_functions && !p->err; i++) {
		const struct location_function *function = &p->table->functions[i];
		uint64_t name = number_of(p, function->name), file = number_of(p, function->file);
		uint64_t symbol = number_of_symbol(p, function);

		protobuf_number(&p->message, PPROF_FUNCTION_ID, i + 1);
		protobuf_number(&p->message, PPROF_FUNCTION_NAME, name);
		protobuf_number(&p->message, PPROF_FUNCTION_SYSTEM_NAME, symbol);
		protobuf_number(&p->message, PPROF_FUNCTION_FILE, file);
		put(p, PPROF_FUNCTION);
	}
}

static void put_location(struct pprof *p, uint32_t i)
{
	const struct location_answer *answer = location_answer(p->table, i);
	const uint32_t image = p->table->at[i].image;

	protobuf_number(&p->message, PPROF_LOCATION_ID, i + 1);
	if (image != LOCATION_NONE)
		protobuf_number(&p->message, PPROF_LOCATION_MAPPING, image + 1);
	protobuf_number(&p->message, PPROF_LOCATION_ADDRESS, location_code(p->table, i));
	for (uint32_t k = 0; k < answer->n; k++) {
		const struct location_place *place = &p->table->places[answer->places + k];

		protobuf_clear(&p->inner);
		protobuf_number(&p->inner, PPROF_LINE_FUNCTION, place->function + 1);
		protobuf_number(&p->inner, PPROF_LINE_LINE, place->line);
		protobuf_message(&p->message, PPROF_LOCATION_LINE, &p->inner);
	}
	put(p, PPROF_LOCATION);
}

static void put_label(struct pprof *p, uint64_t key, uint64_t text, uint64_t number)
{
	protobuf_clear(&p->inner);
	protobuf_number(&p->inner, PPROF_LABEL_KEY, key);
	protobuf_number(&p->inner, PPROF_LABEL_STR, text);
	protobuf_number(&p->inner, PPROF_LABEL_NUM, number);
	protobuf_message(&p->message, PPROF_SAMPLE_LABEL, &p->inner);
}

/* As reports call it. */
static void put_container(struct pprof *p, const char *path)
{
	char name[CONTAINER_NAME_ROOM];
	uint64_t key, text;

	recorded_container_name(path, name);
	key = literal(p, "container");
	text = literal(p, name);
	put_label(p, key, text, 0);
}

static void put_thread(struct pprof *p, const struct recorded_thread *thread)
{
	const uint64_t names[] = {literal(p, "comm"), literal(p, thread->process),
				  literal(p, "thread_comm"), literal(p, thread->name)};
	const uint64_t numbers[] = {literal(p, "pid"), literal(p, "tid")};

	put_label(p, names[0], names[1], 0);
	put_label(p, names[2], names[3], 0);
	if (thread->pid != RECORDED_ID_UNKNOWN)
		put_label(p, numbers[0], 0, thread->pid);
	if (thread->tid != RECORDED_ID_UNKNOWN)
		put_label(p, numbers[1], 0, thread->tid);
	if (thread->container)
		put_container(p, thread->container);
}

/* Puts the labels of a sample into the empty message. */
static void put_labels(struct pprof *p, const struct sample_group *group)
{
	const struct recorded_thread *thread = sample_thread(p->job, group->thread);
	char vcpu[16];

	snprintf(vcpu, sizeof(vcpu), "vcpu%u",
		 group->vcpu); /* pprof takes a mere number for a size */
	if (!format_is_imported(p->job)) {
		uint64_t names[] = {literal(p, "vcpu"), literal(p, vcpu), literal(p, "state"),
				    literal(p, sample_state_text(group->state))};

		put_label(p, names[0], names[1], 0);
		put_label(p, names[2], names[3], 0);
	}
	if (thread)
		put_thread(p, thread);
}

/* ... which are made once for all samples of their kind. */
static struct error *put_known_labels(struct pprof *p, const struct sample_group *group)
{
	const uint64_t state = (uint64_t)group->vcpu << 8 | group->state;
	struct bytes *message = &p->message.bytes;
	uint32_t kind = 0;
	bool added = false;

	TRY(ids_get(p->kinds, group->thread, state, &kind, &added));
	TRY(ARRAY_RESERVE(&p->label_of, &p->labels_room, kind + (size_t)1));
	if (added) {
		put_labels(p, group);
		TRY(bytes_reserve(&p->labels, message->len));
		p->label_of[kind].at = p->labels.len;
		p->label_of[kind].len = message->len;
		put_bytes(&p->labels, message->data, message->len);
		return NULL;
	}
	TRY(bytes_reserve(message, p->label_of[kind].len));
	put_bytes(message, p->labels.data + p->label_of[kind].at, p->label_of[kind].len);
	return NULL;
}

static struct error *give_frame(void *ctx, uint32_t node, struct bytes *scratch,
				struct format_text *out)
{
	const struct pprof *p = ctx;

	TRY(bytes_reserve(scratch, VARINT_MAX));
	scratch->len = 0;
	put_varint(scratch, (uint64_t)location_entry_of(p->table, node) + 1);
	*out = (struct format_text){scratch->data, scratch->len};
	return NULL;
}

static void put_sample(struct pprof *p, const struct sample_group *group)
{
	struct format_text locations = {0};

	fail(p, put_known_labels(p, group));
	fail(p, stack_texts_get(&p->texts, group->stack, &locations));
	protobuf_bytes(&p->message, PPROF_SAMPLE_LOCATION, locations.data, locations.len);
	protobuf_clear(&p->packed);
	protobuf_element(&p->packed, group->samples);
	protobuf_element(&p->packed, group->weight);
	protobuf_message(&p->message, PPROF_SAMPLE_VALUE, &p->packed);
	put(p, PPROF_SAMPLE);
}

static struct error *put_all(struct pprof *p, FILE *out)
{
	/* First the groups: that takes memory which the table can have afterwards. */
	TRY(samples_group(p->job, &p->groups, &p->n_groups));
	TRY(location_table_new(p->job, &p->table));
	TRY(ids_new(&p->kinds));
	TRY(ids_new(&p->strings));
	TRY(gzip_new(out, GZIP_LEVEL, &p->out));
	put_facts(p);
	put_mappings(p);
	put_functions(p);
	for (uint32_t i = 0; i < p->table->n && !p->err; i++)
		put_location(p, i);
	for (uint32_t i = 0; i < p->n_groups && !p->err; i++)
		put_sample(p, &p->groups[i]);
	gzip_end(p->out);
	return p->err;
}

static struct error *write_pprof(const struct format_job *job, FILE *out)
{
	struct pprof p = {
		.job = job,
		.texts = {.frames = {.stacks = job->profile->stacks, .give = give_frame, .ctx = &p},
			  .leaf_first = true}};
	struct error *err = put_all(&p, out);

	location_table_free(p.table);
	ids_free(p.strings);
	ids_free(p.kinds);
	stack_texts_free(&p.texts);
	bytes_free(&p.labels);
	free(p.label_of);
	free(p.groups);
	protobuf_free(&p.head);
	protobuf_free(&p.message);
	protobuf_free(&p.inner);
	protobuf_free(&p.packed);
	return err;
}

const struct format format_pprof = {
	.name = "pprof", .ending = ".pb.gz", .packed = true, .counts = true, .write = write_pprof};
