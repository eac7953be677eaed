/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Has qemu-aarch64 run real programs one instruction at a time, keeps the true
 * call chain from the calls and returns that are seen, and unwinds at every
 * instruction. Some of them sign their return addresses.
 */
#include "unwind/unwind.h"

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

#include "arch/arm64_mmu.h"
#include "symbol/symbols.h"
#include "target/qemu/gdb.h"
#include "unwind/cfi_rows.h"

#define GUEST_BASE	0x100000000ull
#define GUEST_BASE_TEXT "0x100000000"
#define STACK_MAX	(32u << 10)
#define DEPTH_MAX	256
#define TRIES		1000
#define TRY_NS		10000000
/* Addresses of 48 bits. */
#define CONTROL 16
enum { FP = 29, LR, SP, PC, WORDS };

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
	struct rows *rows;
	bool named; /* the unwinder is told of symbols, for now */
	uint64_t r[WORDS];
	uint8_t stack[STACK_MAX];
	uint64_t stack_end;
	struct shadow shadow;
	unsigned long steps, signatures;
};

/* What is known to an unwinder, and how it does. */
struct way {
	bool named;
	enum unwind_method method;
	struct unwinder *unwinder;
	unsigned long of[VERDICTS];
};

static size_t read_memory(pid_t pid, uint64_t va, void *buf, size_t len)
{
	struct iovec to = {buf, len}, from = {(void *)(uintptr_t)(GUEST_BASE + va), len};
	ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

	return n < 0 ? 0 : (size_t)n;
}

static size_t read_code(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct stepped *stepped = ctx;

	return read_memory(stepped->pid, va, buf, len);
}

static bool function_bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	struct stepped *stepped = ctx;
	struct symbol symbol;

	if (!stepped->named || !symbols_find(stepped->symbols, va, &symbol))
		return false;
	*start = symbol.start;
	*end = symbol.end;
	return true;
}

static const struct rows *table(void *ctx, uint64_t va, uint64_t *slide)
{
	const struct stepped *stepped = ctx;

	*slide = 0;
	return stepped->rows;
}

static void take_registers(struct stepped *stepped)
{
	assert_true(gdb_bytes(stepped->gdb, 0, stepped->r, sizeof(stepped->r)));
}

static void find_stack_end(struct stepped *stepped)
{
	uint64_t end = stepped->r[SP] & ~(uint64_t)(FRAME_SIZE - 1);
	uint8_t byte;

	while (read_memory(stepped->pid, end, &byte, 1))
		end += FRAME_SIZE;
	stepped->stack_end = end;
}

/* A test that fails leaves nothing behind that holds its output open. */
static void run_program(const struct stepped *stepped, const char *program)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execlp("qemu-aarch64", "qemu-aarch64", "-cpu", "max", "-B", GUEST_BASE_TEXT, "-g",
	       stepped->socket, program, NULL);
	_exit(99);
}

static void start(struct stepped *stepped, const char *program)
{
	const struct timespec pause = {.tv_nsec = TRY_NS};
	struct error *err;
	char *features;

	err = symbols_load(program, &stepped->symbols);
	assert_null(err);
	assert_null(cfi_rows_load(program, &stepped->rows));
	assert_non_null(stepped->rows);
	strcpy(stepped->place, "/tmp/arm64_step_test.XXXXXX");
	assert_non_null(mkdtemp(stepped->place));
	snprintf(stepped->socket, sizeof(stepped->socket), "%s/gdb", stepped->place);
	stepped->pid = fork();
	assert_true(stepped->pid >= 0);
	if (!stepped->pid)
		run_program(stepped, program);
	/* That the socket is there does not mean that it is listened to. */
	for (int i = 0; (err = gdb_open(stepped->socket, true, &stepped->gdb)) && i < TRIES; i++) {
		error_free(err);
		gdb_close(stepped->gdb);
		nanosleep(&pause, NULL);
	}
	assert_null(err);
	/* Who has asked for this is not given the registers of coprocessors of old between. */
	features = gdb_features(stepped->gdb, "target.xml");
	assert_non_null(features);
	free(features);
	assert_true(gdb_ask(stepped->gdb, "g"));
	take_registers(stepped);
	find_stack_end(stepped);
}

static void stop(struct stepped *stepped)
{
	int status;

	gdb_close(stepped->gdb);
	kill(stepped->pid, SIGKILL);
	waitpid(stepped->pid, &status, 0);
	unlink(stepped->socket);
	rmdir(stepped->place);
	symbols_free(stepped->symbols);
	rows_free(stepped->rows);
}

/*
 * Follows what the last instruction did; told by the registers, not by
 * decoding it. `ret`: where it would return to, if it was a call.
 */
static void follow(struct stepped *stepped, const uint64_t before[WORDS], uint64_t ret)
{
	struct shadow *shadow = &stepped->shadow;
	const uint64_t *after = stepped->r;

	if (shadow->n && after[PC] == shadow->ret[shadow->n - 1] &&
	    after[SP] == shadow->sp[shadow->n - 1]) {
		shadow->n--;
		return;
	}
	if (after[LR] != ret || (after[PC] == ret && after[LR] == before[LR]))
		return;
	assert_true(shadow->n < DEPTH_MAX);
	shadow->ret[shadow->n] = ret;
	shadow->sp[shadow->n++] = after[SP];
}

/* Executes one instruction; false when the program has ended. */
static bool step(struct stepped *stepped)
{
	const uint64_t ret = stepped->r[PC] + 4;
	uint64_t before[WORDS];

	memcpy(before, stepped->r, sizeof(before));
	assert_true(gdb_ask(stepped->gdb, "s"));
	if (stepped->gdb->packet[0] == 'W') {
		assert_string_equal(stepped->gdb->packet, "W00");
		return false;
	}
	assert_true(gdb_ask(stepped->gdb, "g"));
	take_registers(stepped);
	follow(stepped, before, ret);
	return true;
}

static bool never_returns(const struct stepped *stepped, uint64_t addr)
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

static enum verdict compare(const struct stepped *stepped, const struct frame *frames,
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

static void unwind(struct stepped *stepped, struct way *way)
{
	const struct code code = {.ctx = stepped,
				  .read = read_code,
				  .function = function_bounds,
				  .rows = table};
	struct window window = {.va = stepped->r[SP], .bytes = stepped->stack};
	struct regs regs = {.pc = stepped->r[PC],
			    .sp = stepped->r[SP],
			    .fp = stepped->r[FP],
			    .word = 8,
			    .isa = ISA_ARM,
			    .gp_valid = UINT32_MAX,
			    .mmu = {.mode = MMU_ARM64, .control = CONTROL}};
	const struct unwind_input in = {.regs = &regs,
					.stack = &window,
					.code = &code,
					.unwinder = way->unwinder,
					.max_frames = DEPTH_MAX,
					.method = way->method};
	struct frame frames[DEPTH_MAX];
	struct unwind_result out;
	enum verdict verdict;

	memcpy(regs.gp, stepped->r, sizeof(regs.gp));
	window.len = STACK_MAX;
	if (stepped->stack_end - stepped->r[SP] < STACK_MAX)
		window.len = (uint32_t)(stepped->stack_end - stepped->r[SP]);
	window.len = (uint32_t)read_memory(stepped->pid, window.va, stepped->stack, window.len);
	stepped->named = way->named;
	unwind_stack(&in, frames, &out);
	verdict = compare(stepped, frames, &out);
	if (way->of[verdict]++ < 4 && verdict > NO_RETURN)
		explain(stepped, frames, &out, verdict);
}

/* Another machine's code needs what makes it, which was asked for when this was built, and runs it. */
static void skip_without(const char *program)
{
	if (!access(program, R_OK))
		return;
	print_message("# skipped: no compiler for 64-bit Arm has made %s\n", program);
	skip();
}

/* Is any return address of the program other than it looks? Then it was signed. */
static bool has_signed(const struct stepped *stepped)
{
	return stepped->r[LR] !=
	       arm64_strip(&(struct mmu){.mode = MMU_ARM64, .control = CONTROL}, stepped->r[LR]);
}

static void walk_through(struct stepped *stepped, const char *name, struct way *ways, size_t n)
{
	char self[PATH_MAX], program[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(len > 0);
	self[len] = '\0';
	snprintf(program, sizeof(program), "%.3000s/unwind/stepped/%s", dirname(self), name);
	skip_without(program);
	start(stepped, program);
	for (size_t i = 0; i < n; i++)
		assert_null(unwinder_new(&ways[i].unwinder));
	do {
		stepped->steps++;
		stepped->signatures += has_signed(stepped);
		for (size_t i = 0; i < n; i++)
			unwind(stepped, &ways[i]);
	} while (step(stepped));
	stop(stepped);
	for (size_t i = 0; i < n; i++) {
		unwinder_free(ways[i].unwinder);
		print_message("# %s, %s%s:", name, unwind_method_text(ways[i].method),
			      ways[i].named ? "" : " without symbols");
		for (enum verdict v = 0; v < VERDICTS; v++)
			print_message(" %lu %s", ways[i].of[v], verdict_text[v]);
		print_message("\n");
	}
}

/* With symbols, every instruction of every function has all of its callers; by tables alone, too. */
static void every_instruction_has_its_callers(void **state)
{
	static struct stepped stepped;
	const char *name = *state;
	struct way ways[] = {{.named = true}, {.method = UNWIND_CFI}};

	memset(&stepped, 0, sizeof(stepped));
	walk_through(&stepped, name, ways, 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ways[i].of[WHOLE] + ways[i].of[NO_RETURN], stepped.steps);
	assert_int_equal(stepped.signatures > 0, strstr(name, "pac") != NULL);
}

#define PROGRAM(name) \
	cmocka_unit_test_prestate(every_instruction_has_its_callers, "stepped-arm64-" name)

static bool can_run(void)
{
	return !system("command -v qemu-aarch64 > /dev/null");
}

int main(void)
{
	const struct CMUnitTest tests[] = {PROGRAM("fp"),	PROGRAM("nofp"),
					   PROGRAM("O0-pac"),	PROGRAM("fp-pac"),
					   PROGRAM("nofp-pac"), PROGRAM("nofp-pac83")};

	if (can_run())
		return cmocka_run_group_tests(tests, NULL, NULL);
	printf("1..0 # SKIP no qemu-aarch64 to run programs for 64-bit Arm\n");
	return 0;
}
