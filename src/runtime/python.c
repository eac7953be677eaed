/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * CPython from 3.11 on. Each entry of its loop (_PyEval_EvalFrameDefault) has a
 * marker on the C stack: in 3.11 a _PyCFrame, a list of its own, which leads to the
 * entry's innermost frame; from 3.12 on a frame without a function, in the list of
 * all frames. The outermost frame of an entry says so in 3.11, and leads to that
 * frame later.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "runtime/runtime.h"

/* Offsets in structures that differ between versions, bytes. */
struct layout {
	uint32_t version; /* the two upper bytes of Py_Version */
	struct {
		uint16_t interpreters; /* of _PyRuntime */
		uint16_t next, threads;
	} interpreter;
	struct {
		uint16_t next, tid;
		uint16_t frame; /* the innermost frame, or _PyCFrame if there are any */
	} thread;
	struct {
		uint16_t frame, previous; /* 0: there are none */
	} cframe;
	struct {
		uint16_t code, previous, instruction, owner;
		uint16_t is_entry; /* 0: entries have frames on the C stack */
	} frame;
	struct {
		uint16_t line, file, name, lines, bytes;
	} code;
	struct {
		uint16_t ascii, other; /* sizes of their heads */
	} text;
	bool told; /* offsets of interpreters and threads are told by _PyRuntime itself */
};

/* clang-format off */
static const struct layout layouts[] = {
	{0x030b, {40, 0, 16}, {8, 160, 56}, {8, 16}, {32, 48, 56, 69, 68}, {72, 112, 128, 136, 184}, {48, 72}, false},
	{0x030c, {40, 0, 72}, {8, 144, 56}, {0, 8}, {0, 8, 56, 70, 0}, {68, 112, 128, 136, 192}, {40, 56}, false},
	{0x030d, {0, 0, 0}, {0, 0, 0}, {0, 0}, {0, 8, 56, 70, 0}, {68, 112, 128, 136, 200}, {40, 56}, true},
};

enum { RUNTIME, VERSION, CODE_TYPE, TEXT_TYPE, BYTES_TYPE, LOOP, CALLS };
static const char *const names[] = {
	"_PyRuntime", "Py_Version", "PyCode_Type", "PyUnicode_Type", "PyBytes_Type", "_PyEval_EvalFrameDefault",
	/* Functions that do nothing but call: CALLS and behind. */
	"_PyEval_Vector", "PyEval_EvalCode", "_PyFunction_Vectorcall", "PyObject_Vectorcall", "PyObject_VectorcallDict",
	"PyObject_VectorcallMethod", "_PyObject_FastCallDictTstate", "PyVectorcall_Call", "_PyVectorcall_Call",
	"PyObject_Call", "_PyObject_Call", "_PyObject_MakeTpCall", "_PyObject_Call_Prepend", "PyObject_CallOneArg",
	"PyObject_CallNoArgs", "PyObject_CallObject", "PyObject_CallFunctionObjArgs", "PyObject_CallMethodObjArgs",
};
#define NAMES (sizeof(names) / sizeof(*names))
/* clang-format on */

/* Of all versions. */
#define OBJECT_TYPE   8u
#define OBJECT_SIZE   16u
#define TEXT_STATE    32u
#define BYTES_HEAD    32u
#define FRAME_BYTES   80u
#define CODE_HEAD_MAX 256u
#define OWNER_C_STACK 3u /* enum _frameowner */

#define INTERPRETERS_MAX 64u
#define TEXT_CHARACTERS	 512u
#define LINES_MAX	 (1u << 20)  /* bytes of one function's table of lines, */
#define ALL_LINES_MAX	 (64u << 20) /* and of all */
#define FUNCTIONS_MAX	 (1u << 17)

/* An object that a function leads to: where it is, and what it began with. */
struct content {
	uint64_t va, size;
	uint32_t head; /* bytes before its contents */
	uint32_t n;
	uint8_t bytes[56];
};

/* What a code object says, less what changes while it is run. */
struct code_object {
	uint64_t size; /* units of two bytes */
	uint64_t file, name, lines;
	uint32_t line;
};

struct function {
	uint64_t round; /* the sample that it was last compared in */
	bool known;
	uint32_t number; /* of its stand-in */
	struct code_object code;
	struct content file, name, table;
	uint8_t *lines;
};

struct python {
	struct layout at;
	uint64_t runtime, code_type, text_type, bytes_type;
	struct stand_ins *stand_ins;
	struct ids *ids; /* of functions, by the addresses of their objects */
	struct function *functions;
	size_t room, lines_held;
};

static bool load(const struct guest_memory *memory, uint64_t va, void *buf, size_t len)
{
	return guest_memory_read(memory, va, buf, len) == len;
}

static uint64_t word_at(const uint8_t *bytes, size_t offset)
{
	uint64_t word;

	memcpy(&word, bytes + offset, sizeof(word));
	return word;
}

/* Only final releases: their layouts stay, all through a minor version. */
static const struct layout *layout_of(uint64_t version)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (version >> 16 == layouts[i].version && (version & 0xf0) == 0xf0)
			return &layouts[i];
	return NULL;
}

/* Words at the beginning of _PyRuntime (_Py_DebugOffsets), as 3.13 has them. */
static bool take_told(const struct guest_memory *memory, uint64_t runtime, struct layout *at)
{
	uint64_t word[44];

	if (!at->told)
		return true;
	if (!load(memory, runtime, word, sizeof(word)) || memcmp(word, "xdebugpy", 8) || word[2] ||
	    (word[5] | word[8] | word[9] | word[21] | word[23] | word[25]) > UINT16_MAX)
		return false;
	at->interpreter.interpreters = (uint16_t)word[5];
	at->interpreter.next = (uint16_t)word[8];
	at->interpreter.threads = (uint16_t)word[9];
	at->thread.next = (uint16_t)word[21];
	at->thread.frame = (uint16_t)word[23];
	at->thread.tid = (uint16_t)word[25];
	return word[29] == at->frame.previous && word[30] == at->frame.code &&
	       word[31] == at->frame.instruction && word[33] == at->frame.owner &&
	       word[35] == at->code.file && word[37] == at->code.name &&
	       word[38] == at->code.lines && word[39] == at->code.line &&
	       word[43] == at->code.bytes;
}

static void describe(const struct mapped_symbol *found, uint64_t version,
		     struct runtime_place *place)
{
	snprintf(place->name, sizeof(place->name), "CPython %u.%u.%u",
		 (unsigned)(version >> 24 & 0xff), (unsigned)(version >> 16 & 0xff),
		 (unsigned)(version >> 8 & 0xff));
	place->loop = (struct runtime_code){found[LOOP].va, found[LOOP].va + found[LOOP].size};
	for (size_t i = CALLS; i < NAMES && place->n_calls < RUNTIME_CALLS_MAX; i++)
		if (found[i].va)
			place->calls[place->n_calls++] =
				(struct runtime_code){found[i].va, found[i].va + found[i].size};
}

static void python_close(void *state)
{
	struct python *python = state;

	for (uint32_t i = 0; python->ids && i < ids_count(python->ids); i++)
		free(python->functions[i].lines);
	ids_free(python->ids);
	free(python->functions);
	free(python);
}

static struct error *python_open(const struct guest_memory *memory, uint64_t code,
				 struct stand_ins *stand_ins, struct runtime_place *place,
				 void **state)
{
	struct mapped_symbol found[NAMES] = {0};
	const struct layout *layout;
	struct python *python;
	uint64_t version;
	struct error *err;

	if (!mapped_symbols(memory, code, names, found, NAMES))
		return NULL;
	for (size_t i = 0; i < CALLS; i++)
		if (!found[i].va)
			return NULL;
	if (!load(memory, found[VERSION].va, &version, sizeof(version)))
		return NULL;
	layout = layout_of(version);
	if (!layout)
		return NULL;
	python = calloc(1, sizeof(*python));
	if (!python)
		return error_no_memory();
	*python = (struct python){.at = *layout,
				  .runtime = found[RUNTIME].va,
				  .code_type = found[CODE_TYPE].va,
				  .text_type = found[TEXT_TYPE].va,
				  .bytes_type = found[BYTES_TYPE].va,
				  .stand_ins = stand_ins};
	describe(found, version, place);
	err = take_told(memory, python->runtime, &python->at) ? ids_new(&python->ids) : NULL;
	if (python->ids)
		*state = python;
	else
		python_close(python);
	return err;
}

static size_t python_threads(void *state, const struct guest_memory *memory,
			     struct runtime_thread *out, size_t max)
{
	const struct python *python = state;
	const struct layout *at = &python->at;
	uint64_t interpreter, thread, tid;
	size_t n = 0;

	if (!load(memory, python->runtime + at->interpreter.interpreters, &interpreter,
		  sizeof(interpreter)))
		return 0;
	for (unsigned i = 0; interpreter && i < INTERPRETERS_MAX; i++) {
		if (!load(memory, interpreter + at->interpreter.threads, &thread, sizeof(thread)))
			return n;
		while (thread && n < max &&
		       load(memory, thread + at->thread.tid, &tid, sizeof(tid))) {
			out[n++] = (struct runtime_thread){(uint32_t)tid, thread};
			if (!load(memory, thread + at->thread.next, &thread, sizeof(thread)))
				return n;
		}
		if (!load(memory, interpreter + at->interpreter.next, &interpreter,
			  sizeof(interpreter)))
			return n;
	}
	return n;
}

/* A walk along a thread's frames. */
struct frames_walk {
	const struct layout *at;
	struct runtime_pages *pages;
	struct runtime_copy *out;
	uint64_t frame;	 /* 0: the outermost has been passed */
	uint64_t cframe; /* of its entry */
};

static bool load_word(const struct frames_walk *walk, uint64_t va, uint64_t *word)
{
	return runtime_load(walk->pages, va, word, sizeof(*word));
}

/* Marks the frame that was added last; entries may have none yet. */
static void end_entry(struct runtime_copy *out, uint64_t marker)
{
	if ((!out->n || out->at[out->n - 1].marker) && out->n < RUNTIME_FRAMES_MAX)
		out->at[out->n++] = (struct runtime_frame){0};
	out->at[out->n - 1].marker = marker;
}

/* Goes to the entry around; its innermost frame must be the one that the walk is at. */
static bool leave_entry(struct frames_walk *walk)
{
	uint64_t frame;

	end_entry(walk->out, walk->cframe);
	if (!walk->frame)
		return true;
	return load_word(walk, walk->cframe + walk->at->cframe.previous, &walk->cframe) &&
	       load_word(walk, walk->cframe + walk->at->cframe.frame, &frame) &&
	       frame == walk->frame;
}

static bool take_frame(struct frames_walk *walk)
{
	const struct layout *at = walk->at;
	struct runtime_copy *out = walk->out;
	const uint64_t here = walk->frame;
	uint8_t bytes[FRAME_BYTES];

	if (!runtime_load(walk->pages, here, bytes, sizeof(bytes)))
		return false;
	walk->frame = word_at(bytes, at->frame.previous);
	if (!at->frame.is_entry && bytes[at->frame.owner] == OWNER_C_STACK) {
		end_entry(out, here);
		return true;
	}
	out->at[out->n++] =
		(struct runtime_frame){.function = word_at(bytes, at->frame.code),
				       .instruction = word_at(bytes, at->frame.instruction)};
	return !at->frame.is_entry || !bytes[at->frame.is_entry] || leave_entry(walk);
}

static bool python_frames(const void *state, struct runtime_pages *pages,
			  const struct runtime_thread *thread, struct runtime_copy *out)
{
	const struct python *python = state;
	struct frames_walk walk = {.at = &python->at, .pages = pages, .out = out};
	uint64_t tid;

	if (!load_word(&walk, thread->state + walk.at->thread.tid, &tid) || tid != thread->tid ||
	    !load_word(&walk, thread->state + walk.at->thread.frame, &walk.frame))
		return false;
	walk.cframe = walk.frame;
	if (walk.at->cframe.previous &&
	    !load_word(&walk, walk.cframe + walk.at->cframe.frame, &walk.frame))
		return false;
	while (walk.frame && out->n < RUNTIME_FRAMES_MAX)
		if (!take_frame(&walk)) {
			out->more = runtime_pages_spent(pages);
			return out->more;
		}
	out->more = walk.frame != 0;
	return true;
}

/* Reads an object's contents behind a head of so many bytes, as far as they are kept. */
static bool read_content(const struct guest_memory *memory, uint64_t type, uint64_t va,
			 uint32_t head, struct content *out)
{
	uint8_t bytes[CODE_HEAD_MAX] = {0};

	if (!load(memory, va, bytes, head) || word_at(bytes, OBJECT_TYPE) != type)
		return false;
	*out = (struct content){.va = va, .size = word_at(bytes, OBJECT_SIZE), .head = head};
	out->n = out->size < sizeof(out->bytes) ? (uint32_t)out->size : sizeof(out->bytes);
	return load(memory, va + head, out->bytes, out->n);
}

/* True if the object is what it was; one read. */
static bool is_same_content(const struct guest_memory *memory, uint64_t type,
			    const struct content *known)
{
	uint8_t bytes[CODE_HEAD_MAX] = {0};

	return load(memory, known->va, bytes, known->head + (size_t)known->n) &&
	       word_at(bytes, OBJECT_TYPE) == type && word_at(bytes, OBJECT_SIZE) == known->size &&
	       !memcmp(bytes + known->head, known->bytes, known->n);
}

static bool read_code(const struct python *python, const struct guest_memory *memory, uint64_t va,
		      struct code_object *out)
{
	const struct layout *at = &python->at;
	uint8_t bytes[CODE_HEAD_MAX] = {0};
	int32_t line;

	if (!load(memory, va, bytes, at->code.bytes) ||
	    word_at(bytes, OBJECT_TYPE) != python->code_type)
		return false;
	memcpy(&line, bytes + at->code.line, sizeof(line));
	*out = (struct code_object){.size = word_at(bytes, OBJECT_SIZE),
				    .file = word_at(bytes, at->code.file),
				    .name = word_at(bytes, at->code.name),
				    .lines = word_at(bytes, at->code.lines),
				    .line = line > 0 ? (uint32_t)line : 0};
	return out->size < LINES_MAX;
}

static bool is_same_code(const struct code_object *a, const struct code_object *b)
{
	return a->size == b->size && a->file == b->file && a->name == b->name &&
	       a->lines == b->lines && a->line == b->line;
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

/* A text's characters have 1, 2 or 4 bytes each; those of a longer one are cut off. */
static bool read_text(const struct python *python, const struct guest_memory *memory, uint64_t va,
		      char out[TEXT_ROOM], struct content *known)
{
	uint8_t bytes[4 * TEXT_CHARACTERS];
	uint64_t length;
	uint32_t state, width;
	size_t len = 0;
	bool ascii;

	if (!load(memory, va + TEXT_STATE, &state, sizeof(state)))
		return false;
	width = state >> 2 & 7;
	ascii = state >> 6 & 1;
	if (!(state >> 5 & 1) || (width != 1 && width != 2 && width != 4) ||
	    !read_content(memory, python->text_type, va,
			  ascii ? python->at.text.ascii : python->at.text.other, known))
		return false;
	length = known->size < TEXT_CHARACTERS ? known->size : TEXT_CHARACTERS;
	if (!load(memory, va + known->head, bytes, length * width))
		return false;
	for (uint64_t i = 0; i < length; i++) {
		uint32_t c = 0;

		memcpy(&c, bytes + i * width, width);
		len += put_utf8(c, out + len);
	}
	out[len] = '\0';
	return true;
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

static struct error *name_function(struct python *python, struct function *function,
				   const char *file, const char *name)
{
	char module[TEXT_ROOM], text[2 * TEXT_ROOM];
	struct error *err;

	module_of(file, module, sizeof(module));
	snprintf(text, sizeof(text), "%s.%s", module, name);
	err = stand_ins_function(python->stand_ins, text, file, &function->number);
	function->known = !err && function->number != STAND_IN_NO_FUNCTION;
	return err;
}

static bool read_lines(struct python *python, const struct guest_memory *memory,
		       struct function *function)
{
	struct content *table = &function->table;

	if (!read_content(memory, python->bytes_type, function->code.lines, BYTES_HEAD, table) ||
	    table->size > LINES_MAX || table->size > ALL_LINES_MAX - python->lines_held)
		return false;
	function->lines = malloc(table->size + 1);
	if (!function->lines)
		return false;
	python->lines_held += table->size;
	return load(memory, table->va + table->head, function->lines, table->size);
}

/* Reads all of a function anew: the object at its address is new, or another one. */
static struct error *read_function(struct python *python, const struct guest_memory *memory,
				   uint64_t va, struct function *function)
{
	char file[TEXT_ROOM], name[TEXT_ROOM];
	struct code_object again;

	if (function->lines)
		python->lines_held -= function->table.size;
	free(function->lines);
	*function = (struct function){.round = function->round};
	if (!read_code(python, memory, va, &function->code) ||
	    !read_text(python, memory, function->code.file, file, &function->file) ||
	    !read_text(python, memory, function->code.name, name, &function->name) ||
	    !read_lines(python, memory, function) || !read_code(python, memory, va, &again) ||
	    !is_same_code(&again, &function->code))
		return NULL;
	return name_function(python, function, file, name);
}

static bool is_same(const struct python *python, const struct guest_memory *memory, uint64_t va,
		    const struct function *function)
{
	struct code_object code;

	return function->known && read_code(python, memory, va, &code) &&
	       is_same_code(&code, &function->code) &&
	       is_same_content(memory, python->text_type, &function->file) &&
	       is_same_content(memory, python->text_type, &function->name) &&
	       is_same_content(memory, python->bytes_type, &function->table);
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
	const uint8_t *at = function->lines, *end = at + function->table.size;
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
static uint64_t unit_of(const struct python *python, const struct runtime_frame *frame)
{
	const uint64_t start = frame->function + python->at.code.bytes;

	return frame->instruction < start ? 0 : (frame->instruction - start) / 2;
}

static struct error *python_name(void *state, const struct guest_memory *memory, uint64_t round,
				 const struct runtime_frame *frame, uint64_t *addr)
{
	struct python *python = state;
	struct function *function;
	bool added = false;
	uint32_t id;
	struct error *err = NULL;
	uint64_t unit;

	*addr = 0;
	if (!ids_find(python->ids, frame->function, 0, &id)) {
		if (ids_count(python->ids) == FUNCTIONS_MAX)
			return NULL;
		err = ARRAY_RESERVE(&python->functions, &python->room,
				    ids_count(python->ids) + (size_t)1);
		if (!err)
			err = ids_get(python->ids, frame->function, 0, &id, &added);
		if (err)
			return err;
		python->functions[id] = (struct function){0};
	}
	function = &python->functions[id];
	if (added || function->round != round) {
		function->round = round;
		if (!is_same(python, memory, frame->function, function))
			err = read_function(python, memory, frame->function, function);
	}
	unit = unit_of(python, frame);
	if (!err && function->known && unit < function->code.size)
		*addr = stand_in_address(function->number, line_of(function, unit));
	return err;
}

const struct runtime_system runtime_python = {
	.open = python_open,
	.close = python_close,
	.threads = python_threads,
	.frames = python_frames,
	.name = python_name,
};
