/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * For tests on other machines' code: has QEMU run real programs (stepped/) one
 * instruction at a time, keeps the true call chain from the calls and returns
 * that are seen, unwinds at every instruction, and judges what comes of it.
 */

#include <libgen.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbol/names/symbols.h"
#include "target/gdb/client.h"
#include "unwind/tables/cfi.h"
#include "unwind/unwind.h"

#define GUEST_BASE	      0x100000000ull
#define GUEST_BASE_TEXT	      "0x100000000"
#define STACK_MAX	      (32u << 10)
#define DEPTH_MAX	      256
#define STEPPED_REGISTERS_MAX 33
#define TRIES		      1000
#define TRY_NS		      10000000

struct shadow {
	size_t n;
	uint64_t ret[DEPTH_MAX], sp[DEPTH_MAX];
};

enum verdict {
	WHOLE,	    /* the true chain, and said to be whole */
	NO_RETURN,  /* ... from a function that never returns, and may keep no way back */
	TRUNCATED,  /* the inner part of the true chain, and said not to be all */
	LIE,	    /* ... but said to be whole */
	IMPOSSIBLE, /* an address that is not in the chain there */
	VERDICTS
};

static const char *const verdict_text[] = {"whole", "no return", "truncated", "lie",
					   "impossible edge"};

struct stepped {
	pid_t pid;
	char place[64], socket[80];
	struct gdb *gdb;
	struct symbols *symbols;
	struct unwind_table *table;
	bool named; /* the unwinder is told of symbols, for now */
	const struct machine *machine;
	uint64_t r[STEPPED_REGISTERS_MAX];
	uint32_t flags; /* CPSR */
	uint8_t stack[STACK_MAX];
	uint64_t stack_end;
	struct shadow shadow;
	unsigned long steps, signatures;
};

/* Differences between the processors. */
struct machine {
	const char *emulator, *name; /* "qemu-arm", "32-bit Arm" */
	const char *cpu;	     /* one that has what the programs use */
	unsigned sp, lr, pc;	     /* where these are in r[] */
	/* From the answer to "g". */
	void (*take_registers)(struct stepped *stepped);
	/* Value of the link register after the next instruction, if that is a call. */
	uint64_t (*link)(const struct stepped *stepped);
	/* All but pc and sp. */
	void (*fill)(const struct stepped *stepped, struct regs *regs);
	/* Looks at each step; NULL: nothing to see. */
	void (*see)(struct stepped *stepped);
};

/* Knowledge that an unwinder is given, and its results. */
struct way {
	bool named;
	enum unwind_method method;
	struct unwinder *unwinder;
	unsigned long of[VERDICTS];
};

static inline size_t read_emulated(pid_t pid, uint64_t va, void *buf, size_t len)
{
	struct iovec to = {buf, len}, from = {(void *)(uintptr_t)(GUEST_BASE + va), len};
	ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

	return n < 0 ? 0 : (size_t)n;
}

static inline size_t read_code(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct stepped *stepped = ctx;

	return read_emulated(stepped->pid, va, buf, len);
}

static inline bool function_bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	struct stepped *stepped = ctx;
	struct symbol symbol;

	if (!stepped->named || !symbols_find(stepped->symbols, va, &symbol))
		return false;
	*start = symbol.start;
	*end = symbol.end;
	return true;
}

static inline const struct unwind_table *table(void *ctx, uint64_t va, uint64_t *slide)
{
	const struct stepped *stepped = ctx;

	*slide = 0;
	return stepped->table;
}

static inline void find_stack_end(struct stepped *stepped)
{
	uint64_t end = stepped->r[stepped->machine->sp] & ~(uint64_t)(FRAME_SIZE - 1);
	uint8_t byte;

	while (read_emulated(stepped->pid, end, &byte, 1))
		end += FRAME_SIZE;
	stepped->stack_end = end;
}

/* A test that fails leaves nothing behind that holds its output open. */
static inline void run_program(const struct stepped *stepped, const char *program)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execlp(stepped->machine->emulator, stepped->machine->emulator, "-cpu",
	       stepped->machine->cpu, "-B", GUEST_BASE_TEXT, "-g", stepped->socket, program, NULL);
	_exit(99);
}

static inline void start_program(struct stepped *stepped, const char *program)
{
	const struct timespec pause = {.tv_nsec = TRY_NS};
	struct error *err;
	char *features;

	err = symbols_load(program, &stepped->symbols);
	assert_null(err);
	assert_null(cfi_load(program, &stepped->table));
	assert_non_null(stepped->table);
	strcpy(stepped->place, "/tmp/uniprof-emulated.XXXXXX");
	assert_non_null(mkdtemp(stepped->place));
	snprintf(stepped->socket, sizeof(stepped->socket), "%s/gdb", stepped->place);
	stepped->pid = fork();
	assert_true(stepped->pid >= 0);
	if (!stepped->pid)
		run_program(stepped, program);
	/* That the socket is there does not mean that it is listened to. */
	for (int i = 0; (err = gdb_open(stepped->socket, true, 0, &stepped->gdb)) && i < TRIES;
	     i++) {
		error_free(err);
		gdb_close(stepped->gdb);
		nanosleep(&pause, NULL);
	}
	assert_null(err);
	/* Asking for it keeps the registers of old coprocessors out of the answer to "g". */
	features = gdb_features(stepped->gdb, "target.xml");
	assert_non_null(features);
	free(features);
	assert_true(gdb_ask(stepped->gdb, "g"));
	stepped->machine->take_registers(stepped);
	find_stack_end(stepped);
}

static inline void stop_program(struct stepped *stepped)
{
	int status;

	gdb_close(stepped->gdb);
	kill(stepped->pid, SIGKILL);
	waitpid(stepped->pid, &status, 0);
	unlink(stepped->socket);
	rmdir(stepped->place);
	symbols_free(stepped->symbols);
	unwind_table_free(stepped->table);
}

/*
 * Follows what the last instruction did; told by the registers, not by
 * decoding it. `ret`: what it has left in the link register, if it was a call; the lowest bit
 * says T32.
 */
static inline void follow(struct stepped *stepped, const uint64_t *before, uint64_t ret)
{
	const struct machine *machine = stepped->machine;
	struct shadow *shadow = &stepped->shadow;
	const uint64_t *after = stepped->r;

	if (shadow->n && after[machine->pc] == shadow->ret[shadow->n - 1] &&
	    after[machine->sp] == shadow->sp[shadow->n - 1]) {
		shadow->n--;
		return;
	}
	if (after[machine->lr] != ret ||
	    (after[machine->pc] == (ret & ~1ull) && after[machine->lr] == before[machine->lr]))
		return;
	assert_true(shadow->n < DEPTH_MAX);
	shadow->ret[shadow->n] = ret & ~1ull;
	shadow->sp[shadow->n++] = after[machine->sp];
}

/* Executes one instruction; false when the program has ended. */
static inline bool step(struct stepped *stepped)
{
	const uint64_t ret = stepped->machine->link(stepped);
	uint64_t before[STEPPED_REGISTERS_MAX];

	memcpy(before, stepped->r, sizeof(before));
	assert_true(gdb_ask(stepped->gdb, "s"));
	if (stepped->gdb->packet[0] == 'W') {
		assert_string_equal(stepped->gdb->packet, "W00");
		return false;
	}
	assert_true(gdb_ask(stepped->gdb, "g"));
	stepped->machine->take_registers(stepped);
	follow(stepped, before, ret);
	return true;
}

static inline bool never_returns(const struct stepped *stepped, uint64_t addr)
{
	static const char *const names[] = {"stepped_main", "last_words", "never_returns"};
	struct symbol symbol;

	if (!symbols_find(stepped->symbols, addr - 1, &symbol))
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(symbol.name, names[i]))
			return true;
	return false;
}

static inline enum verdict compare(const struct stepped *stepped, const struct frame *frames,
				   const struct unwind_result *out)
{
	const struct shadow *shadow = &stepped->shadow;

	for (size_t i = 1; i < out->n; i++)
		if (i > shadow->n || frames[i].addr != shadow->ret[shadow->n - i])
			return IMPOSSIBLE;
	if (out->end != UNWIND_OUTERMOST)
		return TRUNCATED;
	if (out->n == shadow->n + 1)
		return WHOLE;
	return never_returns(stepped, frames[out->n - 1].addr) ? NO_RETURN : LIE;
}

static inline void print_frame(const struct stepped *stepped, uint64_t addr, bool guess)
{
	struct symbol symbol = {.name = "?"};

	symbols_find(stepped->symbols, addr, &symbol);
	print_message(" %s+%#llx%s", symbol.name, (unsigned long long)(addr - symbol.start),
		      guess ? "?" : "");
}

static inline void explain(const struct stepped *stepped, const struct frame *frames,
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

static inline void unwind(struct stepped *stepped, struct way *way)
{
	const struct code code = {.ctx = stepped,
				  .read = read_code,
				  .function = function_bounds,
				  .table = table};
	const struct machine *machine = stepped->machine;
	const uint64_t sp = stepped->r[machine->sp], left = stepped->stack_end - sp;
	struct window window = {.va = sp, .bytes = stepped->stack};
	struct regs regs = {.pc = stepped->r[machine->pc], .sp = sp};
	const struct unwind_input in = {.regs = &regs,
					.stack = &window,
					.code = &code,
					.unwinder = way->unwinder,
					.max_frames = DEPTH_MAX,
					.method = way->method};
	struct frame frames[DEPTH_MAX];
	struct unwind_result out;
	enum verdict verdict;

	machine->fill(stepped, &regs);
	window.len = left < STACK_MAX ? (uint32_t)left : STACK_MAX;
	window.len = (uint32_t)read_emulated(stepped->pid, window.va, stepped->stack, window.len);
	stepped->named = way->named;
	unwind_stack(&in, frames, &out);
	verdict = compare(stepped, frames, &out);
	if (way->of[verdict]++ < 4 && verdict > NO_RETURN)
		explain(stepped, frames, &out, verdict);
}

/* Another machine's code needs what makes it, which was asked for when this was built, and runs it. */
static inline void skip_without(const struct machine *machine, const char *program)
{
	if (!access(program, R_OK))
		return;
	print_message("# skipped: no compiler for %s has made %s\n", machine->name, program);
	skip();
}

/* Steps through the program, and unwinds in each way at each step; `stepped` has its machine, and nothing else. */
static inline void walk_through(struct stepped *stepped, const char *name, struct way *ways,
				size_t n)
{
	char self[PATH_MAX], program[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(len > 0);
	self[len] = '\0';
	snprintf(program, sizeof(program), "%.3000s/unwind/stepped/%s", dirname(self), name);
	skip_without(stepped->machine, program);
	start_program(stepped, program);
	for (size_t i = 0; i < n; i++)
		assert_null(unwinder_new(&ways[i].unwinder));
	do {
		stepped->steps++;
		if (stepped->machine->see)
			stepped->machine->see(stepped);
		for (size_t i = 0; i < n; i++)
			unwind(stepped, &ways[i]);
	} while (step(stepped));
	stop_program(stepped);
	for (size_t i = 0; i < n; i++) {
		unwinder_free(ways[i].unwinder);
		print_message("# %s, %s%s:", name, unwind_method_text(ways[i].method),
			      ways[i].named ? "" : " without symbols");
		for (enum verdict v = 0; v < VERDICTS; v++)
			print_message(" %lu %s", ways[i].of[v], verdict_text[v]);
		print_message("\n");
	}
}

/* Instructions at which no code tells that _start is nobody's callee, or is half a call. */
#define UNTOLD 9

/* Without symbols, too, no caller is wrong, and none is missing that is not said to be. */
static inline void assert_no_symbols_are_needed(const struct stepped *stepped,
						const struct way *ways, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(ways[i].of[IMPOSSIBLE], 0);
		assert_int_equal(ways[i].of[LIE], 0);
		assert_in_range(ways[i].of[TRUNCATED], 0, UNTOLD);
		assert_int_equal(ways[i].of[WHOLE] + ways[i].of[NO_RETURN] + ways[i].of[TRUNCATED],
				 stepped->steps);
	}
}

/* Runs the tests, where the emulator is. */
static inline int run_emulated(const struct machine *machine, int (*run)(void))
{
	char command[64];

	snprintf(command, sizeof(command), "command -v %s > /dev/null", machine->emulator);
	if (!system(command))
		return run();
	printf("1..0 # SKIP no %s to run programs for %s\n", machine->emulator, machine->name);
	return 0;
}
