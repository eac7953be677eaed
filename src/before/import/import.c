/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/importer.h"

#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "import/import.h"
#include "recording/format.h"
#include "base/pool.h"

/* Names of functions, by number. */
struct import_names {
	struct pool *pool;
	struct ids *ids;
	const char **at;
	size_t room;
};

struct error *import_new(struct import *import)
{
	struct error *err;

	import->vcpus = 1;
	import->names = calloc(1, sizeof(*import->names));
	if (!import->names)
		return error_no_memory();
	err = pool_new(&import->names->pool);
	return err ? err : ids_new(&import->names->ids);
}

void import_free(struct import *import)
{
	if (import->names) {
		pool_free(import->names->pool);
		ids_free(import->names->ids);
		free(import->names->at);
	}
	free(import->names);
	free(import->samples);
	bytes_free(&import->text.buffer);
}

static struct error *number_name(struct import_names *names, const char *name, size_t len,
				 uint32_t *id)
{
	const char *kept;
	bool added;
	struct error *err =
		pool_intern(names->pool, name, len < NAME_MAX_LEN ? len : NAME_MAX_LEN, &kept);

	if (!err)
		err = ids_get(names->ids, (uintptr_t)kept, 0, id, &added);
	if (err || !added)
		return err;
	if (*id == names->room) {
		size_t room = 2 * names->room + 256;
		const char **at = reallocarray(names->at, room, sizeof(*at));

		if (!at)
			return error_no_memory();
		names->at = at;
		names->room = room;
	}
	names->at[*id] = kept;
	return NULL;
}

struct error *import_address(struct import *import, uint32_t parent, uint64_t addr, uint32_t *id)
{
	const struct frame frame = {.addr = addr, .kind = FRAME_PC};

	return stacks_child(import->stacks, parent, &frame, id);
}

struct error *import_frame(struct import *import, uint32_t parent, const char *name, size_t len,
			   uint32_t *id)
{
	uint32_t number;
	struct error *err = number_name(import->names, name, len, &number);

	return err ? err : import_address(import, parent, IMPORT_ADDR + number, id);
}

struct error *import_sample(struct import *import, const struct import_sample *sample)
{
	if (sample->times > IMPORT_SAMPLES_MAX - import->total)
		return import_error(&import->text, "too many samples");
	import->total += sample->times;
	if (import->n == import->room) {
		size_t room = import->room + import->room / 2 + 256;
		struct import_sample *samples =
			reallocarray(import->samples, room, sizeof(*samples));

		if (!samples)
			return error_no_memory();
		import->samples = samples;
		import->room = room;
	}
	import->samples[import->n++] = *sample;
	if (sample->vcpu >= import->vcpus)
		import->vcpus = sample->vcpu + 1u;
	return NULL;
}

static int by_time(const void *left, const void *right)
{
	const struct import_sample *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return (a->vcpu > b->vcpu) - (a->vcpu < b->vcpu);
}

static void sort(struct import *import)
{
	for (size_t i = 1; i < import->n; i++) {
		if (import->samples[i].time_ns >= import->samples[i - 1].time_ns)
			continue;
		qsort(import->samples, import->n, sizeof(*import->samples), by_time);
		return;
	}
}

static struct error *tell_names(const struct import *import)
{
	const struct recording_visitor *v = import->visitor;
	struct error *err = NULL;

	for (uint32_t i = 0; v->name && i < ids_count(import->names->ids) && !err; i++)
		err = v->name(v->ctx, IMPORT_ADDR + i, FRAME_PC, import->names->at[i], 0);
	return err;
}

static struct error *tell_samples(const struct import *import)
{
	const struct recording_visitor *v = import->visitor;
	uint64_t start = import->n ? import->samples[0].time_ns : 0;
	struct error *err = NULL;

	for (size_t i = 0; v->tick && i < import->n && !err; i++) {
		const struct import_sample *sample = &import->samples[i];
		const struct tick_entry entry = {.vcpu = sample->vcpu,
						 .stack = sample->stack,
						 .state = VCPU_RUNNING,
						 .end = UNWIND_OUTERMOST,
						 .ran_ns = sample->weight};
		const struct tick tick = {.time_ns = sample->time_ns - start,
					  .weight_ns = sample->weight,
					  .n = 1,
					  .entries = &entry,
					  .more = sample->times - 1};

		err = v->tick(v->ctx, &tick);
	}
	return err;
}

/* What the file is called, without its directory. */
static char *base_name(char *path)
{
	char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

struct error *import_tell(struct import *import)
{
	const struct recording_visitor *v = import->visitor;
	struct recording_info info = {.target = (char *)import->target,
				      .guest_name = base_name(import->text.file->name),
				      .host = import->host,
				      .weight_unit = *import->unit ? import->unit : NULL,
				      .vcpus = import->vcpus};
	struct recording_end end = {.reason = import->reason};
	struct error *err = v->info ? v->info(v->ctx, &info) : NULL;

	sort(import);
	if (import->n)
		end.elapsed_ns =
			import->samples[import->n - 1].time_ns - import->samples[0].time_ns;
	if (!err)
		err = tell_names(import);
	if (!err)
		err = tell_samples(import);
	if (!err && v->end)
		err = v->end(v->ctx, &end);
	return err;
}
