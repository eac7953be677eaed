/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A process that runs CPython 3.11 or 3.12, by bytes: offsets are those of its headers (pycore_frame.h and others). */

#include "runtime/runtime.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE UINT64_C(0x10000000)
#define SIZE (1u << 20)
#define TID  4711u

/* Places in it. */
enum {
	DYNAMIC = 0x400,
	HASH = 0x800,
	SYMBOLS = 0x1000,
	TEXTS = 0x2000,
	LOOP = 0x3000,
	CALL = 0x4000,
	C_CODE = 0x5000,
	RUNTIME = 0x8000,
	VERSION = 0x8800,
	CODE_TYPE = 0x9000,
	TEXT_TYPE = 0x9100,
	BYTES_TYPE = 0x9200,
	STATE = 0x10000,
	INTERPRETER = 0x11000,
	FRAMES = 0x12000, /* 0x100 apart */
	CODES = 0x20000,  /* 0x1000 apart, with all that they lead to */
	STACK = 0x80000,
};

#define STACK_SIZE 0x4000u
/* From a _PyCFrame to the return address of the loop's frame. */
#define LEAD 0x60u

struct process {
	uint8_t *bytes;
	bool is_12;	/* of 3.12 */
	unsigned reads; /* while a thread stood still, */
	unsigned pages; /* and the most that may be; 0: RUNTIME_PAGES_MAX */
	struct stand_ins *stand_ins;
	struct runtime *runtime;
	struct runtime_copy copy;
	struct window window;
	struct frame frames[128];
	struct runtime_stack stack;
};

static size_t read_bytes(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct process *process = ctx;

	if (va - BASE >= SIZE)
		return 0;
	if (len > SIZE - (va - BASE))
		len = SIZE - (va - BASE);
	memcpy(buf, process->bytes + (va - BASE), len);
	return len;
}

static size_t read_stopped(void *ctx, uint64_t va, void *buf, size_t len)
{
	((struct process *)ctx)->reads++;
	return read_bytes(ctx, va, buf, len);
}

static void put(struct process *process, uint64_t at, uint64_t value)
{
	memcpy(process->bytes + at, &value, sizeof(value));
}

static void put32(struct process *process, uint64_t at, uint32_t value)
{
	memcpy(process->bytes + at, &value, sizeof(value));
}

/* One bucket with all symbols; addresses in the dynamic section as the linker leaves them. */
static void put_file(struct process *process)
{
	static const struct {
		const char *name;
		uint64_t at, size;
	} symbol[] = {{"_PyRuntime", RUNTIME, 0},      {"Py_Version", VERSION, 8},
		      {"PyCode_Type", CODE_TYPE, 0},   {"PyUnicode_Type", TEXT_TYPE, 0},
		      {"PyBytes_Type", BYTES_TYPE, 0}, {"_PyEval_EvalFrameDefault", LOOP, 0x800},
		      {"_PyEval_Vector", CALL, 0x100}};
	const unsigned n = sizeof(symbol) / sizeof(*symbol);
	const Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
				 .e_type = ET_DYN,
				 .e_phoff = sizeof(head),
				 .e_phentsize = sizeof(Elf64_Phdr),
				 .e_phnum = 2};
	const Elf64_Phdr part[] = {{.p_type = PT_LOAD}, {.p_type = PT_DYNAMIC, .p_vaddr = DYNAMIC}};
	const Elf64_Dyn dynamic[] = {{DT_GNU_HASH, {BASE + HASH}},
				     {DT_SYMTAB, {BASE + SYMBOLS}},
				     {DT_STRTAB, {BASE + TEXTS}},
				     {DT_STRSZ, {0x1000}},
				     {DT_NULL, {0}}};
	uint32_t text = 1;

	memcpy(process->bytes, &head, sizeof(head));
	memcpy(process->bytes + sizeof(head), part, sizeof(part));
	memcpy(process->bytes + DYNAMIC, dynamic, sizeof(dynamic));
	put32(process, HASH, 1);
	put32(process, HASH + 4, 1);
	put32(process, HASH + 8, 1);
	put32(process, HASH + 24, 1);
	for (unsigned i = 0; i < n; i++) {
		const Elf64_Sym one = {.st_name = text,
				       .st_shndx = 1,
				       .st_value = symbol[i].at,
				       .st_size = symbol[i].size};
		uint32_t hash = 5381;

		for (const char *c = symbol[i].name; *c; c++)
			hash = hash * 33 + (uint8_t)*c;
		put32(process, HASH + 28 + 4 * i, (hash & ~1u) | (i == n - 1));
		memcpy(process->bytes + SYMBOLS + (i + 1) * sizeof(one), &one, sizeof(one));
		strcpy((char *)process->bytes + TEXTS + text, symbol[i].name);
		text += (uint32_t)strlen(symbol[i].name) + 1;
	}
	put(process, VERSION, 0x030b02f0);
}

static void put_text(struct process *process, uint64_t at, const char *text)
{
	put(process, at + 8, BASE + TEXT_TYPE);
	put(process, at + 16, strlen(text));
	put32(process, at + 32, 1 << 2 | 1 << 5 | 1 << 6);
	strcpy((char *)process->bytes + at + (process->is_12 ? 40 : 48), text);
}

/* Lines: `line` for four units, one more for the next two, then three lines back by a long entry. */
static uint64_t put_code(struct process *process, unsigned i, const char *name, uint32_t line)
{
	static const uint8_t lines[] = {
		0x80 | 10 << 3 | 3, 0, 0, 0x80 | 11 << 3 | 1, 0, 0, 0x80 | 14 << 3 | 1, 7, 0, 0, 0};
	const uint64_t at = CODES + 0x1000 * i;

	put(process, at + 8, BASE + CODE_TYPE);
	put(process, at + 16, 8);
	put32(process, at + (process->is_12 ? 68 : 72), line);
	put(process, at + 112, BASE + at + 0x400);
	put(process, at + 128, BASE + at + 0x600);
	put(process, at + 136, BASE + at + 0x800);
	put_text(process, at + 0x400, "/app/shop/cart.py");
	put_text(process, at + 0x600, name);
	put(process, at + 0x808, BASE + BYTES_TYPE);
	put(process, at + 0x810, sizeof(lines));
	memcpy(process->bytes + at + 0x820, lines, sizeof(lines));
	return BASE + at;
}

/* Frame i, called by frame i + 1; 0 is the innermost. */
static void put_frame(struct process *process, unsigned i, uint64_t code, unsigned unit, bool entry,
		      bool last)
{
	const uint64_t at = FRAMES + 0x100 * i;

	if (process->is_12) {
		put(process, at, code);
		put(process, at + 8, BASE + at + 0x100);
		put(process, at + 56, code + 192 + 2 * unit);
		return;
	}
	put(process, at + 32, code);
	put(process, at + 48, last ? 0 : BASE + at + 0x100);
	put(process, at + 56, code + 184 + 2 * unit);
	process->bytes[at + 68] = entry;
}

/* An entry of the loop: its _PyCFrame on the stack, and where its frame returns to. */
static void put_entry(struct process *process, uint64_t at, uint64_t before, unsigned frame,
		      uint64_t returns_to)
{
	put(process, at + 8, BASE + FRAMES + 0x100 * frame);
	put(process, at + 16, BASE + before);
	put(process, at + LEAD, returns_to);
}

static const uint64_t loop_call = BASE + LOOP + 0x55, vector = BASE + CALL + 0x10,
		      c_code = BASE + C_CODE + 0x20, c_start = BASE + C_CODE + 0x100;

/*
 * start -> vector -> loop [outer -> middle] -> C code -> vector -> loop [key, again, once more]. The stack is
 * one C frame deeper than the loop.
 */
static void put_threads(struct process *process)
{
	const uint64_t key = put_code(process, 0, "Cart.key", 100);
	const uint64_t middle = put_code(process, 1, "middle.<locals>.<lambda>", 40);
	const uint64_t outer = put_code(process, 2, "<module>", 1);

	put(process, RUNTIME + 40, BASE + INTERPRETER);
	put(process, INTERPRETER + 16, BASE + STATE);
	put(process, STATE + 160, TID);
	put(process, STATE + 56, BASE + STACK + 0x100);
	put_frame(process, 0, key, 5, false, false);
	put_frame(process, 1, key, 0, true, false);
	put_frame(process, 2, middle, 7, false, false);
	put_frame(process, 3, outer, 1, true, true);
	put_entry(process, STACK + 0x100, STACK + 0x300, 0, vector);
	put_entry(process, STACK + 0x300, STACK + 0x500, 2, vector);
	put(process, STACK + 0x508, 0);
}

static void put_stack(struct process *process)
{
	const struct frame frames[] = {{c_code, FRAME_PC, 0},	     {loop_call, FRAME_RETURN, 0},
				       {vector, FRAME_RETURN, 0},    {c_code, FRAME_RETURN, 0},
				       {loop_call, FRAME_RETURN, 0}, {vector, FRAME_RETURN, 0},
				       {c_start, FRAME_RETURN, 0}};

	memcpy(process->frames, frames, sizeof(frames));
	process->window = (struct window){.va = BASE + STACK,
					  .len = STACK_SIZE,
					  .bytes = process->bytes + STACK};
	process->stack = (struct runtime_stack){.window = &process->window,
						.frames = process->frames,
						.n = sizeof(frames) / sizeof(*frames),
						.max = 64,
						.end = UNWIND_OUTERMOST};
}

static int set_up(void **state)
{
	struct process *process = calloc(1, sizeof(*process));

	*state = process;
	process->bytes = calloc(1, SIZE);
	put_file(process);
	put_threads(process);
	put_stack(process);
	return stand_ins_new(&process->stand_ins) ? -1 : 0;
}

static int tear_down(void **state)
{
	struct process *process = *state;

	runtime_free(process->runtime);
	stand_ins_free(process->stand_ins);
	free(process->bytes);
	free(process);
	return 0;
}

/* Copies a thread's frames; what is done to the process from then on, it does after the stop. */
static void stop_as(struct process *process, uint32_t tid)
{
	const struct guest_memory memory = {process, read_bytes, NULL};
	const uint64_t code = BASE + LOOP;
	const struct runtime_view view = {.tid = tid,
					  .pages = process->pages,
					  .stack = &process->window,
					  .ctx = process,
					  .read = read_stopped};

	if (!process->runtime)
		assert_null(runtime_new(&memory, &code, 1, process->stand_ins, &process->runtime));
	assert_non_null(process->runtime);
	runtime_refresh(process->runtime, &memory, UINT64_C(1) << 62);
	process->reads = 0;
	runtime_copy_frames(process->runtime, &view, &process->copy);
}

static void merge(struct process *process)
{
	struct budget budget = {.left = 1u << 26};
	const struct guest_memory memory = {process, read_bytes, &budget};

	assert_null(runtime_merge(process->runtime, &memory, &process->copy, &process->stack));
}

static void sample_as(struct process *process, uint32_t tid)
{
	stop_as(process, tid);
	merge(process);
}

static inline void sample(struct process *process)
{
	sample_as(process, TID);
}

static void check_frame(const struct process *process, size_t i, const char *name, uint32_t line)
{
	struct stand_in found;

	assert_true(i < process->stack.n);
	assert_true(stand_ins_find(process->stand_ins, process->frames[i].addr, &found));
	assert_string_equal(found.name, name);
	assert_string_equal(found.file, "/app/shop/cart.py");
	assert_int_equal(found.line, line);
}

/* The stack is what it was before. */
static inline void check_untouched(const struct process *process)
{
	assert_int_equal(process->stack.n, 7);
	assert_int_equal(process->stack.end, UNWIND_OUTERMOST);
	assert_int_equal(process->frames[1].addr, loop_call);
	assert_int_equal(process->frames[4].addr, loop_call);
	assert_int_equal(runtime_count(process->runtime).unproven, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
