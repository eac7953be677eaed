/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "base/pool.h"
#include "import/import.h"
#include "profile/merge_info.h"
#include "recording/recording.h"

/* One look at one of the guests. */
struct look {
	uint64_t time_ns, weight_ns, paused_ns;
	size_t first; /* entry */
	uint32_t n;
};

struct merge {
	struct merge_guest *guests;
	size_t n;
	struct merge_guest *now; /* the one that is being read, */
	struct stacks *its;	 /* its stacks, */
	uint32_t *ids;		 /* and what they are in `stacks` */
	struct stacks *stacks;	 /* of all */
	struct ids *addresses;	 /* by address, guest and kind */
	struct pool *texts;	 /* of places, which have to stay */
	struct look *looks;
	size_t n_looks, room_looks;
	struct tick_entry *entries;
	size_t n_entries, room_entries;
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

/* Those without a name stay as they are. */
static struct error *take_stack(struct merge *merge, uint32_t named, uint32_t id)
{
	const struct stack_node *node = stacks_node(merge->its, id);
	struct frame frame = {.addr = node->addr, .kind = node->kind, .trust = node->trust};
	uint32_t parent = STACK_ROOT, n;
	struct error *err;

	if (id == STACK_ROOT)
		frame = (struct frame){OF_GUEST, FRAME_RETURN, TRUST_SURE};
	else
		parent = merge->ids[node->parent];
	err = number(merge, frame.addr, frame.kind, &n);
	if (n < named)
		frame.addr = IMPORT_ADDR + n;
	return err ? err : stacks_child(merge->stacks, parent, &frame, &merge->ids[id]);
}

/* Now that its names are known. */
static struct error *take_stacks(struct merge *merge)
{
	const uint32_t n = stacks_count(merge->its);
	struct error *err;
	uint32_t own, named;

	merge->ids = calloc(n, sizeof(*merge->ids));
	if (!merge->ids)
		return error_no_memory();
	err = number(merge, OF_GUEST, FRAME_RETURN, &own);
	named = ids_count(merge->addresses);
	for (uint32_t id = 0; id < n && !err; id++)
		err = take_stack(merge, named, id);
	return err;
}

static struct error *make_room(struct merge *merge, uint32_t n)
{
	if (merge->n_looks == merge->room_looks) {
		const size_t room = merge->room_looks + merge->room_looks / 2 + 1024;
		struct look *looks = reallocarray(merge->looks, room, sizeof(*looks));

		if (!looks)
			return error_no_memory();
		merge->looks = looks;
		merge->room_looks = room;
	}
	if (merge->room_entries - merge->n_entries < n) {
		const size_t room = merge->room_entries + merge->room_entries / 2 + 1024 + n;
		struct tick_entry *entries = reallocarray(merge->entries, room, sizeof(*entries));

		if (!entries)
			return error_no_memory();
		merge->entries = entries;
		merge->room_entries = room;
	}
	return NULL;
}

static struct error *take_tick(void *ctx, const struct tick *tick)
{
	struct merge *merge = ctx;
	struct error *err = make_room(merge, tick->n);

	if (err)
		return err;
	merge->looks[merge->n_looks++] = (struct look){.time_ns = tick->time_ns,
						       .weight_ns = tick->weight_ns,
						       .paused_ns = tick->paused_ns,
						       .first = merge->n_entries,
						       .n = tick->n};
	for (uint32_t i = 0; i < tick->n; i++) {
		merge->entries[merge->n_entries] = tick->entries[i];
		merge->entries[merge->n_entries++].vcpu += merge->now->first_vcpu;
	}
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
						  .name = take_name,
						  .end = take_end};
	const size_t first = merge->n_entries;
	struct error *err = stacks_new(&merge->its);

	merge->now = guest;
	guest->first_look = merge->n_looks;
	if (!err)
		err = recording_read(guest->path, merge->its, &visitor, &guest->cut);
	if (!err)
		err = take_stacks(merge);
	for (size_t i = first; i < merge->n_entries && !err; i++)
		merge->entries[i].stack = merge->ids[merge->entries[i].stack];
	guest->behind_looks = merge->n_looks;
	stacks_free(merge->its);
	free(merge->ids);
	merge->its = NULL;
	merge->ids = NULL;
	return err;
}

static struct error *read_all(struct merge *merge)
{
	struct error *err = NULL;

	for (size_t i = 0; i < merge->n && !err; i++)
		err = read_guest(merge, &merge->guests[i]);
	if (err)
		return err;
	merge_align(merge->guests, merge->n);
	for (size_t i = 0; i < merge->n; i++)
		for (size_t k = merge->guests[i].first_look; k < merge->guests[i].behind_looks; k++)
			merge->looks[k].time_ns += merge->guests[i].offset_ns;
	return NULL;
}

static int by_time(const void *left, const void *right)
{
	const struct look *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return (a->first > b->first) - (a->first < b->first);
}

static struct error *tell_looks(struct merge *merge)
{
	struct error *err = NULL;

	qsort(merge->looks, merge->n_looks, sizeof(*merge->looks), by_time);
	for (size_t i = 0; i < merge->n_looks && !err; i++) {
		const struct look *look = &merge->looks[i];
		const struct tick tick = {.time_ns = look->time_ns,
					  .weight_ns = look->weight_ns,
					  .paused_ns = look->paused_ns,
					  .n = look->n,
					  .entries = merge->entries + look->first};

		err = recording_tick(merge->writer, &tick);
	}
	return err;
}

static struct error *tell_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
			       uint64_t offset)
{
	struct merge *merge = ctx;
	uint32_t n;
	struct error *err = number(merge, addr, kind, &n);

	return err ? err : recording_name(merge->writer, IMPORT_ADDR + n, kind, name, offset);
}

static struct error *keep(struct merge *merge, const char **text)
{
	return *text ? pool_intern(merge->texts, *text, strlen(*text), text) : NULL;
}

/* Of frames that have a name: the last place goes with it. */
static struct error *tell_places(void *ctx, uint64_t addr, uint8_t kind,
				 const struct source_frame *frames, size_t n)
{
	struct merge *merge = ctx;
	struct source_frame kept[SOURCE_DEPTH];
	struct error *err = NULL;
	uint32_t id;

	for (size_t i = 0; i < n && !err; i++) {
		kept[i] = frames[i];
		err = keep(merge, &kept[i].function);
		if (!err)
			err = keep(merge, &kept[i].file);
	}
	if (!err)
		err = number(merge, addr, kind, &id);
	return err ? err : recording_places(merge->writer, IMPORT_ADDR + id, kind, kept, n);
}

static struct error *tell_names(struct merge *merge)
{
	const struct recording_visitor visitor = {.ctx = merge,
						  .name = tell_name,
						  .places = tell_places};
	struct error *err = NULL;

	for (size_t i = 0; i < merge->n && !err; i++) {
		struct merge_guest *guest = &merge->guests[i];
		char *name = merge_name(merge->guests, merge->n, i);
		struct stacks *unused = NULL;
		bool cut;

		merge->now = guest;
		err = name ? tell_name(merge, OF_GUEST, FRAME_RETURN, name, 0) : error_no_memory();
		free(name);
		if (!err)
			err = stacks_new(&unused);
		if (!err)
			err = recording_read(guest->path, unused, &visitor, &cut);
		stacks_free(unused);
	}
	return err;
}

static struct error *write_all(struct merge *merge, const char *output)
{
	struct recording_info info = {0};
	struct recording_end end = {0};
	bool cut = false;
	struct error *err = merge_info(merge->guests, merge->n, &info);

	if (!err)
		err = recording_create(output, &info, merge->stacks, &merge->writer);
	recording_info_free(&info);
	if (err)
		return err;
	err = tell_looks(merge);
	if (!err)
		err = tell_names(merge);
	if (!err)
		err = merge_end(merge->guests, merge->n, &end);
	for (size_t i = 0; i < merge->n; i++)
		cut = cut || merge->guests[i].cut;
	if (err)
		recording_abandon(merge->writer);
	else
		err = recording_close(merge->writer, cut ? NULL : &end);
	recording_end_free(&end);
	return err;
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
	free(merge->looks);
	free(merge->entries);
}

struct error *merge_recordings(char *const *paths, size_t n, const char *output)
{
	struct merge merge = {.n = n, .guests = calloc(n, sizeof(*merge.guests))};
	struct error *err = merge.guests ? stacks_new(&merge.stacks) : error_no_memory();

	for (size_t i = 0; i < n && merge.guests; i++)
		merge.guests[i].path = paths[i];
	if (!err)
		err = ids_new(&merge.addresses);
	if (!err)
		err = pool_new(&merge.texts);
	if (!err)
		err = read_all(&merge);
	if (!err)
		err = write_all(&merge, output);
	merge_free(&merge);
	return err;
}
