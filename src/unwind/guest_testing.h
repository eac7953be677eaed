/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A guest of a few functions, with a stack that tests fill by hand. */

#include "unwind/unwind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT  0x400000ull
#define STACK 0x7fff0000ull
#define STUBS (TEXT + 0x800) /* the hypercall page */
#define MAX   64
#define NO_FP 2 /* a frame pointer's value in code built without */

/* The functions of the guest, 64 bytes apart, and return addresses in them. */
enum {
	START = 0x000,
	MAIN = 0x040,
	F = 0x080,
	LEAF = 0x0c0,
	SAVES = 0x100,
	G = 0x140,
	H = 0x180,
	OMITS = 0x1c0,
	JUMPS = 0x200,
	TEXT_END = 0x240
};
#define IN_START (TEXT + START + 7)
#define IN_MAIN	 (TEXT + MAIN + 9)
#define IN_F	 (TEXT + F + 13)
#define IN_G	 (TEXT + G + 9)
#define IN_H	 (TEXT + H + 6)
#define IN_OMITS (TEXT + OMITS + 10)
#define STUB	 (STUBS + 18 * 32)
#define NO_CALL	 (TEXT + MAIN + 4)

static uint8_t text[0x1000];
static uint64_t stack[512];
static struct unwinder *unwinder;
static struct regs regs;
static struct window window, *second;
static bool symbols, readable;
static uint64_t label; /* one more symbol, 16 bytes behind that of a function; 0: none */
static struct frame frames[MAX];
static struct unwind_result out;
static size_t max_frames;
static enum unwind_method method;
static unsigned code_version;
static const struct unwind_table *(*rows_of_guest)(void *ctx, uint64_t va, uint64_t *slide);
static bool (*switches_of_guest)(void *ctx, uint64_t va, bool calls);

static size_t read_text(void *ctx, uint64_t va, void *buf, size_t len)
{
	if (!readable || va < TEXT || va - TEXT >= sizeof(text))
		return 0;
	if (len > sizeof(text) - (va - TEXT))
		len = sizeof(text) - (va - TEXT);
	memcpy(buf, text + (va - TEXT), len);
	return len;
}

static bool bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	if (va >= STUBS && va < STUBS + 0x800) {
		*start = STUBS;
		*end = STUBS + 0x800;
		return true;
	}
	*start = va & ~63ull;
	*end = *start + 64;
	if (label && (label & ~63ull) == *start) {
		*start = va < label ? *start : label;
		*end = va < label ? label : *end;
		return true;
	}
	return va >= TEXT && va < TEXT + TEXT_END;
}

static void code(unsigned at, const char *bytes, size_t len)
{
	memcpy(text + at, bytes, len);
}

static void call(unsigned at, uint64_t target)
{
	int32_t offset = (int32_t)(target - (TEXT + at + 5));

	text[at] = 0xe8;
	memcpy(text + at + 1, &offset, 4);
}

#define CODE(at, bytes) code(at, bytes, sizeof(bytes) - 1)

static int build(void **state)
{
	static const char frame[] = "\x55\x48\x89\xe5"; /* push rbp; mov rbp, rsp */

	memset(text, 0xcc, sizeof(text));
	memset(stack, 0, sizeof(stack));
	CODE(START, "\x31\xed"); /* xor ebp, ebp */
	call(START + 2, TEXT + MAIN);
	CODE(MAIN, frame);
	call(MAIN + 4, TEXT + F);
	CODE(MAIN + 9, "\x5d\xc3");
	CODE(F, "\x55\x48\x89\xe5\x48\x83\xec\x20"); /* ...; sub rsp, 32 */
	call(F + 8, TEXT + LEAF);
	CODE(F + 13, "\xc9\xc3");		     /* leave; ret */
	CODE(LEAF, "\x8d\x47\x01\xc3");		     /* lea eax, [rdi+1]; ret */
	CODE(SAVES, "\x53\x50\x31\xc0\x58\x5b\xc3"); /* push rbx, rax; xor; pop rax, rbx; ret */
	CODE(G, frame);
	call(G + 4, STUB);
	CODE(G + 9, "\x5d\xc3");
	CODE(H, "\x55\x48\x89\xe5\xff\xd0\x5d\xc3"); /* ...; call rax; ... */
	CODE(OMITS, "\x53\x48\x83\xec\x10");	     /* push rbx; sub rsp, 16 */
	call(OMITS + 5, TEXT + LEAF);
	CODE(OMITS + 10, "\x48\x83\xc4\x10\x5b\xc3"); /* add rsp, 16; pop rbx; ret */
	CODE(JUMPS, "\xe9\xbb\xfe\xff\xff");	      /* jmp LEAF */
	for (unsigned i = 0; i < 64; i++)
		code(0x800 + i * 32, "\x51\x41\x53\xb8\x12\x00\x00\x00\x0f\x05\x41\x5b\x59\xc3",
		     14);
	symbols = true;
	readable = true;
	max_frames = MAX;
	method = UNWIND_AUTO;
	second = NULL;
	regs = (struct regs){.word = 8, .sp = STACK};
	window = (struct window){.va = STACK, .len = sizeof(stack), .bytes = (uint8_t *)stack};
	assert_null(unwinder_new(&unwinder));
	return 0;
}

static int clean(void **state)
{
	unwinder_free(unwinder);
	return 0;
}

/* A word of the stack, by its address. */
static uint64_t *at(uint64_t va)
{
	return &stack[(va - STACK) / 8];
}

static inline void record(uint64_t fp, uint64_t next, uint64_t ret)
{
	*at(fp) = next;
	*at(fp + 8) = ret;
}

/* On any stack; `stack` itself may be another one. */
static void unwind_on(const struct window *on, uint64_t pc, uint64_t fp)
{
	struct code guest = {.read = read_text,
			     .function = symbols ? bounds : NULL,
			     .table = rows_of_guest,
			     .switches = switches_of_guest,
			     .version = code_version};
	struct unwind_input in = {.regs = &regs,
				  .stack = on,
				  .others = second,
				  .n_others = second != NULL,
				  .code = &guest,
				  .unwinder = unwinder,
				  .max_frames = max_frames,
				  .method = method};
	uint64_t sp = regs.sp;

	regs.pc = pc;
	regs.fp = fp;
	regs.sp = on == &window ? regs.sp : on->va;
	memset(frames, 0xee, sizeof(frames));
	unwind_stack(&in, frames, &out);
	regs.sp = sp;
	assert_in_range(out.n, 1, max_frames);
	assert_int_equal(frames[0].addr, pc);
	assert_int_equal(frames[0].kind, FRAME_PC);
	assert_int_equal(frames[0].trust, TRUST_SURE);
}

static inline void unwind_anywhere(uint64_t pc, uint64_t fp)
{
	window.va = regs.sp & ~7ull;
	unwind_on(&window, pc, fp);
}

/* For stacks on which nothing was interrupted. */
static inline void unwind(uint64_t pc, uint64_t fp)
{
	unwind_anywhere(pc, fp);
	for (size_t i = 1; i < out.n; i++)
		assert_int_equal(frames[i].kind, FRAME_RETURN);
}

static void expect(enum unwind_end end, size_t n, const uint64_t *callers)
{
	assert_int_equal(out.n, n + 1);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(frames[i + 1].addr, callers[i]);
	assert_int_equal(out.end, end);
}

#define EXPECT(end, ...)                                     \
	do {                                                 \
		const uint64_t callers_[] = {__VA_ARGS__};   \
		expect(end, sizeof(callers_) / 8, callers_); \
	} while (0)

#define EXPECT_NONE(end) expect(end, 0, NULL)

static void expect_sure(void)
{
	for (size_t i = 0; i < out.n; i++)
		assert_int_equal(frames[i].trust, TRUST_SURE);
}
