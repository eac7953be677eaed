/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/samples.h"

#include <stdlib.h>
#include <string.h>

#include "import/import.h"

struct reading {
	const struct output_job *job;
	struct stacks *stacks;
	struct error *(*take)(void *ctx, const struct sample *sample);
	void *ctx;
	uint64_t ticks_left; /* the file may have grown since */
};

static struct error *read_entry(struct reading *r, const struct tick *tick,
				const struct tick_entry *entry)
{
	const struct profile_filter *filter = r->job->filter;
	struct sample sample = {.time_ns = tick->time_ns,
				.weight_ns = filter->by_cpu ? entry->ran_ns : tick->weight_ns,
				.times = 1 + tick->more,
				.stack = entry->stack,
				.vcpu = (uint16_t)entry->vcpu,
				.state = entry->state};

	if (!profile_selects(filter, tick, entry))
		return NULL;
	/* Stacks are numbered in the order of the file. */
	if (entry->stack >= stacks_count(r->job->profile->stacks) ||
	    !r->job->profile->cells[entry->stack].samples)
		return error_new(ERR_INPUT, "%s has changed while it was read", r->job->path);
	return r->take(r->ctx, &sample);
}

static struct error *read_tick(void *ctx, const struct tick *tick)
{
	struct reading *r = ctx;
	struct error *err = NULL;

	if (!r->ticks_left)
		return NULL;
	r->ticks_left--;
	for (uint32_t i = 0; i < tick->n && !err; i++)
		err = read_entry(r, tick, &tick->entries[i]);
	return err;
}

struct error *samples_read(const struct output_job *job,
			   struct error *(*take)(void *ctx, const struct sample *sample), void *ctx)
{
	struct reading r = {.job = job,
			    .take = take,
			    .ctx = ctx,
			    .ticks_left = job->profile->ticks_read};
	const struct recording_visitor visitor = {.ctx = &r,
						  .progress = job->filter->progress,
						  .stage = "exporting",
						  .tick = read_tick};
	struct error *err;
	bool cut;

	if (!strcmp(job->path, "-"))
		return error_new(ERR_USAGE, "this format reads its recording twice, so the "
					    "recording cannot come from standard input");
	err = stacks_new(&r.stacks);
	if (!err)
		err = source_read(job->path, r.stacks, &visitor, &cut);
	stacks_free(r.stacks);
	return err;
}

struct collecting {
	struct samples *samples;
	size_t room;
};

static struct error *collect(void *ctx, const struct sample *sample)
{
	struct collecting *c = ctx;

	if (c->samples->n == c->room) {
		size_t room = c->room + c->room / 2 + 1024;
		struct sample *at = reallocarray(c->samples->at, room, sizeof(*at));

		if (!at)
			return error_no_memory();
		c->samples->at = at;
		c->room = room;
	}
	c->samples->at[c->samples->n++] = *sample;
	return NULL;
}

static int by_vcpu(const void *left, const void *right)
{
	const struct sample *a = left, *b = right;

	if (a->vcpu != b->vcpu)
		return a->vcpu < b->vcpu ? -1 : 1;
	return (a->time_ns > b->time_ns) - (a->time_ns < b->time_ns);
}

static bool is_sorted(const struct samples *samples)
{
	for (size_t i = 1; i < samples->n; i++)
		if (by_vcpu(&samples->at[i - 1], &samples->at[i]) > 0)
			return false;
	return true;
}

struct error *samples_collect(const struct output_job *job, struct samples **out)
{
	struct collecting c = {.samples = calloc(1, sizeof(*c.samples))};
	struct error *err = c.samples ? samples_read(job, collect, &c) : error_no_memory();

	if (err) {
		samples_free(c.samples);
		return err;
	}
	if (!is_sorted(c.samples))
		qsort(c.samples->at, c.samples->n, sizeof(*c.samples->at), by_vcpu);
	*out = c.samples;
	return NULL;
}

void samples_free(struct samples *samples)
{
	if (!samples)
		return;
	free(samples->at);
	free(samples);
}

size_t samples_vcpu_end(const struct samples *samples, size_t i)
{
	size_t end = i;

	while (end < samples->n && samples->at[end].vcpu == samples->at[i].vcpu)
		end++;
	return end;
}
