/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "recording/recording.h"

struct merge_guest {
	const char *path;
	struct recording_info info;
	struct recording_end end;
	bool cut;
	uint32_t first_vcpu;		 /* the number of its vCPU 0 */
	uint32_t first_thread;		 /* so many threads are those of guests before it */
	uint64_t offset_ns;		 /* added to its times: align */
	size_t first_tick, behind_ticks; /* its own range of ticks */
};

#define SEVERAL "several"

static const char *called(const struct merge_guest *guest)
{
	const struct recording_info *info = &guest->info;

	if (info->guest_name && *info->guest_name)
		return info->guest_name;
	return info->guest_id ? info->guest_id : "";
}

/* The name of the frame that stands for a guest; the caller frees it. NULL: no memory. */
static char *merge_name(const struct merge_guest *guests, size_t n, size_t guest)
{
	const char *name = called(&guests[guest]), *id = guests[guest].info.guest_id;
	char *both;

	for (size_t i = 0; i < n; i++)
		if (i != guest && !strcmp(called(&guests[i]), name))
			return asprintf(&both, "%s-%s", name, id ? id : "?") < 0 ? NULL : both;
	return strdup(name);
}

/* "web, mail" */
static char *all_names(const struct merge_guest *guests, size_t n)
{
	size_t len;
	char *text = NULL;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		FREED char *name = merge_name(guests, n, i);

		fprintf(out, "%s%s", i ? ", " : "", name ? name : "?");
	}
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* The text at `offset` of all infos; SEVERAL if they differ. */
static char *common(const struct merge_guest *guests, size_t n, size_t offset)
{
	const char *first = *(char *const *)((const char *)&guests[0].info + offset);

	for (size_t i = 1; i < n; i++) {
		const char *other = *(char *const *)((const char *)&guests[i].info + offset);

		if (!first || !other || strcmp(first, other))
			return strdup(SEVERAL);
	}
	return first ? strdup(first) : NULL;
}

#define COMMON(field) common(guests, n, offsetof(struct recording_info, field))

/* Keeps what holds for all guests; freed as a copy is. */
static struct error *merge_info(const struct merge_guest *guests, size_t n,
				struct recording_info *out)
{
	*out = (struct recording_info){.tool = COMMON(tool),
				       .target = COMMON(target),
				       .guest_type = COMMON(guest_type),
				       .host = COMMON(host),
				       .arch = COMMON(arch),
				       .unwind = COMMON(unwind),
				       .guest_id = COMMON(guest_id),
				       .guest_name = all_names(guests, n),
				       .start_unix_ns =
					       guests[0].info.start_unix_ns - guests[0].offset_ns};
	for (size_t i = 0; i < n; i++) {
		const struct recording_info *info = &guests[i].info;

		out->vcpus += info->vcpus;
		out->rate_hz += info->rate_hz;
		out->jitter = out->jitter || info->jitter;
		if (info->duration_ns > out->duration_ns)
			out->duration_ns = info->duration_ns;
	}
	return out->guest_name ? NULL : error_no_memory();
}

static struct error *merge_end(const struct merge_guest *guests, size_t n,
			       struct recording_end *out)
{
	const char *reason = guests[0].end.reason;

	*out = (struct recording_end){0};
	for (size_t i = 0; i < n; i++) {
		const struct recording_end *end = &guests[i].end;

		if (guests[i].offset_ns + end->elapsed_ns > out->elapsed_ns)
			out->elapsed_ns = guests[i].offset_ns + end->elapsed_ns;
		out->missed += end->missed;
		out->retakes += end->retakes;
		out->failed += end->failed;
		out->given_up += end->given_up;
		out->waiting += end->waiting;
		out->unproven += end->unproven;
		if (!reason || !end->reason || strcmp(reason, end->reason))
			reason = SEVERAL " things";
	}
	out->reason = strdup(reason);
	return out->reason ? NULL : error_no_memory();
}

/* One tick of one of the guests. */
struct merged_tick {
	uint64_t time_ns, weight_ns, paused_ns;
	size_t first; /* entry */
	uint32_t n, waits;
};

struct merge {
	struct merge_guest *guests;
	size_t n;
	struct merge_guest *now; /* the one that is being read, */
	struct stacks *its;	 /* its stacks, */
	uint32_t *ids;		 /* and their ids in `stacks` */
	struct stacks *stacks;	 /* of all */
	struct ids *addresses;	 /* by address, guest and kind */
	struct pool *texts;	 /* of source locations, which have to stay */
	struct merged_tick *ticks;
	size_t n_ticks, room_ticks;
	struct tick_entry *entries;
	size_t n_entries, room_entries;
	struct recorded_thread *threads;
	size_t n_threads, room_threads;
	struct recorded_exits *exits;
	size_t n_exits, room_exits;
	struct recording_writer *writer;
};

/* No processor has this address (import.h): the number of a guest's own frame, by this and the guest. */
#define OF_GUEST UINT64_MAX

static struct error *number(struct merge *merge, uint64_t addr, uint8_t kind, uint32_t *number)
{
	const uint64_t guest = (uint64_t)(merge->now - merge->guests);
	bool added;

	return ids_get(merge->addresses, addr, guest << 8 | kind, number, &added);
}

/* Adds a node of the guest; frames without a name keep their address. */
static struct error *take_stack(struct merge *merge, uint32_t named, uint32_t id)
{
	const struct stack_node *node = stacks_node(merge->its, id);
	struct frame frame = {.addr = node->addr, .kind = node->kind, .trust = node->trust};
	uint32_t parent = STACK_ROOT, n;

	if (id == STACK_ROOT)
		frame = (struct frame){OF_GUEST, FRAME_RETURN, TRUST_SURE};
	else
		parent = merge->ids[node->parent];
	TRY(number(merge, frame.addr, frame.kind, &n));
	if (n < named)
		frame.addr = IMPORT_ADDR + n;
	return stacks_child(merge->stacks, parent, &frame, &merge->ids[id]);
}

/* Adds the guest's stacks, once its names are known. */
static struct error *take_stacks(struct merge *merge)
{
	const uint32_t n = stacks_count(merge->its);
	uint32_t own, named;

	TRY(ARRAY_NEW(&merge->ids, n));
	TRY(number(merge, OF_GUEST, FRAME_RETURN, &own));
	named = ids_count(merge->addresses);
	for (uint32_t id = 0; id < n; id++)
		TRY(take_stack(merge, named, id));
	return NULL;
}

static struct error *take_tick(void *ctx, const struct tick *tick)
{
	struct merge *merge = ctx;

	TRY(ARRAY_RESERVE(&merge->ticks, &merge->room_ticks, merge->n_ticks + 1));
	TRY(ARRAY_RESERVE(&merge->entries, &merge->room_entries,
			  merge->n_entries + tick->n + tick->waits));
	merge->ticks[merge->n_ticks++] = (struct merged_tick){.time_ns = tick->time_ns,
							      .weight_ns = tick->weight_ns,
							      .paused_ns = tick->paused_ns,
							      .first = merge->n_entries,
							      .n = tick->n,
							      .waits = tick->waits};
	for (uint32_t i = 0; i < tick->n + tick->waits; i++) {
		struct tick_entry *entry = &merge->entries[merge->n_entries++];

		*entry = tick->entries[i];
		if (i < tick->n)
			entry->vcpu += merge->now->first_vcpu;
		if (entry->thread)
			entry->thread += merge->now->first_thread;
	}
	return NULL;
}

static struct error *take_thread(void *ctx, uint32_t number, const struct recorded_thread *thread)
{
	struct merge *merge = ctx;

	TRY(ARRAY_RESERVE(&merge->threads, &merge->room_threads, merge->n_threads + 1));
	merge->threads[merge->n_threads] = *thread;
	return recorded_thread_intern(merge->texts, &merge->threads[merge->n_threads++]);
}

static struct error *take_exits(void *ctx, const struct recorded_exits *exits)
{
	struct merge *merge = ctx;

	TRY(ARRAY_RESERVE(&merge->exits, &merge->room_exits, merge->n_exits + 1));
	merge->exits[merge->n_exits] = *exits;
	merge->exits[merge->n_exits++].vcpu += merge->now->first_vcpu;
	return NULL;
}

static struct error *take_info(void *ctx, const struct recording_info *info)
{
	struct merge *merge = ctx;
	struct merge_guest *guest = merge->now;

	guest->first_vcpu =
		guest == merge->guests ? 0 : guest[-1].first_vcpu + guest[-1].info.vcpus;
	if (info->vcpus > RECORDING_MAX_VCPUS - guest->first_vcpu)
		return error_new(ERR_INPUT, "%s: more than %u vCPUs in all", guest->path,
				 RECORDING_MAX_VCPUS);
	return recording_info_copy(info, &guest->info);
}

static struct error *take_end(void *ctx, const struct recording_end *end)
{
	return recording_end_copy(end, &((struct merge *)ctx)->now->end);
}

static struct error *take_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
			       uint64_t offset)
{
	uint32_t n;

	return number(ctx, addr, kind, &n);
}

static struct error *read_guest(struct merge *merge, struct merge_guest *guest)
{
	const struct recording_visitor visitor = {.ctx = merge,
						  .info = take_info,
						  .tick = take_tick,
						  .thread = take_thread,
						  .exits = take_exits,
						  .name = take_name,
						  .end = take_end};
	const size_t first = merge->n_entries, first_exits = merge->n_exits;
	struct error *err = stacks_new(&merge->its);

	merge->now = guest;
	guest->first_tick = merge->n_ticks;
	guest->first_thread = (uint32_t)merge->n_threads;
	if (!err)
		err = recording_read(guest->path, merge->its, &visitor, &guest->cut);
	if (!err)
		err = take_stacks(merge);
	for (size_t i = first; i < merge->n_entries && !err; i++)
		merge->entries[i].stack = merge->ids[merge->entries[i].stack];
	for (size_t i = first_exits; i < merge->n_exits && !err; i++)
		merge->exits[i].stack = merge->ids[merge->exits[i].stack];
	guest->behind_ticks = merge->n_ticks;
	stacks_free(merge->its);
	free(merge->ids);
	merge->its = NULL;
	merge->ids = NULL;
	return err;
}

/* Moves all to the time of the first, by the wall clock. */
static void align(struct merge *merge)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < merge->n; i++)
		if (merge->guests[i].info.start_unix_ns < first)
			first = merge->guests[i].info.start_unix_ns;
	for (size_t i = 0; i < merge->n; i++) {
		struct merge_guest *guest = &merge->guests[i];

		guest->offset_ns = guest->info.start_unix_ns - first;
		for (size_t k = guest->first_tick; k < guest->behind_ticks; k++)
			merge->ticks[k].time_ns += guest->offset_ns;
	}
}

static int by_time(const void *left, const void *right)
{
	const struct merged_tick *a = left, *b = right;

	return COMPARE(a->time_ns, b->time_ns) ?: COMPARE(a->first, b->first);
}

/* Processes of two guests may have the same name and number: the guest's name stands before. */
static struct error *tell_thread(struct merge *merge, const char *guest,
				 const struct recorded_thread *thread)
{
	FREED char *process = NULL;
	struct recorded_thread told = *thread;

	if (asprintf(&process, "%s:%s", guest, thread->process) < 0)
		return error_no_memory();
	told.process = process;
	return recording_thread(merge->writer, &told);
}

static struct error *tell_threads(struct merge *merge)
{
	for (size_t i = 0; i < merge->n; i++) {
		const size_t behind =
			i + 1 < merge->n ? merge->guests[i + 1].first_thread : merge->n_threads;
		FREED char *name = merge_name(merge->guests, merge->n, i);

		if (!name)
			return error_no_memory();
		for (size_t k = merge->guests[i].first_thread; k < behind; k++)
			TRY(tell_thread(merge, name, &merge->threads[k]));
	}
	return NULL;
}

static struct error *tell_ticks(struct merge *merge)
{
	qsort(merge->ticks, merge->n_ticks, sizeof(*merge->ticks), by_time);
	for (size_t i = 0; i < merge->n_ticks; i++) {
		const struct merged_tick *read = &merge->ticks[i];
		const struct tick tick = {.time_ns = read->time_ns,
					  .weight_ns = read->weight_ns,
					  .paused_ns = read->paused_ns,
					  .n = read->n,
					  .waits = read->waits,
					  .entries = merge->entries + read->first};

		TRY(recording_tick(merge->writer, &tick));
	}
	return NULL;
}

static struct error *tell_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
			       uint64_t offset)
{
	struct merge *merge = ctx;
	uint32_t n;

	TRY(number(merge, addr, kind, &n));
	return recording_name(merge->writer, IMPORT_ADDR + n, kind, name, offset);
}

/* Source locations follow their frame's name, which gives the last of them its function. */
static struct error *tell_locations(void *ctx, uint64_t addr, uint8_t kind,
				    const struct source_frame *frames, size_t n)
{
	struct merge *merge = ctx;
	struct source_frame kept[SOURCE_DEPTH];
	uint32_t id;

	memcpy(kept, frames, n * sizeof(*kept));
	TRY(pool_intern_frames(merge->texts, kept, n));
	TRY(number(merge, addr, kind, &id));
	return recording_locations(merge->writer, IMPORT_ADDR + id, kind, kept, n);
}

static struct error *tell_names(struct merge *merge)
{
	const struct recording_visitor visitor = {.ctx = merge,
						  .name = tell_name,
						  .locations = tell_locations};

	for (size_t i = 0; i < merge->n; i++) {
		FREED char *name = merge_name(merge->guests, merge->n, i);
		bool cut;

		if (!name)
			return error_no_memory();
		merge->now = &merge->guests[i];
		TRY(tell_name(merge, OF_GUEST, FRAME_RETURN, name, 0));
		TRY(recording_read(merge->now->path, NULL, &visitor, &cut));
	}
	return NULL;
}

static struct error *tell_all(struct merge *merge)
{
	TRY(tell_threads(merge));
	TRY(tell_ticks(merge));
	for (size_t i = 0; i < merge->n_exits; i++)
		TRY(recording_exits(merge->writer, &merge->exits[i]));
	return tell_names(merge);
}

static struct error *write_all(struct merge *merge, const char *output)
{
	ENDED_BY(recording_info_free) struct recording_info info = {0};
	ENDED_BY(recording_end_free) struct recording_end end = {0};
	bool cut = false;
	struct error *err;

	TRY(merge_info(merge->guests, merge->n, &info));
	TRY(recording_create(output, &info, merge->stacks, &merge->writer));
	err = tell_all(merge);
	if (!err)
		err = merge_end(merge->guests, merge->n, &end);
	if (err) {
		recording_abandon(merge->writer);
		return err;
	}
	for (size_t i = 0; i < merge->n; i++)
		cut |= merge->guests[i].cut;
	return recording_close(merge->writer, cut ? NULL : &end);
}

static void merge_free(struct merge *merge)
{
	for (size_t i = 0; merge->guests && i < merge->n; i++) {
		recording_info_free(&merge->guests[i].info);
		recording_end_free(&merge->guests[i].end);
	}
	free(merge->guests);
	stacks_free(merge->stacks);
	ids_free(merge->addresses);
	pool_free(merge->texts);
	free(merge->ticks);
	free(merge->entries);
	free(merge->threads);
	free(merge->exits);
}

struct error *merge_recordings(char *const *paths, size_t n, const char *output)
{
	ENDED_BY(merge_free)
	struct merge merge = {.n = n, .guests = calloc(n, sizeof(*merge.guests))};

	if (!merge.guests)
		return error_no_memory();
	TRY(stacks_new(&merge.stacks));
	TRY(ids_new(&merge.addresses));
	TRY(pool_new(&merge.texts));
	for (size_t i = 0; i < n; i++) {
		merge.guests[i].path = paths[i];
		TRY(read_guest(&merge, &merge.guests[i]));
	}
	align(&merge);
	return write_all(&merge, output);
}
