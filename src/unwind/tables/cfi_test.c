/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares tables with libdw's rules for the same addresses of real files, and
 * reads hand-made ones.
 */
#include "base/debug_file.h"
#include "unwind/tables/cfi.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/preopen.h"

#define FP 6
#define SP 7
#define RA 16

struct counts {
	unsigned long rows, simple, rare, end;
};

/* libdw's rule for a register: bytes from the CFA; ROW_SAME, ROW_LOST; or something else. */
static int16_t reference(Dwarf_Frame *frame, int reg)
{
	Dwarf_Op mem[3], *ops;
	size_t n;

	assert_int_equal(dwarf_frame_register(frame, reg, mem, &ops, &n), 0);
	if (n == 0)
		return ops == mem ? ROW_LOST : ROW_SAME;
	assert_true(n <= 2 && ops[0].atom == DW_OP_call_frame_cfa);
	assert_true(n == 1 || ops[1].atom == DW_OP_plus_uconst);
	return n == 1 ? 0 : (int16_t)ops[1].number;
}

static void expect_cfa(Dwarf_Frame *frame, const struct row *row)
{
	Dwarf_Op *ops;
	size_t n;

	assert_int_equal(dwarf_frame_cfa(frame, &ops, &n), 0);
	if (ops[0].atom == DW_OP_bregx)
		assert_int_equal(ops[0].number, row->cfa_reg);
	else
		assert_int_equal(ops[0].atom - DW_OP_breg0, row->cfa_reg);
	assert_int_equal(n, row->base == ROW_PLUS ? 1 : 2);
	assert_int_equal((int32_t)(ops[0].atom == DW_OP_bregx ? ops[0].number2 : ops[0].number),
			 row->cfa_offset);
}

static void compare(const struct unwind_table *table, Dwarf_CFI *cfi, uint64_t addr,
		    struct counts *counts)
{
	const struct row *row = unwind_table_find(table, addr);
	Dwarf_Frame *frame;
	bool trap;

	if (dwarf_cfi_addrframe(cfi, addr, &frame)) {
		assert_null(row);
		return;
	}
	assert_non_null(row);
	dwarf_frame_info(frame, NULL, NULL, &trap);
	counts->rows++;
	if (row->kind == ROW_RARE) {
		counts->rare++;
	} else if (row->kind == ROW_END) {
		assert_int_equal(reference(frame, RA), ROW_LOST);
		counts->end++;
	} else {
		assert_int_equal(row->kind, trap ? ROW_TRAP : ROW_CALL);
		expect_cfa(frame, row);
		assert_int_equal(reference(frame, RA), row->ra_at);
		assert_int_equal(reference(frame, FP), row->fp_at);
		counts->simple++;
	}
	free(frame);
}

/* At every row's first and last address, and around. */
static void compare_all(const char *path, struct counts *counts)
{
	struct unwind_table *table;
	int fd = open(path, O_RDONLY);
	Elf *elf;
	Dwarf_CFI *cfi;

	assert_null(cfi_load(path, &table));
	assert_non_null(table);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	cfi = dwarf_getcfi_elf(elf);
	assert_non_null(cfi);
	for (uint32_t i = 0; i < table->n; i++) {
		compare(table, cfi, table->base + table->row[i].start, counts);
		if (table->row[i].start)
			compare(table, cfi, table->base + table->row[i].start - 1, counts);
		assert_true(!i || table->row[i].start > table->row[i - 1].start);
	}
	assert_null(unwind_table_find(table, table->base - 1));
	dwarf_cfi_end(cfi);
	elf_end(elf);
	close(fd);
	unwind_table_free(table);
}

static bool libc_path(char *path)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = strstr(line, "/libc.so.6") &&
			sscanf(line, "%*s %*s %*s %*s %*s %255s", path) == 1;
	if (maps)
		fclose(maps);
	return found;
}

static void rows_of_the_c_library_are_those_of_libdw(void **state)
{
	struct counts counts = {0};
	char path[256];

	if (sizeof(void *) == 4 || !libc_path(path)) {
		print_message("# no 64-bit libc.so.6\n");
		skip();
	}
	compare_all(path, &counts);
	print_message("# %lu addresses: %lu simple, %lu rare, %lu outermost\n", counts.rows,
		      counts.simple, counts.rare, counts.end);
	assert_true(counts.simple > 5000);
	assert_true(counts.rare > 0 && counts.rare < counts.rows / 20);
	assert_true(counts.end > 0);
}

/* The stepped programs are built into unwind/stepped, beside this one. */
static void stepped(const char *name, char *path, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(n > 0);
	self[n] = 0;
	*strrchr(self, '/') = 0;
	assert_true((size_t)snprintf(path, size, "%s/unwind/stepped/%s", self, name) < size);
}

static void run(const char *format, const char *a, const char *b)
{
	char command[3 * PATH_MAX];

	snprintf(command, sizeof(command), format, a, b, b);
	assert_int_equal(system(command), 0);
}

static void expect_same(const struct unwind_table *expected, const char *path)
{
	struct unwind_table *table;

	assert_null(cfi_load(path, &table));
	assert_non_null(table);
	assert_int_equal(table->base, expected->base);
	assert_int_equal(table->n, expected->n);
	assert_memory_equal(table->row, expected->row, table->n * sizeof(*table->row));
	unwind_table_free(table);
}

static void look_into(const char *dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_null(debug_file_preopen(path));
}

static void debug_frames_are_read_packed_and_apart_too(void **state)
{
	char program[PATH_MAX], dir[] = "/tmp/uniprof-cfi-XXXXXX", copy[64];
	struct unwind_table *table, *none;

	stepped("stepped-64-O2-debug-frame", program, sizeof(program));
	if (access(program, R_OK) || system("objcopy --version >/dev/null 2>&1")) {
		print_message("# no objcopy, or no program for it\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	snprintf(copy, sizeof(copy), "%s/program", dir);
	assert_null(cfi_load(program, &table));
	assert_non_null(table);
	assert_true(table->n > 50);
	run("objcopy --compress-debug-sections=zlib-gabi %s %s", program, copy);
	expect_same(table, copy);
	run("objcopy --compress-debug-sections=zlib-gnu %s %s", program, copy);
	expect_same(table, copy);
	run("objcopy --only-keep-debug %s %s.debug", program, copy);
	run("objcopy -S %s %s", program, copy);
	assert_null(cfi_load(copy, &none));
	assert_null(none);
	run("cd %s && objcopy --add-gnu-debuglink=program.debug %s", dir, copy);
	expect_same(table, copy);
	run("cd %s && mkdir .debug && mv program.debug .debug", dir, copy);
	expect_same(table, copy);
	/* A directory of one's own: by the file's whole path, and by the bare name. */
	run("cd %s && mkdir -p own$PWD && mv .debug/program.debug own$PWD && rmdir .debug", dir,
	    copy);
	assert_null(cfi_load(copy, &none));
	assert_null(none);
	look_into(dir, "own");
	expect_same(table, copy);
	run("cd %s && mkdir bare && mv own$PWD/program.debug bare", dir, copy);
	look_into(dir, "bare");
	expect_same(table, copy);
	preopen_close();
	/* Another program's. */
	run("cp /proc/self/exe %s/program.debug", dir, copy);
	assert_null(cfi_load(copy, &none));
	assert_null(none);
	unwind_table_free(table);
	run("rm -r %s", dir, copy);
}

/* As boot loaders want it: the code's width is not that of the file. */
static void code_of_64_bits_is_read_in_a_file_of_32_bits(void **state)
{
	static const char *const programs[] = {"stepped-64-O2-debug-frame", "stepped-64-O2-nofp"};
	char program[PATH_MAX], dir[] = "/tmp/uniprof-cfi-XXXXXX", copy[64];
	struct unwind_table *table;

	stepped(programs[0], program, sizeof(program));
	if (access(program, R_OK) || system("objcopy --version >/dev/null 2>&1")) {
		print_message("# no objcopy, or no program for it\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	snprintf(copy, sizeof(copy), "%s/program", dir);
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		stepped(programs[i], program, sizeof(program));
		assert_null(cfi_load(program, &table));
		assert_non_null(table);
		run("objcopy -O elf32-i386 %s %s", program, copy);
		expect_same(table, copy);
		unwind_table_free(table);
	}
	run("rm -r %s", dir, copy);
}

static void what_has_no_tables_has_no_rows(void **state)
{
	struct error *err;
	struct unwind_table *table;

	err = cfi_load("/nowhere", &table);
	assert_int_equal(err->kind, ERR_INPUT);
	error_free(err);
	err = cfi_load("/dev/null", &table);
	assert_int_equal(err->kind, ERR_INPUT);
	error_free(err);
	err = debug_file_preopen("/dev/null");
	assert_int_equal(err->kind, ERR_INPUT);
	error_free(err);
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/* Any bytes give a table in order, or none, or a sentence. */
static void survive(const uint8_t *bytes, size_t len, unsigned *tables)
{
	int fd = memfd_create("damaged", MFD_CLOEXEC);
	struct unwind_table *table;
	struct error *err;
	char path[32];

	assert_int_equal(write(fd, bytes, len), len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = cfi_load(path, &table);
	assert_true(!err || err->kind == ERR_INPUT);
	for (uint32_t i = 1; !err && table && i < table->n; i++)
		assert_true(table->row[i].start > table->row[i - 1].start);
	*tables += !err && table;
	error_free(err);
	unwind_table_free(table);
	close(fd);
}

static void damaged_files_are_survived(void **state)
{
	static uint8_t whole[1 << 17], bytes[sizeof(whole)];
	uint64_t seed = 1;
	char path[PATH_MAX];
	unsigned tables = 0;
	size_t len;
	FILE *in;

	stepped("stepped-64-O2-fp", path, sizeof(path));
	in = fopen(path, "r");
	if (!in) {
		print_message("# no program for it\n");
		skip();
	}
	len = fread(whole, 1, sizeof(whole), in);
	fclose(in);
	for (size_t cut = 0; cut < len; cut += 61)
		survive(whole, cut, &tables);
	for (int round = 0; round < 2000; round++) {
		memcpy(bytes, whole, len);
		for (unsigned flips = 1 + round % 32; flips; flips--)
			bytes[next_random(&seed) % len] ^= (uint8_t)(1 << next_random(&seed) % 8);
		survive(bytes, len, &tables);
	}
	print_message("# %u had tables\n", tables);
	assert_true(tables > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_of_the_c_library_are_those_of_libdw),
		cmocka_unit_test(debug_frames_are_read_packed_and_apart_too),
		cmocka_unit_test(code_of_64_bits_is_read_in_a_file_of_32_bits),
		cmocka_unit_test(what_has_no_tables_has_no_rows),
		cmocka_unit_test(damaged_files_are_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
