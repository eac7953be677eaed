/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The Trace Event Format of Chrome (JSON), by its samples: each names a stack,
 * and stacks are a tree of frames ("stackFrames"), so that a sample takes some
 * 50 bytes however deep its stack is. A vCPU is a thread. Readers take a sample
 * to last until the next one of its thread: samples of the same stack that follow
 * one another are one, and a frame of its own stands where there is none. An event
 * as long as a thread's samples goes with them: Chrome's viewer shows no thread
 * that has samples alone.
 */

#include "format/tables.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/array.h"

/* The number of the frame for the time that no sample stands for. */
#define NO_SAMPLE 0

struct lane {
	uint32_t frame;	   /* of the last sample */
	uint64_t from_ns;  /* time of the first sample */
	uint64_t until_ns; /* the last one stands for the time up to here */
	bool used;
};

struct chrome {
	const struct format_job *job;
	struct location_table *table;
	uint32_t *frame_of; /* [stacks_count]: the frame of a whole stack */
	struct lane *lanes; /* [RECORDING_MAX_VCPUS] */
	uint32_t pid;
	uint64_t clock_ns; /* samples without times stand one behind the other */
	bool first;
	FILE *out;
};

static void put_sample_of(struct chrome *c, unsigned vcpu, uint32_t frame, uint64_t now_ns)
{
	fputs_unlocked(c->first ? "{\"pid\":" : ",{\"pid\":", c->out);
	format_number(c->pid, c->out);
	fputs_unlocked(",\"tid\":", c->out);
	format_number(vcpu, c->out);
	fputs_unlocked(",\"ts\":", c->out);
	format_number(now_ns / 1000, c->out);
	fputs_unlocked(",\"sf\":", c->out);
	format_number(frame, c->out);
	fputs_unlocked(",\"name\":\"\"}", c->out);
	c->first = false;
}

/* The time that a sample stands for; 0: not known. */
static uint64_t length_of(const struct chrome *c, const struct sample *sample)
{
	if (format_unit_is_time(c->job))
		return sample->weight_ns * sample->times;
	return c->job->profile->info.timeless ? 1000 * sample->times : 0;
}

/* A sample stands for the time up to the next one, unless there is a gap. */
static struct error *put_sample(void *ctx, const struct sample *sample)
{
	struct chrome *c = ctx;
	struct lane *lane = &c->lanes[sample->vcpu];
	const uint64_t length = length_of(c, sample);
	const uint64_t now = c->job->profile->info.timeless ? c->clock_ns : sample->time_ns;
	const uint32_t frame = c->frame_of[sample->stack];

	if (lane->used && length && sample_gap(sample, sample->resumed, lane->until_ns, length)) {
		put_sample_of(c, sample->vcpu, NO_SAMPLE, lane->until_ns);
		lane->frame = NO_SAMPLE;
	}
	if (!lane->used || lane->frame != frame)
		put_sample_of(c, sample->vcpu, frame, now);
	if (!lane->used)
		lane->from_ns = now;
	lane->used = true;
	lane->frame = frame;
	lane->until_ns = length > UINT64_MAX - now ? UINT64_MAX : now + length;
	c->clock_ns += length;
	return NULL;
}

static void put_frame(const struct chrome *c, uint32_t number, uint32_t parent,
		      const struct location_place *place)
{
	fputs_unlocked(",\n\"", c->out);
	format_number(number, c->out);
	fputs_unlocked("\":{", c->out);
	if (parent != NO_SAMPLE) {
		fputs_unlocked("\"parent\":", c->out);
		format_number(parent, c->out);
		putc_unlocked(',', c->out);
	}
	format_json_field("\"name\":", c->table->functions[place->function].name, c->out);
	putc_unlocked('}', c->out);
}

/* Frames are numbered in the order of the stacks, a parent before its children. */
static void put_frames(struct chrome *c)
{
	const struct stacks *stacks = c->job->profile->stacks;
	const uint32_t n = stacks_count(stacks);
	uint32_t next = NO_SAMPLE + 1;

	fprintf(c->out, "\"stackFrames\":{\"%d\":{\"name\":\"(no sample)\"}", NO_SAMPLE);
	for (uint32_t id = 1; id < n; id++) {
		uint32_t parent = c->frame_of[stacks_node(stacks, id)->parent];
		const struct location_answer *answer;

		if (!c->table->used[id])
			continue;
		answer = location_answer(c->table, location_entry_of(c->table, id));
		for (uint32_t k = answer->n; k > 0; k--, parent = next++)
			put_frame(c, next, parent, &c->table->places[answer->places + k - 1]);
		c->frame_of[id] = parent;
	}
	fputs("},\n", c->out);
}

static bool is_selected(const struct chrome *c, unsigned vcpu)
{
	const struct profile_filter *filter = c->job->filter;

	return c->job->profile->seen[vcpu] &&
	       (filter->vcpus ? filter->vcpus[vcpu] : filter->vcpu < 0 || filter->vcpu == vcpu);
}

static void put_thread(const struct chrome *c, unsigned vcpu)
{
	const struct lane *lane = &c->lanes[vcpu];

	fprintf(c->out,
		",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRIu32
		",\"tid\":%u,\"args\":{\"name\":\"vCPU %u\"}}",
		c->pid, vcpu, vcpu);
	if (lane->used)
		fprintf(c->out,
			",\n{\"ph\":\"X\",\"name\":\"samples\",\"pid\":%" PRIu32
			",\"tid\":%u,\"ts\":%" PRIu64 ",\"dur\":%" PRIu64 "}",
			c->pid, vcpu, lane->from_ns / 1000,
			lane->until_ns / 1000 - lane->from_ns / 1000);
}

static void put_events(const struct chrome *c, const char *name)
{
	fprintf(c->out,
		"\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRIu32
		",\"tid\":0,\"args\":{\"name\":",
		c->pid);
	format_json_text(name, c->out);
	fputs("}}", c->out);
	for (unsigned i = 0; i < RECORDING_MAX_VCPUS; i++)
		if (is_selected(c, i))
			put_thread(c, i);
	fputs("]}\n", c->out);
}

static struct error *put_all(struct chrome *c)
{
	const char *name, *title;

	TRY(location_table_new(c->job, &c->table));
	TRY(format_guest_name(c->job, &name));
	TRY(format_guest_title(c->job, &title));
	format_json_field("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":", title, c->out);
	fputs("},\n", c->out);
	put_frames(c);
	fputs("\"samples\":[\n", c->out);
	TRY(samples_read(c->job, put_sample, c));
	for (unsigned i = 0; i < RECORDING_MAX_VCPUS; i++)
		if (c->lanes[i].used)
			put_sample_of(c, i, NO_SAMPLE, c->lanes[i].until_ns);
	fputs("\n],\n", c->out);
	put_events(c, name);
	return NULL;
}

static struct error *write_chrome(const struct format_job *job, FILE *out)
{
	struct chrome c = {.job = job,
			   .out = out,
			   .pid = format_guest_pid(job),
			   .first = true,
			   .frame_of = array_zeros(stacks_count(job->profile->stacks),
						   sizeof(*c.frame_of)),
			   .lanes = calloc(RECORDING_MAX_VCPUS, sizeof(*c.lanes))};
	struct error *err = c.lanes && c.frame_of ? put_all(&c) : error_no_memory();

	free(c.lanes);
	free(c.frame_of);
	location_table_free(c.table);
	return err;
}

const struct format format_chrome = {.name = "chrome",
				     .ending = ".trace.json",
				     .write = write_chrome};
