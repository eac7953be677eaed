/* SPDX-License-Identifier: BSD-3-Clause */
#include "classic/resolve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output/resolve_line.h"
#include "output/sink.h"
#include "output/stack_memo.h"

/* Also the longest line that is looked at as a whole; an address needs 18 bytes. */
#define BLOCK (1u << 20)

struct resolver {
	struct line_resolver lines;
	struct stack_memo *memo;
	struct sink sink;
	char *block;  /* BLOCK + 1 bytes */
	bool midline; /* the block begins within a line that was too long */
};

/* A stack with its empty line, from the memo or line by line. */
static struct error *resolve_stack(struct resolver *r, const char *at, const char *end,
				   uint64_t hash)
{
	struct stack_text stack = {at, (size_t)(end - at)}, becomes;
	struct resolve_result before = r->lines.result, result;
	uint64_t flushes = r->sink.flushes;
	size_t start = r->sink.len;
	struct error *err = NULL;

	if (stack_memo_find(r->memo, hash, stack, &becomes, &result)) {
		r->lines.result.addresses += result.addresses;
		r->lines.result.unresolved += result.unresolved;
		return sink_put(&r->sink, becomes.bytes, becomes.len);
	}
	while (at < end && !err)
		err = resolve_line(&r->lines, at, end, &at);
	/* What it became is at hand if it is still waiting in one piece. */
	if (err || flushes != r->sink.flushes)
		return err;
	becomes = (struct stack_text){r->sink.bytes + start, r->sink.len - start};
	result.addresses = r->lines.result.addresses - before.addresses;
	result.unresolved = r->lines.result.unresolved - before.unresolved;
	stack_memo_add(r->memo, hash, stack, becomes, result);
	return NULL;
}

/* Whole lines: the byte before `end` is a newline. */
static struct error *resolve_lines(struct resolver *r, const char *at, const char *end)
{
	struct error *err = NULL;
	bool more = true; /* whole stacks */

	while (at < end && !err) {
		const char *next = NULL;
		uint64_t hash;

		if (more && !r->lines.inside) {
			next = stack_end(at, end, &hash);
			more = next != NULL;
		}
		if (next)
			err = resolve_stack(r, at, next, hash);
		else
			err = resolve_line(&r->lines, at, end, &next);
		at = next;
	}
	return err;
}

/* Passes on what is left of a line that is longer than the block; returns its length here. */
static size_t skip_long_line(struct resolver *r, size_t len, struct error **err)
{
	const char *newline = memchr(r->block, '\n', len);

	r->midline = !newline;
	if (newline)
		len = (size_t)(newline + 1 - r->block);
	*err = sink_put(&r->sink, r->block, len);
	return len;
}

/* Takes what it can of the first `len` bytes of the block; returns how many. */
static size_t resolve_block(struct resolver *r, size_t len, bool last, struct error **err)
{
	size_t start = r->midline ? skip_long_line(r, len, err) : 0;
	const char *newline;

	if (*err || start == len)
		return start;
	newline = memrchr(r->block + start, '\n', len - start);
	if (newline) {
		*err = resolve_lines(r, r->block + start, newline + 1);
		return (size_t)(newline + 1 - r->block);
	}
	if (last) {
		/* The last line gets its newline for the time being. */
		r->block[len] = '\n';
		*err = resolve_lines(r, r->block + start, r->block + len + 1);
		if (!*err)
			sink_take_back(&r->sink);
		return len;
	}
	if (!start && len == BLOCK) {
		r->lines.inside = true;
		r->midline = true;
		*err = sink_put(&r->sink, r->block, len);
		return len;
	}
	return start;
}

/* Bytes, 0 if that cannot be known (a pipe). */
static uint64_t size_of(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static struct error *resolve_all(struct resolver *r, int in, const char *in_name,
				 struct progress_sink *progress)
{
	const uint64_t size = size_of(in);
	uint64_t total = 0;
	struct error *err = NULL;
	size_t have = 0;
	ssize_t got;

	do {
		size_t used, want = BLOCK - have;

		got = read(in, r->block + have, want);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_errno(ERR_INPUT, errno, "%s: cannot read the trace", in_name);
		have += (size_t)got;
		total += (size_t)got;
		progress_at(progress, "finding names", total, size);
		used = have ? resolve_block(r, have, !got, &err) : 0;
		have -= used;
		memmove(r->block, r->block + used, have);
		/* A pipe gave what it had: somebody may be waiting for the answer. */
		if (!err && (size_t)got < want)
			err = sink_flush(&r->sink);
	} while (got && !err);
	progress_end(progress);
	return err;
}

struct error *resolve_trace(const struct images *images, int in, const char *in_name, int out,
			    const char *out_name, struct progress_sink *progress,
			    struct resolve_result *result)
{
	struct resolver r = {.lines = {.images = images}, .block = malloc(BLOCK + 1)};
	struct error *err = r.block ? NULL : error_no_memory();

	r.lines.sink = &r.sink;
	if (!err)
		err = sink_new(&r.sink, out, out_name);
	if (!err)
		err = stack_memo_new(&r.memo);
	if (!err)
		err = resolve_all(&r, in, in_name, progress);
	*result = r.lines.result;
	stack_memo_free(r.memo);
	sink_free(&r.sink);
	free(r.block);
	return err;
}
