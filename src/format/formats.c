/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/array.h"
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

/* zlib.h: 16 more than the window's bits asks for gzip's head and tail. */
#define GZIP_WINDOW (MAX_WBITS + 16)
#define GZIP_MEMORY 8

struct gzip {
	z_stream stream;
	FILE *out;
	unsigned char buffer[64 << 10];
};

struct error *gzip_new(FILE *out, struct gzip **gzip)
{
	struct gzip *new = calloc(1, sizeof(*new));

	if (!new || deflateInit2(&new->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW,
				 GZIP_MEMORY, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(new);
		return error_no_memory();
	}
	new->out = out;
	*gzip = new;
	return NULL;
}

static void deflate_pending(struct gzip *gzip, int how)
{
	do {
		gzip->stream.next_out = gzip->buffer;
		gzip->stream.avail_out = sizeof(gzip->buffer);
		deflate(&gzip->stream, how);
		fwrite(gzip->buffer, 1, sizeof(gzip->buffer) - gzip->stream.avail_out, gzip->out);
	} while (!gzip->stream.avail_out);
}

void gzip_put(struct gzip *gzip, const void *data, size_t len)
{
	while (len) {
		uInt piece = len > 1u << 30 ? 1u << 30 : (uInt)len;

		gzip->stream.next_in = (z_const Bytef *)data;
		gzip->stream.avail_in = piece;
		deflate_pending(gzip, Z_NO_FLUSH);
		data = (const char *)data + piece;
		len -= piece;
	}
}

void gzip_end(struct gzip *gzip)
{
	deflate_pending(gzip, Z_FINISH);
	deflateEnd(&gzip->stream);
	free(gzip);
}

static ssize_t put_cookie(void *cookie, const char *data, size_t len)
{
	gzip_put(cookie, data, len);
	return (ssize_t)len;
}

static int end_cookie(void *cookie)
{
	gzip_end(cookie);
	return 0;
}

struct error *gzip_open(FILE *out, FILE **packed)
{
	const cookie_io_functions_t functions = {.write = put_cookie, .close = end_cookie};
	struct gzip *gzip;
	struct error *err = gzip_new(out, &gzip);

	if (err)
		return err;
	*packed = fopencookie(gzip, "w", functions);
	if (*packed)
		return NULL;
	gzip_end(gzip);
	return error_no_memory();
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

/* A thread's ID that the guest, or a vCPU as a thread of it, would share. */
static bool is_shared(uint32_t id, uint32_t pid, uint32_t vcpus)
{
	return id != RECORDED_ID_UNKNOWN && id >= pid && id - pid <= vcpus;
}

uint32_t format_guest_pid(const struct format_job *job)
{
	const struct profile *profile = job->profile;
	const char *id = profile->info.guest_id;
	unsigned long number = id ? strtoul(id, NULL, 10) : 0;
	/* 0 is the idle task for perf, and all other numbers are as good. */
	uint32_t pid = number > 0 && number < INT32_MAX / 2 ? (uint32_t)number : 1, last = 0;
	bool shared = false;

	for (size_t i = 0; i < profile->n_threads; i++) {
		const uint32_t ids[] = {profile->threads[i].pid, profile->threads[i].tid};

		for (int k = 0; k < 2; k++) {
			shared |= is_shared(ids[k], pid, profile->info.vcpus);
			last = ids[k] < INT32_MAX / 2 && ids[k] > last ? ids[k] : last;
		}
	}
	return shared ? last + 1 : pid;
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
