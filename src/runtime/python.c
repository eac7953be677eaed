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

#include "runtime/python_functions.h"

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
	struct python_offsets objects;
	bool told; /* offsets of interpreters and threads are told by _PyRuntime itself */
};

/* clang-format off */
static const struct layout layouts[] = {
	{0x030b, {40, 0, 16}, {8, 160, 56}, {8, 16}, {32, 48, 56, 69, 68}, {{72, 112, 128, 136, 184}, {48, 72}}, false},
	{0x030c, {40, 0, 72}, {8, 144, 56}, {0, 8}, {0, 8, 56, 70, 0}, {{68, 112, 128, 136, 192}, {40, 56}}, false},
	{0x030d, {0, 0, 0}, {0, 0, 0}, {0, 0}, {0, 8, 56, 70, 0}, {{68, 112, 128, 136, 200}, {40, 56}}, true},
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
#define FRAME_BYTES   80u
#define OWNER_C_STACK 3u /* enum _frameowner */

#define INTERPRETERS_MAX 64u

struct python {
	struct layout at;
	uint64_t runtime;
	struct python_functions *functions;
};

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
	if (!guest_memory_get(memory, runtime, word, sizeof(word)) || memcmp(word, "xdebugpy", 8) ||
	    word[2] || (word[5] | word[8] | word[9] | word[21] | word[23] | word[25]) > UINT16_MAX)
		return false;
	at->interpreter.interpreters = (uint16_t)word[5];
	at->interpreter.next = (uint16_t)word[8];
	at->interpreter.threads = (uint16_t)word[9];
	at->thread.next = (uint16_t)word[21];
	at->thread.frame = (uint16_t)word[23];
	at->thread.tid = (uint16_t)word[25];
	return word[29] == at->frame.previous && word[30] == at->frame.code &&
	       word[31] == at->frame.instruction && word[33] == at->frame.owner &&
	       word[35] == at->objects.code.file && word[37] == at->objects.code.name &&
	       word[38] == at->objects.code.lines && word[39] == at->objects.code.line &&
	       word[43] == at->objects.code.bytes;
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

	python_functions_free(python->functions);
	free(python);
}

static struct error *python_open(const struct guest_memory *memory, uint64_t code,
				 struct stand_ins *stand_ins, struct runtime_place *place,
				 void **state)
{
	struct mapped_symbol found[NAMES] = {0};
	const struct layout *layout;
	struct python *python;
	struct python_types types;
	struct error *err = NULL;
	uint64_t version;

	if (!mapped_symbols(memory, code, names, found, NAMES))
		return NULL;
	for (size_t i = 0; i < CALLS; i++)
		if (!found[i].va)
			return NULL;
	if (!guest_memory_get(memory, found[VERSION].va, &version, sizeof(version)))
		return NULL;
	layout = layout_of(version);
	if (!layout)
		return NULL;
	TRY(ARRAY_NEW(&python, 1));
	types = (struct python_types){.code = found[CODE_TYPE].va,
				      .text = found[TEXT_TYPE].va,
				      .bytes = found[BYTES_TYPE].va};
	*python = (struct python){.at = *layout, .runtime = found[RUNTIME].va};
	describe(found, version, place);
	if (take_told(memory, python->runtime, &python->at))
		err = python_functions_new(&types, &python->at.objects, stand_ins,
					   &python->functions);
	if (python->functions)
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

	if (!guest_memory_get(memory, python->runtime + at->interpreter.interpreters, &interpreter,
			      sizeof(interpreter)))
		return 0;
	for (unsigned i = 0; interpreter && i < INTERPRETERS_MAX; i++) {
		if (!guest_memory_get(memory, interpreter + at->interpreter.threads, &thread,
				      sizeof(thread)))
			return n;
		while (thread && n < max &&
		       guest_memory_get(memory, thread + at->thread.tid, &tid, sizeof(tid))) {
			out[n++] = (struct runtime_thread){(uint32_t)tid, thread};
			if (!guest_memory_get(memory, thread + at->thread.next, &thread,
					      sizeof(thread)))
				return n;
		}
		if (!guest_memory_get(memory, interpreter + at->interpreter.next, &interpreter,
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

static bool python_identify(const void *state, const struct guest_memory *memory, uint64_t function,
			    uint64_t *identity)
{
	const struct python *python = state;

	return python_functions_identify(python->functions, memory, function, identity);
}

static struct error *python_name(void *state, const struct guest_memory *memory, uint64_t round,
				 const struct runtime_frame *frame, uint64_t *addr)
{
	const struct python *python = state;

	return python_functions_name(python->functions, memory, round, frame, addr);
}

const struct runtime_system runtime_python = {
	.open = python_open,
	.close = python_close,
	.threads = python_threads,
	.frames = python_frames,
	.identify = python_identify,
	.name = python_name,
};
