/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/firefox.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "output/guest_text.h"
#include "output/json_text.h"
#include "format/samples.h"

static struct error *put_meta(const struct firefox *f)
{
	const struct recording_info *info = &f->job->profile->info;
	const char *name, *title;
	struct error *err = guest_name(f->job, &name);

	if (!err)
		err = guest_title(f->job, &title);
	if (err)
		return err;
	fprintf(f->out,
		"{\"meta\":{\"version\":%d,\"preprocessedProfileVersion\":%d,\"processType\":0,"
		"\"stackwalk\":1,\"symbolicated\":true,\"markerSchema\":[],"
		"\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,"
		"\"categories\":[{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":"
		"[\"Other\"]}],\n\"interval\":%g,\"startTime\":%.3f,\"importedFrom\":\"uniprof\","
		"\"product\":",
		FIREFOX_GECKO_VERSION, FIREFOX_VERSION, info->rate_hz > 0 ? 1e3 / info->rate_hz : 1,
		(double)info->start_unix_ns / 1e6);
	json_put_text(name, f->out);
	fputs(",\"arguments\":", f->out);
	json_put_text(title, f->out);
	fputs("},\n", f->out);
	return NULL;
}

/*
 * The id in the manner of Breakpad: the first 16 bytes of the build id as a
 * GUID, whose first three numbers are little-endian, and an age of 0.
 */
static void put_breakpad_id(const char *build_id, FILE *out)
{
	static const int order[] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
	size_t len = build_id ? strlen(build_id) : 0;

	putc('"', out);
	for (int i = 0; len && i < 16; i++)
		for (int k = 0; k < 2; k++) {
			size_t at = 2 * (size_t)order[i] + (size_t)k;

			putc(at < len ? toupper((unsigned char)build_id[at]) : '0', out);
		}
	fputs(len ? "0\"" : "\"", out);
}

static void put_libs(const struct firefox *f)
{
	fputs("\"libs\":[", f->out);
	for (uint32_t i = 0; i < f->places->n_images; i++) {
		const struct place_image *image = &f->places->images[i];
		const char *slash = strrchr(image->path, '/');
		const char *names[] = {slash ? slash + 1 : image->path, image->path};

		fputs(i ? ",\n{\"arch\":\"\",\"name\":" : "{\"arch\":\"\",\"name\":", f->out);
		json_put_text(names[0], f->out);
		fputs(",\"path\":", f->out);
		json_put_text(names[1], f->out);
		fputs(",\"debugName\":", f->out);
		json_put_text(names[0], f->out);
		fputs(",\"debugPath\":", f->out);
		json_put_text(names[1], f->out);
		fputs(",\"breakpadId\":", f->out);
		put_breakpad_id(image->build_id, f->out);
		fputs(",\"codeId\":", f->out);
		if (image->build_id)
			json_put_text(image->build_id, f->out);
		else
			fputs("null", f->out);
		putc('}', f->out);
	}
	fputs("],\n", f->out);
}

static void put_samples(const struct firefox *f, const struct sample *samples, size_t n)
{
	bool time = guest_unit_is_time(f->job);

	fputs("\"samples\":{\"stack\":[", f->out);
	for (size_t i = 0; i < n; i++) {
		fputs(i ? "," : "", f->out);
		if (samples[i].stack == STACK_ROOT)
			fputs("null", f->out);
		else
			fprintf(f->out, "%" PRIu32, f->stack_of[samples[i].stack]);
	}
	fputs("],\n\"time\":[", f->out);
	for (size_t i = 0; i < n; i++) {
		fputs(i ? "," : "", f->out);
		json_put_ms(samples[i].time_ns, f->out);
	}
	fputs("],\n\"weight\":[", f->out);
	for (size_t i = 0; i < n; i++) {
		uint64_t weight = samples[i].weight_ns * samples[i].times;

		fputs(i ? "," : "", f->out);
		if (time)
			json_put_ms(weight, f->out);
		else
			fprintf(f->out, "%" PRIu64, weight);
	}
	fprintf(f->out, "],\n\"weightType\":\"%s\",\"length\":%zu}",
		time ? "tracing-ms" : "samples", n);
}

static struct error *put_thread(const struct firefox *f, const struct sample *samples, size_t n)
{
	const char *name;
	struct error *err = guest_name(f->job, &name);
	uint32_t pid = guest_pid(f->job);

	if (err)
		return err;
	fprintf(f->out,
		"{\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":"
		"null,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],"
		"\"name\":\"vCPU %u\",\"isMainThread\":%s,\"pid\":\"%" PRIu32 "\",\"tid\":%" PRIu32
		",\n\"markers\":{\"data\":[],\"name\":[],\"startTime\":[],\"endTime\":[],"
		"\"phase\":[],\"category\":[],\"length\":0},\n\"processName\":",
		samples->vcpu, samples->vcpu ? "false" : "true", pid, pid + samples->vcpu);
	json_put_text(name, f->out);
	fputs(",\n", f->out);
	put_samples(f, samples, n);
	putc('}', f->out);
	return NULL;
}

static struct error *put_all(struct firefox *f, const struct samples *samples)
{
	static const struct sample nothing;
	struct error *err = put_meta(f);

	if (err)
		return err;
	put_libs(f);
	firefox_put_tables(f);
	fputs(",\n\"threads\":[\n", f->out);
	for (size_t i = 0, end; i < samples->n && !err; i = end) {
		end = samples_vcpu_end(samples, i);
		fputs(i ? ",\n" : "", f->out);
		err = put_thread(f, &samples->at[i], end - i);
	}
	if (!samples->n)
		err = put_thread(f, &nothing, 0);
	fputs("]}\n", f->out);
	return err;
}

static struct error *write_firefox(const struct output_job *job, FILE *out)
{
	struct firefox f = {.job = job, .out = out};
	struct samples *samples = NULL;
	struct error *err = places_new(job, &f.places);

	if (!err)
		err = ids_new(&f.strings);
	if (!err)
		err = ids_new(&f.files);
	if (!err)
		err = firefox_number(&f);
	if (!err)
		err = samples_collect(job, &samples);
	if (!err)
		err = put_all(&f, samples);
	samples_free(samples);
	places_free(f.places);
	ids_free(f.strings);
	ids_free(f.files);
	free(f.texts);
	free(f.stack_of);
	return err;
}

const struct output_format output_firefox = {.name = "firefox",
					     .ending = ".firefox.json",
					     .write = write_firefox};
