/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Bodies of requests: OpenTelemetry's profiles signal, Pyroscope's /ingest with
 * pprof, Parca's WriteRaw as JSON around pprof. Each guest is a series of its
 * own, with the labels guest, host and kind; vCPU, state and thread are labels
 * of its samples.
 */

#include "cmd/push.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/preopen.h"
#include "base/privilege.h"
#include "base/sandbox.h"
#include "format/format.h"

/* Bytes that receivers take at most; of OTLP, before they are compressed. */
#define BODY_MAX (64ull << 20)

/* A segment is a minute: this is far more than it takes. */
#define SEGMENT_ALARM_S 120

#define SEGMENT_PATH "<segment>"

/* A text with anything but these as '_': receivers have no way to escape it. */
static void keep_plain(char *text, const char *others)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr(others, *text))
			*text = '_';
}

/* The labels of the guest's series. */
struct labels {
	const char *guest, *host, *kind; /* sanitized; of the symbolizer */
};

static struct error *find_labels(const struct format_job *job, struct labels *labels)
{
	const struct recording_info *info = &job->profile->info;

	TRY(format_guest_name(job, &labels->guest));
	TRY(symbolizer_intern(job->symbolizer, job->host ?: "", &labels->host));
	return symbolizer_intern(job->symbolizer, info->target ?: "", &labels->kind);
}

static void put_escaped(const char *text, FILE *out)
{
	for (; *text; text++)
		if (isalnum((unsigned char)*text) || strchr("-._~", *text))
			putc(*text, out);
		else
			fprintf(out, "%%%02X", (unsigned char)*text);
}

static void put_label(const char *key, const char *value, bool first, FILE *out)
{
	FREED char *plain = strdup(value);

	if (!plain)
		return;
	keep_plain(plain, "-._:/@+");
	fprintf(out, "%s%s%%3D", first ? "" : "%2C", key);
	put_escaped(plain, out);
}

/* "name=web{guest=web,host=h1,kind=xen}&from=...&until=...&format=pprof", escaped. */
static struct error *make_query(const struct format_job *job, char *query, size_t size)
{
	const uint64_t told_ns = job->profile->info.start_unix_ns;
	const uint64_t elapsed_ns = profile_elapsed_ns(job->profile);
	const uint64_t from_ns = told_ns ? told_ns : clock_unix_ns() - elapsed_ns;
	FREED char *name = NULL;
	struct labels labels;
	FILE *out;

	TRY(find_labels(job, &labels));
	name = strdup(labels.guest);
	out = name ? fmemopen(query, size, "w") : NULL;
	if (!out)
		return error_no_memory();
	keep_plain(name, "-._/");
	fprintf(out, "name=");
	put_escaped(name, out);
	fprintf(out, "%%7B");
	put_label("guest", labels.guest, true, out);
	put_label("host", labels.host, false, out);
	put_label("kind", labels.kind, false, out);
	fprintf(out, "%%7D&from=%llu&until=%llu&format=pprof&spyName=uniprof", from_ns / NS_PER_S,
		(from_ns + elapsed_ns) / NS_PER_S + 1);
	return fclose(out) ? error_no_memory() : NULL;
}

static struct error *too_large(uint64_t len)
{
	return error_new(ERR_USAGE,
			 "the request takes %" PRIu64 " MiB, and receivers take %llu MiB at most: "
			 "push a shorter stretch of it, by --from and --to",
			 (len >> 20) + 1, BODY_MAX >> 20);
}

/* Makes the format's file in memory; the caller frees it. */
static struct error *write_to_memory(const struct format *format, const struct format_job *job,
				     char **text, size_t *len)
{
	FILE *out = open_memstream(text, len);
	struct error *err = out ? format->write(job, out) : error_no_memory();

	if (out && fclose(out) && !err)
		err = error_no_memory();
	return !err && *len > BODY_MAX ? too_large(*len) : err;
}

static struct error *write_otlp(const struct format_job *job, FILE *out)
{
	FREED char *text = NULL;
	size_t len = 0;
	FILE *packed;

	TRY(write_to_memory(&format_otlp, job, &text, &len));
	TRY(gzip_open(out, &packed));
	fwrite(text, 1, len, packed);
	return fclose(packed) ? error_no_memory() : NULL;
}

static void put_base64(const uint8_t *data, size_t len, FILE *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < len; i += 3) {
		const uint32_t three = (uint32_t)data[i] << 16 |
				       (i + 1 < len ? (uint32_t)data[i + 1] << 8 : 0) |
				       (i + 2 < len ? data[i + 2] : 0);

		putc(digits[three >> 18], out);
		putc(digits[three >> 12 & 63], out);
		putc(i + 1 < len ? digits[three >> 6 & 63] : '=', out);
		putc(i + 2 < len ? digits[three & 63] : '=', out);
	}
}

static void put_json_label(const char *key, const char *value, FILE *out)
{
	fprintf(out, "%s{\"name\":\"%s\"", strcmp(key, "__name__") ? "," : "", key);
	format_json_field(",\"value\":", value, out);
	putc('}', out);
}

static struct error *write_parca(const struct format_job *job, FILE *out)
{
	struct labels labels;
	FREED char *text = NULL;
	size_t len = 0;

	TRY(find_labels(job, &labels));
	TRY(write_to_memory(&format_pprof, job, &text, &len));
	fputs("{\"series\":[{\"labels\":{\"labels\":[", out);
	put_json_label("__name__", "uniprof", out);
	put_json_label("guest", labels.guest, out);
	put_json_label("host", labels.host, out);
	put_json_label("kind", labels.kind, out);
	fputs("]},\"samples\":[{\"rawProfile\":\"", out);
	put_base64((const uint8_t *)text, len, out);
	fputs("\"}]}]}", out);
	return NULL;
}

static struct error *write_body(const struct push_args *args, const struct format_job *job,
				struct push_head *head, FILE *out)
{
	head->samples = job->profile->selected.samples;
	if (!head->samples)
		return NULL;
	if (args->protocol == PUSH_OTLP)
		return write_otlp(job, out);
	if (args->protocol == PUSH_PARCA)
		return write_parca(job, out);
	TRY(make_query(job, head->query, sizeof(head->query)));
	return format_pprof.write(job, out);
}

/* Bounds time and memory for a segment of the store, and closes the way to the agent. */
static struct error *confine_segment(int segment, int file)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct error *err = preopen_adopt(SEGMENT_PATH, segment);
	struct descriptors keep = {0};
	struct privilege got;

	dup2(null, STDOUT_FILENO);
	descriptors_add(&keep, STDOUT_FILENO);
	descriptors_add(&keep, STDERR_FILENO);
	descriptors_add(&keep, segment);
	descriptors_add(&keep, file);
	descriptors_close_others(&keep);
	alarm(SEGMENT_ALARM_S);
	sandbox_limit();
	sandbox_raise(segment);
	if (!err)
		privilege_drop(SECCOMP_READER, &got);
	return err;
}

static struct error *load_and_write(const struct push_args *args, const struct load_options *load,
				    struct push_head *head, FILE *out)
{
	ENDED_BY(load_free) struct loaded loaded = {0};
	struct format_job job = {.path = load->path, .filter = &load->filter, .host = args->host};

	TRY(load_recording(load, &loaded));
	job.profile = loaded.profile;
	job.symbolizer = loaded.symbolizer;
	TRY(write_body(args, &job, head, out));
	if (loaded.warning && load->filter.progress)
		cmd_say("warning: %s", loaded.warning);
	return NULL;
}

/* Runs in a process of its own: the head is written last, over its place. */
static void encode(const struct push_args *args, const struct load_options *load, int segment,
		   int file)
{
	struct load_options own = *load;
	struct push_head head = {0};
	FILE *out = fdopen(file, "w");
	struct error *err;

	if (segment >= 0)
		own.path = SEGMENT_PATH;
	err = segment >= 0 ? confine_segment(segment, file) : load_confine(&own);
	if (!err && (!out || fseek(out, sizeof(head), SEEK_SET)))
		err = error_no_memory();
	if (!err)
		err = load_and_write(args, &own, &head, out);
	if (!err && (fflush(out) || ferror(out)))
		err = error_new(ERR_FAILED, "there is no room for the request in memory");
	if (err) {
		head.kind = (int32_t)err->kind;
		snprintf(head.failure, sizeof(head.failure), "%s", err->text);
	}
	_exit(pwrite(file, &head, sizeof(head), 0) != (ssize_t)sizeof(head));
}

/* False: it ended otherwise than by itself. */
static bool wait_for(pid_t pid, const volatile sig_atomic_t *stop)
{
	int status = 0;
	pid_t got;

	while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		if (stop && *stop)
			kill(pid, SIGKILL);
	return got == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* The head is what another process has made of a file: nothing in it is trusted. */
static bool read_head(struct push_body *body)
{
	struct push_head *head = &body->head;
	const off_t end = lseek(body->file, 0, SEEK_END);

	if (pread(body->file, head, sizeof(*head), 0) != (ssize_t)sizeof(*head) ||
	    end < (off_t)sizeof(*head))
		return false;
	body->len = (uint64_t)end - sizeof(*head);
	head->failure[sizeof(head->failure) - 1] = '\0';
	head->query[sizeof(head->query) - 1] = '\0';
	for (const char *at = head->query; *at; at++)
		if (!isalnum((unsigned char)*at) && !strchr("-._~%=&", *at))
			return false;
	return true;
}

struct error *push_encode(const struct push_args *args, const struct load_options *load,
			  int segment, const volatile sig_atomic_t *stop, struct push_body *body)
{
	pid_t pid;

	*body = (struct push_body){.file = memfd_create("request", MFD_CLOEXEC)};
	if (body->file < 0)
		return error_errno(ERR_FAILED, errno, "there is no room for the request");
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		encode(args, load, segment, body->file);
	}
	if (pid < 0)
		return error_errno(ERR_FAILED, errno, "cannot start a process");
	if (!wait_for(pid, stop) || !read_head(body))
		return error_new(ERR_INPUT, "the recording could not be read%s",
				 stop && *stop ? ": interrupted" : " in bounded time and memory");
	if (*body->head.failure)
		return error_new(body->head.kind >= ERR_FAILED && body->head.kind <= ERR_OUTPUT
					 ? (enum error_kind)body->head.kind
					 : ERR_FAILED,
				 "%s", body->head.failure);
	return body->len <= BODY_MAX ? NULL : too_large(body->len);
}

void push_body_free(struct push_body *body)
{
	owned_close(&body->file);
	body->file = -1;
}

struct push_request push_request_of(const struct push_args *args, const struct push_body *body)
{
	static const char *const types[] = {[PUSH_OTLP] = "application/x-protobuf",
					    [PUSH_PYROSCOPE] = "application/octet-stream",
					    [PUSH_PARCA] = "application/json"};

	return (struct push_request){.query = body->head.query,
				     .type = types[args->protocol],
				     .packed = args->protocol == PUSH_OTLP,
				     .otlp = args->protocol == PUSH_OTLP,
				     .body = body->file,
				     .at = sizeof(body->head),
				     .len = body->len};
}
