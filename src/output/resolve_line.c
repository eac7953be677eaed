/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/resolve_line.h"

#include <stdlib.h>

#include "output/trace.h"
#include "symbol/clean.h"

/*
 * Traces repeat few addresses very often. The cache maps (address, is it a
 * return address) to the finished line, directly mapped; the lines lie one
 * behind the other in a buffer, and when that is full all is forgotten.
 */
#define SLOT_BITS 16
#define TEXT_SIZE (4u << 20)

enum cached_as { CACHED_NOTHING, CACHED_PC, CACHED_RETURN };

struct slot {
	uint64_t addr;
	uint32_t at;  /* in the text */
	uint16_t len; /* with its newline; 0: no function holds the address */
	uint16_t as;
};

struct line_cache {
	struct slot slots[1u << SLOT_BITS];
	char text[TEXT_SIZE];
	uint32_t text_len;
	/* The line that was made last, cached or not. */
	char *line;
	size_t line_len, line_room;
};

struct error *line_resolver_new(struct line_resolver *r, const struct symbols *symbols,
				struct sink *sink)
{
	*r = (struct line_resolver){.symbols = symbols,
				    .sink = sink,
				    .cache = calloc(1, sizeof(*r->cache))};
	return r->cache ? NULL : error_no_memory();
}

void line_resolver_free(struct line_resolver *r)
{
	if (r->cache)
		free(r->cache->line);
	free(r->cache);
}

/* Makes the line for the address; an empty one when no function holds it. */
static struct error *look_up(struct line_resolver *r, uint64_t addr)
{
	struct line_cache *c = r->cache;
	struct symbol symbol;
	size_t len, room;

	c->line_len = 0;
	if (!symbols_find(r->symbols, addr - (r->inside && addr), &symbol))
		return NULL;
	len = strlen(symbol.name);
	room = CLEAN_ROOM(len) + TRACE_OFFSET_MAX + 1;
	if (room > c->line_room) {
		char *line = realloc(c->line, 2 * room);

		if (!line)
			return error_no_memory();
		c->line = line;
		c->line_room = 2 * room;
	}
	c->line_len = clean_name(symbol.name, len, c->line);
	c->line_len += trace_offset(c->line, addr - symbol.start, c->line + c->line_len);
	c->line[c->line_len++] = '\n';
	return NULL;
}

static void remember(struct line_cache *c, uint64_t addr, uint16_t as, struct slot *slot)
{
	if (c->line_len > UINT16_MAX)
		return;
	if (c->line_len > TEXT_SIZE - c->text_len) {
		memset(c->slots, 0, sizeof(c->slots));
		c->text_len = 0;
	}
	*slot = (struct slot){addr, c->text_len, (uint16_t)c->line_len, as};
	if (c->line_len)
		memcpy(c->text + c->text_len, c->line, c->line_len);
	c->text_len += (uint32_t)c->line_len;
}

/* A line that ends in a newline, with a carriage return before that if the trace has them. */
static inline struct error *put_line(struct line_resolver *r, const char *line, size_t len, bool cr)
{
	struct error *err;

	if (!cr)
		return sink_put(r->sink, line, len);
	err = sink_put(r->sink, line, len - 1);
	return err ? err : sink_put(r->sink, "\r\n", 2);
}

/* `line` is the address as the trace has it, `len` bytes with the end of the line. */
static inline struct error *put_address(struct line_resolver *r, uint64_t addr, const char *line,
					size_t len)
{
	uint16_t as = r->inside ? CACHED_RETURN : CACHED_PC;
	struct line_cache *c = r->cache;
	struct slot *slot = &c->slots[(addr + as) * 0x9e3779b97f4a7c15ull >> (64 - SLOT_BITS)];
	bool cr = line[len - 2] == '\r';
	struct error *err;

	r->result.addresses++;
	if (slot->addr == addr && slot->as == as) {
		if (slot->len)
			return put_line(r, c->text + slot->at, slot->len, cr);
	} else {
		err = look_up(r, addr);
		if (err)
			return err;
		remember(c, addr, as, slot);
		if (c->line_len)
			return put_line(r, c->line, c->line_len, cr);
	}
	r->result.unresolved++;
	return sink_put(r->sink, line, len);
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
	uint64_t value = 0;

	if (line[0] != '0' || line[1] != 'x')
		return NULL;
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

struct error *resolve_line(struct line_resolver *r, const char *line, const char *end,
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
