/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * speedscope's own format (speedscope.app/file-format-schema.json). Profiles
 * with samples have weights, those with events the times when functions begin
 * and end: each stretch between two events is a sample. Each profile is a vCPU,
 * and a thread of its name. In exports of uniprof it is a vCPU, by its name, or
 * "uniprof" tells the thread, and the vCPUs of its samples; empty stacks in them
 * are no samples.
 */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"
#include "import/importer.h"

/* The frame of samples without frames, in exports of uniprof. */
#define NO_STACK "[no stack]"

struct speedscope_sample {
	uint32_t stack;
	uint32_t profile : 20, vcpu : 12; /* the latter only if the profile tells vCPUs */
	double begin, weight;		  /* in the profile's unit */
};

struct speedscope_profile {
	const char *name, *unit;
	struct recorded_thread
		thread; /* as we tell it; its texts are NULL where they are not told */
	double start;
	bool has_events, has_vcpus;
};

/* A profile with events, up to here. */
struct speedscope_events {
	uint32_t *stacks; /* of each frame that is open */
	size_t n, room;
	double last;
	bool any;
};

struct speedscope {
	struct import *import;
	struct stacks *stacks; /* of numbers of frames, which may come later */
	struct import_code *frames;
	size_t n_frames, frames_room;
	struct speedscope_sample *samples;
	size_t n_samples, samples_room;
	struct speedscope_profile *profiles;
	size_t n_profiles, profiles_room;
	size_t first; /* sample of the profile that is being read */
	struct speedscope_events events;
	struct import_column column, weights;
	struct import_vcpus vcpus;
	const char *exporter;
	uint64_t others; /* samples of another unit */
};

static bool has_head(const uint8_t *head, size_t len)
{
	static const char mark[] = "speedscope.app/file-format-schema";
	const size_t at = import_after_blanks(head, len, 0);

	return at < len && head[at] == '{' &&
	       (memmem(head, len, mark, strlen(mark)) ||
		(memmem(head, len, "\"shared\"", 8) && memmem(head, len, "\"frames\"", 8)));
}

static struct speedscope_profile *current(struct speedscope *s)
{
	return &s->profiles[s->n_profiles - 1];
}

static void read_frame(struct import_json *json, void *ctx)
{
	struct speedscope *s = ctx;
	json_auto_t *frame = import_json_value(json);
	const json_t *name = json_object_get(frame, "name"), *file = json_object_get(frame, "file");
	const json_int_t line = json_integer_value(json_object_get(frame, "line"));
	struct import_code code = {.addr = IMPORT_NO_ADDR,
				   .line = line > 0 && line < UINT32_MAX ? (uint32_t)line : 0};

	if (!json->err && !json_is_string(name))
		import_json_fail(json, "a frame has no name");
	if (!json->err)
		json->err = ARRAY_RESERVE(&s->frames, &s->frames_room, s->n_frames + 1);
	if (!json->err)
		json->err = import_text(s->import, json_string_value(name),
					json_string_length(name), &code.name);
	if (!json->err && json_is_string(file))
		json->err = import_text(s->import, json_string_value(file),
					json_string_length(file), &code.file);
	if (!json->err)
		s->frames[s->n_frames++] = code;
}

static void read_shared(struct import_json *json, void *ctx, const char *key)
{
	if (!strcmp(key, "frames"))
		import_json_array(json, read_frame, ctx);
}

static void add_frame(struct import_json *json, struct speedscope *s, double number,
		      uint32_t *stack)
{
	struct frame frame = {.addr = number >= 0 && number < UINT32_MAX ? (uint64_t)number : 0};

	if ((double)frame.addr != number)
		import_json_fail(json, "a frame's number is none");
	if (!json->err)
		json->err = stacks_child(s->stacks, *stack, &frame, stack);
}

static void add_sample(struct import_json *json, struct speedscope *s, uint32_t stack, double begin,
		       double weight)
{
	if (!json->err)
		json->err = ARRAY_RESERVE(&s->samples, &s->samples_room, s->n_samples + 1);
	if (!json->err)
		s->samples[s->n_samples++] =
			(struct speedscope_sample){.stack = stack,
						   .profile = (uint32_t)s->n_profiles - 1,
						   .begin = begin,
						   .weight = weight};
}

static void read_stack(struct import_json *json, void *ctx)
{
	struct speedscope *s = ctx;
	uint32_t stack = STACK_ROOT;

	import_json_numbers(json, &s->column);
	if (s->column.n > IMPORT_FRAMES_MAX)
		import_json_fail(json, "a stack with too many frames");
	for (size_t i = 0; i < s->column.n && !json->err; i++)
		add_frame(json, s, s->column.at[i], &stack);
	add_sample(json, s, stack, NAN, NAN);
}

static void open_frame(struct import_json *json, struct speedscope *s, double frame)
{
	struct speedscope_events *e = &s->events;
	uint32_t stack = e->n ? e->stacks[e->n - 1] : STACK_ROOT;

	if (e->n == IMPORT_FRAMES_MAX)
		import_json_fail(json, "a stack with too many frames");
	add_frame(json, s, frame, &stack);
	if (!json->err)
		json->err = ARRAY_RESERVE(&e->stacks, &e->room, e->n + 1);
	if (!json->err)
		e->stacks[e->n++] = stack;
}

static void close_frame(struct import_json *json, struct speedscope *s, double frame)
{
	struct speedscope_events *e = &s->events;

	if (!e->n || (double)stacks_node(s->stacks, e->stacks[e->n - 1])->addr != frame)
		import_json_fail(json, "an event ends a function that is not the innermost one");
	else
		e->n--;
}

static void read_event(struct import_json *json, void *ctx)
{
	struct speedscope *s = ctx;
	struct speedscope_events *e = &s->events;
	json_auto_t *event = import_json_value(json);
	const char *type = json_string_value(json_object_get(event, "type"));
	const json_t *at = json_object_get(event, "at"), *frame = json_object_get(event, "frame");
	const double now = json_number_value(at);

	if (!json->err && (!type || !json_is_number(at) || !json_is_number(frame)))
		import_json_fail(json, "an event is not whole");
	if (!json->err && e->any && now < e->last)
		import_json_fail(json, "events are not in order of time");
	if (!json->err && e->n && now > e->last)
		add_sample(json, s, e->stacks[e->n - 1], e->last, now - e->last);
	if (!json->err && *type == 'O')
		open_frame(json, s, json_number_value(frame));
	else if (!json->err)
		close_frame(json, s, json_number_value(frame));
	e->last = now;
	e->any = true;
}

static void read_more(struct import_json *json, void *ctx, const char *key)
{
	struct speedscope *s = ctx;

	if (!strcmp(key, "pid"))
		current(s)->thread.pid = import_id(import_json_number(json));
	else if (!strcmp(key, "tid"))
		current(s)->thread.tid = import_id(import_json_number(json));
	else if (!strcmp(key, "process"))
		current(s)->thread.process = import_json_text(json);
	else if (!strcmp(key, "thread"))
		current(s)->thread.name = import_json_text(json);
	else if (!strcmp(key, "container"))
		current(s)->thread.container = import_json_text(json);
	else if (!strcmp(key, "vcpus"))
		import_json_numbers(json, &s->vcpus.runs);
}

static void read_member(struct import_json *json, void *ctx, const char *key)
{
	struct speedscope *s = ctx;

	if (!strcmp(key, "name")) {
		current(s)->name = import_json_text(json);
	} else if (!strcmp(key, "unit")) {
		current(s)->unit = import_json_text(json);
	} else if (!strcmp(key, "startValue")) {
		const double start = import_json_number(json);

		current(s)->start = isnan(start) ? 0 : start;
	} else if (!strcmp(key, "samples")) {
		import_json_array(json, read_stack, s);
	} else if (!strcmp(key, "weights")) {
		import_json_numbers(json, &s->weights);
	} else if (!strcmp(key, "events")) {
		current(s)->has_events = true;
		import_json_array(json, read_event, s);
	} else if (!strcmp(key, "uniprof")) {
		import_json_object(json, read_more, s);
	}
}

static void weigh(struct import_json *json, struct speedscope *s)
{
	double at = current(s)->start;

	if (s->n_samples - s->first != s->weights.n)
		import_json_fail(json, "there are not as many weights as samples");
	for (size_t i = 0; i < s->weights.n && !json->err; i++) {
		struct speedscope_sample *sample = &s->samples[s->first + i];

		sample->begin = at;
		sample->weight = s->weights.at[i];
		at += sample->weight;
	}
}

static void take_vcpus(struct import_json *json, struct speedscope *s)
{
	for (size_t i = s->first; i < s->n_samples && !json->err; i++) {
		uint16_t vcpu = 0;

		if (!import_next_vcpu(&s->vcpus, &vcpu))
			import_json_fail(json, "vCPUs are missing, or no numbers");
		s->samples[i].vcpu = vcpu & (RECORDING_MAX_VCPUS - 1);
	}
	current(s)->has_vcpus = true;
}

static void read_profile(struct import_json *json, void *ctx)
{
	struct speedscope *s = ctx;

	if (s->n_profiles == RECORDED_THREADS_MAX)
		import_json_fail(json, "too many profiles");
	if (!json->err)
		json->err = ARRAY_RESERVE(&s->profiles, &s->profiles_room, s->n_profiles + 1);
	if (json->err)
		return;
	s->profiles[s->n_profiles++] = (struct speedscope_profile){
		.thread = {.pid = RECORDED_ID_UNKNOWN, .tid = RECORDED_ID_UNKNOWN},
	};
	s->first = s->n_samples;
	s->weights.n = 0;
	s->vcpus.runs.n = s->vcpus.next = 0;
	s->vcpus.left = 0;
	s->events.n = 0;
	s->events.any = false;
	import_json_object(json, read_member, s);
	if (!json->err && !current(s)->has_events)
		weigh(json, s);
	if (!json->err && s->vcpus.runs.n)
		take_vcpus(json, s);
}

static void read_top(struct import_json *json, void *ctx, const char *key)
{
	struct speedscope *s = ctx;

	if (!strcmp(key, "shared"))
		import_json_object(json, read_shared, s);
	else if (!strcmp(key, "profiles"))
		import_json_array(json, read_profile, s);
	else if (!strcmp(key, "exporter"))
		s->exporter = import_json_text(json);
}

static bool is_own(const struct speedscope *s)
{
	return s->exporter && !strncmp(s->exporter, "uniprof ", 8);
}

/* A frame alone that we write for samples without frames. */
static bool is_no_stack(const struct speedscope *s, const struct stack_node *node)
{
	return is_own(s) && node->parent == STACK_ROOT &&
	       !strcmp(s->frames[node->addr].name, NO_STACK);
}

/* Puts the frames in the place of their numbers: *ids are the stacks of the import. */
static struct error *resolve(struct speedscope *s, uint32_t **ids)
{
	const uint32_t n = stacks_count(s->stacks);

	TRY(ARRAY_NEW(ids, n));
	for (uint32_t id = 1; id < n; id++) {
		const struct stack_node *node = stacks_node(s->stacks, id);
		uint64_t addr;

		if (node->addr >= s->n_frames)
			return import_damaged(s->import, "a frame's number is none");
		if (is_no_stack(s, node))
			continue; /* (*ids)[id] is STACK_ROOT */
		TRY(import_code(s->import, &s->frames[node->addr], &addr));
		TRY(import_frame(s->import, (*ids)[node->parent], addr, FRAME_PC, &(*ids)[id]));
	}
	return NULL;
}

/* "web vCPU 3" in an export of uniprof; false in others. */
static bool read_vcpu(const struct speedscope *s, const char *name, uint16_t *vcpu)
{
	static const char mark[] = " vCPU ";
	const char *found = NULL;
	unsigned long number;
	char *end;

	if (!is_own(s))
		return false;
	for (const char *at = name; (at = strstr(at, mark)); at++)
		found = at + strlen(mark);
	if (!found)
		return false;
	number = strtoul(found, &end, 10);
	*vcpu = (uint16_t)number;
	return !*end && number < RECORDING_MAX_VCPUS;
}

static struct error *tell_sample(struct speedscope *s, const struct speedscope_sample *sample,
				 uint32_t stack, double first, double ns)
{
	const struct speedscope_profile *profile = &s->profiles[sample->profile];
	const double weight = sample->weight * ns, begin = (sample->begin - first) * ns;
	struct import_sample told = {.stack = stack, .times = 1, .vcpu = (uint16_t)sample->profile};

	if (is_own(s) && sample->stack == STACK_ROOT)
		return NULL; /* a gap */
	if (!(weight >= 0 && weight <= (double)IMPORT_WEIGHT_MAX && begin >= 0 && begin < 9e18))
		return import_damaged(s->import, "a weight or a time is out of range");
	told.weight = (uint64_t)llround(weight);
	told.time_ns = s->import->timeless ? 0 : (uint64_t)llround(begin);
	if (profile->has_vcpus) {
		told.vcpu = sample->vcpu;
		if (profile->thread.name)
			TRY(import_thread(s->import, &profile->thread, &told.thread));
	} else if (sample->profile >= RECORDING_MAX_VCPUS) {
		return import_damaged(s->import, "too many profiles");
	} else if (profile->name && !read_vcpu(s, profile->name, &told.vcpu)) {
		TRY(import_thread(s->import,
				  &(struct recorded_thread){.pid = RECORDED_ID_UNKNOWN,
							    .tid = RECORDED_ID_UNKNOWN,
							    .name = profile->name},
				  &told.thread));
	}
	return import_sample(s->import, &told);
}

/* Samples of the first profile's unit: others cannot be added to them. */
static struct error *tell_all(struct speedscope *s, const uint32_t *ids)
{
	struct import *import = s->import;
	const char *unit = s->n_profiles && s->profiles[0].unit ? s->profiles[0].unit : "none";
	const double ns = import_unit_ns(unit);
	double first = INFINITY;

	import->timeless = !(ns > 0);
	snprintf(import->host, sizeof(import->host), "speedscope%s%s", s->exporter ? ", by " : "",
		 s->exporter ? s->exporter : "");
	if (import->timeless)
		snprintf(import->unit, sizeof(import->unit), "%s",
			 strcmp(unit, "none") ? unit : "weight");
	for (size_t i = 0; i < s->n_samples; i++)
		first = fmin(first, s->samples[i].begin);
	for (size_t i = 0; i < s->n_samples; i++) {
		const struct speedscope_sample *sample = &s->samples[i];
		const char *its = s->profiles[sample->profile].unit;

		if (strcmp(its ? its : "none", unit))
			s->others++;
		else
			TRY(tell_sample(s, sample, ids[sample->stack], first, ns > 0 ? ns : 1));
	}
	if (s->others)
		snprintf(import->reason, sizeof(import->reason),
			 "the file ends; %" PRIu64 " samples of other units are left out",
			 s->others);
	return NULL;
}

static void speedscope_free(struct speedscope *s)
{
	stacks_free(s->stacks);
	free(s->frames);
	free(s->samples);
	free(s->profiles);
	free(s->events.stacks);
	free(s->column.at);
	free(s->weights.at);
	free(s->vcpus.runs.at);
}

static struct error *read_speedscope(struct import *import)
{
	ENDED_BY(speedscope_free) struct speedscope s = {.import = import};
	FREED uint32_t *ids = NULL;

	TRY(stacks_new(&s.stacks));
	TRY(import_json_read(import, read_top, &s));
	TRY(resolve(&s, &ids));
	return tell_all(&s, ids);
}

const struct importer import_speedscope = {.name = "speedscope",
					   .title = "speedscope files",
					   .has_head = has_head,
					   .read = read_speedscope};
