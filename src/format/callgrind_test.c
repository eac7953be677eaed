/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/export_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct profile_filter all = {.states = 0, .vcpu = -1};

static void name(struct export_fixture *f, uint64_t addr, const char *text)
{
	must(recording_name(f->writer, addr, FRAME_PC, text, 0));
	must(recording_name(f->writer, addr, FRAME_RETURN, text, 0));
}

static void has(struct export_fixture *f, const char *const *expected, size_t n)
{
	char *text = fixture_export(f, &format_callgrind, &all, NULL);

	for (size_t i = 0; i < n; i++)
		if (!strstr(text, expected[i]))
			fail_msg("no \"%s\" in:\n%s", expected[i], text);
	free(text);
	fixture_end(f);
}

#define HAS(f, ...)                                \
	has(f, (const char *const[]){__VA_ARGS__}, \
	    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void begin(struct export_fixture *f)
{
	fixture_begin(f, &(struct recording_info){.target = "xen", .vcpus = 1});
	name(f, 0x10, "leaf");
	name(f, 0x14, "leaf");
	name(f, 0x20, "main");
	name(f, 0x30, "other");
}

/* Its siblings, and those of another place in the tree, share the cost of the first. */
static void calls_of_one_function_from_one_place_are_counted_together(void **state)
{
	struct export_fixture f;

	begin(&f);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x14, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x14, 0x20, 0x30);
	HAS(&f, "fn=(1) main\ncfi=(1)\ncfn=(2) leaf\ncalls=4 0\n0 4000000 4\n\n",
	    "fn=(3) other\ncfi=(1)\ncfn=(1)\ncalls=1 0\n0 1000000 1\n");
}

static void calls_of_two_functions_or_by_two_are_counted_apart(void **state)
{
	struct export_fixture f;

	begin(&f);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10, 0x30);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x30, 0x20);
	HAS(&f,
	    "fn=(1) main\ncfi=(1)\ncfn=(2) leaf\ncalls=2 0\n0 2000000 2\n"
	    "cfi=(1)\ncfn=(3) other\ncalls=1 0\n0 1000000 1\n\n",
	    "fn=(3)\n0 1000000 1\ncfi=(1)\ncfn=(2)\ncalls=1 0\n0 1000000 1\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_of_one_function_from_one_place_are_counted_together),
		cmocka_unit_test(calls_of_two_functions_or_by_two_are_counted_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
