/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/format.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/array.h"
#include "base/owned.h"
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
	size_t pending; /* bytes of `input` */
	unsigned char input[64 << 10], buffer[64 << 10];
};

struct error *gzip_new(FILE *out, int level, struct gzip **gzip)
{
	struct gzip *new = calloc(1, sizeof(*new));

	if (!new || deflateInit2(&new->stream, level, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
				 Z_DEFAULT_STRATEGY) != Z_OK) {
		free(new);
		return error_no_memory();
	}
	new->out = out;
	*gzip = new;
	return NULL;
}

static void deflate_input(struct gzip *gzip, int how)
{
	gzip->stream.next_in = gzip->input;
	gzip->stream.avail_in = (uInt)gzip->pending;
	do {
		gzip->stream.next_out = gzip->buffer;
		gzip->stream.avail_out = sizeof(gzip->buffer);
		deflate(&gzip->stream, how);
		fwrite(gzip->buffer, 1, sizeof(gzip->buffer) - gzip->stream.avail_out, gzip->out);
	} while (!gzip->stream.avail_out);
	gzip->pending = 0;
}

void gzip_put(struct gzip *gzip, const void *data, size_t len)
{
	while (len) {
		const size_t room = sizeof(gzip->input) - gzip->pending;
		const size_t piece = len < room ? len : room;

		memcpy(gzip->input + gzip->pending, data, piece);
		gzip->pending += piece;
		data = (const char *)data + piece;
		len -= piece;
		if (gzip->pending < sizeof(gzip->input))
			continue;
		deflate_input(gzip, Z_NO_FLUSH);
	}
}

void gzip_end(struct gzip *gzip)
{
	deflate_input(gzip, Z_FINISH);
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

	TRY(gzip_new(out, Z_DEFAULT_COMPRESSION, &gzip));
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

/* Bytes that are written at once. */
#define OUTPUT_BUFFER ((size_t)256 << 10)

static struct error *write_packed(const struct format *format, const struct format_job *job,
				  FILE *out)
{
	FILE *packed;
	struct error *err;

	TRY(gzip_open(out, &packed));
	err = format->write(job, packed);
	if (fclose(packed))
		err = error_first(err, error_no_memory());
	return err;
}

/*
 * Parts of a long file leave the page cache once they are on the disk: the host needs the cache
 * for its guests, and new pages of it cost more time than the format. The first ones stay.
 */
#define PART_BYTES  ((off_t)32 << 20)
#define CACHE_BYTES ((off_t)256 << 20)
#define WRITE_AND_WAIT \
	(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)

struct long_output {
	FILE *out;
	off_t part, end; /* where the part begins that is on its way to the disk, and ends */
};

/* A part ends at `at`: it begins its way to the disk, and the one before leaves the cache. Failures are no errors. */
static void drop_part(struct long_output *to, off_t at)
{
	const int fd = fileno(to->out);

	(void)sync_file_range(fd, to->end, at - to->end, SYNC_FILE_RANGE_WRITE);
	if (at > CACHE_BYTES && to->end > to->part) {
		(void)sync_file_range(fd, to->part, to->end - to->part, WRITE_AND_WAIT);
		(void)posix_fadvise(fd, to->part, to->end - to->part, POSIX_FADV_DONTNEED);
	}
	to->part = to->end;
	to->end = at;
}

static ssize_t put_long(void *cookie, const char *data, size_t len)
{
	struct long_output *to = cookie;
	off_t at;

	fwrite(data, 1, len, to->out);
	at = lseek(fileno(to->out), 0, SEEK_CUR);
	if (at - to->end >= PART_BYTES)
		drop_part(to, at);
	return (ssize_t)len;
}

static struct error *write_file(const struct format *format, const struct format_job *job,
				const char *output, FILE *out)
{
	return !format->packed && output && ends_packed(output) ? write_packed(format, job, out)
								: format->write(job, out);
}

struct error *format_write(const struct format *format, const struct format_job *job,
			   const char *output, FILE *out)
{
	/* Others may have written before; -1: it is no file. */
	const off_t start = lseek(fileno(out), 0, SEEK_CUR);
	struct long_output to = {.out = out, .part = start, .end = start};
	FILE *stream = fopencookie(&to, "w", (cookie_io_functions_t){.write = put_long});
	FREED char *buffer = malloc(OUTPUT_BUFFER);
	struct error *err = stream && buffer ? NULL : error_no_memory();

	if (!err) {
		setvbuf(out, NULL, _IONBF, 0);
		setvbuf(stream, buffer, _IOFBF, OUTPUT_BUFFER);
		err = write_file(format, job, output, stream);
	}
	/* Errors stay with `out`. */
	if (stream && fclose(stream))
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
	FREED char *text = short_name(&job->profile->info);

	return text ? symbolizer_intern(job->symbolizer, text, name) : error_no_memory();
}

char *format_guest_line(const struct profile *profile)
{
	const struct recording_info *info = &profile->info;
	const char *target = info->target ? info->target : "?";
	uint64_t n = profile->selected.samples;
	FREED char *name = short_name(info);
	char *text, late[64] = "";
	int rc;

	if (!name)
		return NULL;
	if (profile->not_sampled_ns)
		snprintf(late, sizeof(late), ", %.2f s (%.1f %%) not sampled",
			 (double)profile->not_sampled_ns / 1e9, 100 * profile_not_sampled(profile));
	if (import_is_target(info->target))
		rc = asprintf(&text, "%s:%s, %" PRIu64 " samples", target, name, n);
	else if (profile_counts_exits(profile))
		rc = asprintf(&text, "%s:%s (%s), %" PRIu64 " %s in %.1f s", target, name,
			      info->guest_type ? info->guest_type : "?", n, info->weight_unit,
			      (double)profile_elapsed_ns(profile) / 1e9);
	else
		rc = asprintf(&text, "%s:%s (%s), %" PRIu64 " samples at %g/s in %.1f s%s", target,
			      name, info->guest_type ? info->guest_type : "?", n, info->rate_hz,
			      (double)profile_elapsed_ns(profile) / 1e9, late);
	return rc < 0 ? NULL : text;
}

struct error *format_guest_title(const struct format_job *job, const char **title)
{
	FREED char *text = format_guest_line(job->profile);

	return text ? symbolizer_intern(job->symbolizer, text, title) : error_no_memory();
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
	putc_unlocked('"', out);
	while (*text) {
		size_t plain = strcspn(text, "\"\\<>&");

		fwrite_unlocked(text, 1, plain, out);
		text += plain;
		if (*text)
			fprintf(out, "\\u%04x", (unsigned char)*text++);
	}
	putc_unlocked('"', out);
}

void format_json_field(const char *key, const char *text, FILE *out)
{
	fputs_unlocked(key, out);
	format_json_text(text, out);
}

void format_number(uint64_t number, FILE *out)
{
	uint8_t digits[DECIMAL_MAX];
	struct bytes text = {.data = digits};

	put_decimal(&text, number);
	fwrite_unlocked(digits, 1, text.len, out);
}

/* Bytes of lines that are kept. */
#define LINES_MAX (24u << 20)

/* Where the lines that are kept begin; below: it was asked for as often. */
#define LINES_START 2

/* Keeps a line that was made, if there is room. */
static struct error *keep_line(struct format_lines *lines, uint32_t number,
			       const struct bytes *line)
{
	const uint32_t len = (uint32_t)line->len;
	const size_t at = lines->text.len;

	if (line->len > LINES_MAX || at + sizeof(len) + len > LINES_MAX)
		return NULL;
	TRY(bytes_reserve(&lines->text, sizeof(len) + len));
	put_bytes(&lines->text, &len, sizeof(len));
	put_bytes(&lines->text, line->data, len);
	lines->at[number] = (uint32_t)at + LINES_START;
	return NULL;
}

struct error *format_lines_get(struct format_lines *lines, uint32_t number, struct bytes *scratch,
			       struct format_text *out)
{
	TRY(ARRAY_RESERVE_ZERO(&lines->at, &lines->room, number + (size_t)1));
	if (lines->at[number] >= LINES_START) {
		const uint8_t *line = lines->text.data + lines->at[number] - LINES_START;
		uint32_t len;

		memcpy(&len, line, sizeof(len));
		*out = (struct format_text){line + sizeof(len), len};
		return NULL;
	}
	scratch->len = 0;
	TRY(lines->format(lines->ctx, number, scratch));
	if (lines->at[number])
		TRY(keep_line(lines, number, scratch));
	else
		lines->at[number] = 1;
	*out = (struct format_text){scratch->data, scratch->len};
	return NULL;
}

/* A line is mostly longer than what memory gives at once. */
static void fetch_line(const uint8_t *line)
{
	__builtin_prefetch(line);
	__builtin_prefetch(line + 64);
}

bool format_lines_ahead(const struct format_lines *lines, uint32_t number, unsigned step)
{
	if (number >= lines->room)
		return false;
	if (step == 0)
		__builtin_prefetch(&lines->at[number]);
	else if (lines->at[number] < LINES_START)
		return false;
	else if (step == 1)
		fetch_line(lines->text.data + lines->at[number] - LINES_START);
	return true;
}

void format_lines_free(struct format_lines *lines)
{
	bytes_free(&lines->text);
	free(lines->at);
}

struct error *stack_path_follow(struct stack_path *path, uint32_t stack)
{
	TRY(ARRAY_RESERVE(&path->at, &path->room, 1));
	path->at[0] = STACK_ROOT;
	path->n = path->n ?: 1;
	path->n_fresh = 0;
	/* A parent's number is smaller. */
	while (stack != path->at[path->n - 1]) {
		if (stack < path->at[path->n - 1]) {
			path->n--;
			continue;
		}
		TRY(ARRAY_RESERVE(&path->fresh, &path->fresh_room, path->n_fresh + 1));
		path->fresh[path->n_fresh++] = stack;
		stack = stacks_node(path->stacks, stack)->parent;
	}
	return NULL;
}

struct error *stack_path_add(struct stack_path *path)
{
	TRY(ARRAY_RESERVE(&path->at, &path->room, path->n + 1));
	path->at[path->n++] = path->fresh[--path->n_fresh];
	return NULL;
}

void stack_path_free(struct stack_path *path)
{
	free(path->at);
	free(path->fresh);
}
