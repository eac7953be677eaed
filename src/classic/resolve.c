/* SPDX-License-Identifier: BSD-3-Clause */
#include "classic/resolve.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "format/format.h"
#include "symbol/names/display_name.h"

/*
 * A large buffer in front of a descriptor: a filter that must be faster than
 * stdio. Only sink_* write to it.
 */

#define SINK_SIZE (1u << 20)

struct sink {
	int fd;
	char *bytes;
	size_t len;	  /* bytes that are waiting */
	uint64_t flushes; /* number of times that all bytes have been written */
};

static struct error *sink_new(struct sink *sink, int fd)
{
	*sink = (struct sink){.fd = fd, .bytes = malloc(SINK_SIZE)};
	return sink->bytes ? NULL : error_no_memory();
}

/* Drops unwritten bytes; the descriptor stays open. */
static void sink_free(struct sink *sink)
{
	free(sink->bytes);
}

static struct error *write_all(const struct sink *sink, const char *bytes, size_t len)
{
	while (len) {
		ssize_t done = write(sink->fd, bytes, len);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return error_errno(ERR_OUTPUT, errno, "standard output: cannot write");
		bytes += done;
		len -= (size_t)done;
	}
	return NULL;
}

static struct error *sink_flush(struct sink *sink)
{
	size_t len = sink->len;

	sink->len = 0;
	sink->flushes++;
	return write_all(sink, sink->bytes, len);
}

/* Makes room for up to `len` bytes (at most SINK_SIZE) that are then written to `*at`... */
static inline struct error *sink_reserve(struct sink *sink, size_t len, char **at)
{
	struct error *err = len > SINK_SIZE - sink->len ? sink_flush(sink) : NULL;

	*at = sink->bytes + sink->len;
	return err;
}

/* ... and says how many there were. */
static inline void sink_commit(struct sink *sink, size_t len)
{
	sink->len += len;
}

static inline struct error *sink_put(struct sink *sink, const char *bytes, size_t len);

/* Slow path: flushes, and writes bytes that exceed the buffer directly, but for their end. */
static struct error *sink_put_slowly(struct sink *sink, const char *bytes, size_t len)
{
	struct error *err = sink_flush(sink);

	if (!err && len > SINK_SIZE) {
		err = write_all(sink, bytes, len - 1);
		bytes += len - 1;
		len = 1;
	}
	return err ? err : sink_put(sink, bytes, len);
}

static inline struct error *sink_put(struct sink *sink, const char *bytes, size_t len)
{
	if (len > SINK_SIZE - sink->len)
		return sink_put_slowly(sink, bytes, len);
	memcpy(sink->bytes + sink->len, bytes, len);
	sink->len += len;
	return NULL;
}

/* Takes back the last byte that was put; not possible after a flush. */
static void sink_take_back(struct sink *sink)
{
	sink->len--;
}

/*
 * Caches the resolved text of whole stacks of a trace: traces consist of few
 * different stacks that come again and again. Of constant size; forgets when it
 * is full.
 */

struct stack_text {
	const char *bytes;
	size_t len;
};

#define SET_BITS  15
#define TEXT_SIZE (32u << 20) /* memory is only taken when used */

struct cache_slot {
	uint64_t hash;
	uint32_t addresses, unresolved;
	uint32_t at; /* in the text: the stack, and behind it the resolved one */
	uint32_t stack_len, becomes_len;
};

/* A set keeps two stacks; a third replaces the older one. */
struct cache_set {
	struct cache_slot slots[2];
};

struct stack_text_cache {
	struct cache_set sets[1u << SET_BITS];
	char *text;
	size_t text_len;
};

static struct error *stack_text_cache_new(struct stack_text_cache **out)
{
	struct stack_text_cache *cache = calloc(1, sizeof(*cache));

	if (cache)
		cache->text = malloc(TEXT_SIZE);
	if (!cache || !cache->text) {
		free(cache);
		return error_no_memory();
	}
	*out = cache;
	return NULL;
}

static void stack_text_cache_free(struct stack_text_cache *cache)
{
	if (cache)
		free(cache->text);
	free(cache);
}

/* Up to eight bytes, the first one lowest. */
static inline uint64_t load_word(const char *at, size_t len)
{
	uint64_t word = 0;

	memcpy(&word, at, len);
	return le64toh(word);
}

/* The top bit of each byte that is a newline. */
static inline uint64_t newlines(uint64_t word)
{
	const uint64_t low = 0x7f7f7f7f7f7f7f7f;
	uint64_t x = word ^ 0x0a0a0a0a0a0a0a0a;

	return ~(((x & low) + low) | x | low);
}

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/*
 * The end of the stack that begins at `at`: behind its empty line. NULL when there is none
 * before `end`. `*hash` is for the cache. Eight bytes at a time: this reads every byte of the
 * trace.
 */
static const char *stack_end(const char *at, const char *end, uint64_t *hash)
{
	uint64_t h = 0, before = 0; /* was the byte before this word a newline? */

	while (at < end) {
		size_t len = end - at < 8 ? (size_t)(end - at) : 8;
		uint64_t word = len == 8 ? load_word(at, 8) : load_word(at, len);
		uint64_t here = newlines(word), twice = here & (here << 8 | before);

		if (twice) {
			unsigned bits = (unsigned)__builtin_ctzll(twice) + 1;

			if (bits < 64)
				word &= (UINT64_C(1) << bits) - 1;
			*hash = mix(h, word);
			return at + bits / 8;
		}
		h = mix(h, word);
		before = here >> 56;
		at += len;
	}
	return NULL;
}

static bool holds(const struct stack_text_cache *cache, const struct cache_slot *slot,
		  uint64_t hash, struct stack_text stack)
{
	return slot->hash == hash && slot->stack_len == stack.len &&
	       !memcmp(cache->text + slot->at, stack.bytes, stack.len);
}

/* False if it is not there. The text is valid until the next stack_text_cache_add. */
static bool stack_text_cache_find(const struct stack_text_cache *cache, uint64_t hash,
				  struct stack_text stack, struct stack_text *becomes,
				  struct resolve_result *result)
{
	const struct cache_slot *slot = cache->sets[hash >> (64 - SET_BITS)].slots;

	if (!holds(cache, slot, hash, stack) && !holds(cache, ++slot, hash, stack))
		return false;
	*becomes = (struct stack_text){cache->text + slot->at + slot->stack_len, slot->becomes_len};
	*result = (struct resolve_result){slot->addresses, slot->unresolved};
	return true;
}

static void stack_text_cache_add(struct stack_text_cache *cache, uint64_t hash,
				 struct stack_text stack, struct stack_text becomes,
				 struct resolve_result result)
{
	struct cache_set *set = &cache->sets[hash >> (64 - SET_BITS)];
	size_t len = stack.len + becomes.len;

	if (len > TEXT_SIZE)
		return;
	if (len > TEXT_SIZE - cache->text_len) {
		memset(cache->sets, 0, sizeof(cache->sets));
		cache->text_len = 0;
	}
	set->slots[1] = set->slots[0];
	set->slots[0] = (struct cache_slot){
		.hash = hash,
		.addresses = (uint32_t)result.addresses,
		.unresolved = (uint32_t)result.unresolved,
		.at = (uint32_t)cache->text_len,
		.stack_len = (uint32_t)stack.len,
		.becomes_len = (uint32_t)becomes.len,
	};
	memcpy(cache->text + cache->text_len, stack.bytes, stack.len);
	memcpy(cache->text + cache->text_len + stack.len, becomes.bytes, becomes.len);
	cache->text_len += len;
}

/* The text for an address that was met lately: a stack's outer frames come again in others. */
struct known_address {
	uint64_t addr;
	bool inside;
	uint8_t len; /* of the text without the line's end; 0: free */
	char text[54];
};

_Static_assert(sizeof(struct known_address) == 64, "a line of the processor's cache");

#define KNOWN_BITS 16

struct line_resolver {
	const struct images *images;
	struct sink *sink;
	struct known_address *known;  /* [1 << KNOWN_BITS] */
	struct resolve_result result; /* so far */
	bool inside;		      /* of a stack: the next address is a return address */
};

static struct known_address *known_at(const struct line_resolver *r, uint64_t addr)
{
	return &r->known[mix(r->inside, addr) >> (64 - KNOWN_BITS)];
}

static void remember(const struct line_resolver *r, uint64_t addr, const char *text, size_t len)
{
	struct known_address *known = known_at(r, addr);

	if (!len || len > sizeof(known->text))
		return;
	known->addr = addr;
	known->inside = r->inside;
	known->len = (uint8_t)len;
	memcpy(known->text, text, len);
}

/* Writes the line for the address to `text`, `end` behind it; returns its length. */
static size_t format_line(const struct line_resolver *r, char *text, const struct symbol *symbol,
			  uint64_t addr, struct stack_text end)
{
	size_t len = sanitize_name(symbol->name, strlen(symbol->name), text);

	len += raw_offset(text, addr - symbol->start, text + len);
	remember(r, addr, text, len);
	memcpy(text + len, end.bytes, end.len);
	return len + end.len;
}

static struct error *put_known(const struct line_resolver *r, const struct known_address *known,
			       struct stack_text end)
{
	char *text;
	struct error *err = sink_reserve(r->sink, sizeof(known->text) + 2, &text);

	if (err)
		return err;
	/* As much as there can be: a length that is known is copied at once. */
	memcpy(text, known->text, sizeof(known->text));
	memcpy(text + known->len, end.bytes, end.len);
	sink_commit(r->sink, known->len + end.len);
	return NULL;
}

/* `line` is the address as the trace has it, `len` bytes with the end of the line. */
static struct error *put_address(struct line_resolver *r, uint64_t addr, const char *line,
				 size_t len)
{
	const size_t end_len = line[len - 2] == '\r' ? 2 : 1;
	const struct stack_text line_end = {line + len - end_len, end_len};
	const struct known_address *known = known_at(r, addr);
	struct error *err = NULL;
	struct symbol symbol;
	char *text;
	size_t room;

	r->result.addresses++;
	if (known->len && known->addr == addr && known->inside == r->inside)
		return put_known(r, known, line_end);
	if (!images_find(r->images, addr - (r->inside && addr), true, &symbol)) {
		r->result.unresolved++;
		return sink_put(r->sink, line, len);
	}
	room = SANITIZE_ROOM(strlen(symbol.name)) + RAW_OFFSET_MAX + 2;
	if (room > SINK_SIZE) {
		text = malloc(room);
		if (!text)
			return error_no_memory();
		err = sink_put(r->sink, text, format_line(r, text, &symbol, addr, line_end));
		free(text);
		return err;
	}
	err = sink_reserve(r->sink, room, &text);
	if (!err)
		sink_commit(r->sink, format_line(r, text, &symbol, addr, line_end));
	return err;
}

/* The value of a hexadecimal digit plus one; 0: it is none. */
static const uint8_t hex_digit[256] = {
	['0'] = 1,  ['1'] = 2,	['2'] = 3,  ['3'] = 4,	['4'] = 5,  ['5'] = 6,
	['6'] = 7,  ['7'] = 8,	['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
	['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16, ['A'] = 11, ['B'] = 12,
	['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

/* Bytes behind the last line that may be read. */
#define BEHIND 8

/* The end of a line that consists of an address; NULL if it is no such line. */
static inline const char *parse_address(const char *line, uint64_t *addr)
{
	const char *at = line + 2;
	uint64_t value = 0, eight;

	if (line[0] != '0' || line[1] != 'x')
		return NULL;
	for (; at - line <= 10 && eight_digits(load_word(at, 8), &eight); at += 8)
		value = value << 32 | eight;
	for (uint64_t digit; (digit = hex_digit[(unsigned char)*at]); at++)
		value = value << 4 | (digit - 1);
	*addr = value;
	if (at == line + 2 || at - line > 18)
		return NULL;
	at += *at == '\r';
	return *at == '\n' ? at + 1 : NULL;
}

/* An empty line or a count: only digits, then the line's end. */
static bool ends_stack(const char *line)
{
	while (*line >= '0' && *line <= '9')
		line++;
	return *line == '\n' || (line[0] == '\r' && line[1] == '\n');
}

/*
 * Puts the line that begins at `line` into the sink; `*next` is where the next one begins. The
 * byte before `end` must be a newline.
 */
static struct error *resolve_line(struct line_resolver *r, const char *line, const char *end,
				  const char **next)
{
	struct error *err;
	uint64_t addr;

	*next = parse_address(line, &addr);
	if (*next) {
		err = put_address(r, addr, line, (size_t)(*next - line));
		r->inside = true;
		return err;
	}
	if (ends_stack(line))
		r->inside = false;
	else if (*line != '#')
		r->inside = true;
	*next = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1;
	return sink_put(r->sink, line, (size_t)(*next - line));
}

/* Also the longest line that is resolved as a whole; an address needs 18 bytes. */
#define BLOCK (1u << 20)

struct trace_resolver {
	struct line_resolver lines;
	struct stack_text_cache *cache;
	struct sink sink;
	char *block;  /* BLOCK + 1 bytes, and BEHIND */
	bool midline; /* the block begins within a line that was too long */
};

/* Resolves a stack with its empty line, from the cache or line by line. */
static struct error *resolve_stack(struct trace_resolver *r, const char *at, const char *end,
				   uint64_t hash)
{
	struct stack_text stack = {at, (size_t)(end - at)}, becomes;
	struct resolve_result before = r->lines.result, result;
	uint64_t flushes = r->sink.flushes;
	size_t start = r->sink.len;
	struct error *err = NULL;

	if (stack_text_cache_find(r->cache, hash, stack, &becomes, &result)) {
		r->lines.result.addresses += result.addresses;
		r->lines.result.unresolved += result.unresolved;
		return sink_put(&r->sink, becomes.bytes, becomes.len);
	}
	while (at < end && !err)
		err = resolve_line(&r->lines, at, end, &at);
	/* Caches the result only if it is still whole in the sink's buffer. */
	if (err || flushes != r->sink.flushes)
		return err;
	becomes = (struct stack_text){r->sink.bytes + start, r->sink.len - start};
	result.addresses = r->lines.result.addresses - before.addresses;
	result.unresolved = r->lines.result.unresolved - before.unresolved;
	stack_text_cache_add(r->cache, hash, stack, becomes, result);
	return NULL;
}

/* Whole lines: the byte before `end` is a newline. */
static struct error *resolve_lines(struct trace_resolver *r, const char *at, const char *end)
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

/* Passes on the remainder of a line that is longer than the block; returns its length here. */
static size_t skip_long_line(struct trace_resolver *r, size_t len, struct error **err)
{
	const char *newline = memchr(r->block, '\n', len);

	r->midline = !newline;
	if (newline)
		len = (size_t)(newline + 1 - r->block);
	*err = sink_put(&r->sink, r->block, len);
	return len;
}

/* Resolves whole stacks and lines in the first `len` bytes of the block; returns the bytes used. */
static size_t resolve_block(struct trace_resolver *r, size_t len, bool last, struct error **err)
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

static struct error *resolve_all(struct trace_resolver *r, int in, const char *in_name,
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
		/* The pipe is empty: its writer may be waiting for the answer. */
		if (!err && (size_t)got < want)
			err = sink_flush(&r->sink);
	} while (got && !err);
	progress_end(progress);
	return err;
}

struct error *resolve_trace(const struct images *images, int in, const char *in_name, int out,
			    struct progress_sink *progress, struct resolve_result *result)
{
	struct trace_resolver r = {.lines = {.images = images},
				   .block = calloc(1, BLOCK + 1 + BEHIND)};
	struct error *err;

	r.lines.known = calloc(1u << KNOWN_BITS, sizeof(*r.lines.known));
	err = r.block && r.lines.known ? NULL : error_no_memory();
	r.lines.sink = &r.sink;
	if (!err)
		err = sink_new(&r.sink, out);
	if (!err)
		err = stack_text_cache_new(&r.cache);
	if (!err)
		err = resolve_all(&r, in, in_name, progress);
	*result = r.lines.result;
	stack_text_cache_free(r.cache);
	sink_free(&r.sink);
	free(r.lines.known);
	free(r.block);
	return err;
}
