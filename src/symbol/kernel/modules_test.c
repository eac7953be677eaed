/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/kernel.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The memory of a kernel with modules: the list's head, and the data of each module. */

#define START 0xffffffffc0100000ull
#define SIZE  0x8000u
#define HEAD  START
/* Addresses of module i: its struct, its symbol table, symbols, names, ORC and code. */
#define MODULE(i)  (START + 0x1000 * ((i) + 1ull))
#define TABLE(i)   (MODULE(i) + 0x200)
#define SYMBOLS(i) (MODULE(i) + 0x300)
#define STRINGS(i) (MODULE(i) + 0x400)
#define ORC_IP(i)  (MODULE(i) + 0x500)
#define ORC(i)	   (MODULE(i) + 0x600)
#define CODE(i)	   (START + 0x100000 + 0x10000 * (uint64_t)(i))
#define CODE_SIZE  0x200u
#define MODULES	   3u

static const struct kernel_modules modules = {
	.list = HEAD,
	.layout = {.state = 0,
		   .list = 8,
		   .name = 24,
		   .text = 80,
		   .text_size = 88,
		   .kallsyms = 96,
		   .has_orc = true,
		   .num_orcs = 104,
		   .orc_unwind_ip = 112,
		   .orc_unwind = 120,
		   .symtab = 0,
		   .num_symtab = 8,
		   .strtab = 16},
	.orc = ORC_LINUX_4_14,
	.lowest = 0xffffffffc0000000ull,
};

struct kernel {
	uint8_t bytes[SIZE];
	unsigned reads;
};

struct taken {
	struct kernel_module module[2 * MODULES];
	unsigned n;
	uint64_t known; /* where code is known to begin; 0: nowhere */
};

static size_t read_kernel(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct kernel *kernel = ctx;
	uint64_t at = va - START;

	kernel->reads++;
	if (at >= SIZE)
		return 0;
	if (len > SIZE - at)
		len = SIZE - at;
	memcpy(buf, kernel->bytes + at, len);
	return len;
}

static void put(struct kernel *kernel, uint64_t va, const void *bytes, size_t len)
{
	memcpy(kernel->bytes + (va - START), bytes, len);
}

static void put_word(struct kernel *kernel, uint64_t va, uint64_t value)
{
	put(kernel, va, &value, 8);
}

static void put_symbol(struct kernel *kernel, unsigned i, unsigned n, uint32_t name, uint64_t value)
{
	const Elf64_Sym symbol = {.st_name = name,
				  .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
				  .st_value = value,
				  .st_size = 0x100};

	put(kernel, SYMBOLS(i) + n * sizeof(symbol), &symbol, sizeof(symbol));
}

/* One rule from its beginning on: the caller's address is at the stack pointer. */
static void put_orc(struct kernel *kernel, unsigned i)
{
	const int32_t offset = (int32_t)(CODE(i) - ORC_IP(i));
	const uint8_t rule[] = {8, 0, 0, 0, 0x05, 0};

	put(kernel, ORC_IP(i), &offset, sizeof(offset));
	put(kernel, ORC(i), rule, sizeof(rule));
	put_word(kernel, MODULE(i) + modules.layout.num_orcs, 1);
	put_word(kernel, MODULE(i) + modules.layout.orc_unwind_ip, ORC_IP(i));
	put_word(kernel, MODULE(i) + modules.layout.orc_unwind, ORC(i));
}

static void put_module(struct kernel *kernel, unsigned i)
{
	static const char strings[] = "\0first\0second\0elsewhere";
	const struct module_layout *at = &modules.layout;
	char name[] = "mod_0";

	name[4] = (char)('0' + i);
	put(kernel, MODULE(i) + at->name, name, sizeof(name));
	put_word(kernel, MODULE(i) + at->list, i + 1 < MODULES ? MODULE(i + 1) + at->list : HEAD);
	put_word(kernel, MODULE(i) + at->text, CODE(i));
	put_word(kernel, MODULE(i) + at->text_size, CODE_SIZE);
	put_word(kernel, MODULE(i) + at->kallsyms, TABLE(i));
	put_word(kernel, TABLE(i) + at->symtab, SYMBOLS(i));
	put_word(kernel, TABLE(i) + at->num_symtab, 4);
	put_word(kernel, TABLE(i) + at->strtab, STRINGS(i));
	put(kernel, STRINGS(i), strings, sizeof(strings));
	put_symbol(kernel, i, 1, 1, CODE(i));
	put_symbol(kernel, i, 2, 7, CODE(i) + 0x100);
	put_symbol(kernel, i, 3, 14, CODE(i) + CODE_SIZE);
	put_orc(kernel, i);
}

static struct kernel *new_kernel(void)
{
	struct kernel *kernel = calloc(1, sizeof(*kernel));

	assert_non_null(kernel);
	put_word(kernel, HEAD, MODULE(0) + modules.layout.list);
	for (unsigned i = 0; i < MODULES; i++)
		put_module(kernel, i);
	return kernel;
}

static bool is_known(void *ctx, uint64_t start, uint64_t end)
{
	const struct taken *taken = ctx;

	return taken->known >= start && taken->known < end;
}

static struct error *take(void *ctx, struct kernel_module *module)
{
	struct taken *taken = ctx;

	assert_true(taken->n < 2 * MODULES);
	taken->module[taken->n++] = *module;
	return NULL;
}

static void clear(struct taken *taken)
{
	for (unsigned i = 0; i < taken->n; i++) {
		symbols_free(taken->module[i].symbols);
		unwind_table_free(taken->module[i].table);
	}
	taken->n = 0;
}

static void search(struct kernel *kernel, struct taken *taken)
{
	const struct guest_memory memory = {.ctx = kernel, .read = read_kernel};

	assert_null(kernel_modules_read(&memory, &modules, taken, is_known, take));
}

static void each_has_its_functions_and_tables(void **state)
{
	struct kernel *kernel = new_kernel();
	struct taken taken = {0};
	struct symbol symbol;

	search(kernel, &taken);
	assert_int_equal(taken.n, MODULES);
	for (unsigned i = 0; i < MODULES; i++) {
		const struct row *row = unwind_table_find(taken.module[i].table, CODE(i));

		assert_int_equal(taken.module[i].name[5], '0' + i);
		assert_true(symbols_find(taken.module[i].symbols, CODE(i) + 0x1ff, &symbol));
		assert_string_equal(symbol.name, "second");
		/* Symbols outside of its code are dropped. */
		assert_int_equal(symbols_count(taken.module[i].symbols), 2);
		assert_non_null(row);
		assert_int_equal(row->kind, ROW_CALL);
		assert_int_equal(row->cfa_offset, 8);
	}
	clear(&taken);
	free(kernel);
}

static void those_that_are_known_or_not_ready_are_passed_over(void **state)
{
	struct kernel *kernel = new_kernel();
	struct taken taken = {.known = CODE(1) + 0x80};

	put_word(kernel, MODULE(2) + modules.layout.state, 1);
	search(kernel, &taken);
	assert_int_equal(taken.n, 1);
	assert_string_equal(taken.module[0].name, "[mod_0]");
	clear(&taken);
	free(kernel);
}

static void a_list_that_never_ends_is_left(void **state)
{
	struct kernel *kernel = new_kernel();
	struct taken taken = {.known = CODE(0)};

	put_word(kernel, MODULE(0) + modules.layout.list, MODULE(0) + modules.layout.list);
	search(kernel, &taken);
	assert_int_equal(taken.n, 0);
	free(kernel);
}

/* Any memory is read within bounds, and reading comes to an end. */
static void damaged_memory_does_no_harm(void **state)
{
	for (size_t bit = 0; bit < 8 * (size_t)(ORC(0) + 0x20 - START); bit++) {
		struct kernel *kernel;
		struct taken taken = {0};

		/* The memory between the parts is empty. */
		if (bit / 8 > 16 && bit / 8 < MODULE(0) - START)
			continue;
		kernel = new_kernel();
		kernel->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		search(kernel, &taken);
		clear(&taken);
		free(kernel);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_has_its_functions_and_tables),
		cmocka_unit_test(those_that_are_known_or_not_ready_are_passed_over),
		cmocka_unit_test(a_list_that_never_ends_is_left),
		cmocka_unit_test(damaged_memory_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
