/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps by rules that no row can hold, compared with libdwfl's, which evaluates expressions by itself. */
#include "unwind/tables/expression.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <glob.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "unwind/tables/cfi.h"
#include "unwind/tables/expression_fixture.h"

#define FP 6
#define SP 7
#define RA 16

#define TRIES 16 /* settings of registers and memory at each address */

/* A thread of a process that is only made up: any registers, and a word at any address. */
struct thread {
	uint64_t gp[17];
	uint64_t seed; /* of the memory */
	Dwarf_Addr pc, sp, fp;
	bool fp_known;
	unsigned frames;
};

static bool word_at(uint64_t seed, uint64_t va, uint64_t *value)
{
	*value = fixture_mix(va ^ seed);
	return true;
}

static bool get_register(const void *ctx, unsigned n, uint64_t *value)
{
	if (n > RA)
		return false;
	*value = ((struct thread *)ctx)->gp[n];
	return true;
}

static bool get_word(void *ctx, uint64_t va, uint64_t *value)
{
	return word_at(((struct thread *)ctx)->seed, va, value);
}

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread)
{
	if (*thread)
		return 0;
	*thread = arg;
	return 1;
}

static bool read_word(Dwfl *dwfl, Dwarf_Addr va, Dwarf_Word *value, void *arg)
{
	return word_at(((struct thread *)arg)->seed, va, value);
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	return dwfl_thread_state_registers(thread, 0, 17, ((struct thread *)arg)->gp);
}

static const Dwfl_Thread_Callbacks threads = {
	.next_thread = next_thread,
	.memory_read = read_word,
	.set_initial_registers = set_registers,
};

static int no_debug_file(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base,
			 const char *file, const char *link, GElf_Word crc, char **found)
{
	return -1;
}

static const Dwfl_Callbacks files = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = no_debug_file,
};

/* Keeps the second frame: the caller. */
static int keep_caller(Dwfl_Frame *frame, void *arg)
{
	struct thread *thread = arg;

	if (!dwfl_frame_pc(frame, &thread->pc, NULL))
		return DWARF_CB_ABORT;
	if (thread->frames++ == 0)
		return DWARF_CB_OK;
	if (dwfl_frame_reg(frame, SP, &thread->sp))
		thread->frames = 0;
	thread->fp_known = !dwfl_frame_reg(frame, FP, &thread->fp);
	return DWARF_CB_ABORT;
}

struct file {
	const char *path;
	struct unwind_table *table;
	Dwfl *dwfl;
	uint64_t bias;
	struct thread thread;
};

/* False: no file that both can read, with rules that no row can hold. */
static bool open_file(const char *path, struct file *file)
{
	Dwfl_Module *module;
	struct error *err;

	*file = (struct file){.path = path};
	err = cfi_load(path, &file->table);
	error_free(err);
	if (err || !file->table)
		return false;
	file->dwfl = dwfl_begin(&files);
	dwfl_report_begin(file->dwfl);
	module = dwfl_report_elf(file->dwfl, path, path, -1, 0x7f0000000000, false);
	dwfl_report_end(file->dwfl, NULL, NULL);
	return file->table->n_rare && module && dwfl_module_getelf(module, &file->bias) &&
	       dwfl_attach_state(file->dwfl, NULL, 1, &threads, &file->thread);
}

static void close_file(struct file *file)
{
	if (file->dwfl)
		dwfl_end(file->dwfl);
	unwind_table_free(file->table);
}

static void set_thread(struct thread *thread, uint64_t pc, uint64_t seed)
{
	*thread = (struct thread){.seed = fixture_mix(seed)};
	for (unsigned i = 0; i < RA; i++)
		thread->gp[i] = fixture_mix(thread->seed + i);
	thread->gp[RA] = pc;
}

static bool is_same(const struct thread *thread, const struct row_caller *caller)
{
	/* For libdwfl, nobody is at 0. */
	if (!caller->pc && thread->frames == 1)
		return true;
	return thread->frames == 2 && thread->pc == caller->pc && thread->sp == caller->sp &&
	       thread->fp_known == caller->fp_known &&
	       (!caller->fp_known || thread->fp == caller->fp);
}

/* Without tables, libdwfl follows the frame pointer. */
static bool is_without_tables(const struct thread *thread)
{
	return thread->frames < 2 || thread->sp == thread->gp[FP] + 16;
}

/* One step by both; false: by the tables it cannot be taken, and libdwfl agrees. */
static bool same_step(struct file *file, const struct row *row, uint64_t addr, uint64_t seed)
{
	struct thread *thread = &file->thread;
	const struct row_env env = {.ctx = thread,
				    .reg = get_register,
				    .load = get_word,
				    .word = 8,
				    .fp = FP,
				    .sp = SP,
				    .ra = RA};
	struct row_caller caller;
	bool known;

	set_thread(thread, addr + file->bias, seed);
	known = unwind_table_step(file->table, row, &env, &caller);
	dwfl_getthread_frames(file->dwfl, 1, keep_caller, thread);
	if (known ? !is_same(thread, &caller) : !is_without_tables(thread))
		fail_msg("%s: at %#lx, setting %lu: pc %#lx %#lx, sp %#lx %#lx, fp %#lx %#lx: %s",
			 file->path, addr, seed, caller.pc, thread->pc, caller.sp, thread->sp,
			 caller.fp, thread->fp, dwfl_errmsg(-1));
	return known;
}

/* At the first and the last address of all rows that are not short. Returns how many addresses. */
static unsigned compare(struct file *file, unsigned *unknown)
{
	const struct unwind_table *table = file->table;
	unsigned n = 0;

	for (uint32_t i = 0; i + 1 < table->n; i++) {
		const struct row *row = &table->row[i];
		const uint64_t at[] = {table->base + row->start, table->base + row[1].start - 1};

		if (row->kind != ROW_RARE && row->base == ROW_PLUS)
			continue;
		for (unsigned j = 0; j < 2; j++, n++)
			for (uint64_t seed = 0; seed < TRIES; seed++)
				*unknown += !same_step(file, row, at[j], seed + TRIES * n);
	}
	return n;
}

static void compare_matching(const char *pattern, unsigned *programs, unsigned *addresses)
{
	char real[PATH_MAX];
	struct file file;
	glob_t found;

	if (glob(pattern, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		unsigned n, unknown = 0;

		/* Not once more by another name. */
		if (!realpath(found.gl_pathv[i], real) || strcmp(real, found.gl_pathv[i]))
			continue;
		if (open_file(real, &file)) {
			n = compare(&file, &unknown);
			print_message("# %s: %u addresses\n", strrchr(real, '/') + 1, n);
			assert_int_equal(unknown, 0);
			*programs += 1;
			*addresses += n;
		}
		close_file(&file);
	}
	globfree(&found);
}

/* Expressions: linkers' PLTs, signal returns, stacks that were realigned, and hand-written assembly. */
static void steps_in_debians_libraries_are_those_of_libdwfl(void **state)
{
	static const char *const patterns[] = {
		"ld-linux-x86-64.so.2", "libc.so.6",	"libcrypto.so.*", "libgcrypt.so.*",
		"libgmp.so.*",		"libm.so.6",	"libssl.so.*",	  "libnettle.so.*",
		"libstdc++.so.*",	"libelf.so.*",	"libdw-*.so",	  "libdw.so.*",
		"libpython3.*.so.*",	"libxencall.*", "libcapstone.*",  "libgo.so.*"};
	unsigned programs = 0, addresses = 0;
	char pattern[PATH_MAX];

	for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
		snprintf(pattern, sizeof(pattern), "/usr/lib/x86_64-linux-gnu/%s", patterns[i]);
		compare_matching(pattern, &programs, &addresses);
	}
	if (!programs) {
		print_message("# none of these libraries is here\n");
		skip();
	}
	print_message("# %u programs, %u addresses, %u settings each\n", programs, addresses,
		      TRIES);
}

/* All operations, in any order: what is compared is the whole way from the file to the caller. */
static void steps_by_random_expressions_are_those_of_libdwfl(void **state)
{
	char path[] = "/tmp/uniprof-expression-XXXXXX";
	unsigned unknown = 0, n = 0;
	struct file file;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	for (uint64_t seed = 1; seed <= 16; seed++) {
		assert_true(fixture_write(fd, seed));
		assert_true(open_file(path, &file));
		n += compare(&file, &unknown);
		close_file(&file);
	}
	close(fd);
	unlink(path);
	print_message("# %u addresses, %u steps are not known\n", n, unknown);
	assert_true(n > 1000);
	/* Some divide by 0. */
	assert_true(unknown < n * TRIES / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_in_debians_libraries_are_those_of_libdwfl),
		cmocka_unit_test(steps_by_random_expressions_are_those_of_libdwfl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
