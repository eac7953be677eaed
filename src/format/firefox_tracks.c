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

#include "base/array.h"
#include "base/owned.h"

/* So many fit well into a window, and beside the samples of a large file. */
#define MARKERS_MAX 20000

/* Writes the heads of a column of samples, and `put` the elements. */
static void samples_column(const struct firefox *f, const char *key, const struct track *track,
			   void (*put)(const struct firefox *f, const struct sample *sample))
{
	struct track_reader reader;

	track_start(track, &reader);
	fprintf(f->out, "\"%s\":[", key);
	for (bool first = true; track_next(&reader); first = false) {
		if (!first)
			putc_unlocked(',', f->out);
		put(f, &reader.sample);
	}
	fputs("],\n", f->out);
}

static void put_stack(const struct firefox *f, const struct sample *sample)
{
	if (sample->stack == STACK_ROOT)
		fputs_unlocked("null", f->out);
	else
		format_number(f->stack_of[sample->stack], f->out);
}

/* Nanoseconds as a number of milliseconds, all digits kept. */
static void put_ms(uint64_t ns, FILE *out)
{
	uint8_t digits[DECIMAL_MAX + 1 + DECIMAL_MAX];
	struct bytes text = {.data = digits};

	put_decimal(&text, ns / 1000000);
	/* Six digits: the one in front makes room for zeros. */
	text.data += text.len;
	text.len = 0;
	put_decimal(&text, 1000000 + ns % 1000000);
	text.data[0] = '.';
	fwrite_unlocked(digits, 1, (size_t)(text.data - digits) + text.len, out);
}

static void put_time(const struct firefox *f, const struct sample *sample)
{
	put_ms(sample->time_ns, f->out);
}

static void put_weight(const struct firefox *f, const struct sample *sample)
{
	const uint64_t weight = sample->weight_ns * sample->times;

	if (format_unit_is_time(f->job))
		put_ms(weight, f->out);
	else
		format_number(weight, f->out);
}

/* A vCPU that runs uses the time that its sample stands for. */
static void put_cpu_use(const struct firefox *f, const struct sample *sample)
{
	format_number(sample->state == VCPU_RUNNING ? sample->weight_ns * sample->times : 0,
		      f->out);
}

/* Unknown to the profiler, and read by our importer. */
static void put_vcpus(const struct firefox *f, const struct track *track)
{
	struct track_reader reader;
	struct vcpu_runs runs = {0};

	track_start(track, &reader);
	fputs("\"vcpus\":[", f->out);
	while (track_next(&reader))
		vcpu_runs_add(&runs, reader.sample.vcpu, f->out);
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

/* Counts pauses by the upper half of their length, or, if it is `high`, by the lower; -1: all by the upper. */
static size_t count_pauses(const struct samples *samples, int64_t high, uint32_t counts[HALVES])
{
	size_t n = 0;

	memset(counts, 0, HALVES * sizeof(*counts));
	for (size_t i = 0; i < samples->n_tracks; i++) {
		struct track_reader reader;

		track_start(&samples->tracks[i], &reader);
		while (track_next(&reader)) {
			const uint32_t pause = reader.sample.paused_ns;

			if (high < 0)
				counts[pause / HALVES]++;
			else if (pause / HALVES == high)
				counts[pause % HALVES]++;
			n += pause != 0;
		}
	}
	return n;
}

/* Pauses are sorted by the upper half of their length, and those where there is no room for all by the lower. */
struct error *firefox_choose_pauses(struct firefox *f)
{
	FREED uint32_t *counts = NULL;
	uint32_t high, low;
	size_t room = MARKERS_MAX;

	TRY(ARRAY_NEW(&counts, HALVES));
	f->shortest_pause = 1;
	if (count_pauses(f->samples, -1, counts) > MARKERS_MAX) {
		high = half_of(counts, &room);
		count_pauses(f->samples, high, counts);
		low = half_of(counts, &room);
		f->shortest_pause = high * HALVES + low + 1;
	}
	return NULL;
}

static void put_pause_end(const struct firefox *f, const struct sample *sample)
{
	put_ms(sample->time_ns + sample->paused_ns, f->out);
}

static void markers_column(const struct firefox *f, const char *key, const struct track *track,
			   void (*put)(const struct firefox *f, const struct sample *sample),
			   const char *constant)
{
	struct track_reader reader;
	const char *comma = "";

	track_start(track, &reader);
	fprintf(f->out, "\"%s\":[", key);
	while (track_next(&reader)) {
		if (!has_marker(f, &reader.sample))
			continue;
		fputs(comma, f->out);
		comma = ",";
		if (put)
			put(f, &reader.sample);
		else
			fputs(constant, f->out);
	}
	fputs("],\n", f->out);
}

/* What each sample paused the guest: intervals (phase 1) that begin with it. */
static void put_markers(const struct firefox *f, const struct track *track)
{
	struct track_reader reader;
	char name[16];
	size_t n = 0;

	track_start(track, &reader);
	while (track_next(&reader))
		n += has_marker(f, &reader.sample);
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

	TRY(symbolizer_intern(f->job->symbolizer, *text ? text : "?", &name));
	format_json_field(key, name, f->out);
	return NULL;
}

static struct error *put_identity(const struct firefox *f, const struct track *track)
{
	const struct recorded_thread *thread = sample_thread(f->job, track->thread);
	const struct sample_ids ids = sample_ids(thread, f->pid, track->vcpu);

	if (thread)
		TRY(put_name(f, "\"name\":", thread->name));
	else
		fprintf(f->out, "\"name\":\"vCPU %u\"", track->vcpu);
	fprintf(f->out, ",\"isMainThread\":%s,\"pid\":\"%" PRIu32 "\",\"tid\":%" PRIu32,
		ids.pid == ids.tid ? "true" : "false", ids.pid, ids.tid);
	TRY(put_name(f, ",\n\"processName\":", thread ? thread->process : f->guest));
	fputs(",\n", f->out);
	return NULL;
}

struct error *firefox_put_track(const struct firefox *f, const struct track *track)
{
	fputs("{\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":"
	      "null,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],",
	      f->out);
	TRY(put_identity(f, track));
	put_markers(f, track);
	put_samples(f, track);
	putc('}', f->out);
	return NULL;
}
