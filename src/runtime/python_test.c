/* SPDX-License-Identifier: BSD-3-Clause */

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
	bool is_12; /* of 3.12 */
	struct stand_ins *stand_ins;
	struct runtime *runtime;
	struct runtime_copy copy;
	struct window window;
	struct frame frames[64];
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

static void sample_as(struct process *process, uint32_t tid)
{
	struct budget budget = {.left = 1u << 26};
	const struct guest_memory memory = {process, read_bytes, &budget};
	const uint64_t code = BASE + LOOP;
	const struct runtime_view view = {tid, &process->window, process, read_bytes};

	if (!process->runtime)
		assert_null(runtime_new(&memory, &code, 1, process->stand_ins, &process->runtime));
	assert_non_null(process->runtime);
	runtime_refresh(process->runtime, &memory, UINT64_C(1) << 62);
	runtime_copy_frames(process->runtime, &view, &process->copy);
	assert_null(runtime_merge(process->runtime, &memory, &process->copy, &process->stack));
}

static void sample(struct process *process)
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
static void check_untouched(const struct process *process)
{
	assert_int_equal(process->stack.n, 7);
	assert_int_equal(process->stack.end, UNWIND_OUTERMOST);
	assert_int_equal(process->frames[1].addr, loop_call);
	assert_int_equal(process->frames[4].addr, loop_call);
	assert_int_equal(runtime_count(process->runtime).unproven, 1);
}

static void functions_stand_in_place_of_the_loop_with_c_code_between(void **state)
{
	struct process *process = *state;

	sample(process);
	assert_string_equal(runtime_name(process->runtime), "CPython 3.11.2");
	assert_int_equal(process->stack.n, 7);
	assert_int_equal(process->frames[0].addr, c_code);
	check_frame(process, 1, "cart.Cart.key", 101);
	check_frame(process, 2, "cart.Cart.key", 100);
	assert_int_equal(process->frames[3].addr, c_code);
	check_frame(process, 4, "cart.middle.<locals>.<lambda>", 38);
	check_frame(process, 5, "cart.<module>", 1);
	assert_int_equal(process->frames[6].addr, c_start);
	assert_int_equal(runtime_count(process->runtime).merged, 1);
}

/* An entry's frame on the C stack is the caller of its outermost function. */
static void put_c_frame(struct process *process, uint64_t at, unsigned last, uint64_t previous,
			uint64_t returns_to)
{
	put(process, at + 8, previous);
	process->bytes[at + 70] = 3;
	put(process, at + LEAD, returns_to);
	put(process, FRAMES + 0x100 * last + 8, BASE + at);
}

static void entries_of_3_12_are_frames_on_the_c_stack(void **state)
{
	struct process *process = *state;

	process->is_12 = true;
	memset(process->bytes + STATE, 0, STACK + STACK_SIZE - STATE);
	put_threads(process);
	put(process, VERSION, 0x030c01f0);
	put(process, INTERPRETER + 16, 0);
	put(process, INTERPRETER + 72, BASE + STATE);
	put(process, STATE + 160, 0);
	put(process, STATE + 144, TID);
	memset(process->bytes + STACK, 0, STACK_SIZE);
	put(process, STACK + 0x100, BASE + FRAMES);
	put_c_frame(process, STACK + 0x110, 1, BASE + FRAMES + 0x200, vector);
	put_c_frame(process, STACK + 0x310, 3, 0, vector);
	sample(process);
	assert_string_equal(runtime_name(process->runtime), "CPython 3.12.1");
	check_frame(process, 1, "cart.Cart.key", 101);
	check_frame(process, 2, "cart.Cart.key", 100);
	assert_int_equal(process->frames[3].addr, c_code);
	check_frame(process, 4, "cart.middle.<locals>.<lambda>", 38);
	check_frame(process, 5, "cart.<module>", 1);
	assert_int_equal(process->stack.n, 7);
}

static void a_loop_that_is_just_entered_stays(void **state)
{
	struct process *process = *state;

	memmove(process->frames + 2, process->frames, 7 * sizeof(*process->frames));
	process->frames[0] = (struct frame){BASE + LOOP + 4, FRAME_PC, 0};
	process->frames[1] = (struct frame){vector, FRAME_RETURN, 0};
	process->frames[2].kind = FRAME_RETURN;
	process->stack.n += 2;
	sample(process);
	assert_int_equal(process->frames[0].addr, BASE + LOOP + 4);
	assert_int_equal(process->frames[1].addr, c_code);
	check_frame(process, 2, "cart.Cart.key", 101);
	check_frame(process, 6, "cart.<module>", 1);
}

static void an_object_that_is_another_one_now_has_its_name(void **state)
{
	struct process *process = *state;

	sample(process);
	check_frame(process, 1, "cart.Cart.key", 101);
	put_text(process, CODES + 0x600, "Cart.sum");
	put_stack(process);
	sample(process);
	check_frame(process, 1, "cart.Cart.sum", 101);
}

static void names_of_other_alphabets_are_told(void **state)
{
	struct process *process = *state;
	const uint16_t name[] = {0x0436, 0x00fc, 'x', 0xd800};

	put(process, CODES + 0x600 + 16, 4);
	put32(process, CODES + 0x600 + 32, 2 << 2 | 1 << 5);
	memcpy(process->bytes + CODES + 0x600 + 72, name, sizeof(name));
	sample(process);
	check_frame(process, 1, "cart.\xd0\xb6\xc3\xbcx?", 101);
}

static void a_stack_whose_entries_return_elsewhere_stays(void **state)
{
	struct process *process = *state;

	put(process, STACK + 0x300 + LEAD, c_start);
	sample(process);
	check_untouched(process);
}

static void entries_return_at_one_distance_from_their_markers(void **state)
{
	struct process *process = *state;

	sample(process);
	put(process, STACK + 0x300 + LEAD, 0);
	put(process, STACK + 0x300 + LEAD + 8, vector);
	put_stack(process);
	sample(process);
	check_untouched(process);
}

static void entries_that_the_stack_lacks_leave_it_as_it_is(void **state)
{
	struct process *process = *state;

	process->frames[4].addr = c_code;
	sample(process);
	assert_int_equal(process->stack.n, 7);
	assert_int_equal(process->frames[1].addr, loop_call);
	assert_int_equal(runtime_count(process->runtime).unproven, 1);
}

static void a_list_of_entries_that_disagrees_with_the_frames_stays_unread(void **state)
{
	struct process *process = *state;

	put(process, STACK + 0x308, BASE + FRAMES + 0x300);
	sample(process);
	check_untouched(process);
}

static void a_thread_that_is_none_of_the_interpreters_has_its_c_stack(void **state)
{
	struct process *process = *state;

	sample_as(process, TID + 1);
	check_untouched(process);
}

static void a_list_without_end_is_cut(void **state)
{
	struct process *process = *state;

	put(process, FRAMES + 48, BASE + FRAMES);
	sample(process);
	assert_true(process->copy.more);
	assert_int_equal(process->copy.n, RUNTIME_FRAMES_MAX);
	assert_int_equal(process->stack.end, UNWIND_FRAMES);
	assert_int_equal(process->stack.n, 64);
}

static void objects_that_are_none_have_no_names(void **state)
{
	struct process *process = *state;
	/* Type and length of the name, of the table of lines, of the code; an address that is not there. */
	const uint64_t at[] = {CODES + 0x608, CODES + 0x810, CODES + 0x808, CODES + 8,
			       CODES + 16,    CODES + 128,   CODES + 136,   CODES + 112};

	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		runtime_free(process->runtime);
		process->runtime = NULL;
		put_threads(process);
		put_stack(process);
		put(process, at[i], UINT64_MAX - 100);
		sample(process);
		check_untouched(process);
	}
}

static void damaged_tables_and_lengths_are_bounded(void **state)
{
	struct process *process = *state;

	memset(process->bytes + CODES + 0x820, 0xff, 11);
	put(process, CODES + 0x610, UINT64_MAX);
	sample(process);
	assert_int_equal(runtime_count(process->runtime).merged, 1);
	assert_int_equal(process->frames[0].addr, c_code);
}

static void versions_that_are_not_known_are_left_alone(void **state)
{
	/* 3.13 tells its own offsets, which are not there. */
	const uint64_t versions[] = {0x030a02f0, 0x030b00a1, 0x030d00f0, 0x040000f0, 0};
	struct process *process = *state;
	const struct guest_memory memory = {process, read_bytes, NULL};
	const uint64_t code[] = {BASE + LOOP, 0x1000};

	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		put(process, VERSION, versions[i]);
		assert_null(runtime_new(&memory, code, 2, process->stand_ins, &process->runtime));
		assert_null(process->runtime);
	}
}

static void files_of_any_contents_end_the_search(void **state)
{
	struct process *process = *state;
	const struct guest_memory memory = {process, read_bytes, NULL};
	const uint64_t code = BASE + LOOP;

	srand(1);
	for (unsigned round = 0; round < 2000; round++) {
		const unsigned at = (unsigned)rand() % 0x2000;

		process->bytes[at] = (uint8_t)rand();
		assert_null(runtime_new(&memory, &code, 1, process->stand_ins, &process->runtime));
		runtime_free(process->runtime);
		process->runtime = NULL;
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(functions_stand_in_place_of_the_loop_with_c_code_between),
		TEST(entries_of_3_12_are_frames_on_the_c_stack),
		TEST(a_loop_that_is_just_entered_stays),
		TEST(an_object_that_is_another_one_now_has_its_name),
		TEST(names_of_other_alphabets_are_told),
		TEST(a_stack_whose_entries_return_elsewhere_stays),
		TEST(entries_return_at_one_distance_from_their_markers),
		TEST(entries_that_the_stack_lacks_leave_it_as_it_is),
		TEST(a_list_of_entries_that_disagrees_with_the_frames_stays_unread),
		TEST(a_thread_that_is_none_of_the_interpreters_has_its_c_stack),
		TEST(a_list_without_end_is_cut),
		TEST(objects_that_are_none_have_no_names),
		TEST(damaged_tables_and_lengths_are_bounded),
		TEST(versions_that_are_not_known_are_left_alone),
		TEST(files_of_any_contents_end_the_search),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
