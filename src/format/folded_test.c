/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/export_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct profile_filter all = {.states = 0, .vcpu = -1};

static void begin(struct export_fixture *f)
{
	fixture_begin(f, &(struct recording_info){.target = "xen", .vcpus = 4});
}

static void name(struct export_fixture *f, uint64_t addr, const char *text)
{
	must(recording_name(f->writer, addr, FRAME_PC, text, 0));
	must(recording_name(f->writer, addr, FRAME_RETURN, text, 4));
}

static void gives(struct export_fixture *f, const struct profile_filter *filter,
		  const char *expected)
{
	char *text = fixture_export(f, &format_folded, filter, NULL);

	assert_string_equal(text, expected);
	free(text);
	fixture_end(f);
}

static void stacks_are_merged_by_name_and_counted(void **state)
{
	struct export_fixture f;

	begin(&f);
	name(&f, 0x10, "leaf");
	name(&f, 0x14, "leaf");
	name(&f, 0x20, "main");
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10, 0x20);
	SAMPLE(&f, 1, VCPU_RUNNING, 0x14, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x999, 0x20);
	gives(&f, &all,
	      "main 1\n"
	      "main;0x999 1\n"
	      "main;leaf 2\n");
}

static void filter_is_respected(void **state)
{
	struct export_fixture f;

	begin(&f);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x1);
	SAMPLE(&f, 0, VCPU_BLOCKED, 0x2);
	SAMPLE(&f, 1, VCPU_RUNNING, 0x3);
	gives(&f, &(struct profile_filter){.states = 1u << VCPU_RUNNING, .vcpu = 0}, "0x1 1\n");
}

/* As `LC_ALL=C sort` and Perl's sort have it, which is not the order of the tree. */
static void lines_are_in_bytewise_order(void **state)
{
	struct export_fixture f;

	begin(&f);
	name(&f, 0x10, "f");
	name(&f, 0x20, "f.cold");
	name(&f, 0x30, "f~");
	name(&f, 0x40, "g");
	SAMPLE(&f, 0, VCPU_RUNNING, 0x30);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x40, 0x10);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x40, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x20);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10);
	gives(&f, &all,
	      "f 1\n"
	      "f.cold 1\n"
	      "f.cold;g 1\n"
	      "f;g 1\n"
	      "f~ 1\n");
}

static void hostile_names_cannot_break_lines_or_frames(void **state)
{
	struct export_fixture f;

	begin(&f);
	name(&f, 0x10, "a;b\nc\xff");
	name(&f, 0x20, "x 12");
	name(&f, 0x30, "");
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10, 0x20, 0x30);
	gives(&f, &all,
	      "-;x 12;a:b\xef\xbf\xbd"
	      "c\xef\xbf\xbd 1\n");
}

static void names_that_become_equal_are_merged(void **state)
{
	struct export_fixture f;

	begin(&f);
	name(&f, 0x10, "a;b");
	name(&f, 0x20, "a:b");
	name(&f, 0x30, "leaf");
	SAMPLE(&f, 0, VCPU_RUNNING, 0x30, 0x10);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x30, 0x20);
	gives(&f, &all, "a:b;leaf 2\n");
}

static void samples_without_frames_are_not_lost(void **state)
{
	struct export_fixture f;

	begin(&f);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x10);
	fixture_sample(&f, 0, VCPU_RUNNING, NULL, 0);
	fixture_sample(&f, 0, VCPU_RUNNING, NULL, 0);
	gives(&f, &all,
	      "0x10 1\n"
	      "[no stack] 2\n");
}

static void nothing_selected_gives_nothing(void **state)
{
	struct export_fixture f;

	begin(&f);
	SAMPLE(&f, 0, VCPU_BLOCKED, 0x10);
	gives(&f, &PROFILE_ON_CPU, "");
}

static void very_deep_stacks_and_very_long_names_are_written_whole(void **state)
{
	enum { DEPTH = 20000, LONG = 65536 };
	uint64_t *addrs = calloc(DEPTH, sizeof(*addrs));
	char *longest = malloc(LONG + 1), *text;
	struct export_fixture f;
	size_t frames = 1;

	memset(longest, 'n', LONG);
	longest[LONG] = '\0';
	begin(&f);
	name(&f, 0x10, longest);
	addrs[0] = 0x10;
	for (size_t i = 1; i < DEPTH; i++)
		addrs[i] = 0x1000 + i;
	fixture_sample(&f, 0, VCPU_RUNNING, addrs, DEPTH);
	text = fixture_export(&f, &format_folded, &all, NULL);
	for (const char *at = text; (at = strchr(at, ';')); at++)
		frames++;
	assert_int_equal(frames, DEPTH);
	assert_non_null(strstr(text, longest));
	assert_string_equal(text + strlen(text) - 3, " 1\n");
	fixture_end(&f);
	free(text);
	free(addrs);
	free(longest);
}

/* Threads 1 and 3 have names that become equal, and that of thread 2 is between them and a ';'. */
static struct error *name_thread(void *ctx, uint32_t thread, const char **name)
{
	static const char *const names[] = {"none", "a;b", "a:b.c", "a:b"};

	return symbolizer_intern(ctx, names[thread], name);
}

static void record_threads(struct export_fixture *f)
{
	const struct recorded_thread thread = {.name = "t", .process = "p"};

	begin(f);
	name(f, 0x10, "leaf");
	name(f, 0x20, "main");
	for (uint32_t i = 1; i <= 3; i++) {
		struct recorded_thread other = thread;

		other.pid = other.tid = i;
		must(recording_thread(f->writer, &other));
		f->thread = i;
		SAMPLE(f, 0, VCPU_RUNNING, 0x10, 0x20);
		SAMPLE(f, 0, VCPU_RUNNING, 0x20);
		fixture_sample(f, 0, VCPU_RUNNING, NULL, 0);
	}
	must(recording_close(f->writer, NULL));
}

static void threads_stand_around_their_functions(void **state)
{
	struct profile_filter filter = {.vcpu = -1, .divide = true};
	struct tree_outer outer = {.name = name_thread};
	struct format_job job = {.filter = &filter, .outer = &outer};
	struct export_fixture f;
	struct profile *profile;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	record_threads(&f);
	must(profile_load(f.path, &filter, &profile));
	must(symbolizer_new(NULL, profile, &job.symbolizer));
	job.path = f.path;
	job.profile = profile;
	outer.ctx = job.symbolizer;
	must(format_folded.write(&job, out));
	fclose(out);
	assert_string_equal(text, "a:b 2\n"
				  "a:b.c 1\n"
				  "a:b.c;main 1\n"
				  "a:b.c;main;leaf 1\n"
				  "a:b;main 2\n"
				  "a:b;main;leaf 2\n");
	free(text);
	symbolizer_free(job.symbolizer);
	profile_free(profile);
	fixture_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stacks_are_merged_by_name_and_counted),
		cmocka_unit_test(filter_is_respected),
		cmocka_unit_test(lines_are_in_bytewise_order),
		cmocka_unit_test(hostile_names_cannot_break_lines_or_frames),
		cmocka_unit_test(names_that_become_equal_are_merged),
		cmocka_unit_test(samples_without_frames_are_not_lost),
		cmocka_unit_test(nothing_selected_gives_nothing),
		cmocka_unit_test(threads_stand_around_their_functions),
		cmocka_unit_test(very_deep_stacks_and_very_long_names_are_written_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
