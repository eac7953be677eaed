/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * speedscope's own format (speedscope.app/file-format-schema.json): a profile
 * for each thread, or each vCPU where threads are not known, samples in order of
 * time. Samples with the same stack that follow each other are one of their
 * summed weight. An empty stack stands for time without samples, and all
 * profiles begin with the recording. What speedscope does not know, and our
 * importer reads, is in "uniprof".
 */

#include "format/tables.h"

#include <inttypes.h>
#include <stdlib.h>

#include "analysis/grouped_tree.h"
#include "base/array.h"
#include "base/owned.h"

#define SCHEMA "https://www.speedscope.app/file-format-schema.json"

struct speedscope {
	const struct format_job *job;
	struct location_table *table;
	struct samples *samples;
	struct stack_texts texts;
	/* [stacks_count]: a frame's function; LOCATION_NONE: it has several. One look instead of six, each far away. */
	uint32_t *only;
	bool has_gaps;
	FILE *out;
};

/* A place in a track, and the stretch before it. */
struct stretch {
	struct track_reader reader;
	struct sample_queue queue; /* of what it reads */
	unsigned rest;		   /* so many are still in it when the track has ended */
	struct sample next;	   /* the one that comes, unless the track ends */
	bool more;		   /* it does not */
	uint64_t clock_ns;	   /* weights up to here */
	uint64_t weight;
	bool gap; /* it has no samples */
	uint32_t stack;
	uint16_t vcpu; /* of its samples */
};

static void put_frames(const struct speedscope *s)
{
	const uint32_t n = s->table->n_functions;

	fputs("\"shared\":{\"frames\":[", s->out);
	for (uint32_t i = 0; i < n; i++) {
		const struct location_function *function = &s->table->functions[i];

		format_json_field(i ? ",\n{\"name\":" : "\n{\"name\":", function->name, s->out);
		if (function->file)
			format_json_field(",\"file\":", function->file, s->out);
		putc('}', s->out);
	}
	/* The last one, for samples without frames: an empty stack is none. */
	fprintf(s->out, "%s\n{\"name\":\"" RAW_NO_STACK "\"}", n ? "," : "");
	fputs("]},\n", s->out);
}

static uint64_t length_of(const struct sample *sample)
{
	return sample->weight_ns * sample->times;
}

static uint64_t gap_before(const struct speedscope *s, const struct sample *sample, uint64_t clock)
{
	return s->has_gaps ? sample_gap(sample, sample->switched, clock, length_of(sample)) : 0;
}

/* Reads the sample that comes next; false at the track's end. */
static bool read_next(struct stretch *stretch)
{
	static const struct sample none;

	while (stretch->rest) {
		const bool more = track_next(&stretch->reader);

		stretch->rest -= !more;
		if (sample_queue_move(&stretch->queue, more ? &stretch->reader.sample : &none,
				      &stretch->next))
			return true;
	}
	return false;
}

static void begin_stretches(const struct speedscope *s, const struct track *track,
			    struct stretch *stretch)
{
	stretch->clock_ns = 0;
	stretch->queue = (struct sample_queue){.frames = &s->texts.frames};
	stretch->rest = QUEUE_SAMPLES;
	track_start(track, &stretch->reader);
	stretch->more = read_next(stretch);
}

/* Goes on by a stretch; false at the track's end. */
static bool advance(const struct speedscope *s, struct stretch *stretch)
{
	const struct sample *sample = &stretch->next;

	if (!stretch->more)
		return false;
	stretch->weight = gap_before(s, sample, stretch->clock_ns);
	stretch->clock_ns += stretch->weight;
	stretch->gap = stretch->weight != 0;
	if (stretch->gap)
		return true;
	stretch->stack = sample->stack;
	stretch->vcpu = sample->vcpu;
	do {
		stretch->weight += length_of(sample);
		stretch->clock_ns += length_of(sample);
		stretch->more = read_next(stretch);
	} while (stretch->more && sample->stack == stretch->stack &&
		 sample->vcpu == stretch->vcpu && !gap_before(s, sample, stretch->clock_ns));
	return true;
}

/* The functions of a frame, outermost first, a comma before each. */
static struct error *give_frames(const struct speedscope *s, uint32_t node, struct bytes *scratch)
{
	const struct location_answer *answer =
		location_answer(s->table, location_entry_of(s->table, node));

	TRY(bytes_reserve(scratch, answer->n * (size_t)(DECIMAL_MAX + 1)));
	for (uint32_t k = answer->n; k > 0; k--) {
		scratch->data[scratch->len++] = ',';
		put_decimal(scratch, s->table->places[answer->places + k - 1].function);
	}
	return NULL;
}

static struct error *give_frame(void *ctx, uint32_t node, struct bytes *scratch,
				struct format_text *out)
{
	const struct speedscope *s = ctx;

	scratch->len = 0;
	if (s->only[node] == LOCATION_NONE) {
		TRY(give_frames(s, node, scratch));
	} else {
		TRY(bytes_reserve(scratch, DECIMAL_MAX + 1));
		scratch->data[scratch->len++] = ',';
		put_decimal(scratch, s->only[node]);
	}
	*out = (struct format_text){scratch->data, scratch->len};
	return NULL;
}

static void fetch_ahead(void *ctx, uint32_t node, unsigned step)
{
	const struct speedscope *s = ctx;

	if (step == 0)
		__builtin_prefetch(&s->only[node]);
}

static struct error *find_only_functions(struct speedscope *s)
{
	const uint32_t n = stacks_count(s->job->profile->stacks);

	s->only = array_resize(NULL, n, sizeof(*s->only));
	if (!s->only)
		return error_no_memory();
	for (uint32_t id = 1; id < n; id++) {
		uint32_t entry;

		s->only[id] = LOCATION_NONE;
		if (!s->table->used[id])
			continue;
		entry = location_entry_of(s->table, id);
		if (location_answer(s->table, entry)->n == 1)
			s->only[id] = location_place(s->table, entry, 0)->function;
	}
	return NULL;
}

static struct error *put_stack(struct speedscope *s, uint32_t stack)
{
	struct format_text text;

	TRY(stack_texts_get(&s->texts, stack, &text));
	fputs_unlocked("\n[", s->out);
	if (stack == STACK_ROOT)
		format_number(s->table->n_functions, s->out);
	else
		fwrite_unlocked((const char *)text.data + 1, 1, text.len - 1, s->out);
	putc_unlocked(']', s->out);
	return NULL;
}

static struct error *put_samples(struct speedscope *s, const struct track *track)
{
	struct stretch stretch;
	const char *comma = "";

	begin_stretches(s, track, &stretch);
	fputs("\"samples\":[", s->out);
	for (; advance(s, &stretch); comma = ",") {
		fputs_unlocked(comma, s->out);
		if (stretch.gap)
			fputs_unlocked("[]", s->out);
		else
			TRY(put_stack(s, stretch.stack));
	}
	fputs("],\n\"weights\":[", s->out);
	begin_stretches(s, track, &stretch);
	for (comma = ""; advance(s, &stretch); comma = ",") {
		fputs_unlocked(comma, s->out);
		format_number(stretch.weight, s->out);
	}
	fprintf(s->out, "],\n\"startValue\":0,\"endValue\":%" PRIu64, stretch.clock_ns);
	return NULL;
}

/* A text of a thread, which may be any bytes. */
static struct error *put_name(const struct speedscope *s, const char *key, const char *text)
{
	const char *name = NULL;

	TRY(symbolizer_intern(s->job->symbolizer, text, &name));
	format_json_field(key, name, s->out);
	return NULL;
}

static struct error *put_thread(const struct speedscope *s, const struct recorded_thread *thread)
{
	if (thread->pid != RECORDED_ID_UNKNOWN)
		fprintf(s->out, "\"pid\":%" PRIu32 ",", thread->pid);
	if (thread->tid != RECORDED_ID_UNKNOWN)
		fprintf(s->out, "\"tid\":%" PRIu32 ",", thread->tid);
	TRY(put_name(s, "\"process\":", thread->process));
	TRY(put_name(s, ",\"thread\":", thread->name));
	if (thread->container)
		TRY(put_name(s, ",\"container\":", thread->container));
	putc(',', s->out);
	return NULL;
}

/* What the title of a profile does not tell: the numbers of a thread, and the vCPUs of stretches. */
static struct error *put_more(const struct speedscope *s, const struct track *track,
			      const struct recorded_thread *thread)
{
	struct stretch stretch;
	struct vcpu_runs runs = {0};

	begin_stretches(s, track, &stretch);
	fputs(",\n\"uniprof\":{", s->out);
	if (thread)
		TRY(put_thread(s, thread));
	fputs("\"vcpus\":[", s->out);
	while (advance(s, &stretch))
		vcpu_runs_add(&runs, stretch.gap ? runs.vcpu : stretch.vcpu, s->out);
	vcpu_runs_end(&runs, s->out);
	fputs("]}", s->out);
	return NULL;
}

/* "web vCPU 0", "web nginx/pool (13)"; of an import, whose vCPUs may be none, the guest's alone. */
static struct error *title_of(const struct speedscope *s, const struct track *track, bool thread,
			      const char **title)
{
	FREED char *name =
		thread ? group_thread_name(s->job->profile, track->thread, GROUP_THREAD) : NULL;
	FREED char *text = NULL;
	const char *guest;

	TRY(format_guest_name(s->job, &guest));
	if (!thread && format_is_imported(s->job)) {
		*title = guest;
		return NULL;
	}
	if (thread && !name)
		return error_no_memory();
	if ((thread ? asprintf(&text, "%s %s", guest, name)
		    : asprintf(&text, "%s vCPU %u", guest, track->vcpu)) < 0)
		return error_no_memory();
	return symbolizer_intern(s->job->symbolizer, text, title);
}

static struct error *put_profile(struct speedscope *s, const struct track *track)
{
	const struct recorded_thread *thread = sample_thread(s->job, track->thread);
	const char *title;

	TRY(title_of(s, track, thread, &title));
	fprintf(s->out, "{\"type\":\"sampled\",\"unit\":\"%s\",\"name\":",
		format_unit_is_time(s->job) ? "nanoseconds" : "none");
	format_json_text(title, s->out);
	fputs(",\n", s->out);
	TRY(put_samples(s, track));
	if (thread || format_is_imported(s->job))
		TRY(put_more(s, track, thread));
	putc('}', s->out);
	return NULL;
}

/* Readers want at least one profile. */
static void put_no_profile(const struct speedscope *s)
{
	fputs("{\"type\":\"sampled\",\"unit\":\"none\",\"name\":\"no samples\",\"startValue\":0,"
	      "\"endValue\":0,\"samples\":[],\"weights\":[]}",
	      s->out);
}

static struct error *put_all(struct speedscope *s)
{
	const char *title;

	TRY(location_table_new(s->job, &s->table));
	TRY(find_only_functions(s));
	TRY(samples_collect(s->job, &s->samples));
	TRY(format_guest_title(s->job, &title));
	fputs("{\"$schema\":\"" SCHEMA "\",\"exporter\":\"uniprof " UNIPROF_VERSION "\",\"name\":",
	      s->out);
	format_json_text(title, s->out);
	fputs(",\"activeProfileIndex\":0,\n", s->out);
	put_frames(s);
	fputs("\"profiles\":[\n", s->out);
	for (size_t i = 0; i < s->samples->n_tracks; i++) {
		fputs(i ? ",\n" : "", s->out);
		TRY(put_profile(s, &s->samples->tracks[i]));
	}
	if (!s->samples->n)
		put_no_profile(s);
	fputs("]}\n", s->out);
	return NULL;
}

/* Weights that are parts of the time, or none, do not add up to it. */
static bool has_gaps(const struct format_job *job)
{
	return format_unit_is_time(job) && !job->profile->info.timeless &&
	       job->filter->weight != WEIGHT_BY_LATENCY && job->filter->weight != WEIGHT_BY_SAMPLES;
}

static struct error *write_speedscope(const struct format_job *job, FILE *out)
{
	struct speedscope s = {.job = job,
			       .texts = {.frames = {.stacks = job->profile->stacks,
						    .give = give_frame,
						    .ahead = fetch_ahead,
						    .ctx = &s}},
			       .out = out,
			       .has_gaps = has_gaps(job)};
	struct error *err = put_all(&s);

	location_table_free(s.table);
	free(s.only);
	stack_texts_free(&s.texts);
	return error_first(err, samples_free(s.samples));
}

const struct format format_speedscope = {.name = "speedscope",
					 .ending = ".speedscope.json",
					 .columns = true,
					 .counts = true,
					 .write = write_speedscope};
