/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs real programs one instruction at a time, keeps the true call chain from
 * the calls and returns that are seen, and unwinds at every instruction.
 */
#include "unwind/unwind.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbol/names/symbols.h"
#include "unwind/tables/cfi.h"

#define TEXT_MAX  (8u << 20)
#define STACK_MAX (32u << 10)
#define DEPTH_MAX 256
#define STEPS_MAX 2000000
#define CS_32_BIT 0x23

/* The true chain: a call pushes, and moving the stack pointer past the slot pops. */
struct shadow {
	size_t n;
	uint64_t ret[DEPTH_MAX], slot[DEPTH_MAX];
};

/* Verdict on an unwound stack. */
enum verdict {
	WHOLE,	    /* the true chain, and said to be whole */
	BARE_ENTRY, /* there is no caller yet */
	TRUNCATED,  /* the inner part of the true chain, and said not to be all */
	LIE,	    /* ... but said to be whole */
	MISSING,    /* a caller is left out in the middle */
	IMPOSSIBLE, /* an address that is not in the chain there */
	SURE,	    /* one of these two, and not even marked as a guess */
	VERDICTS
};

static const char *const verdict_text[VERDICTS] = {"whole",	     "entry",
						   "truncated",	     "lie",
						   "missing caller", "impossible edge",
						   "... and sure"};

struct counts {
	unsigned long steps, of[VERDICTS];
	unsigned long remembered; /* a part of the chain came from the one before */
};

/* Inputs of the unwinder beside the code. */
static const struct way {
	const char *name;
	bool symbols, tables;
	enum unwind_method method;
} ways[] = {
	{"symbols", true, false, UNWIND_AUTO},	  {"none", false, false, UNWIND_AUTO},
	{"tables", false, true, UNWIND_AUTO},	  {"both", true, true, UNWIND_AUTO},
	{"tables only", false, true, UNWIND_CFI},
};
enum { SYMBOLS, NONE, TABLES, ALL, ONLY, WAYS };

struct stepped {
	pid_t pid;
	struct user_regs_struct user;
	struct symbols *symbols;
	struct unwind_table *table;
	uint64_t text_va;
	size_t text_len;
	uint8_t *text;
	uint8_t stack[STACK_MAX];
	uint64_t stack_end;
	struct shadow shadow;
};

static size_t read_memory(pid_t pid, uint64_t va, void *buf, size_t len)
{
	struct iovec to = {buf, len}, from = {(void *)(uintptr_t)va, len};
	ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

	return n < 0 ? 0 : (size_t)n;
}

static size_t read_code(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct stepped *stepped = ctx;
	uint64_t offset = va - stepped->text_va;

	if (offset >= stepped->text_len)
		return 0;
	if (len > stepped->text_len - offset)
		len = stepped->text_len - offset;
	memcpy(buf, stepped->text + offset, len);
	return len;
}

static bool function_bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	struct stepped *stepped = ctx;
	struct symbol symbol;

	if (!symbols_find(stepped->symbols, va, &symbol) || strstr(symbol.name, ".cold"))
		return false;
	*start = symbol.start;
	*end = symbol.end;
	return true;
}

static const struct unwind_table *table(void *ctx, uint64_t va, uint64_t *slide)
{
	const struct stepped *stepped = ctx;

	*slide = 0;
	return stepped->table;
}

/* Finds the executable mapping of the program and the end of its stack. */
static void read_maps(struct stepped *stepped)
{
	char path[64], line[512], rights[8];
	unsigned long long start, end;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)stepped->pid);
	maps = fopen(path, "r");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		assert_int_equal(sscanf(line, "%llx-%llx %7s", &start, &end, rights), 3);
		if (strstr(line, "[stack]"))
			stepped->stack_end = end;
		if (rights[2] == 'x' && !stepped->text_len && !strchr(line, '[')) {
			stepped->text_va = start;
			stepped->text_len = (size_t)(end - start);
		}
	}
	fclose(maps);
	assert_true(stepped->stack_end && stepped->text_len && stepped->text_len < TEXT_MAX);
	stepped->text = malloc(stepped->text_len);
	assert_non_null(stepped->text);
	assert_int_equal(read_memory(stepped->pid, stepped->text_va, stepped->text,
				     stepped->text_len),
			 stepped->text_len);
}

static void stop(struct stepped *stepped)
{
	symbols_free(stepped->symbols);
	unwind_table_free(stepped->table);
	free(stepped->text);
}

static void start(struct stepped *stepped, const char *program)
{
	struct error *err;
	int status;

	memset(stepped, 0, sizeof(*stepped));
	err = symbols_load(program, &stepped->symbols);
	assert_null(err);
	err = cfi_load(program, &stepped->table);
	assert_null(err);
	stepped->pid = fork();
	assert_true(stepped->pid >= 0);
	if (!stepped->pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execl(program, program, NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(stepped->pid, &status, 0), stepped->pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_GETREGS, stepped->pid, NULL, &stepped->user), 0);
	read_maps(stepped);
}

static unsigned word_of(const struct stepped *stepped)
{
	return stepped->user.cs == CS_32_BIT ? 4 : 8;
}

/* Executes one instruction; false when the program has ended. */
static bool step(struct stepped *stepped)
{
	int status;

	if (ptrace(PTRACE_SINGLESTEP, stepped->pid, NULL, NULL))
		return false;
	if (waitpid(stepped->pid, &status, 0) != stepped->pid || !WIFSTOPPED(status)) {
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		return false;
	}
	assert_int_equal(WSTOPSIG(status), SIGTRAP);
	assert_int_equal(ptrace(PTRACE_GETREGS, stepped->pid, NULL, &stepped->user), 0);
	return true;
}

/* Follows what the instruction at `before` did; told by the registers, not by decoding it. */
static void follow(struct stepped *stepped, const struct user_regs_struct *before)
{
	struct shadow *shadow = &stepped->shadow;
	const struct user_regs_struct *after = &stepped->user;
	uint64_t top = 0;
	unsigned word = word_of(stepped);

	while (shadow->n && shadow->slot[shadow->n - 1] < after->rsp)
		shadow->n--;
	if (after->rsp != before->rsp - word)
		return;
	read_memory(stepped->pid, after->rsp, &top, word);
	if (top - before->rip < 2 || top - before->rip > 9)
		return;
	/* A call of the next instruction only reads the program counter, in 32-bit code. */
	if (word == 4 && after->rip == top)
		return;
	assert_true(shadow->n < DEPTH_MAX);
	shadow->ret[shadow->n] = top;
	shadow->slot[shadow->n++] = after->rsp;
}

/* gp[] is in the order of DWARF, which differs from the processor's in 64-bit code only. */
static void fill_gp(struct regs *regs, const struct user_regs_struct *user)
{
	const uint64_t wide[] = {user->rax, user->rdx, user->rcx, user->rbx, user->rsi, user->rdi,
				 user->rbp, user->rsp, user->r8,  user->r9,  user->r10, user->r11,
				 user->r12, user->r13, user->r14, user->r15};
	const uint64_t narrow[] = {user->rax, user->rcx, user->rdx, user->rbx,
				   user->rsp, user->rbp, user->rsi, user->rdi};

	if (regs->word == 8)
		memcpy(regs->gp, wide, sizeof(wide));
	else
		memcpy(regs->gp, narrow, sizeof(narrow));
	regs->gp_valid = regs->word == 8 ? 0xffff : 0xff;
}

static enum verdict compare(const struct shadow *shadow, const struct frame *frames,
			    const struct unwind_result *out)
{
	bool sure = true;

	for (size_t i = 1; i < out->n; i++) {
		sure = sure && frames[i].trust == TRUST_SURE;
		if (i <= shadow->n && frames[i].addr == shadow->ret[shadow->n - i])
			continue;
		for (size_t j = i; j <= shadow->n && !sure; j++)
			if (frames[i].addr == shadow->ret[shadow->n - j])
				return MISSING;
		return sure ? SURE : IMPOSSIBLE;
	}
	if (!shadow->n)
		return BARE_ENTRY;
	if (out->end != UNWIND_OUTERMOST)
		return TRUNCATED;
	return out->n == shadow->n + 1 ? WHOLE : LIE;
}

static void print_frame(const struct stepped *stepped, uint64_t addr, bool guess)
{
	struct symbol symbol = {.name = "?"};

	symbols_find(stepped->symbols, addr, &symbol);
	print_message(" %s+%#llx%s", symbol.name, (unsigned long long)(addr - symbol.start),
		      guess ? "?" : "");
}

static void explain(const struct stepped *stepped, const struct frame *frames,
		    const struct unwind_result *out, enum verdict verdict)
{
	print_message("# %s:", verdict_text[verdict]);
	for (size_t i = 0; i < out->n; i++)
		print_frame(stepped, frames[i].addr, frames[i].trust == TRUST_GUESS);
	print_message(" (%s); in truth:", unwind_end_text(out->end));
	for (size_t i = stepped->shadow.n; i--;)
		print_frame(stepped, stepped->shadow.ret[i], false);
	print_message("\n");
}

/*
 * The stack cache must lead to the frames that a walk of the whole stack finds.
 * Trust may differ: it changes with what is learned of the code.
 */
static void walk_anew(struct unwind_input in, const struct frame *frames,
		      const struct unwind_result *out)
{
	struct frame anew[DEPTH_MAX];
	struct unwind_result result;

	in.anew = true;
	unwind_stack(&in, anew, &result);
	assert_int_equal(result.n, out->n);
	assert_int_equal(result.end, out->end);
	for (size_t i = 0; i < result.n; i++) {
		assert_int_equal(anew[i].addr, frames[i].addr);
		assert_int_equal(anew[i].kind, frames[i].kind);
	}
}

static void unwind(struct stepped *stepped, struct unwinder *unwinder, const struct way *way,
		   struct counts *counts)
{
	struct code code = {.ctx = stepped, .read = read_code};
	const struct user_regs_struct *user = &stepped->user;
	struct regs regs = {.pc = user->rip, .sp = user->rsp, .fp = user->rbp};
	struct window window = {.va = user->rsp, .bytes = stepped->stack};
	struct frame frames[DEPTH_MAX];
	struct unwind_result out;
	struct unwind_input in = {.regs = &regs,
				  .stack = &window,
				  .code = &code,
				  .unwinder = unwinder,
				  .max_frames = DEPTH_MAX,
				  .method = way->method};
	enum verdict verdict;

	regs.word = (uint8_t)word_of(stepped);
	fill_gp(&regs, user);
	window.va &= ~(uint64_t)(regs.word - 1);
	window.len = STACK_MAX;
	if (window.len > stepped->stack_end - window.va)
		window.len = (uint32_t)(stepped->stack_end - window.va);
	else
		window.cut = true;
	assert_int_equal(read_memory(stepped->pid, window.va, stepped->stack, window.len),
			 window.len);
	if (way->symbols)
		code.function = function_bounds;
	if (way->tables)
		code.table = table;
	unwind_stack(&in, frames, &out);
	counts->remembered += out.common > 0;
	/*
	 * With neither symbols nor tables, searches that were in vain are made no more:
	 * a few remembered chains are longer than those of walks later on.
	 */
	if (out.common && (way->symbols || way->tables || counts->steps % WAYS == 0))
		walk_anew(in, frames, &out);
	assert_int_equal(frames[0].addr, user->rip);
	verdict = compare(&stepped->shadow, frames, &out);
	if (verdict > LIE && counts->of[verdict] < 3)
		explain(stepped, frames, &out, verdict);
	counts->of[verdict]++;
	counts->steps++;
}

static void walk_through(const char *program, struct counts counts[WAYS])
{
	static struct stepped stepped;
	struct unwinder *unwinder[WAYS];
	unsigned long n = 0;

	for (int i = 0; i < WAYS; i++) {
		assert_null(unwinder_new(&unwinder[i]));
	}
	start(&stepped, program);
	for (;;) {
		struct user_regs_struct before = stepped.user;

		/* The vdso's code is not looked at. */
		for (int i = 0; i < WAYS && before.rip - stepped.text_va < stepped.text_len; i++)
			unwind(&stepped, unwinder[i], &ways[i], &counts[i]);
		if (!step(&stepped))
			break;
		follow(&stepped, &before);
		assert_true(++n < STEPS_MAX);
	}
	stop(&stepped);
	for (int i = 0; i < WAYS; i++) {
		unwinder_free(unwinder[i]);
	}
}

static void show(const char *name, const char *how, const struct counts *c)
{
	print_message("# %-24s %-11s %lu steps", name, how, c->steps);
	for (int v = 0; v < VERDICTS; v++)
		print_message(", %lu %s", c->of[v], verdict_text[v]);
	print_message("\n");
}

/* The stepped programs are built into unwind/stepped, beside this one. */
static void path_of(const char *name, char *path, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(n > 0);
	self[n] = 0;
	*strrchr(self, '/') = 0;
	assert_true((size_t)snprintf(path, size, "%s/unwind/stepped/%s", self, name) < size);
}

static bool may_trace(void)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? 1 : 0);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static void expect_truth(const char *name, int way, const struct counts *counts)
{
	bool libc = strstr(name, "libc");

	assert_true(counts->steps > 2000);
	assert_true(counts->remembered >= counts->of[WHOLE] / 2);
	assert_int_equal(counts->of[SURE], 0);
	/* Tables alone leave code out, and what they say of some epilogues is not true. */
	assert_true(counts->of[MISSING] <= (way == ONLY ? counts->steps / 1000 : 0));
	assert_true(counts->of[IMPOSSIBLE] <= (way == ONLY ? counts->steps / 1000 : 0));
	if (way != NONE)
		assert_int_equal(counts->of[LIE], 0);
	assert_true(counts->of[LIE] <= counts->steps / 50);
	/* In the C library, longjmp and the like belong to no frame for some instructions. */
	if (way == SYMBOLS || way == ALL || (way == TABLES && libc))
		assert_true(counts->of[TRUNCATED] <= (libc ? counts->steps / 1000 : 0));
	if (way == NONE && strstr(name, "-fp") && !libc) {
		assert_int_equal(counts->of[LIE], 0);
		assert_true(counts->of[WHOLE] > counts->steps * 19 / 20);
	}
}

static void every_instruction_unwinds(void **state)
{
	const char *name = *state;
	struct counts counts[WAYS] = {0};
	char path[PATH_MAX];

	path_of(name, path, sizeof(path));
	if (access(path, X_OK)) {
		print_message("# %s was not built: no compiler for it here\n", name);
		skip();
	}
	if (!may_trace()) {
		print_message("# no right to trace a process here\n");
		skip();
	}
	walk_through(path, counts);
	for (int i = 0; i < WAYS; i++)
		show(i ? "" : name, ways[i].name, &counts[i]);
	for (int i = 0; i < WAYS; i++)
		expect_truth(name, i, &counts[i]);
}

#define PROGRAM(name)                                                     \
	{                                                                 \
		name, every_instruction_unwinds, NULL, NULL, (void *)name \
	}
#define BOTH(name) PROGRAM(name "-fp"), PROGRAM(name "-nofp")

static bool kernel_runs(const char *name)
{
	char path[PATH_MAX];
	int status = 0;
	pid_t pid;

	path_of(name, path, sizeof(path));
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		execl(path, path, NULL);
		_exit(99);
	}
	return waitpid(pid, &status, 0) == pid && !(WIFEXITED(status) && WEXITSTATUS(status) == 99);
}

/* With an argument the programs of 32 bits, which not every kernel runs. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		BOTH("stepped-64-O0"), BOTH("stepped-64-O1"), BOTH("stepped-64-O2"),
		BOTH("stepped-64-O3"), BOTH("stepped-64-Os"), BOTH("stepped-libc-O2"),
	};
	const struct CMUnitTest tests_32[] = {BOTH("stepped-32-O0"), BOTH("stepped-32-O2")};

	if (argc == 1)
		return cmocka_run_group_tests(tests, NULL, NULL);
	if (kernel_runs("stepped-32-O0-fp"))
		return cmocka_run_group_tests(tests_32, NULL, NULL);
	puts("1..0 # SKIP no programs of 32 bits run here: not built, or not for this kernel");
	return 0;
}
