/* SPDX-License-Identifier: BSD-3-Clause */

/* The classic trace, sample by sample in the order of time. */

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/intern.h"
#include "format/format.h"
#include "import/import.h"
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

void raw_write_frame(uint64_t addr, const struct named *named, FILE *out)
{
	char text[RAW_OFFSET_MAX];
	size_t len;

	if (named && named->resolved) {
		fputs(named->symbol, out);
		len = raw_offset(named->symbol, named->offset, text);
	} else {
		len = format_hex(addr, text);
	}
	fwrite(text, 1, len, out);
	putc('\n', out);
}

void raw_write_end(size_t n_frames, uint64_t times, FILE *out)
{
	if (!n_frames)
		fputs(RAW_NO_STACK "\n", out);
	fprintf(out, "%" PRIu64 "\n\n", times);
}

struct raw {
	const struct format_job *job;
	struct ids *frames; /* of address and kind: numbers of lines */
	struct format_lines lines;
	const struct stack_node *node; /* whose line is asked for */
	FILE *out;
};

static struct error *write_head(void *ctx, const struct recording_info *info)
{
	struct raw *raw = ctx;

	raw_write_head(info, raw->out);
	return NULL;
}

static struct error *format_frame(void *ctx, uint32_t number, FILE *out)
{
	const struct raw *raw = ctx;
	struct named named;
	struct error *err = NULL;

	if (raw->job->symbolizer)
		err = symbolizer_name(raw->job->symbolizer, raw->node->addr, raw->node->kind,
				      &named);
	if (!err)
		raw_write_frame(raw->node->addr, raw->job->symbolizer ? &named : NULL, out);
	return err;
}

static struct error *write_stack(struct raw *raw, uint32_t id, uint64_t times)
{
	size_t n = 0;

	for (; id != STACK_ROOT; n++) {
		struct error *err;
		uint32_t number;
		bool added;

		raw->node = stacks_node(raw->job->profile->stacks, id);
		err = ids_get(raw->frames, raw->node->addr, raw->node->kind, &number, &added);
		if (!err)
			err = format_lines_put(&raw->lines, number, format_frame, raw, raw->out);
		if (err)
			return err;
		id = raw->node->parent;
	}
	raw_write_end(n, times, raw->out);
	return NULL;
}

static struct error *write_tick(void *ctx, const struct tick *tick)
{
	struct raw *raw = ctx;
	struct error *err = NULL;

	for (uint32_t i = 0; i < tick->n && !err; i++)
		if (profile_selects(raw->job->filter, tick, &tick->entries[i]))
			err = write_stack(raw, tick->entries[i].stack, 1 + tick->more);
	return err;
}

static struct error *write_raw(const struct format_job *job, FILE *out)
{
	struct raw raw = {.job = job, .out = out};
	struct recording_visitor visitor = {.ctx = &raw, .info = write_head, .tick = write_tick};
	struct error *err;
	bool cut;

	if (!strcmp(job->path, "-"))
		return error_new(ERR_USAGE, "the raw format reads its recording twice, so the "
					    "recording cannot come from standard input");
	if (job->filter->states & STATES_OF_WAITS)
		return error_new(ERR_USAGE,
				 "the raw format has no threads that do not run: --state "
				 "chooses states of vCPUs for it (folded has all)");
	visitor.progress = job->filter->progress;
	visitor.stage = "exporting";
	err = ids_new(&raw.frames);
	/* The profile's own store: it has these stacks, under these numbers. */
	if (!err)
		err = source_read(job->path, job->profile->stacks, &visitor, &cut);
	ids_free(raw.frames);
	format_lines_free(&raw.lines);
	return err;
}

const struct format format_raw = {.name = "raw", .ending = ".raw", .write = write_raw};
