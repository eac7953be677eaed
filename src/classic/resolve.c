/* SPDX-License-Identifier: BSD-3-Clause */
#include "classic/resolve.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/owned.h"
#include "format/format.h"
#include "symbol/names/display_name.h"

/*
 * A large buffer in front of a descriptor: a filter that must be faster than
 * stdio. Only sink_* write to it.
 */

#define SINK_SIZE (1u << 17)

struct sink {
	int fd;
	char *bytes;
	size_t len; /* bytes that are waiting */
};

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
	return write_all(sink, sink->bytes, len);
}

/* Makes room for so many bytes, at most SINK_SIZE. */
static inline struct error *sink_reserve(struct sink *sink, size_t len)
{
	return len > SINK_SIZE - sink->len ? sink_flush(sink) : NULL;
}

static inline struct error *sink_put(struct sink *sink, const char *bytes, size_t len);

/* Slow path: flushes, and writes bytes that exceed the buffer directly, but for their end. */
static struct error *sink_put_slowly(struct sink *sink, const char *bytes, size_t len)
{
	TRY(sink_flush(sink));
	if (len > SINK_SIZE) {
		TRY(write_all(sink, bytes, len - 1));
		bytes += len - 1;
		len = 1;
	}
	return sink_put(sink, bytes, len);
}

static inline struct error *sink_put(struct sink *sink, const char *bytes, size_t len)
{
	if (len > SINK_SIZE - sink->len)
		return sink_put_slowly(sink, bytes, len);
	memcpy(sink->bytes + sink->len, bytes, len);
	sink->len += len;
	return NULL;
}

/* Up to eight bytes, the first one lowest. */
static inline uint64_t load_word(const char *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return le64toh(word);
}

/* The top bit of each byte that is a newline; above the lowest one, others may have it, too. */
static inline uint64_t newlines(uint64_t word)
{
	const uint64_t x = word ^ EACH_BYTE('\n');

	return (x - EACH_BYTE(1)) & ~x & EACH_BYTE(0x80);
}

/*
 * Caches what lines with an address become: stacks share frames. Of constant size; forgets
 * when it is full. The key of a line is the 16 bytes behind its "0x", with zeros for those
 * behind its newline. An address has no zero bytes, so that no other line has its key.
 */

#define SET_BITS     18
#define TEXT_SIZE    (32u << 20) /* memory is only taken when used */
#define TEXT_LONGEST 1024u	 /* longer texts are not kept: few of them would fill the cache */
#define TEXT_COPIED  32u	 /* bytes copied of each text: a constant number takes no call */

struct line_key {
	uint64_t word[2];
	bool inside; /* of a stack: a return address */
};

struct known_line {
	uint64_t word[2];
	uint32_t at;  /* in the text */
	uint16_t len; /* of the text with its newline; 0: free */
	bool inside, unresolved;
};

/* A set keeps two lines, in one line of the processor's cache; a third replaces the older one. */
struct known_set {
	_Alignas(64) struct known_line lines[2];
};

_Static_assert(sizeof(struct known_set) == 64, "a line of the processor's cache");

struct line_cache {
	struct known_set *sets; /* [1 << SET_BITS], and behind them: */
	char *text;
	size_t text_len;
};

#define SETS_SIZE   (sizeof(struct known_set) << SET_BITS)
#define MEMORY_SIZE (SETS_SIZE + TEXT_SIZE + TEXT_COPIED)

static struct error *line_cache_init(struct line_cache *cache)
{
	char *memory =
		mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return error_no_memory();
	/* Lines are scattered over the cache: with small pages each would miss the TLB, too. */
	(void)madvise(memory, MEMORY_SIZE, MADV_HUGEPAGE);
	cache->sets = (struct known_set *)memory;
	cache->text = memory + SETS_SIZE;
	return NULL;
}

/* Bytes of the line that begins at `line`, its newline included; 0: too long for a key. */
static inline size_t make_key(const char *line, bool inside, struct line_key *key)
{
	const uint64_t first = load_word(line + 2), second = load_word(line + 10);
	uint64_t end = newlines(first);

	key->inside = inside;
	if (end) {
		key->word[0] = first & (end ^ (end - 1));
		key->word[1] = 0;
		return 3 + (size_t)__builtin_ctzll(end) / 8;
	}
	end = newlines(second);
	key->word[0] = first;
	if (end) {
		key->word[1] = second & (end ^ (end - 1));
		return 11 + (size_t)__builtin_ctzll(end) / 8;
	}
	key->word[1] = second;
	return line[18] == '\n' ? 19 : 0;
}

static inline struct known_line *line_cache_set(const struct line_cache *cache,
						const struct line_key *key)
{
	uint64_t hash = (key->word[0] * UINT64_C(0xff51afd7ed558ccd)) ^ key->word[1];

	hash = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	return cache->sets[hash >> (64 - SET_BITS)].lines;
}

static inline bool holds(const struct known_line *line, const struct line_key *key)
{
	return !((line->word[0] ^ key->word[0]) | (line->word[1] ^ key->word[1]) |
		 (uint64_t)(line->inside ^ key->inside)) &
	       !!line->len;
}

/* One line of the set; the caller asks whether it holds the key. */
static inline const struct known_line *line_cache_find(const struct known_line *set,
						       const struct line_key *key)
{
	return set + holds(set + 1, key);
}

static void line_cache_add(struct line_cache *cache, const struct line_key *key, const char *text,
			   size_t len, bool unresolved)
{
	struct known_line *line;

	if (len > TEXT_LONGEST)
		return;
	if (len > TEXT_SIZE - cache->text_len) {
		memset(cache->sets, 0, SETS_SIZE);
		cache->text_len = 0;
	}
	line = line_cache_set(cache, key);
	line[1] = line[0];
	line[0] = (struct known_line){
		.word = {key->word[0], key->word[1]},
		.at = (uint32_t)cache->text_len,
		.len = (uint16_t)len,
		.inside = key->inside,
		.unresolved = unresolved,
	};
	memcpy(cache->text + cache->text_len, text, len);
	cache->text_len += len;
}

/* Also the longest line that is resolved as a whole; an address needs 18 bytes. */
#define BLOCK (1u << 17)

/* Bytes behind the last line that may be read: those of an address. */
#define BEHIND 24

struct trace_resolver {
	const struct images *images;
	struct line_cache cache;
	struct sink sink;
	struct resolve_result result; /* so far */
	char *block;		      /* BLOCK + 1 bytes, and BEHIND */
	bool inside;		      /* of a stack: the next address is a return address */
	bool midline;		      /* the block begins within a line that was too long */
};

/* Writes what the line with the address becomes to `text`; returns its length. */
static size_t format_line(const struct symbol *symbol, uint64_t addr, const char *line, size_t len,
			  char *text)
{
	const size_t end_len = line[len - 2] == '\r' ? 2 : 1;
	size_t n = sanitize_name(symbol->name, strlen(symbol->name), text);

	n += raw_offset(text, addr - symbol->start, text + n);
	memcpy(text + n, line + len - end_len, end_len);
	return n + end_len;
}

static struct error *put_line(struct trace_resolver *r, const struct line_key *key,
			      const char *text, size_t len, bool unresolved)
{
	if (key)
		line_cache_add(&r->cache, key, text, len, unresolved);
	return sink_put(&r->sink, text, len);
}

/* `line` is the address as the trace has it, `len` bytes with the end of the line. */
static struct error *put_address(struct trace_resolver *r, uint64_t addr, const char *line,
				 size_t len)
{
	char on_stack[TEXT_LONGEST], *text = on_stack;
	FREED char *longer = NULL;
	struct line_key made, *key = make_key(line, r->inside, &made) == len ? &made : NULL;
	struct symbol symbol;
	size_t room;

	r->result.addresses++;
	if (!images_find(r->images, addr - (r->inside && addr), true, &symbol)) {
		r->result.unresolved++;
		return put_line(r, key, line, len, true);
	}
	room = SANITIZE_ROOM(strlen(symbol.name)) + RAW_OFFSET_MAX + 2;
	if (room > sizeof(on_stack))
		text = longer = malloc(room);
	if (!text)
		return error_no_memory();
	return put_line(r, key, text, format_line(&symbol, addr, line, len, text), false);
}

/* The value of a hexadecimal digit plus one; 0: it is none. */
static const uint8_t hex_digit[256] = {
	['0'] = 1,  ['1'] = 2,	['2'] = 3,  ['3'] = 4,	['4'] = 5,  ['5'] = 6,
	['6'] = 7,  ['7'] = 8,	['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
	['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16, ['A'] = 11, ['B'] = 12,
	['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

/* The end of a line that consists of an address; NULL if it is no such line. */
static inline const char *parse_address(const char *line, uint64_t *addr)
{
	const char *at = line + 2;
	uint64_t value = 0, eight;

	if (line[0] != '0' || line[1] != 'x')
		return NULL;
	for (; at - line <= 10 && eight_digits(load_word(at), &eight); at += 8)
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
 * Puts the line that begins at `*at` into the sink, and moves `*at` behind it. The byte before
 * `end` must be a newline.
 */
static struct error *resolve_line(struct trace_resolver *r, const char **at, const char *end)
{
	const char *line = *at;
	struct error *err;
	uint64_t addr;

	*at = parse_address(line, &addr);
	if (*at) {
		err = put_address(r, addr, line, (size_t)(*at - line));
		r->inside = true;
		return err;
	}
	if (ends_stack(line))
		r->inside = false;
	else if (*line != '#')
		r->inside = true;
	*at = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1;
	return sink_put(&r->sink, line, (size_t)(*at - line));
}

/*
 * Lines with an address, one behind the other. They are searched for together: so the
 * processor waits once for memory, and not for each.
 */
#define BATCH 32

struct batch {
	size_t n;
	const char *line[BATCH + 1]; /* and behind the last one */
	struct line_key key[BATCH];
	const struct known_line *known[BATCH]; /* if it still holds the key */
};

static inline void find_batch(const struct trace_resolver *r, const char *at, const char *end,
			      struct batch *batch)
{
	size_t n = 0, len;

	for (; n < BATCH && at < end && at[0] == '0' && at[1] == 'x'; n++, at += len) {
		len = make_key(at, r->inside || n, &batch->key[n]);
		if (!len)
			break;
		batch->line[n] = at;
		batch->known[n] = line_cache_set(&r->cache, &batch->key[n]);
		__builtin_prefetch(batch->known[n]);
	}
	batch->line[n] = at;
	batch->n = n;
	for (size_t i = 0; i < n; i++) {
		batch->known[i] = line_cache_find(batch->known[i], &batch->key[i]);
		__builtin_prefetch(r->cache.text + batch->known[i]->at);
	}
}

/* Puts lines into the sink as long as they are known, and returns how many from `i` on. */
static inline size_t put_known(struct trace_resolver *r, const struct batch *batch, size_t i)
{
	char *out = r->sink.bytes + r->sink.len;
	const size_t first = i;
	uint64_t unresolved = 0;

	for (; i < batch->n && holds(batch->known[i], &batch->key[i]); i++) {
		const struct known_line *known = batch->known[i];
		const char *text = r->cache.text + known->at;

		memcpy(out, text, TEXT_COPIED);
		if (known->len > TEXT_COPIED)
			memcpy(out + TEXT_COPIED, text + TEXT_COPIED, known->len - TEXT_COPIED);
		out += known->len;
		unresolved += known->unresolved;
	}
	r->sink.len = (size_t)(out - r->sink.bytes);
	r->result.addresses += i - first;
	r->result.unresolved += unresolved;
	r->inside |= i != first;
	return i - first;
}

/* Whole lines: the byte before `end` is a newline. */
static struct error *resolve_lines(struct trace_resolver *r, const char *at, const char *end)
{
	struct batch batch;

	while (at < end) {
		find_batch(r, at, end, &batch);
		at = batch.line[batch.n];
		for (size_t i = 0; i < batch.n; i++) {
			TRY(sink_reserve(&r->sink, BATCH * TEXT_LONGEST));
			i += put_known(r, &batch, i);
			if (i < batch.n)
				TRY(resolve_line(r, &batch.line[i], end));
		}
		if (batch.n < BATCH && at < end)
			TRY(resolve_line(r, &at, end));
	}
	return NULL;
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
		/* The last line gets its newline for the time being: the byte that was put last is never flushed. */
		r->block[len] = '\n';
		*err = resolve_lines(r, r->block + start, r->block + len + 1);
		if (!*err)
			r->sink.len--;
		return len;
	}
	if (!start && len == BLOCK) {
		r->inside = true;
		r->midline = true;
		*err = sink_put(&r->sink, r->block, len);
		return len;
	}
	return start;
}

static struct error *resolve_all(struct trace_resolver *r, int in, const char *in_name,
				 struct progress_sink *progress)
{
	struct stat st;
	/* 0 if that cannot be known (a pipe). */
	const uint64_t size = !fstat(in, &st) && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
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
	FREED char *block = calloc(1, BLOCK + 1 + BEHIND), *waiting = malloc(SINK_SIZE);
	struct trace_resolver r = {.images = images, .block = block, .sink = {out, waiting, 0}};
	struct error *err;

	if (!block || !waiting)
		return error_no_memory();
	TRY(line_cache_init(&r.cache));
	err = resolve_all(&r, in, in_name, progress);
	munmap(r.cache.sets, MEMORY_SIZE);
	*result = r.result;
	return err;
}
