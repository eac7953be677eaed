/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "format/gzip.h"
#include "import/import.h"
#include "symbol/names/display_name.h"

static const struct format *const formats[] = {
	&format_folded,	    &format_raw,     &format_pprof,	  &format_otlp,
	&format_speedscope, &format_firefox, &format_perf_script, &format_perf_data,
	&format_callgrind,  &format_chrome,
};

#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

const struct format *format_at(size_t i)
{
	return i < N_FORMATS ? formats[i] : NULL;
}

const struct format *format_by_name(const char *name)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}

#define PACKED ".gz"

static bool ends_packed(const char *path)
{
	const size_t len = strlen(path);

	return len > strlen(PACKED) && !strcmp(path + len - strlen(PACKED), PACKED);
}

struct error *format_write(const struct format *format, const struct format_job *job,
			   const char *output, FILE *out)
{
	FILE *packed;
	struct error *err;

	if (format->packed || !output || !ends_packed(output))
		return format->write(job, out);
	err = gzip_open(out, &packed);
	if (err)
		return err;
	err = format->write(job, packed);
	if (fclose(packed))
		err = error_first(err, error_no_memory());
	return err;
}

/* The longest ending that fits, so that ".perf.json" and ".json" can both be one. */
static const struct format *by_ending(const char *path, size_t len)
{
	const struct format *best = NULL;
	size_t longest = 0;

	for (size_t i = 0; i < N_FORMATS; i++) {
		size_t ending = strlen(formats[i]->ending);

		if (ending > longest && len > ending &&
		    !strncmp(path + len - ending, formats[i]->ending, ending)) {
			best = formats[i];
			longest = ending;
		}
	}
	return best;
}

const struct format *format_by_ending(const char *path)
{
	const size_t len = strlen(path);
	const struct format *found = by_ending(path, len);

	return found || !ends_packed(path) ? found : by_ending(path, len - strlen(PACKED));
}

static const char *name_of(const struct recording_info *info)
{
	if (info->guest_name && *info->guest_name)
		return info->guest_name;
	return info->guest_id && *info->guest_id ? info->guest_id : "guest";
}

/* In memory of its own; NULL: there is none. */
static char *short_name(const struct recording_info *info)
{
	const char *name = name_of(info);

	return strndup(name, sanitize_cut(name, FORMAT_GUEST_NAME_MAX));
}

struct error *format_guest_name(const struct format_job *job, const char **name)
{
	char *text = short_name(&job->profile->info);
	struct error *err =
		text ? symbolizer_intern(job->symbolizer, text, name) : error_no_memory();

	free(text);
	return err;
}

char *format_guest_line(const struct profile *profile)
{
	const struct recording_info *info = &profile->info;
	const char *target = info->target ? info->target : "?";
	uint64_t n = profile->selected.samples;
	char *text, *name = short_name(info), late[64] = "";
	int rc;

	if (!name)
		return NULL;
	if (profile->not_sampled_ns)
		snprintf(late, sizeof(late), ", %.2f s (%.1f %%) not sampled",
			 (double)profile->not_sampled_ns / 1e9, 100 * profile_not_sampled(profile));
	if (import_is_target(info->target))
		rc = asprintf(&text, "%s:%s, %" PRIu64 " samples", target, name, n);
	else
		rc = asprintf(&text, "%s:%s (%s), %" PRIu64 " samples at %g/s in %.1f s%s", target,
			      name, info->guest_type ? info->guest_type : "?", n, info->rate_hz,
			      (double)profile_elapsed_ns(profile) / 1e9, late);
	free(name);
	return rc < 0 ? NULL : text;
}

struct error *format_guest_title(const struct format_job *job, const char **title)
{
	char *text = format_guest_line(job->profile);
	struct error *err =
		text ? symbolizer_intern(job->symbolizer, text, title) : error_no_memory();

	free(text);
	return err;
}

uint32_t format_guest_pid(const struct format_job *job)
{
	const char *id = job->profile->info.guest_id;
	unsigned long number = id ? strtoul(id, NULL, 10) : 0;

	/* 0 is the idle task for perf, and all other numbers are as good. */
	return number > 0 && number < INT32_MAX / 2 ? (uint32_t)number : 1;
}

bool format_unit_is_time(const struct format_job *job)
{
	return !job->profile->info.weight_unit;
}

struct error *format_unit(const struct format_job *job, const char **unit)
{
	const char *text = job->profile->info.weight_unit;

	return symbolizer_intern(job->symbolizer, text ? text : "nanoseconds", unit);
}

bool format_is_imported(const struct format_job *job)
{
	return import_is_target(job->profile->info.target);
}

void format_json_text(const char *text, FILE *out)
{
	putc('"', out);
	while (*text) {
		size_t plain = strcspn(text, "\"\\<>&");

		fwrite(text, 1, plain, out);
		text += plain;
		if (*text)
			fprintf(out, "\\u%04x", (unsigned char)*text++);
	}
	putc('"', out);
}

void format_json_field(const char *key, const char *text, FILE *out)
{
	fputs(key, out);
	format_json_text(text, out);
}

void format_json_ms(unsigned long long ns, FILE *out)
{
	fprintf(out, "%llu.%06llu", ns / 1000000, ns % 1000000);
}

/* Bytes of lines that are kept. */
#define LINES_MAX ((size_t)64 << 20)

/* Keeps a line that was made, if there is room. */
static struct error *keep_line(struct format_lines *lines, uint32_t number, const char *text,
			       size_t len)
{
	struct error *err;

	if (len > LINES_MAX - lines->len)
		return NULL;
	err = ARRAY_RESERVE(&lines->text, &lines->room, lines->len + len);
	if (err)
		return err;
	memcpy(lines->text + lines->len, text, len);
	lines->at[number] = (struct format_line){lines->len, len};
	lines->len += len;
	return NULL;
}

static struct error *make_room(struct format_lines *lines, uint32_t number)
{
	const size_t before = lines->lines_room;
	struct error *err = ARRAY_RESERVE(&lines->at, &lines->lines_room, number + (size_t)1);

	if (!err && lines->lines_room > before)
		memset(lines->at + before, 0, (lines->lines_room - before) * sizeof(*lines->at));
	return err;
}

struct error *format_lines_put(struct format_lines *lines, uint32_t number,
			       struct error *(*format)(void *ctx, uint32_t number, FILE *out),
			       void *ctx, FILE *out)
{
	struct error *err = make_room(lines, number);
	char *text = NULL;
	size_t len = 0;
	FILE *line;

	if (err)
		return err;
	if (lines->at[number].len) {
		fwrite(lines->text + lines->at[number].at, 1, lines->at[number].len, out);
		return NULL;
	}
	line = open_memstream(&text, &len);
	if (!line)
		return error_no_memory();
	err = format(ctx, number, line);
	if (fclose(line))
		err = error_first(err, error_no_memory());
	if (!err)
		fwrite(text, 1, len, out);
	if (!err)
		err = keep_line(lines, number, text, len);
	free(text);
	return err;
}

void format_lines_free(struct format_lines *lines)
{
	free(lines->text);
	free(lines->at);
}
