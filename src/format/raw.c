/* SPDX-License-Identifier: BSD-3-Clause */

/* The classic trace, sample by sample in the order of time. */

#include <string.h>
#include <time.h>

#include "format/tables.h"
#include "symbol/names/display_name.h"

/* The interface stands behind the comma: "Xen 4.17, libxencall". */
static void write_interface(const struct recording_info *info, FILE *out)
{
	const char *host = info->host ? info->host : "an unknown interface";
	const char *comma = strrchr(host, ',');
	bool xen = info->target && !strcmp(info->target, "xen");

	fputs("#unikernel stack tracer using ", out);
	if (comma)
		sanitize_print(comma + 1 + strspn(comma + 1, " "), out);
	else
		sanitize_print(host, out);
	fputs(xen ? " hypercall interface\n" : "\n", out);
}

void raw_write_head(const struct recording_info *info, FILE *out)
{
	time_t start = (time_t)(info->start_unix_ns / 1000000000u);
	char text[128];
	struct tm when;
	bool xen = info->target && !strcmp(info->target, "xen");

	write_interface(info, out);
	fputs(xen ? "#tracing domid " : "#tracing guest ", out);
	sanitize_print(info->guest_id ? info->guest_id : "?", out);
	if (!localtime_r(&start, &when) ||
	    !strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %Z (%z)", &when))
		strcpy(text, "an unknown day");
	fprintf(out, " on %s\n\n", text);
}

static bool misread_without_offset(const char *name)
{
	if (name[0] == '#' || strchr(name, '+'))
		return true;
	if (name[0] == '0' && (name[1] | 0x20) == 'x')
		return !name[2 + strspn(name + 2, "0123456789abcdefABCDEF")];
	return !name[strspn(name, "0123456789")];
}

/* "0x1f" */
static size_t format_hex(uint64_t value, char *out)
{
	size_t digits = 1;

	for (uint64_t left = value >> 4; left; left >>= 4)
		digits++;
	out[0] = '0';
	out[1] = 'x';
	for (size_t i = digits; i > 0; i--, value >>= 4)
		out[1 + i] = "0123456789abcdef"[value & 15];
	return 2 + digits;
}

size_t raw_offset(const char *name, uint64_t offset, char out[RAW_OFFSET_MAX])
{
	if (!offset && !misread_without_offset(name))
		return 0;
	out[0] = '+';
	return 1 + format_hex(offset, out + 1);
}

static struct error *put_frame(uint64_t addr, const struct named *named, struct bytes *out)
{
	const char *name = named && named->resolved ? named->symbol : "";
	const size_t len = strlen(name);
	char *end;

	TRY(bytes_reserve(out, len + RAW_OFFSET_MAX + 1));
	put_bytes(out, name, len);
	end = (char *)out->data + out->len;
	out->len += named && named->resolved ? raw_offset(name, named->offset, end)
					     : format_hex(addr, end);
	out->data[out->len++] = '\n';
	return NULL;
}

struct error *raw_write_frame(uint64_t addr, const struct named *named, FILE *out)
{
	ENDED_BY(bytes_free) struct bytes line = {0};

	TRY(put_frame(addr, named, &line));
	fwrite(line.data, 1, line.len, out);
	return NULL;
}

void raw_write_end(size_t n_frames, uint64_t times, FILE *out)
{
	if (!n_frames)
		fputs(RAW_NO_STACK "\n", out);
	format_number(times, out);
	fputs("\n\n", out);
}

struct raw {
	const struct format_job *job;
	const struct frame_numbers *frames;
	struct format_lines lines; /* by the frames' numbers */
	struct frame_texts texts;
	FILE *out;
};

static struct error *format_frame(void *ctx, uint32_t number, struct bytes *line)
{
	const struct raw *raw = ctx;
	const struct stack_node *node =
		stacks_node(raw->job->profile->stacks, raw->frames->node[number]);
	struct named named;

	TRY(symbolizer_name_node(raw->job->symbolizer, raw->job->profile->stacks,
				 raw->frames->node[number], &named));
	return put_frame(node->addr, &named, line);
}

static struct error *give_frame(void *ctx, uint32_t node, struct bytes *scratch,
				struct format_text *out)
{
	struct raw *raw = ctx;

	return format_lines_get(&raw->lines, raw->frames->of_node[node], scratch, out);
}

static void fetch_ahead(void *ctx, uint32_t node, unsigned step)
{
	const struct raw *raw = ctx;

	if (step == 0)
		__builtin_prefetch(&raw->frames->of_node[node]);
	else
		format_lines_ahead(&raw->lines, raw->frames->of_node[node], step - 1);
}

static struct error *write_sample(void *ctx, const struct sample *sample,
				  struct sample_batch *batch)
{
	struct raw *raw = ctx;

	TRY(sample_text_put(batch, raw->out));
	raw_write_end(sample->stack != STACK_ROOT, sample->times, raw->out);
	return NULL;
}

static struct error *write_raw(const struct format_job *job, FILE *out)
{
	struct raw raw = {.job = job,
			  .lines = {.format = format_frame, .ctx = &raw},
			  .texts = {.give = give_frame, .ahead = fetch_ahead, .ctx = &raw},
			  .out = out};
	struct error *err;

	TRY(samples_check(job));
	TRY(symbolizer_prepare_stacks(job->symbolizer, job->profile->stacks));
	raw.texts.stacks = job->profile->stacks;
	raw.frames = symbolizer_frames(job->symbolizer);
	raw_write_head(&job->profile->info, out);
	err = samples_read_texts(job, &raw.texts, write_sample, &raw);
	format_lines_free(&raw.lines);
	return err;
}

const struct format format_raw = {.name = "raw", .ending = ".raw", .write = write_raw};
