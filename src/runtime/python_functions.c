/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/python_functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"

/* Of all versions. */
#define OBJECT_TYPE 8u
#define OBJECT_SIZE 16u
#define TEXT_STATE  32u
#define BYTES_HEAD  32u

#define TEXT_CHARACTERS 512u
#define LINES_MAX	(1u << 20)  /* bytes of one function's table of lines, */
#define ALL_LINES_MAX	(64u << 20) /* and of all */
#define FUNCTIONS_MAX	(1u << 17)
/* Stops that read a function; once it was the same in all of them, others need not. */
#define STOPS_ENOUGH 4u
#define HASH_PRIME   UINT64_C(0x9e3779b97f4a7c15)

/* The beginning of an object, most often all of it. */
struct object {
	const struct guest_memory *memory;
	uint64_t va;
	size_t len;
	uint8_t bytes[256];
};

/* Characters of a text, or bytes of a table. */
struct items {
	uint64_t n;	/* those beyond TEXT_CHARACTERS are not kept */
	uint32_t width; /* bytes of each */
	uint8_t bytes[4 * TEXT_CHARACTERS];
};

/* What a code object says, less what changes while it is run. */
struct code_object {
	uint64_t size; /* units of two bytes */
	uint64_t file, name, lines;
	uint32_t line;
};

/* A function as it is in memory. */
struct description {
	struct code_object code;
	struct items file, name, table;
	uint64_t identity; /* a hash of all that is told of it; never 0 */
};

struct function {
	uint64_t round; /* the sample after which it was last compared */
	uint64_t identity;
	unsigned stops; /* that read this identity */
	bool known;
	bool changes;	 /* another one was found at its address before */
	uint32_t number; /* of its stand-in */
	struct code_object code;
	uint64_t table_size;
	uint8_t *lines;
};

struct python_functions {
	struct python_types types;
	struct python_offsets at;
	struct stand_ins *stand_ins;
	struct row_ids ids; /* by the addresses of their objects */
	struct function *functions;
	size_t lines_held;
};

struct error *python_functions_new(const struct python_types *types,
				   const struct python_offsets *at, struct stand_ins *stand_ins,
				   struct python_functions **out)
{
	TRY(ARRAY_NEW(out, 1));
	**out = (struct python_functions){.types = *types, .at = *at, .stand_ins = stand_ins};
	return NULL;
}

void python_functions_free(struct python_functions *python)
{
	if (!python)
		return;
	for (uint32_t i = 0; i < row_ids_count(&python->ids); i++)
		free(python->functions[i].lines);
	ids_free(python->ids.ids);
	free(python->functions);
	free(python);
}

static bool read_object(const struct guest_memory *memory, uint64_t type, uint64_t va, size_t least,
			struct object *out)
{
	out->memory = memory;
	out->va = va;
	out->len = guest_memory_read(memory, va, out->bytes, sizeof(out->bytes));
	return out->len >= least && word_at(out->bytes, OBJECT_TYPE) == type;
}

/* Items stand behind a head of so many bytes. */
static bool read_items(const struct object *object, uint32_t head, uint32_t width,
		       struct items *out)
{
	size_t len, there;

	if (object->len < head)
		return false;
	out->n = word_at(object->bytes, OBJECT_SIZE);
	out->width = width;
	len = (out->n < TEXT_CHARACTERS ? out->n : TEXT_CHARACTERS) * width;
	there = len < object->len - head ? len : object->len - head;
	memcpy(out->bytes, object->bytes + head, there);
	return guest_memory_get(object->memory, object->va + head + there, out->bytes + there,
				len - there);
}

static bool read_code(const struct python_functions *python, const struct guest_memory *memory,
		      uint64_t va, struct code_object *out)
{
	const struct python_offsets *at = &python->at;
	struct object object;
	int32_t line;

	if (!read_object(memory, python->types.code, va, at->code.bytes, &object))
		return false;
	memcpy(&line, object.bytes + at->code.line, sizeof(line));
	*out = (struct code_object){.size = word_at(object.bytes, OBJECT_SIZE),
				    .file = word_at(object.bytes, at->code.file),
				    .name = word_at(object.bytes, at->code.name),
				    .lines = word_at(object.bytes, at->code.lines),
				    .line = line > 0 ? (uint32_t)line : 0};
	return out->size < LINES_MAX;
}

static bool read_text(const struct python_functions *python, const struct guest_memory *memory,
		      uint64_t va, struct items *out)
{
	struct object object;
	uint32_t state, width;
	bool ascii;

	if (!read_object(memory, python->types.text, va, python->at.text.ascii, &object))
		return false;
	memcpy(&state, object.bytes + TEXT_STATE, sizeof(state));
	width = state >> 2 & 7;
	ascii = state >> 6 & 1;
	return (state >> 5 & 1) && (width == 1 || width == 2 || width == 4) &&
	       read_items(&object, ascii ? python->at.text.ascii : python->at.text.other, width,
			  out);
}

static bool read_table(const struct python_functions *python, const struct guest_memory *memory,
		       uint64_t va, struct items *out)
{
	struct object object;

	return read_object(memory, python->types.bytes, va, BYTES_HEAD, &object) &&
	       read_items(&object, BYTES_HEAD, 1, out) && out->n <= LINES_MAX;
}

static uint64_t fold(uint64_t hash, const struct items *items)
{
	const uint64_t kept = items->n < TEXT_CHARACTERS ? items->n : TEXT_CHARACTERS;
	const size_t len = kept * items->width;

	hash = (hash ^ items->n) * HASH_PRIME;
	for (size_t at = 0; at < len; at += sizeof(uint64_t)) {
		uint64_t word = 0;

		memcpy(&word, items->bytes + at, len - at < sizeof(word) ? len - at : sizeof(word));
		hash = (hash ^ hash >> 29 ^ word) * HASH_PRIME;
	}
	return hash;
}

/* Reads a function; false: there is none. */
static bool read_description(const struct python_functions *python,
			     const struct guest_memory *memory, uint64_t va,
			     struct description *out)
{
	const struct code_object *code = &out->code;
	uint64_t hash;

	if (!read_code(python, memory, va, &out->code) ||
	    !read_text(python, memory, code->file, &out->file) ||
	    !read_text(python, memory, code->name, &out->name) ||
	    !read_table(python, memory, code->lines, &out->table))
		return false;
	hash = (code->size << 32 ^ code->line) * HASH_PRIME;
	hash = fold(fold(fold(hash, &out->file), &out->name), &out->table);
	out->identity = hash | 1;
	return true;
}

static bool is_stable(const struct function *function)
{
	return function->known && !function->changes && function->stops >= STOPS_ENOUGH;
}

bool python_functions_identify(const struct python_functions *python,
			       const struct guest_memory *memory, uint64_t va, uint64_t *identity)
{
	struct description found;
	uint32_t id;

	if (row_ids_find(&python->ids, va, 0, &id) ? is_stable(&python->functions[id])
						   : row_ids_count(&python->ids) == FUNCTIONS_MAX)
		return false;
	*identity = read_description(python, memory, va, &found) ? found.identity : 0;
	return true;
}

/* Room for TEXT_CHARACTERS in UTF-8, and a NUL. */
#define TEXT_ROOM (4 * TEXT_CHARACTERS + 1)

static size_t put_utf8(uint32_t c, char *out)
{
	static const uint8_t heads[] = {0, 0xc0, 0xe0, 0xf0};
	size_t more;

	if (!c || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		c = '?';
	more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	for (size_t i = more; i; i--, c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)(heads[more] | c);
	return more + 1;
}

static void put_text(const struct items *text, char out[TEXT_ROOM])
{
	size_t len = 0;

	for (uint64_t i = 0; i < text->n && i < TEXT_CHARACTERS; i++) {
		uint32_t c = 0;

		memcpy(&c, text->bytes + i * text->width, text->width);
		len += put_utf8(c, out + len);
	}
	out[len] = '\0';
}

#define FROZEN "<frozen "

/* The module that a file is, as far as its path tells: "json.decoder" is "decoder", json/__init__.py is "json". */
static void module_of(const char *file, char *out, size_t size)
{
	const char *end = file + strlen(file), *base;

	if (!strncmp(file, FROZEN, strlen(FROZEN)) && end[-1] == '>') {
		file += strlen(FROZEN);
		snprintf(out, size, "%.*s", (int)(end - 1 - file), file);
		return;
	}
	if (end - file > 12 && !strcmp(end - 12, "/__init__.py"))
		end -= 12;
	else if (end - file > 3 && !strcmp(end - 3, ".py"))
		end -= 3;
	for (base = end; base > file && base[-1] != '/';)
		base--;
	snprintf(out, size, "%.*s", (int)(end - base), base);
}

static struct error *name_function(struct python_functions *python, struct function *function,
				   const struct description *found)
{
	char file[TEXT_ROOM], name[TEXT_ROOM], module[TEXT_ROOM], text[2 * TEXT_ROOM];
	struct error *err;

	put_text(&found->file, file);
	put_text(&found->name, name);
	module_of(file, module, sizeof(module));
	snprintf(text, sizeof(text), "%s.%s", module, name);
	err = stand_ins_function(python->stand_ins, text, file, &function->number);
	function->known = !err && function->number != STAND_IN_NO_FUNCTION;
	return err;
}

static bool read_lines(struct python_functions *python, const struct guest_memory *memory,
		       const struct description *found, struct function *function)
{
	if (found->table.n > ALL_LINES_MAX - python->lines_held)
		return false;
	function->lines = malloc(found->table.n + 1);
	if (!function->lines)
		return false;
	function->table_size = found->table.n;
	python->lines_held += function->table_size;
	return guest_memory_get(memory, found->code.lines + BYTES_HEAD, function->lines,
				function->table_size);
}

/* Reads all of a function anew, if it still is the one that the frame held. */
static struct error *read_function(struct python_functions *python,
				   const struct guest_memory *memory,
				   const struct runtime_frame *frame, struct function *function)
{
	struct description found, again;

	python->lines_held -= function->table_size;
	free(function->lines);
	*function = (struct function){.changes = function->changes || function->known,
				      .identity = frame->identity};
	if (!read_description(python, memory, frame->function, &found) ||
	    found.identity != frame->identity || !read_lines(python, memory, &found, function) ||
	    !read_description(python, memory, frame->function, &again) ||
	    again.identity != frame->identity)
		return NULL;
	function->code = found.code;
	return name_function(python, function, &found);
}

/*
 * One that this stop has not read needs no proof but that it is the same before and after, if
 * enough others have read it.
 */
static void compare_function(const struct python_functions *python,
			     const struct guest_memory *memory, uint64_t va,
			     struct function *function)
{
	struct description found;

	if (!function->known)
		return;
	function->known = !function->changes && read_description(python, memory, va, &found) &&
			  found.identity == function->identity;
	function->changes = !function->known;
}

/* Numbers of a table of lines: six bits a byte, the lowest first, and a mark for more. */
static uint32_t take_number(const uint8_t **at, const uint8_t *end)
{
	uint32_t value = 0;

	for (unsigned shift = 0; *at < end && shift < 32; shift += 6) {
		const uint8_t byte = *(*at)++;

		value |= (uint32_t)(byte & 63) << shift;
		if (!(byte & 64))
			break;
	}
	return value;
}

static int32_t take_difference(const uint8_t **at, const uint8_t *end)
{
	const uint32_t value = take_number(at, end);

	return value & 1 ? -(int32_t)(value >> 1) : (int32_t)(value >> 1);
}

/* Kinds of entries (Objects/locations.md of CPython). */
enum { LINE_ONE = 10, LINE_NO_COLUMNS = 13, LINE_LONG = 14, LINE_NONE = 15 };

/* The line of a unit of the code; the function's own if none is known. */
static uint32_t line_of(const struct function *function, uint64_t unit)
{
	const uint8_t *at = function->lines, *end = at + function->table_size;
	uint32_t line = function->code.line;
	uint64_t units = 0;

	while (at < end) {
		const unsigned kind = *at >> 3 & 15;

		units += (*at++ & 7) + 1u;
		if (kind == LINE_LONG || kind == LINE_NO_COLUMNS)
			line += (uint32_t)take_difference(&at, end);
		else if (kind >= LINE_ONE && kind < LINE_NO_COLUMNS)
			line += kind - LINE_ONE;
		if (unit < units)
			return kind == LINE_NONE ? function->code.line : line;
		/* The first byte of an entry alone has its highest bit set. */
		while (at < end && !(*at & 0x80))
			at++;
	}
	return function->code.line;
}

/* A frame that runs nothing yet is before its code's first unit. */
static uint64_t unit_of(const struct python_functions *python, const struct runtime_frame *frame)
{
	const uint64_t start = frame->function + python->at.code.bytes;

	return frame->instruction < start ? 0 : (frame->instruction - start) / 2;
}

struct error *python_functions_name(struct python_functions *python,
				    const struct guest_memory *memory, uint64_t round,
				    const struct runtime_frame *frame, uint64_t *addr)
{
	struct function *function;
	struct error *err = NULL;
	uint32_t id;
	uint64_t unit;

	*addr = 0;
	if (!row_ids_find(&python->ids, frame->function, 0, &id)) {
		if (row_ids_count(&python->ids) == FUNCTIONS_MAX)
			return NULL;
		TRY(ROW_IDS_GET(&python->ids, frame->function, 0, &python->functions, &id));
	}
	function = &python->functions[id];
	if (!frame->identity && function->round != round)
		compare_function(python, memory, frame->function, function);
	else if (frame->identity && (!function->known || function->identity != frame->identity))
		err = read_function(python, memory, frame, function);
	function->stops += frame->identity && function->round != round;
	function->round = round;
	unit = unit_of(python, frame);
	if (!err && function->known && (frame->identity || is_stable(function)) &&
	    unit < function->code.size)
		*addr = stand_in_address(function->number, line_of(function, unit));
	return err;
}
