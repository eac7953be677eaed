/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "symbol/source/index.h"
#include "symbol/source_wire.h"

/* What was sent already; strings of the index stay where they are. */
struct sent {
	const char *text; /* NULL: free */
	wire_number number;
};

struct server {
	struct source_index *index;
	FILE *in;
	int out;
	size_t len; /* of what is still to be sent */
	char buffer[1 << 16];
	struct sent *sent; /* open addressing; a power of two, at most half used */
	wire_number n;
	size_t room;
};

static void flush(struct server *server)
{
	size_t at = 0;

	while (at < server->len) {
		ssize_t rc = write(server->out, server->buffer + at, server->len - at);

		if (rc < 0 && errno != EINTR)
			_exit(1);
		at += rc > 0 ? (size_t)rc : 0;
	}
	server->len = 0;
}

static void put(struct server *server, const void *data, size_t len)
{
	const char *from = data;

	while (len) {
		size_t room = sizeof(server->buffer) - server->len;
		size_t step = len < room ? len : room;

		memcpy(server->buffer + server->len, from, step);
		server->len += step;
		from += step;
		len -= step;
		if (server->len == sizeof(server->buffer))
			flush(server);
	}
}

static void put_number(struct server *server, wire_number number)
{
	put(server, &number, sizeof(number));
}

static struct sent *slot_of(struct sent *sent, size_t room, const char *text)
{
	uint64_t hash = (uintptr_t)text * 0x9e3779b97f4a7c15ull;
	size_t at = (hash ^ hash >> 32) & (room - 1);

	while (sent[at].text && sent[at].text != text)
		at = (at + 1) & (room - 1);
	return &sent[at];
}

static void grow(struct server *server)
{
	size_t room = server->room ? 2 * server->room : 1024;
	struct sent *sent = calloc(room, sizeof(*sent));

	if (!sent)
		_exit(1);
	for (size_t i = 0; i < server->room; i++)
		if (server->sent[i].text)
			*slot_of(sent, room, server->sent[i].text) = server->sent[i];
	free(server->sent);
	server->sent = sent;
	server->room = room;
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
	struct sent *sent;

	if (!text) {
		put_number(server, 0);
		return;
	}
	if (2 * server->n >= server->room)
		grow(server);
	sent = slot_of(server->sent, server->room, text);
	if (sent->text) {
		put_number(server, sent->number);
		return;
	}
	*sent = (struct sent){text, ++server->n};
	put_number(server, sent->number);
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

void source_serve(const char *path, const char *build_id, int in, int out)
{
	struct server server = {.in = fdopen(in, "r"), .out = out};

	if (!server.in)
		_exit(1);
	error_free(source_index_open(path, build_id, &server.index));
	put_number(&server, server.index ? SOURCE_HAS : SOURCE_LACKS);
	flush(&server);
	if (server.index)
		serve(&server);
	_exit(0);
}
