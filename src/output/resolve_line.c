/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/resolve_line.h"

#include <stdlib.h>

#include "format/raw.h"
#include "symbol/names/display_name.h"

/* Writes the line for the address to `text`, `end` behind it; returns its length. */
static size_t format_line(char *text, const struct symbol *symbol, size_t name_len, uint64_t addr,
			  const char *end, size_t end_len)
{
	size_t len = clean_name(symbol->name, name_len, text);

	len += trace_offset(text, addr - symbol->start, text + len);
	memcpy(text + len, end, end_len);
	return len + end_len;
}

/* `line` is the address as the trace has it, `len` bytes with the end of the line. */
static struct error *put_address(struct line_resolver *r, uint64_t addr, const char *line,
				 size_t len)
{
	size_t end_len = line[len - 2] == '\r' ? 2 : 1, name_len, room;
	struct error *err = NULL;
	struct symbol symbol;
	char *text;

	r->result.addresses++;
	if (!images_find(r->images, addr - (r->inside && addr), true, &symbol)) {
		r->result.unresolved++;
		return sink_put(r->sink, line, len);
	}
	name_len = strlen(symbol.name);
	room = CLEAN_ROOM(name_len) + TRACE_OFFSET_MAX + 2;
	if (room > SINK_SIZE) {
		text = malloc(room);
		if (!text)
			return error_no_memory();
		err = sink_put(r->sink, text,
			       format_line(text, &symbol, name_len, addr, line + len - end_len,
					   end_len));
		free(text);
		return err;
	}
	err = sink_reserve(r->sink, room, &text);
	if (!err)
		sink_commit(r->sink, format_line(text, &symbol, name_len, addr,
						 line + len - end_len, end_len));
	return err;
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
