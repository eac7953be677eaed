/* SPDX-License-Identifier: BSD-3-Clause */

/* libFuzzer target for DWARF expressions: one byte that says how, and the operations. */

#include "base/fuzz_testing.h"
#include "unwind/tables/expression.h"

static unsigned loads;

static bool reg(const void *ctx, unsigned n, uint64_t *value)
{
	*value = 0x1000 + 8 * n;
	return n < 17;
}

static bool load(void *ctx, uint64_t va, uint64_t *value)
{
	loads++;
	*value = va * 3;
	return va % 8 == 0;
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	const unsigned how = (unsigned)fuzz_number(&in, 1);
	const struct row_env env = {
		.reg = reg, .load = load, .word = how & 2 ? 4 : 8, .fp = 6, .sp = 7, .ra = 16};
	const uint64_t first = fuzz_number(&in, 8);
	const size_t len = fuzz_left(&in);
	uint8_t *bytes = fuzz_copy(in.at, len);
	uint64_t value;

	loads = 0;
	(void)expression_value(bytes, len, &env, how & 1 ? &first : NULL, &value);
	need(loads <= EXPRESSION_STEPS);
	free(bytes);
}
