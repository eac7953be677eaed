/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for the kernel's own table of symbols. The first byte of the
 * input chooses a layout, and whether a page is missing; the rest damages the table.
 */

#include "base/fuzz_testing.h"
#include "symbol/kernel/kernel_fixture.h"
#include "symbol/kernel/kernel.h"

/* Twice what the whole table takes: more than a search may spend on a guest that small. */
#define STEPS (UINT64_C(1) << 24)

static void use(const struct kallsyms *kallsyms)
{
	struct symbols *symbols = NULL;
	struct error *err;
	uint64_t start, end;

	if (kallsyms_range(kallsyms, "function_5", &start, &end))
		need(start < end);
	err = kallsyms_symbols(kallsyms, "kernel", &symbols);
	need(!err || err->kind == ERR_INPUT);
	need(err || symbols_count(symbols) <= NAMES);
	error_free(err);
	symbols_free(symbols);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	static struct kernel *made[6];
	static struct kernel kernel;
	struct fuzz_input in = {data, data + size};
	const unsigned how = (unsigned)fuzz_number(&in, 1), i = how % 6;
	struct budget budget = {.left = STEPS};
	const struct guest_memory memory = {.ctx = &kernel, .read = read_kernel, .budget = &budget};
	struct kallsyms *kallsyms;

	if (!made[i])
		made[i] = kernel_make((enum layout)(i / 2), i & 1);
	kernel = *made[i];
	kernel.missing = how & 0x80 ? fuzz_number(&in, 2) : 0;
	fuzz_damage(&in, kernel.bytes, kernel.at);
	done(kallsyms_find(&memory, START, START + SIZE, &kallsyms));
	if (kallsyms)
		use(kallsyms);
	kallsyms_free(kallsyms);
}
