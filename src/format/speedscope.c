/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * speedscope's own format (speedscope.app/file-format-schema.json): a profile
 * for each vCPU, samples in order of time. Samples with the same stack that
 * follow each other are one of their summed weight.
 */

#include "format/format.h"

#include <inttypes.h>
#include <stdlib.h>

#include "format/tables.h"

#define SCHEMA "https://www.speedscope.app/file-format-schema.json"

struct speedscope {
	const struct format_job *job;
	struct location_table *table;
	struct samples *samples;
	struct location_chain chain;
	FILE *out;
};

static void put_frames(const struct speedscope *s)
{
	fputs("\"shared\":{\"frames\":[", s->out);
	for (uint32_t i = 0; i < s->table->n_functions; i++) {
		const struct location_function *function = &s->table->functions[i];

		format_json_field(i ? ",\n{\"name\":" : "\n{\"name\":", function->name, s->out);
		if (function->file) {
			format_json_field(",\"file\":", function->file, s->out);
		}
		putc('}', s->out);
	}
	fputs("]},\n", s->out);
}

/* The end of the samples with the same stack; *weight is their sum. */
static size_t run_end(const struct speedscope *s, size_t i, size_t end, uint64_t *weight)
{
	const struct sample *first = &s->samples->at[i];

	for (*weight = 0; i < end && s->samples->at[i].stack == first->stack; i++)
		*weight += s->samples->at[i].weight_ns * s->samples->at[i].times;
	return i;
}

static struct error *put_stack(struct speedscope *s, uint32_t stack)
{
	struct error *err = location_table_chain(s->table, stack, &s->chain);

	if (err)
		return err;
	putc('[', s->out);
	for (size_t i = s->chain.n; i > 0; i--)
		fprintf(s->out, "%s%" PRIu32, i < s->chain.n ? "," : "",
			s->table->lines[s->chain.at[i - 1]].function);
	putc(']', s->out);
	return NULL;
}

static struct error *put_samples(struct speedscope *s, size_t begin, size_t end)
{
	struct error *err = NULL;
	uint64_t weight, sum = 0;

	fputs("\"samples\":[", s->out);
	for (size_t i = begin; i < end && !err; i = run_end(s, i, end, &weight)) {
		fputs(i > begin ? ",\n" : "\n", s->out);
		err = put_stack(s, s->samples->at[i].stack);
	}
	fputs("],\n\"weights\":[", s->out);
	for (size_t i = begin, next; i < end; i = next) {
		next = run_end(s, i, end, &weight);
		sum += weight;
		fprintf(s->out, "%s%" PRIu64, i > begin ? "," : "", weight);
	}
	fprintf(s->out, "],\n\"startValue\":0,\"endValue\":%" PRIu64, sum);
	return err;
}

static struct error *put_profile(struct speedscope *s, size_t begin, size_t end)
{
	const char *guest = NULL, *name = NULL;
	struct error *err = format_guest_name(s->job, &guest);
	char *text;

	if (!err && asprintf(&text, "%s vCPU %u", guest, s->samples->at[begin].vcpu) < 0)
		err = error_no_memory();
	if (err)
		return err;
	err = symbolizer_intern(s->job->symbolizer, format_is_imported(s->job) ? guest : text,
				&name);
	free(text);
	if (err)
		return err;
	fprintf(s->out, "{\"type\":\"sampled\",\"unit\":\"%s\",\"name\":",
		format_unit_is_time(s->job) ? "nanoseconds" : "none");
	format_json_text(name, s->out);
	fputs(",\n", s->out);
	err = put_samples(s, begin, end);
	putc('}', s->out);
	return err;
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
	struct error *err = format_guest_title(s->job, &title);

	if (err)
		return err;
	fputs("{\"$schema\":\"" SCHEMA "\",\"exporter\":\"uniprof " UNIPROF_VERSION "\",\"name\":",
	      s->out);
	format_json_text(title, s->out);
	fputs(",\"activeProfileIndex\":0,\n", s->out);
	put_frames(s);
	fputs("\"profiles\":[\n", s->out);
	for (size_t i = 0, end; i < s->samples->n && !err; i = end) {
		end = samples_vcpu_end(s->samples, i);
		fputs(i ? ",\n" : "", s->out);
		err = put_profile(s, i, end);
	}
	if (!s->samples->n)
		put_no_profile(s);
	fputs("]}\n", s->out);
	return err;
}

static struct error *write_speedscope(const struct format_job *job, FILE *out)
{
	struct speedscope s = {.job = job, .out = out};
	struct error *err = location_table_new(job, &s.table);

	if (!err)
		err = samples_collect(job, &s.samples);
	if (!err)
		err = put_all(&s);
	location_table_free(s.table);
	samples_free(s.samples);
	free(s.chain.at);
	return err;
}

const struct format format_speedscope = {.name = "speedscope",
					 .ending = ".speedscope.json",
					 .write = write_speedscope};
