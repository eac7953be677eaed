/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The threads of the Firefox Profiler's format: those of the guest, or its
 * vCPUs where threads are not known, with their samples, and a marker for each
 * pause of the guest.
 */

#include "format/firefox.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* So many fit well into a window, and beside the samples of a large file. */
#define MARKERS_MAX 20000

/* A track's sample. */
static const struct sample *sample_at(const struct firefox *f, const struct track *track, size_t i)
{
	return &f->samples->at[track->at[i]];
}

/* Writes the heads of a column of samples, and `put` the elements. */
static void samples_column(const struct firefox *f, const char *key, const struct track *track,
			   void (*put)(const struct firefox *f, const struct sample *sample))
{
	fprintf(f->out, "\"%s\":[", key);
	for (size_t i = 0; i < track->n; i++) {
		if (i)
			putc(',', f->out);
		put(f, sample_at(f, track, i));
	}
	fputs("],\n", f->out);
}

static void put_stack(const struct firefox *f, const struct sample *sample)
{
	if (sample->stack == STACK_ROOT)
		fputs("null", f->out);
	else
		fprintf(f->out, "%" PRIu32, f->stack_of[sample->stack]);
}

static void put_time(const struct firefox *f, const struct sample *sample)
{
	format_json_ms(sample->time_ns, f->out);
}

static void put_weight(const struct firefox *f, const struct sample *sample)
{
	const uint64_t weight = sample->weight_ns * sample->times;

	if (format_unit_is_time(f->job))
		format_json_ms(weight, f->out);
	else
		fprintf(f->out, "%" PRIu64, weight);
}

/* A vCPU that runs uses the time that its sample stands for. */
static void put_cpu_use(const struct firefox *f, const struct sample *sample)
{
	fprintf(f->out, "%" PRIu64,
		sample->state == VCPU_RUNNING ? sample->weight_ns * sample->times : 0);
}

/* Unknown to the profiler, and read by our importer. */
static void put_vcpus(const struct firefox *f, const struct track *track)
{
	struct vcpu_runs runs = {0};

	fputs("\"vcpus\":[", f->out);
	for (size_t i = 0; i < track->n; i++)
		vcpu_runs_add(&runs, sample_at(f, track, i)->vcpu, f->out);
	vcpu_runs_end(&runs, f->out);
	fputs("],\n", f->out);
}

static void put_samples(const struct firefox *f, const struct track *track)
{
	const bool time = format_unit_is_time(f->job);

	fputs("\"samples\":{", f->out);
	samples_column(f, "stack", track, put_stack);
	samples_column(f, "time", track, put_time);
	samples_column(f, "weight", track, put_weight);
	if (time)
		samples_column(f, "threadCPUDelta", track, put_cpu_use);
	if (sample_thread(f->job, track->thread))
		put_vcpus(f, track);
	fprintf(f->out, "\"weightType\":\"%s\",\"length\":%zu}", time ? "tracing-ms" : "samples",
		track->n);
}

static bool has_marker(const struct firefox *f, const struct sample *sample)
{
	return sample->paused_ns >= f->shortest_pause;
}

#define HALVES (1u << 16)

/* From the longest on, the first half of a number with more samples than there is room for. */
static uint32_t half_of(const uint32_t counts[HALVES], size_t *room)
{
	uint32_t half = HALVES - 1;

	while (half && counts[half] <= *room)
		*room -= counts[half--];
	return half;
}

/* Pauses are sorted by the upper half of their length, and those where there is no room for all by the lower. */
struct error *firefox_choose_pauses(struct firefox *f)
{
	const struct samples *samples = f->samples;
	uint32_t *counts = calloc(HALVES, sizeof(*counts)), high, low;
	size_t room = MARKERS_MAX, n = 0;

	if (!counts)
		return error_no_memory();
	for (size_t i = 0; i < samples->n; i++) {
		counts[samples->at[i].paused_ns / HALVES]++;
		n += samples->at[i].paused_ns != 0;
	}
	f->shortest_pause = 1;
	if (n > MARKERS_MAX) {
		high = half_of(counts, &room);
		memset(counts, 0, HALVES * sizeof(*counts));
		for (size_t i = 0; i < samples->n; i++)
			if (samples->at[i].paused_ns / HALVES == high)
				counts[samples->at[i].paused_ns % HALVES]++;
		low = half_of(counts, &room);
		f->shortest_pause = high * HALVES + low + 1;
	}
	free(counts);
	return NULL;
}

static void put_pause_end(const struct firefox *f, const struct sample *sample)
{
	format_json_ms(sample->time_ns + sample->paused_ns, f->out);
}

static void markers_column(const struct firefox *f, const char *key, const struct track *track,
			   void (*put)(const struct firefox *f, const struct sample *sample),
			   const char *constant)
{
	const char *comma = "";

	fprintf(f->out, "\"%s\":[", key);
	for (size_t i = 0; i < track->n; i++) {
		if (!has_marker(f, sample_at(f, track, i)))
			continue;
		fputs(comma, f->out);
		comma = ",";
		if (put)
			put(f, sample_at(f, track, i));
		else
			fputs(constant, f->out);
	}
	fputs("],\n", f->out);
}

/* What each sample paused the guest: intervals (phase 1) that begin with it. */
static void put_markers(const struct firefox *f, const struct track *track)
{
	char name[16];
	size_t n = 0;

	for (size_t i = 0; i < track->n; i++)
		n += has_marker(f, sample_at(f, track, i));
	snprintf(name, sizeof(name), "%" PRIu32, f->pause_name);
	fputs("\"markers\":{", f->out);
	markers_column(f, "data", track, NULL, "{\"type\":\"" FIREFOX_PAUSE "\"}");
	markers_column(f, "name", track, NULL, name);
	markers_column(f, "startTime", track, put_time, NULL);
	markers_column(f, "endTime", track, put_pause_end, NULL);
	markers_column(f, "phase", track, NULL, "1");
	markers_column(f, "category", track, NULL, "0");
	fprintf(f->out, "\"length\":%zu},\n", n);
}

/* A text of a thread, which may be any bytes; readers take an empty name for none. */
static struct error *put_name(const struct firefox *f, const char *key, const char *text)
{
	const char *name = NULL;
	struct error *err = symbolizer_intern(f->job->symbolizer, *text ? text : "?", &name);

	if (!err)
		format_json_field(key, name, f->out);
	return err;
}

static struct error *put_identity(const struct firefox *f, const struct track *track)
{
	const struct recorded_thread *thread = sample_thread(f->job, track->thread);
	const struct sample_ids ids = sample_ids(thread, f->pid, track->vcpu);
	struct error *err = NULL;

	if (thread)
		err = put_name(f, "\"name\":", thread->name);
	else
		fprintf(f->out, "\"name\":\"vCPU %u\"", track->vcpu);
	fprintf(f->out, ",\"isMainThread\":%s,\"pid\":\"%" PRIu32 "\",\"tid\":%" PRIu32,
		ids.pid == ids.tid ? "true" : "false", ids.pid, ids.tid);
	if (!err)
		err = put_name(f, ",\n\"processName\":", thread ? thread->process : f->guest);
	fputs(",\n", f->out);
	return err;
}

struct error *firefox_put_track(const struct firefox *f, const struct track *track)
{
	struct error *err;

	fputs("{\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":"
	      "null,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],",
	      f->out);
	err = put_identity(f, track);
	put_markers(f, track);
	put_samples(f, track);
	putc('}', f->out);
	return err;
}
