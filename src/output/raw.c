/* SPDX-License-Identifier: BSD-3-Clause */

/* The classic trace, sample by sample in the order of time. */

#include "output/output.h"

#include <string.h>

#include "format/raw.h"
#include "import/import.h"

struct raw {
	const struct output_job *job;
	struct stacks *stacks; /* the reader's; its ids are those of the ticks */
	FILE *out;
};

static struct error *write_head(void *ctx, const struct recording_info *info)
{
	struct raw *raw = ctx;

	trace_write_head(info, raw->out);
	return NULL;
}

static struct error *write_stack(struct raw *raw, uint32_t id, uint64_t times)
{
	size_t n = 0;

	for (; id != STACK_ROOT; n++) {
		const struct stack_node *node = stacks_node(raw->stacks, id);
		struct named named;

		if (raw->job->namer) {
			struct error *err =
				namer_name(raw->job->namer, node->addr, node->kind, &named);

			if (err)
				return err;
		}
		trace_write_frame(node->addr, raw->job->namer ? &named : NULL, raw->out);
		id = node->parent;
	}
	trace_write_end(n, times, raw->out);
	return NULL;
}

static struct error *write_tick(void *ctx, const struct tick *tick)
{
	struct raw *raw = ctx;
	struct error *err = NULL;

	for (uint32_t i = 0; i < tick->n && !err; i++)
		if (profile_selects(raw->job->filter, tick, &tick->entries[i]))
			err = write_stack(raw, tick->entries[i].stack, 1 + tick->more);
	return err;
}

static struct error *write_raw(const struct output_job *job, FILE *out)
{
	struct raw raw = {.job = job, .out = out};
	struct recording_visitor visitor = {.ctx = &raw, .info = write_head, .tick = write_tick};
	struct error *err;
	bool cut;

	if (!strcmp(job->path, "-"))
		return error_new(ERR_USAGE, "the raw format reads its recording twice, so the "
					    "recording cannot come from standard input");
	visitor.progress = job->filter->progress;
	visitor.stage = "exporting";
	err = stacks_new(&raw.stacks);
	if (!err)
		err = source_read(job->path, raw.stacks, &visitor, &cut);
	stacks_free(raw.stacks);
	return err;
}

const struct output_format output_raw = {.name = "raw", .ending = ".raw", .write = write_raw};
