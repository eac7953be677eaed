/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/intern.h"
#include "base/owned.h"
#include "base/sandbox.h"

/*
 * The protocol between us and the process that reads the file. That process
 * first says whether there is anything to ask, SOURCE_HAS or SOURCE_LACKS.
 * Then, as often as somebody asks: a number of addresses and the addresses; an
 * answer for each of them: its head, and its frames. Strings have numbers from
 * 1 on, 0 is none; where a number is used for the first time, which is then the
 * next one, the string's length (uint32_t) and bytes follow at once.
 */

#define SOURCE_HAS   1u
#define SOURCE_LACKS 0u

/* The longest string, bytes: that of a name in a recording. */
#define SOURCE_STRING_MAX (64u << 10)

struct wire_answer {
	uint64_t start;
	uint32_t n;
	uint32_t unused;
};

/* Then twice: the number of a string (function, file), and it if it is new; then the line. */
typedef uint32_t wire_number;

struct server {
	struct source_index *index;
	FILE *in, *out;
	struct ids *sent; /* strings that were sent, by pointer: those of the index never move */
};

static void flush(struct server *server)
{
	if (fflush(server->out))
		_exit(1);
}

static void put(struct server *server, const void *data, size_t len)
{
	if (len && fwrite(data, len, 1, server->out) != 1)
		_exit(1);
}

static void put_number(struct server *server, wire_number number)
{
	put(server, &number, sizeof(number));
}

static void put_text(struct server *server, const char *directory, const char *text)
{
	size_t before = strnlen(directory, SOURCE_STRING_MAX / 2);
	size_t len = strnlen(text, SOURCE_STRING_MAX / 2 - 1);
	uint32_t both = (uint32_t)(before + (before > 0) + len);

	put(server, &both, sizeof(both));
	put(server, directory, before);
	put(server, "/", before > 0);
	put(server, text, len);
}

/* `directory`: goes before it if it is the name of a file without one; NULL: nothing does. */
static void put_string(struct server *server, const char *text, const char *directory)
{
	uint32_t id;
	bool added;

	if (!text) {
		put_number(server, 0);
		return;
	}
	if (ids_get(server->sent, (uintptr_t)text, 0, &id, &added))
		_exit(1);
	put_number(server, id + 1);
	if (added)
		put_text(server, directory && *text != '/' ? directory : "", text);
}

static void put_answer(struct server *server, const struct source_answer *answer,
		       const char *directory)
{
	const struct wire_answer head = {.start = answer->start, .n = answer->n};

	put(server, &head, sizeof(head));
	for (uint32_t i = 0; i < answer->n; i++) {
		put_string(server, answer->frame[i].function, NULL);
		put_string(server, answer->frame[i].file, directory);
		put_number(server, answer->frame[i].line);
	}
}

static void serve(struct server *server)
{
	uint64_t addr[SOURCE_BATCH];
	struct source_answer answer;
	uint32_t n;

	while (fread(&n, sizeof(n), 1, server->in) == 1 && n <= SOURCE_BATCH &&
	       fread(addr, sizeof(*addr), n, server->in) == n) {
		for (uint32_t i = 0; i < n; i++) {
			const char *directory = source_index_find(server->index, addr[i], &answer);

			put_answer(server, &answer, directory);
		}
		flush(server);
	}
}

/* Answers questions until nobody asks any more; `in` and `out` are pipes. Never returns. */
static void source_serve(const char *path, const char *build_id, int in, int out)
{
	struct server server = {.in = fdopen(in, "r"), .out = fdopen(out, "w")};

	if (!server.in || !server.out || ids_new(&server.sent))
		_exit(1);
	sandbox_serve();
	setvbuf(server.out, NULL, _IOFBF, 1 << 16);
	error_free(source_index_open(path, build_id, &server.index));
	put_number(&server, server.index ? SOURCE_HAS : SOURCE_LACKS);
	flush(&server);
	if (server.index)
		serve(&server);
	_exit(0);
}

/* Longest wait for an answer; the process's CPU time and memory are bounded as well (base/sandbox.h). */
#define PATIENCE_NS (SANDBOX_WAIT_S * 1000000000ull)

/* Bytes of all strings of one file, at most. */
#define STRINGS_MAX (1u << 30)

struct source {
	pid_t pid;
	int to, from; /* pipes */
	bool alive;
	char **string; /* number 1 is string[0] */
	size_t n_strings, strings_room, strings_len;
	uint64_t deadline_ns;
	size_t at, len;
	uint8_t buffer[1 << 16];
};

static bool wait_for_more(struct source *s)
{
	struct pollfd pollfd = {.fd = s->from, .events = POLLIN};
	uint64_t now = clock_now_ns();
	int rc;

	if (now >= s->deadline_ns)
		return false;
	rc = poll(&pollfd, 1, (int)((s->deadline_ns - now) / 1000000 + 1));
	return rc > 0 || (rc < 0 && errno == EINTR);
}

static bool read_more(struct source *s)
{
	ssize_t got;

	do {
		if (!wait_for_more(s))
			return false;
		got = read(s->from, s->buffer, sizeof(s->buffer));
	} while (got < 0 && errno == EINTR);
	s->at = 0;
	s->len = got > 0 ? (size_t)got : 0;
	return got > 0;
}

static bool get(struct source *s, void *data, size_t size)
{
	char *to = data;

	while (size) {
		size_t step = s->len - s->at < size ? s->len - s->at : size;

		if (!step && !read_more(s))
			return false;
		memcpy(to, s->buffer + s->at, step);
		s->at += step;
		to += step;
		size -= step;
	}
	return true;
}

/* The string behind a number that is new. */
static bool get_new_string(struct source *s)
{
	uint32_t len;
	char *text;

	error_free(ARRAY_RESERVE(&s->string, &s->strings_room, s->n_strings + 1));
	if (s->n_strings == s->strings_room)
		return false;
	if (!get(s, &len, sizeof(len)) || len > SOURCE_STRING_MAX ||
	    len > STRINGS_MAX - s->strings_len)
		return false;
	text = malloc(len + 1);
	if (!text)
		return false;
	text[len] = '\0';
	s->string[s->n_strings++] = text;
	s->strings_len += len + 1;
	return get(s, text, len) && !memchr(text, '\0', len);
}

static bool get_string(struct source *s, const char **text)
{
	wire_number number;

	*text = NULL;
	if (!get(s, &number, sizeof(number)) || number > s->n_strings + 1)
		return false;
	if (!number)
		return true;
	if (number == s->n_strings + 1 && !get_new_string(s))
		return false;
	*text = s->string[number - 1];
	return true;
}

static bool get_answer(struct source *s, struct source_answer *answer)
{
	struct wire_answer head;

	if (!get(s, &head, sizeof(head)) || head.n > SOURCE_DEPTH)
		return false;
	answer->n = head.n;
	answer->start = head.start;
	for (uint32_t i = 0; i < head.n; i++) {
		struct source_frame *frame = &answer->frame[i];

		if (!get_string(s, &frame->function) || !get_string(s, &frame->file) ||
		    !get(s, &frame->line, sizeof(frame->line)))
			return false;
	}
	return true;
}

/* A pipe takes a batch at once, for nothing else is in it. */
static bool send_all(struct source *s, const void *data, size_t len)
{
	ssize_t rc;

	do
		rc = write(s->to, data, len);
	while (rc < 0 && errno == EINTR);
	return rc == (ssize_t)len;
}

/* Sends a question; to write to a process that has died is an error like others. */
static bool put_question(struct source *s, const uint64_t *addr, size_t n)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct sigaction before;
	uint32_t count = (uint32_t)n;
	bool good;

	sigaction(SIGPIPE, &ignore, &before);
	good = send_all(s, &count, sizeof(count)) && send_all(s, addr, n * sizeof(*addr));
	sigaction(SIGPIPE, &before, NULL);
	return good;
}

struct error *source_ask(struct source *s, const uint64_t *addr, size_t n, source_taker *take,
			 void *ctx, bool *alive)
{
	struct source_answer answer;
	struct error *err = NULL;

	for (size_t i = 0; i < n && s->alive && !err; i++) {
		if (i % SOURCE_BATCH == 0) {
			s->deadline_ns = clock_now_ns() + PATIENCE_NS;
			s->alive = put_question(s, addr + i,
						n - i < SOURCE_BATCH ? n - i : SOURCE_BATCH);
		}
		s->alive = s->alive && get_answer(s, &answer);
		if (s->alive)
			err = take(ctx, i, &answer);
	}
	/* Unread bytes would be taken for the next answer. */
	s->alive = s->alive && !err;
	*alive = s->alive;
	return err;
}

static struct error *begin(struct source *s, const char *path, const char *build_id)
{
	int down[2] = {-1, -1}, up[2] = {-1, -1};
	struct error *err = NULL;

	s->pid = pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC) ? -1 : fork();
	if (s->pid < 0)
		err = error_errno(ERR_FAILED, errno, "cannot read lines of %s", path);
	if (s->pid == 0) {
		sandbox_enter(path, (const int[]){down[0], up[1]}, 2);
		source_serve(path, build_id, down[0], up[1]);
	}
	owned_close(&down[0]);
	owned_close(&up[1]);
	s->to = down[1];
	s->from = up[0];
	return err;
}

struct error *source_open(const char *path, const char *build_id, struct source **out)
{
	struct source *s = calloc(1, sizeof(*s));
	wire_number has = SOURCE_LACKS;
	struct error *err;

	*out = NULL;
	if (!s)
		return error_no_memory();
	s->to = s->from = -1;
	err = begin(s, path, build_id);
	s->deadline_ns = clock_now_ns() + PATIENCE_NS;
	if (!err && get(s, &has, sizeof(has)) && has == SOURCE_HAS) {
		s->alive = true;
		*out = s;
		return NULL;
	}
	source_close(s);
	return err;
}

/* Ends the process; strings that it has answered with stay until source_close. */
static void source_end(struct source *s)
{
	owned_close(&s->to);
	owned_close(&s->from);
	/* It ends when nobody asks; one that hangs ends when its time is over, or with us. */
	while (s->pid > 0 && waitpid(s->pid, NULL, s->alive ? 0 : WNOHANG) < 0 && errno == EINTR)
		;
	s->to = s->from = -1;
	s->pid = 0;
	s->alive = false;
}

void source_close(struct source *s)
{
	if (!s)
		return;
	source_end(s);
	for (size_t i = 0; i < s->n_strings; i++)
		free(s->string[i]);
	free(s->string);
	free(s);
}

/* Answers of a process that is gone are kept. */
struct known_source {
	const struct image_file *file;
	struct source *source; /* NULL: it knows nothing */
};

struct sources {
	struct known_source *at;
	size_t n, room;
	char *trouble;
};

struct error *sources_new(struct sources **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? NULL : error_no_memory();
}

void sources_free(struct sources *sources)
{
	if (!sources)
		return;
	for (size_t i = 0; i < sources->n; i++)
		source_close(sources->at[i].source);
	free(sources->at);
	free(sources->trouble);
	free(sources);
}

static struct error *add(struct sources *sources, const struct image_file *file)
{
	const struct known_source known = {.file = file};

	TRY(ARRAY_ADD(&sources->at, &sources->room, &sources->n, &known));
	/* Files that are not ELF, such as nm's output, have no DWARF. */
	return file->code ? source_open(file->opened ? file->opened : file->path, file->build_id,
					&sources->at[sources->n - 1].source)
			  : NULL;
}

static struct error *find(struct sources *sources, const struct image_file *file,
			  struct known_source **out)
{
	size_t i;

	for (i = 0; i < sources->n && sources->at[i].file != file; i++)
		;
	if (i == sources->n)
		TRY(add(sources, file));
	*out = &sources->at[i];
	return NULL;
}

static struct error *give_up(struct sources *sources, struct known_source *known)
{
	source_end(known->source);
	if (!sources->trouble &&
	    asprintf(&sources->trouble,
		     "the debugging information of %s cannot be read (damaged?): inlined functions "
		     "and lines are missing",
		     known->file->path) < 0)
		return error_no_memory();
	return NULL;
}

struct error *sources_ask(struct sources *sources, const struct image_file *file,
			  const uint64_t *addr, size_t n, source_taker *take, void *ctx)
{
	struct known_source *known;
	bool alive;

	TRY(find(sources, file, &known));
	if (!known->source || !known->source->alive)
		return NULL;
	TRY(source_ask(known->source, addr, n, take, ctx, &alive));
	return alive ? NULL : give_up(sources, known);
}

const char *sources_trouble(const struct sources *sources)
{
	return sources->trouble;
}
