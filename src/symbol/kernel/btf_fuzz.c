/* SPDX-License-Identifier: BSD-3-Clause */

/* libFuzzer target for BTF: the input is it. */

#include "base/fuzz_testing.h"
#include "symbol/kernel/kernel.h"

static void fuzz_one(const uint8_t *data, size_t size)
{
	static const char *const paths[][2] = {{"whole", "x"},	    {"whole", "y"},
					       {"whole", "p.b"},    {"whole", "w"},
					       {"whole", "many.b"}, {"part", "a"},
					       {"whole", "p.many"}};
	uint8_t *bytes = fuzz_copy(data, size);
	struct btf *btf;
	uint32_t offset;

	done(btf_open(bytes, size, &btf));
	for (size_t i = 0; btf && i < sizeof(paths) / sizeof(*paths); i++)
		(void)btf_offset(btf, paths[i][0], paths[i][1], &offset);
	btf_free(btf);
	free(bytes);
}
