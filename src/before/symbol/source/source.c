/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "symbol/sandbox.h"
#include "symbol/source_wire.h"

/* How long an answer may take; the process's own time of the CPU is bounded as well (apart.h). */
#define PATIENCE_NS (120 * 1000000000ull)

/* All strings of one file, bytes. */
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

	if (s->len - s->at >= size) {
		memcpy(data, s->buffer + s->at, size);
		s->at += size;
		return true;
	}
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

	if (s->n_strings == s->strings_room) {
		size_t room = 2 * s->strings_room + 256;
		char **list = reallocarray(s->string, room, sizeof(*list));

		if (!list)
			return false;
		s->string = list;
		s->strings_room = room;
	}
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
static bool put(struct source *s, const void *data, size_t len)
{
	ssize_t rc;

	do
		rc = write(s->to, data, len);
	while (rc < 0 && errno == EINTR);
	return rc == (ssize_t)len;
}

/* To write to a process that has died is an error like others. */
static bool put_question(struct source *s, const uint64_t *addr, size_t n)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct sigaction before;
	uint32_t count = (uint32_t)n;
	bool good;

	sigaction(SIGPIPE, &ignore, &before);
	good = put(s, &count, sizeof(count)) && put(s, addr, n * sizeof(*addr));
	sigaction(SIGPIPE, &before, NULL);
	return good;
}

struct error *source_ask(struct source *s, const uint64_t *addr, size_t n, source_taker *take,
			 void *ctx, bool *alive)
{
	struct source_answer answer;
	struct error *err = NULL;

	s->deadline_ns = clock_now_ns() + PATIENCE_NS;
	s->alive = s->alive && put_question(s, addr, n);
	for (size_t i = 0; i < n && s->alive && !err; i++) {
		s->alive = get_answer(s, &answer);
		if (s->alive)
			err = take(ctx, i, &answer);
	}
	/* What was not read would be taken for the next answer. */
	s->alive = s->alive && !err;
	*alive = s->alive;
	return err;
}

static struct error *begin(struct source *s, const char *path, const char *build_id)
{
	int down[2], up[2];

	if (pipe2(down, O_CLOEXEC))
		return error_errno(ERR_FAILED, errno, "cannot read lines of %s", path);
	if (pipe2(up, O_CLOEXEC)) {
		close(down[0]);
		close(down[1]);
		return error_errno(ERR_FAILED, errno, "cannot read lines of %s", path);
	}
	s->pid = fork();
	if (s->pid == 0) {
		apart_begin((const int[]){down[0], up[1]}, 2);
		source_serve(path, build_id, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	s->to = down[1];
	s->from = up[0];
	return s->pid < 0 ? error_errno(ERR_FAILED, errno, "cannot read lines of %s", path) : NULL;
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

void source_end(struct source *s)
{
	if (s->to >= 0)
		close(s->to);
	if (s->from >= 0)
		close(s->from);
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
