/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The Trace Event Format of Chrome (JSON), which Perfetto, chrome://tracing,
 * speedscope and others show as a time line: a thread for each vCPU, and on it
 * each function for as long as consecutive samples saw it. Frames stay open
 * from one sample to the next where both have them, unless time passed
 * between that no sample stands for. Each frame is told where it begins and
 * where it ends, in this order: of events with a length that begin together,
 * readers take the first for the outer one, but only what ends has a length.
 */

#include "format/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "format/tables.h"

/* Frames that are open on a vCPU, root first. */
struct lane {
	uint32_t *functions;
	size_t n, room;
	uint64_t until_ns; /* the last sample stands for the time up to here */
	bool used;
};

struct chrome {
	const struct format_job *job;
	struct location_table *table;
	struct location_chain chain;
	struct lane *lanes; /* [RECORDING_MAX_VCPUS] */
	uint32_t pid;
	bool no_time; /* samples stand one behind the other, each a microsecond long */
	uint64_t clock_ns;
	FILE *out;
};

/* `kind` B: the function begins; E: it ends, and is named again, as speedscope matches names. */
static void put_event(const struct chrome *c, char kind, unsigned vcpu, uint32_t function,
		      uint64_t now_ns)
{
	fprintf(c->out, ",\n{\"ph\":\"%c\",\"name\":", kind);
	format_json_text(c->table->functions[function].name, c->out);
	fprintf(c->out, ",\"pid\":%" PRIu32 ",\"tid\":%u,\"ts\":%" PRIu64 "}", c->pid, vcpu,
		now_ns / 1000);
}

/* Ends the open frames from `keep` on. */
static void close_frames(struct chrome *c, unsigned vcpu, size_t keep, uint64_t now_ns)
{
	struct lane *lane = &c->lanes[vcpu];

	for (; lane->n > keep; lane->n--)
		put_event(c, 'E', vcpu, lane->functions[lane->n - 1], now_ns);
}

/* Counts the open frames that are also in `chain`, from the root on. */
static size_t common(const struct chrome *c, const struct lane *lane)
{
	size_t n = 0;

	while (n < lane->n && n < c->chain.n &&
	       lane->functions[n] == c->table->lines[c->chain.at[c->chain.n - 1 - n]].function)
		n++;
	return n;
}

/* Begins the frames of `chain` that are not open yet. */
static struct error *open_frames(struct chrome *c, unsigned vcpu, uint64_t now_ns)
{
	struct lane *lane = &c->lanes[vcpu];
	struct error *err = ARRAY_RESERVE(&lane->functions, &lane->room, c->chain.n);

	for (; lane->n < c->chain.n && !err; lane->n++) {
		uint32_t function = c->table->lines[c->chain.at[c->chain.n - 1 - lane->n]].function;

		put_event(c, 'B', vcpu, function, now_ns);
		lane->functions[lane->n] = function;
	}
	return err;
}

static void name_lane(const struct chrome *c, unsigned vcpu)
{
	fprintf(c->out,
		",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRIu32
		",\"tid\":%u,\"args\":{\"name\":\"vCPU %u\"}}",
		c->pid, vcpu, vcpu);
}

/*
 * A sample stands for the time up to the next one; if that is a little more
 * than its weight, it is no gap.
 */
static struct error *put_sample(void *ctx, const struct sample *sample)
{
	struct chrome *c = ctx;
	struct lane *lane = &c->lanes[sample->vcpu];
	uint64_t length = sample->weight_ns * sample->times * (c->no_time ? 1000 : 1);
	uint64_t now = c->no_time ? c->clock_ns : sample->time_ns;
	struct error *err = location_table_chain(c->table, sample->stack, &c->chain);

	if (err)
		return err;
	if (!lane->used)
		name_lane(c, sample->vcpu);
	if (lane->used && now > lane->until_ns + length)
		close_frames(c, sample->vcpu, 0, lane->until_ns);
	close_frames(c, sample->vcpu, common(c, lane), now);
	lane->used = true;
	lane->until_ns = length > UINT64_MAX - now ? UINT64_MAX : now + length;
	c->clock_ns += length;
	return open_frames(c, sample->vcpu, now);
}

static struct error *put_all(struct chrome *c)
{
	const char *name, *title = NULL;
	struct error *err = format_guest_name(c->job, &name);

	if (!err)
		err = format_guest_title(c->job, &title);
	if (err)
		return err;
	format_json_field("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":", title, c->out);
	fprintf(c->out,
		"},\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRIu32
		",\"tid\":0,\"args\":{\"name\":",
		c->pid);
	format_json_text(name, c->out);
	fputs("}}", c->out);
	err = samples_read(c->job, put_sample, c);
	for (unsigned i = 0; i < RECORDING_MAX_VCPUS && !err; i++)
		close_frames(c, i, 0, c->lanes[i].until_ns);
	fputs("\n]}\n", c->out);
	return err;
}

static struct error *write_chrome(const struct format_job *job, FILE *out)
{
	struct chrome c = {.job = job,
			   .out = out,
			   .pid = format_guest_pid(job),
			   .no_time = job->profile->info.timeless,
			   .lanes = calloc(RECORDING_MAX_VCPUS, sizeof(*c.lanes))};
	struct error *err = c.lanes ? location_table_new(job, &c.table) : error_no_memory();

	if (!err)
		err = put_all(&c);
	for (unsigned i = 0; c.lanes && i < RECORDING_MAX_VCPUS; i++)
		free(c.lanes[i].functions);
	free(c.lanes);
	free(c.chain.at);
	location_table_free(c.table);
	return err;
}

const struct format format_chrome = {.name = "chrome",
				     .ending = ".trace.json",
				     .write = write_chrome};
