/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/import.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"

struct segment_head {
	struct recording_info info;
	uint32_t run;
	bool readable;
};

struct segment_name {
	const char *name; /* NULL: none */
	uint64_t offset;
};

struct joining {
	const struct segments *set;
	const struct recording_visitor *visitor;
	struct stacks *stacks; /* the caller's */
	struct segment_head *heads;
	uint32_t runs, native; /* the run whose addresses stay */
	uint32_t vcpus;
	size_t alike; /* segments up to the first of another run or rate, with those that cannot be read */
	uint64_t base_unix_ns; /* the result's time 0 */

	struct pool *texts;
	struct row_ids names; /* by address, run and kind */
	struct segment_name *name;
	struct ids *stand_ins, *told; /* by address, run and kind; by address and kind */
	struct ids *located;
	struct ids *called, *started, *threads; /* what a thread's number is found by */
	struct recorded_thread *thread;
	size_t threads_room;
	/* The segment that is being read: */
	size_t now;
	struct stacks *its;
	uint32_t *ids; /* [n_ids]: its stacks' ids in `stacks` */
	size_t n_ids, ids_room;
	uint32_t *its_threads; /* their numbers in the result */
	size_t its_threads_room;
	struct tick_entry *entries;
	size_t entries_room;

	uint64_t last_ns, ticks;
	struct recording_end end; /* sums; its texts are copies */
	size_t left_out;
};

static uint64_t key(uint8_t kind, uint32_t run)
{
	return (uint64_t)run << 8 | kind;
}

/* Has no image, as far as both tell of it, moved between two heads, or been replaced? */
static bool images_stay(const struct recorded_images *a, const struct recorded_images *b)
{
	for (size_t i = 0; i < a->n; i++) {
		bool seen = false, same = false;

		for (size_t k = 0; a->at[i].path && k < b->n; k++) {
			const bool here = b->at[k].path && !strcmp(a->at[i].path, b->at[k].path);

			if (recorded_image_replaced(&a->at[i], &b->at[k]))
				return false;
			seen |= here;
			same |= here && a->at[i].slide == b->at[k].slide;
		}
		if (seen && !same)
			return false;
	}
	return true;
}

static bool same_text(const char *a, const char *b)
{
	return !strcmp(a ?: "", b ?: "");
}

static bool same_run(const struct recording_info *a, const struct recording_info *b)
{
	return same_text(a->target, b->target) && same_text(a->guest_id, b->guest_id) &&
	       same_text(a->guest_name, b->guest_name) && same_text(a->arch, b->arch) &&
	       same_text(a->build_id, b->build_id) && images_stay(&a->images, &b->images);
}

/* Ends the reading behind the head. */
static struct error *take_head(void *ctx, const struct recording_info *info)
{
	struct segment_head *head = ctx;
	struct error *err = recording_info_copy(info, &head->info);

	head->readable = !err;
	return err ? err : error_new(ERR_ENDED, "the head was read");
}

/* A segment without a head was begun when its writer was killed, or is not there any more. */
static struct error *read_head(struct joining *joining, size_t i)
{
	struct segment_head *head = &joining->heads[i];
	const struct recording_visitor visitor = {.ctx = head, .info = take_head};
	bool cut;
	struct error *err = recording_read(joining->set->paths[i], NULL, &visitor, &cut);

	if (err && !head->readable && err->kind != ERR_INPUT)
		return err;
	error_free(err);
	joining->left_out += !head->readable;
	return NULL;
}

static struct error *read_heads(struct joining *joining)
{
	const struct segments *set = joining->set;
	const struct segment_head *before = NULL;

	for (size_t i = 0; i < set->n; i++) {
		struct segment_head *head = &joining->heads[i];

		TRY(read_head(joining, i));
		if (!head->readable)
			continue;
		if (!before)
			joining->base_unix_ns = head->info.start_unix_ns;
		head->run = !before || same_run(&before->info, &head->info) ? joining->native
									    : joining->native + 1;
		joining->native = head->run;
		joining->runs = joining->native + 1;
		if (head->info.vcpus > joining->vcpus)
			joining->vcpus = head->info.vcpus;
		if (!joining->alike && before &&
		    (head->run || head->info.rate_hz != before->info.rate_hz))
			joining->alike = i;
		before = head;
	}
	if (!joining->alike)
		joining->alike = set->n;
	if (!before)
		return error_new(ERR_INPUT, "nothing was recorded in that time");
	if (set->from_unix_ns > joining->base_unix_ns)
		joining->base_unix_ns = set->from_unix_ns;
	return NULL;
}

static struct error *take_run_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
				   uint64_t offset)
{
	struct joining *joining = ctx;
	struct segment_name *row;
	uint32_t n;

	TRY(ROW_IDS_GET(&joining->names, addr, key(kind, joining->heads[joining->now].run),
			&joining->name, &n));
	row = &joining->name[n];
	if (row->name && row->offset <= offset)
		return NULL;
	row->offset = offset;
	return pool_intern(joining->texts, name, strlen(name), &row->name);
}

/* Reads one segment; what is damaged is left out, from there on. */
static struct error *read_segment(struct joining *joining, const struct recording_visitor *visitor)
{
	bool cut;
	struct error *err = stacks_new(&joining->its);

	joining->n_ids = 0;
	if (!err)
		err = recording_read(joining->set->paths[joining->now], joining->its, visitor,
				     &cut);
	stacks_free(joining->its);
	joining->its = NULL;
	if (!err || err->kind != ERR_INPUT)
		return err;
	error_free(err);
	joining->left_out += visitor->tick != NULL;
	return NULL;
}

static struct error *read_each(struct joining *joining, const struct recording_visitor *visitor)
{
	for (size_t i = 0; i < joining->set->n; i++) {
		joining->now = i;
		if (joining->heads[i].readable)
			TRY(read_segment(joining, visitor));
		if (visitor->tick)
			recording_progress(joining->visitor, i + 1, joining->set->n);
	}
	return NULL;
}

/* The name of a frame's address in a run. */
static struct segment_name find_name(const struct joining *joining, const struct frame *frame,
				     uint32_t run)
{
	uint32_t n;

	return row_ids_find(&joining->names, frame->addr, key(frame->kind, run), &n)
		       ? joining->name[n]
		       : (struct segment_name){0};
}

static struct error *tell_name(struct joining *joining, uint64_t addr, uint8_t kind,
			       const char *name, uint64_t offset)
{
	const struct recording_visitor *to = joining->visitor;
	bool added;
	uint32_t n;

	TRY(ids_get(joining->told, addr, kind, &n, &added));
	return added && to->name ? to->name(to->ctx, addr, kind, name, offset) : NULL;
}

/* Gives a frame of another run the address that it has in the result. */
static struct error *translate(struct joining *joining, struct frame *frame)
{
	const uint32_t run = joining->heads[joining->now].run;
	struct segment_name own;
	char address[32];
	bool added;
	uint32_t n;

	if (run == joining->native)
		return NULL;
	own = find_name(joining, frame, run);
	if (own.name && own.name == find_name(joining, frame, joining->native).name)
		return NULL;
	TRY(ids_get(joining->stand_ins, frame->addr, key(frame->kind, run), &n, &added));
	snprintf(address, sizeof(address), "0x%" PRIx64, frame->addr);
	frame->addr = IMPORT_ADDR + n;
	return tell_name(joining, frame->addr, frame->kind, own.name ?: address, own.offset);
}

/* Adds the stacks that the segment has so far; callers come before their callees. */
static struct error *take_stacks(struct joining *joining)
{
	const uint32_t n = stacks_count(joining->its);

	TRY(ARRAY_RESERVE(&joining->ids, &joining->ids_room, n));
	if (!joining->n_ids)
		joining->ids[joining->n_ids++] = STACK_ROOT;
	while (joining->n_ids < n) {
		const struct stack_node *node = stacks_node(joining->its, (uint32_t)joining->n_ids);
		struct frame frame = {.addr = node->addr, .kind = node->kind, .trust = node->trust};

		TRY(translate(joining, &frame));
		TRY(stacks_child(joining->stacks, joining->ids[node->parent], &frame,
				 &joining->ids[joining->n_ids]));
		joining->n_ids++;
	}
	return NULL;
}

/* Time in the result; false: it is outside of what was asked for. Clocks may be set back: time does not. */
static bool take_time(struct joining *joining, uint64_t *time_ns)
{
	const struct segments *set = joining->set;
	const uint64_t start = joining->heads[joining->now].info.start_unix_ns;
	const uint64_t at = start + *time_ns;

	if (at < start || at < joining->base_unix_ns || (set->to_unix_ns && at >= set->to_unix_ns))
		return false;
	*time_ns = at - joining->base_unix_ns;
	if (*time_ns < joining->last_ns)
		*time_ns = joining->last_ns;
	joining->last_ns = *time_ns;
	return true;
}

static struct error *take_tick(void *ctx, const struct tick *read)
{
	struct joining *joining = ctx;
	const struct recording_visitor *to = joining->visitor;
	struct tick tick = *read;

	if (!take_time(joining, &tick.time_ns))
		return NULL;
	TRY(take_stacks(joining));
	TRY(ARRAY_RESERVE(&joining->entries, &joining->entries_room, (size_t)tick.n + tick.waits));
	for (uint32_t i = 0; i < tick.n + tick.waits; i++) {
		struct tick_entry *entry = &joining->entries[i];

		*entry = read->entries[i];
		entry->stack = joining->ids[entry->stack];
		if (entry->thread)
			entry->thread = joining->its_threads[entry->thread - 1];
	}
	tick.period_ns = recording_period_ns(&joining->heads[joining->now].info);
	tick.entries = joining->entries;
	tick.threads = joining->thread;
	joining->ticks++;
	return to->tick ? to->tick(to->ctx, &tick) : NULL;
}

/* The number that the thread has in the result. */
static struct error *find_thread(struct joining *joining, const struct recorded_thread *t,
				 uint32_t *number, bool *added)
{
	uint32_t called, started;

	TRY(ids_get(joining->called, (uintptr_t)t->name, (uintptr_t)t->process, &called, added));
	if (t->container) /* no pointer is as low as a number */
		TRY(ids_get(joining->called, called, (uintptr_t)t->container, &called, added));
	TRY(ids_get(joining->started, t->start_ns, called, &started, added));
	return ids_get(joining->threads, (uint64_t)t->pid << 32 | t->tid, started, number, added);
}

/* Threads beyond what a recording has room for are not known. */
static struct error *take_thread(void *ctx, uint32_t number, const struct recorded_thread *read)
{
	struct joining *joining = ctx;
	struct recorded_thread thread = *read;
	uint32_t id;
	bool added;

	TRY(recorded_thread_intern(joining->texts, &thread));
	TRY(ARRAY_RESERVE(&joining->its_threads, &joining->its_threads_room, number));
	TRY(find_thread(joining, &thread, &id, &added));
	joining->its_threads[number - 1] = id < RECORDED_THREADS_MAX ? id + 1 : 0;
	if (!added || id >= RECORDED_THREADS_MAX)
		return NULL;
	TRY(ARRAY_RESERVE(&joining->thread, &joining->threads_room, (size_t)id + 1));
	joining->thread[id] = thread;
	return joining->visitor->thread
		       ? joining->visitor->thread(joining->visitor->ctx, id + 1, &thread)
		       : NULL;
}

static bool is_native(const struct joining *joining)
{
	return joining->heads[joining->now].run == joining->native;
}

static struct error *take_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
			       uint64_t offset)
{
	return is_native(ctx) ? tell_name(ctx, addr, kind, name, offset) : NULL;
}

static struct error *take_locations(void *ctx, uint64_t addr, uint8_t kind,
				    const struct source_frame *frames, size_t n)
{
	struct joining *joining = ctx;
	const struct recording_visitor *to = joining->visitor;
	struct source_frame kept[SOURCE_DEPTH];
	bool added;
	uint32_t id;

	if (!is_native(joining) || !to->locations || n > SOURCE_DEPTH)
		return NULL;
	TRY(ids_get(joining->located, addr, kind, &id, &added));
	if (!added)
		return NULL;
	/* A recording that is written keeps their texts by pointer. */
	memcpy(kept, frames, n * sizeof(*kept));
	TRY(pool_intern_frames(joining->texts, kept, n));
	return to->locations(to->ctx, addr, kind, kept, n);
}

static struct error *take_end(void *ctx, const struct recording_end *end)
{
	struct joining *joining = ctx;
	struct recording_end *sum = &joining->end, copy;

	TRY(recording_end_copy(end, &copy));
	copy.missed += sum->missed;
	copy.retakes += sum->retakes;
	copy.failed += sum->failed;
	copy.given_up += sum->given_up;
	copy.waiting += sum->waiting;
	copy.unproven += sum->unproven;
	recording_end_free(sum);
	*sum = copy;
	return NULL;
}

static struct error *tell_info(struct joining *joining)
{
	const struct recording_visitor *to = joining->visitor;
	struct recording_info info = {0};

	for (size_t i = 0; i < joining->set->n; i++)
		if (joining->heads[i].readable)
			recording_info_follow(&info, &joining->heads[i].info);
	info.vcpus = joining->vcpus;
	info.start_unix_ns = joining->base_unix_ns;
	info.duration_ns = 0;
	return to->info ? to->info(to->ctx, &info) : NULL;
}

static struct error *tell_end(struct joining *joining)
{
	const struct recording_visitor *to = joining->visitor;
	struct recording_end end = joining->end;
	char reason[128];

	if (!joining->ticks)
		return error_new(ERR_INPUT, "nothing was recorded in that time");
	end.elapsed_ns = joining->last_ns;
	end.unread = joining->left_out;
	if (joining->left_out) {
		snprintf(reason, sizeof(reason), "%zu of %zu segments could not be read whole",
			 joining->left_out, joining->set->n);
		end.reason = reason;
	} else if (!end.reason) {
		end.reason = (char *)"the stretch of time is over";
	}
	return to->end ? to->end(to->ctx, &end) : NULL;
}

static struct error *joining_init(struct joining *joining)
{
	struct ids **all[] = {&joining->stand_ins, &joining->told,    &joining->located,
			      &joining->called,	   &joining->started, &joining->threads};

	TRY(ARRAY_NEW(&joining->heads, joining->set->n ? joining->set->n : 1));
	TRY(pool_new(&joining->texts));
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		TRY(ids_new(all[i]));
	return NULL;
}

static void joining_free(struct joining *joining)
{
	struct ids *all[] = {joining->names.ids, joining->stand_ins, joining->told,
			     joining->located,	 joining->called,    joining->started,
			     joining->threads};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		ids_free(all[i]);
	for (size_t i = 0; joining->heads && i < joining->set->n; i++)
		if (joining->heads[i].readable)
			recording_info_free(&joining->heads[i].info);
	recording_end_free(&joining->end);
	pool_free(joining->texts);
	free(joining->heads);
	free(joining->name);
	free(joining->thread);
	free(joining->ids);
	free(joining->its_threads);
	free(joining->entries);
}

/* Names of all runs are known before the first stack of one of several is taken. */
static struct error *join(struct joining *joining)
{
	const struct recording_visitor names = {.ctx = joining, .name = take_run_name};
	const struct recording_visitor all = {.ctx = joining,
					      .tick = take_tick,
					      .thread = take_thread,
					      .name = take_name,
					      .locations = take_locations,
					      .end = take_end};

	TRY(tell_info(joining));
	if (joining->runs > 1)
		TRY(read_each(joining, &names));
	TRY(read_each(joining, &all));
	return tell_end(joining);
}

struct error *segments_read(const struct segments *segments, struct stacks *stacks,
			    const struct recording_visitor *visitor)
{
	ENDED_BY(joining_free)
	struct joining joining = {.set = segments, .visitor = visitor, .stacks = stacks};

	TRY(joining_init(&joining));
	TRY(read_heads(&joining));
	return join(&joining);
}

/* A recording that segments are written into. */
struct segments_output {
	const char *path;
	struct stacks *stacks;
	struct recording_writer *writer;
};

static struct error *write_info(void *ctx, const struct recording_info *info)
{
	struct segments_output *out = ctx;

	TRY(recording_create(out->path, info, out->stacks, &out->writer));
	recording_pack(out->writer, recording_period_ns(info));
	return NULL;
}

static struct error *write_tick(void *ctx, const struct tick *tick)
{
	return recording_tick(((struct segments_output *)ctx)->writer, tick);
}

static struct error *write_thread(void *ctx, uint32_t number, const struct recorded_thread *thread)
{
	return recording_thread(((struct segments_output *)ctx)->writer, thread);
}

static struct error *write_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
				uint64_t offset)
{
	return recording_name(((struct segments_output *)ctx)->writer, addr, kind, name, offset);
}

static struct error *write_locations(void *ctx, uint64_t addr, uint8_t kind,
				     const struct source_frame *frames, size_t n)
{
	return recording_locations(((struct segments_output *)ctx)->writer, addr, kind, frames, n);
}

/* The last that the visitor is told; the texts of locations are good until it returns. */
static struct error *write_end(void *ctx, const struct recording_end *end)
{
	struct segments_output *out = ctx;
	struct recording_writer *writer = out->writer;

	out->writer = NULL;
	return recording_close(writer, end);
}

static struct error *write_joined(const struct segments *segments, const char *output)
{
	struct segments_output out = {.path = output};
	const struct recording_visitor visitor = {.ctx = &out,
						  .info = write_info,
						  .tick = write_tick,
						  .thread = write_thread,
						  .name = write_name,
						  .locations = write_locations,
						  .end = write_end};
	struct error *err = stacks_new(&out.stacks);

	if (!err)
		err = segments_read(segments, out.stacks, &visitor);
	if (out.writer)
		recording_abandon(out.writer);
	stacks_free(out.stacks);
	return err;
}

static struct error *count_alike(const struct segments *segments, size_t *n)
{
	ENDED_BY(joining_free) struct joining joining = {.set = segments};

	TRY(joining_init(&joining));
	TRY(read_heads(&joining));
	*n = joining.alike;
	return NULL;
}

struct error *segments_join(const struct segments *segments, const char *output, size_t *taken)
{
	struct segments first = *segments;

	*taken = 0;
	TRY(count_alike(segments, &first.n));
	*taken = first.n;
	return write_joined(&first, output);
}
