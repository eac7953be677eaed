/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/format.h"

static struct error *load_bytes(const char *text, size_t len, struct profile **profile)
{
	const struct profile_filter all = {.vcpu = -1};
	int fd = memfd_create("import", 0);
	struct error *err;
	char path[32];

	assert_int_equal(write(fd, text, len), len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = profile_load(path, &all, profile);
	close(fd);
	return err;
}

static struct profile *load(const char *text)
{
	struct profile *profile;
	struct error *err = load_bytes(text, strlen(text), &profile);

	if (err)
		fail_msg("%s", err->text);
	return profile;
}

/* Compares the profile's folded export. */
static void is_folded(const struct profile *profile, const char *expected)
{
	struct format_job job = {.profile = profile};
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_null(symbolizer_new(NULL, profile, &job.symbolizer));
	assert_null(format_folded.write(&job, out));
	fclose(out);
	assert_string_equal(text, expected);
	symbolizer_free(job.symbolizer);
	free(text);
}

static void refused_bytes(const char *text, size_t len, const char *why)
{
	struct profile *profile;
	struct error *err = load_bytes(text, len, &profile);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	if (!strstr(err->text, why))
		fail_msg("\"%s\" does not say \"%s\"", err->text, why);
	error_free(err);
}

static void refused(const char *text, const char *why)
{
	refused_bytes(text, strlen(text), why);
}

static void folded_stacks_are_what_they_were(void **state)
{
	struct profile *profile =
		load("# made by hand\n\nmain;a;a 5\r\nmain;b c 1000000000000\nx 2");

	is_folded(profile, "main;a;a 5\nmain;b c 1000000000000\nx 2\n");
	assert_int_equal(profile->selected.samples, 1000000000007);
	assert_string_equal(profile->info.target, "folded");
	assert_false(profile->cut);
	/* Each is one draw. */
	assert_float_equal(profile_draws(profile), 1000000000007.0, 1);
	profile_free(profile);
}

static void counts_of_equal_stacks_add_up(void **state)
{
	struct profile *profile = load("a;b 1\na;b 2\na 3\na;b 0\n");

	is_folded(profile, "a 3\na;b 3\n");
	profile_free(profile);
}

static void a_folded_line_without_a_count_is_named(void **state)
{
	refused("a;b 1\na;c\n", "line 2: it does not end with a count");
	refused("a 1\n\nb 99999999999999999999\n", "line 3: its count is too large");
	refused("a 9007199254740992\nb 1\nc -1", "line 3: it does not end");
}

#define EVENT(time) "web server 815/816 [003] " time ":  10101010 cpu-clock:u: \n"

static void perf_script_tells_stacks_and_threads(void **state)
{
	struct profile *profile = load("# captured\n\n" EVENT(
		"4711.000001") "\tffffffff81 do_syscall+0x1f ([kernel.kallsyms])\n"
			       "\t    7f1234 operator()(int)+0x12 (/lib/libfoo (deleted))\n"
			       "\t    7f1235 [unknown] (/lib/libbar.so)\n"
			       "\t        42 [unknown] ([unknown])\n\n" EVENT(
				       "4711.500001") "\t    7f1234 main (inlined)\n\n");

	is_folded(profile, "0x42;[libbar.so];operator()(int);do_syscall 1\nmain 1\n");
	assert_int_equal(profile->n_threads, 1);
	assert_string_equal(profile->threads[0].name, "web server");
	assert_int_equal(profile->threads[0].pid, 815);
	assert_int_equal(profile->threads[0].tid, 816);
	assert_int_equal(profile->selected.weight_ns, 2 * 10101010);
	assert_int_equal(profile_elapsed_ns(profile), 500000000);
	assert_int_equal(profile->info.vcpus, 4);
	assert_null(profile->info.weight_unit);
	profile_free(profile);
}

static void the_forms_of_a_header_are_understood(void **state)
{
	struct profile *profile =
		load("         swapper     0 [001] 1.5: 7 cycles:  ffff81 idle+0x1 (k)\n"
		     "kworker/0:1-ev    12 [000] 1.4: 3 cycles:  ffff82 work (k)\n"
		     "  a b  1/2  1.6: 5 cycles:  ffff81 [unknown] (k)\n");

	is_folded(profile, "[k] 1\nidle 1\nwork 1\n");
	assert_int_equal(profile->n_threads, 3);
	assert_int_equal(profile->threads[1].pid, RECORDED_ID_UNKNOWN);
	assert_int_equal(profile->threads[1].tid, 12);
	assert_string_equal(profile->threads[2].name, "a b");
	assert_int_equal(profile->threads[2].pid, 1);
	assert_string_equal(profile->info.weight_unit, "cycles");
	assert_int_equal(profile->selected.weight_ns, 15);
	assert_int_equal(profile_elapsed_ns(profile), 200000000);
	profile_free(profile);
}

static void without_periods_samples_are_counted(void **state)
{
	struct profile *profile =
		load("x 1 1.0: cpu-clock: \n\t 1 f (k)\n\nx 1 1.1: cpu-clock: \n\t 1 f (k)\n");

	assert_string_equal(profile->info.weight_unit, "samples");
	assert_int_equal(profile->selected.weight_ns, 2);
	profile_free(profile);
}

static void other_events_are_left_out_and_counted(void **state)
{
	struct profile *profile =
		load("x 1 1.0: 1 cycles: \n\t 1 f (k)\n\nx 1 1.0: 1 faults: \n\t 1 g (k)\n\n");

	is_folded(profile, "f 1\n");
	assert_non_null(strstr(profile->end.reason, "1 sample of other events left out"));
	profile_free(profile);
}

static void a_line_that_perf_script_does_not_print_is_named(void **state)
{
	refused("x 1 1.0: 1 cycles: \n\tsomething else\n", "line 2: neither a frame");
	refused("x 1 1.0: 1 cycles: \n\t 1 f (k)\n\nnonsense\n", "line 4: not the beginning");
	refused("x 1 [5000] 1.0: 1 cycles: \n", "line 1: a CPU's number is too large");
}

static void what_is_neither_is_refused(void **state)
{
	refused("hello world\n", "no recording of uniprof, nor perf.data, ");
	refused("", "is empty");
	refused("\n\n# nothing\n", "no recording of uniprof, nor");
	refused_bytes("a;b 1\na\0b 1\n", 12, "line 2: a NUL byte");
	refused_bytes("\0\0\0\0", 4, "no recording of uniprof");
}

static void names_may_hold_anything(void **state)
{
	struct profile *profile = load("main;\x1b[31m;\xff\xfe;\xe2\x80\xaetxt;<script> 3\n");

	is_folded(profile,
		  "main;\xef\xbf\xbd[31m;\xef\xbf\xbd\xef\xbf\xbd;\xef\xbf\xbdtxt;<script> 3\n");
	profile_free(profile);
}

static void long_names_are_cut_and_endless_lines_refused(void **state)
{
	size_t len = 17u << 20;
	char *text = malloc(len);
	struct profile *profile;

	memset(text, 'x', len);
	memcpy(text + 100000, " 7\n", 3);
	assert_null(load_bytes(text, 100003, &profile));
	assert_int_equal(profile->selected.samples, 7);
	assert_int_equal(strlen(profile->names[0].name), 64 << 10);
	profile_free(profile);
	memcpy(text, "a 1\n", 4);
	memset(text + 4, 'x', len - 4);
	refused_bytes(text, len, "line 2: it is too long");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folded_stacks_are_what_they_were),
		cmocka_unit_test(counts_of_equal_stacks_add_up),
		cmocka_unit_test(a_folded_line_without_a_count_is_named),
		cmocka_unit_test(perf_script_tells_stacks_and_threads),
		cmocka_unit_test(the_forms_of_a_header_are_understood),
		cmocka_unit_test(without_periods_samples_are_counted),
		cmocka_unit_test(other_events_are_left_out_and_counted),
		cmocka_unit_test(a_line_that_perf_script_does_not_print_is_named),
		cmocka_unit_test(what_is_neither_is_refused),
		cmocka_unit_test(names_may_hold_anything),
		cmocka_unit_test(long_names_are_cut_and_endless_lines_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
