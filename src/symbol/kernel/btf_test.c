/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/btf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Kinds (Documentation/bpf/btf.rst). */
enum { INT = 1, POINTER = 2, ARRAY = 3, STRUCT = 4, UNION = 5, TYPEDEF = 8, CONST = 10 };

#define BITFIELDS (1u << 31)

struct made {
	uint8_t bytes[4096];
	uint32_t types, types_len, strings_len;
	char strings[1024];
};

static void put(struct made *made, uint32_t value)
{
	memcpy(made->bytes + made->types + made->types_len, &value, 4);
	made->types_len += 4;
}

static uint32_t name(struct made *made, const char *text)
{
	uint32_t at = made->strings_len;

	strcpy(made->strings + at, text);
	made->strings_len += (uint32_t)strlen(text) + 1;
	return *text ? at : 0;
}

static void type(struct made *made, const char *text, uint32_t kind, uint32_t n, uint32_t value)
{
	put(made, name(made, text));
	put(made, kind << 24 | n);
	put(made, value);
}

static void member(struct made *made, const char *text, uint32_t of, uint32_t bits)
{
	put(made, name(made, text));
	put(made, of);
	put(made, bits);
}

static void begin(struct made *made)
{
	*made = (struct made){.types = 24};
	name(made, "");
}

/* The header, and the strings behind the types. */
static size_t finish(struct made *made)
{
	const uint32_t head[] = {0x1eb9f,	   24, 0, made->types_len, made->types_len,
				 made->strings_len};
	size_t len = made->types + made->types_len;

	memcpy(made->bytes, head, sizeof(head));
	memcpy(made->bytes + len, made->strings, made->strings_len);
	return len + made->strings_len;
}

/*
 * struct part { int a, b; };
 * typedef const struct part part_t;
 * struct whole { int x : 3, y; part_t p; union { int u; struct { int v, w; }; }; part_t many[4]; };
 */
static size_t make(struct made *made)
{
	begin(made);
	type(made, "int", INT, 0, 4); /* 1 */
	put(made, 32);
	type(made, "part", STRUCT, 2, 8); /* 2 */
	member(made, "a", 1, 0);
	member(made, "b", 1, 32);
	type(made, "", CONST, 0, 2);	     /* 3 */
	type(made, "part_t", TYPEDEF, 0, 3); /* 4 */
	type(made, "", STRUCT, 2, 8);	     /* 5 */
	member(made, "v", 1, 0);
	member(made, "w", 1, 32);
	type(made, "", UNION, 2, 8); /* 6 */
	member(made, "u", 1, 0);
	member(made, "", 5, 0);
	type(made, "", ARRAY, 0, 0); /* 7 */
	put(made, 4);
	put(made, 1);
	put(made, 4);
	type(made, "whole", STRUCT, 0, 56); /* 8 */
	memcpy(made->bytes + made->types + made->types_len - 8,
	       &(uint32_t){BITFIELDS | STRUCT << 24 | 5}, 4);
	member(made, "x", 1, 3u << 24);
	member(made, "y", 1, 32);
	member(made, "p", 4, 64);
	member(made, "", 6, 128);
	member(made, "many", 7, 192);
	return finish(made);
}

static struct btf *opened(const struct made *made, size_t len)
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
	struct made made;
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
	struct made made;
	struct btf *btf = opened(&made, make(&made));
	uint32_t offset;

	assert_false(btf_offset(btf, "whole", "a", &offset));
	assert_false(btf_offset(btf, "whole", "p.c", &offset));
	assert_false(btf_offset(btf, "whole", "x.a", &offset));
	assert_false(btf_offset(btf, "part_t", "a", &offset));
	assert_false(btf_offset(btf, "int", "a", &offset));
	btf_free(btf);
}

/* Whatever it says then: it is within the bytes, and comes to an end. */
static void damaged_bytes_do_no_harm(void **state)
{
	struct made made;
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
	struct made made;
	struct btf *btf;
	uint32_t offset;

	begin(&made);
	type(&made, "whole", STRUCT, 100, 8);
	for (int i = 0; i < 100; i++)
		member(&made, "", 1, 0);
	type(&made, "endless", TYPEDEF, 0, 2);
	btf = opened(&made, finish(&made));
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
