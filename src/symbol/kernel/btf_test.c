/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symbol/kernel/kernel_fixture.h"

/*
 * struct part { int a, b; };
 * typedef const struct part part_t;
 * struct whole { int x : 3, y; part_t p; union { int u; struct { int v, w; }; }; part_t many[4]; };
 */
static size_t make(struct btf_made *made)
{
	btf_begin(made);
	btf_type(made, "int", BTF_INT, 0, 4); /* 1 */
	btf_put(made, 32);
	btf_type(made, "part", BTF_STRUCT, 2, 8); /* 2 */
	btf_member(made, "a", 1, 0);
	btf_member(made, "b", 1, 32);
	btf_type(made, "", BTF_CONST, 0, 2);	     /* 3 */
	btf_type(made, "part_t", BTF_TYPEDEF, 0, 3); /* 4 */
	btf_type(made, "", BTF_STRUCT, 2, 8);	     /* 5 */
	btf_member(made, "v", 1, 0);
	btf_member(made, "w", 1, 32);
	btf_type(made, "", BTF_UNION, 2, 8); /* 6 */
	btf_member(made, "u", 1, 0);
	btf_member(made, "", 5, 0);
	btf_type(made, "", BTF_ARRAY, 0, 0); /* 7 */
	btf_put(made, 4);
	btf_put(made, 1);
	btf_put(made, 4);
	btf_type(made, "whole", BTF_STRUCT, 0, 56); /* 8 */
	memcpy(made->bytes + made->types + made->types_len - 8,
	       &(uint32_t){BTF_BITFIELDS | BTF_STRUCT << 24 | 5}, 4);
	btf_member(made, "x", 1, 3u << 24);
	btf_member(made, "y", 1, 32);
	btf_member(made, "p", 4, 64);
	btf_member(made, "", 6, 128);
	btf_member(made, "many", 7, 192);
	return btf_finish(made);
}

static struct btf *opened(const struct btf_made *made, size_t len)
{
	struct btf *btf;

	assert_null(btf_open(made->bytes, len, &btf));
	return btf;
}

static void assert_offset(const struct btf *btf, const char *path, uint32_t expected)
{
	uint32_t offset;

	assert_true(btf_offset(btf, "whole", path, &offset));
	assert_int_equal(offset, expected);
}

static void members_are_found_through_names_and_in_each_other(void **state)
{
	struct btf_made made;
	struct btf *btf = opened(&made, make(&made));

	assert_offset(btf, "x", 0);
	assert_offset(btf, "y", 4);
	assert_offset(btf, "p", 8);
	assert_offset(btf, "p.b", 12);
	assert_offset(btf, "u", 16);
	assert_offset(btf, "w", 20);
	assert_offset(btf, "many.b", 28);
	btf_free(btf);
}

static void what_is_not_there_is_not_found(void **state)
{
	struct btf_made made;
	struct btf *btf = opened(&made, make(&made));
	uint32_t offset;

	assert_false(btf_offset(btf, "whole", "a", &offset));
	assert_false(btf_offset(btf, "whole", "p.c", &offset));
	assert_false(btf_offset(btf, "whole", "x.a", &offset));
	assert_false(btf_offset(btf, "part_t", "a", &offset));
	assert_false(btf_offset(btf, "int", "a", &offset));
	assert_false(btf_size(btf, "int", &offset));
	assert_true(btf_size(btf, "whole", &offset));
	assert_int_equal(offset, 56);
	btf_free(btf);
}

/* Whatever it says then: it is within the bytes, and comes to an end. */
static void damaged_bytes_do_no_harm(void **state)
{
	struct btf_made made;
	size_t len = make(&made);
	uint32_t offset;

	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *bytes = malloc(cut + 1);
		struct btf *btf;

		memcpy(bytes, made.bytes, cut);
		assert_null(btf_open(bytes, cut, &btf));
		assert_null(btf);
		free(bytes);
	}
	for (size_t bit = 0; bit < 8 * len; bit++) {
		uint8_t *bytes = malloc(len);
		struct btf *btf;

		memcpy(bytes, made.bytes, len);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_null(btf_open(bytes, len, &btf));
		if (btf)
			btf_offset(btf, "whole", "many.b", &offset);
		btf_free(btf);
		free(bytes);
	}
}

static void structures_that_hold_themselves_come_to_an_end(void **state)
{
	struct btf_made made;
	struct btf *btf;
	uint32_t offset;

	btf_begin(&made);
	btf_type(&made, "whole", BTF_STRUCT, 100, 8);
	for (int i = 0; i < 100; i++)
		btf_member(&made, "", 1, 0);
	btf_type(&made, "endless", BTF_TYPEDEF, 0, 2);
	btf = opened(&made, btf_finish(&made));
	assert_non_null(btf);
	assert_false(btf_offset(btf, "whole", "a", &offset));
	btf_free(btf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_are_found_through_names_and_in_each_other),
		cmocka_unit_test(what_is_not_there_is_not_found),
		cmocka_unit_test(damaged_bytes_do_no_harm),
		cmocka_unit_test(structures_that_hold_themselves_come_to_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
