/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/export_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#include "format/format.h"

#define REPLACED "\xef\xbf\xbd"
#define START_NS (1795251600ull * 1000000000ull) /* 2026-11-21 09:00:00 UTC */

static const struct profile_filter all = {.states = 0, .vcpu = -1};

static int use_utc(void **state)
{
	setenv("TZ", "UTC", 1);
	tzset();
	return 0;
}

static void begin(struct export_fixture *f)
{
	fixture_begin(f, &(struct recording_info){.target = "xen",
						  .host = "Xen 4.17, libxencall",
						  .guest_id = "7",
						  .vcpus = 4,
						  .start_unix_ns = START_NS});
}

static char *head_of(const struct recording_info *info)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	raw_write_head(info, out);
	fclose(out);
	return text;
}

#define HEAD                                                             \
	"#unikernel stack tracer using libxencall hypercall interface\n" \
	"#tracing domid 7 on 2026-11-21 09:00:00 UTC (+0000)\n"          \
	"\n"

static void trace_is_the_classic_one(void **state)
{
	struct export_fixture f;
	char *text;

	begin(&f);
	must(recording_name(f.writer, 0x1010, FRAME_PC, "leaf", 0x10));
	must(recording_name(f.writer, 0x2000, FRAME_RETURN, "main", 0));
	SAMPLE(&f, 0, VCPU_RUNNING, 0x1010, 0x2000, 0x3000);
	SAMPLE(&f, 1, VCPU_BLOCKED, 0x0);
	SAMPLE(&f, 0, VCPU_RUNNING, 0x1010, 0x2000, 0x3000);
	text = fixture_export(&f, &format_raw, &all, NULL);
	assert_string_equal(text, HEAD "leaf+0x10\nmain\n0x3000\n1\n\n"
				       "0x0\n1\n\n"
				       "leaf+0x10\nmain\n0x3000\n1\n\n");
	free(text);
	text = fixture_export(&f, &format_raw, &PROFILE_ON_CPU, NULL);
	assert_string_equal(text, HEAD "leaf+0x10\nmain\n0x3000\n1\n\n"
				       "leaf+0x10\nmain\n0x3000\n1\n\n");
	free(text);
	fixture_end(&f);
}

static void samples_without_frames_are_told(void **state)
{
	struct export_fixture f;
	char *text;

	begin(&f);
	fixture_sample(&f, 0, VCPU_RUNNING, NULL, 0);
	text = fixture_export(&f, &format_raw, &all, NULL);
	assert_string_equal(text, HEAD "[no stack]\n1\n\n");
	free(text);
	fixture_end(&f);
}

#define DEEP	 900
#define LONG_LEN 3000

/* The name of a frame; all are as long. */
static void long_name(size_t frame, char name[LONG_LEN + 1])
{
	memset(name, 'x', LONG_LEN);
	name[LONG_LEN] = '\0';
	name[snprintf(name, LONG_LEN, "f%04zu", frame)] = 'x';
}

/* Two samples, the second without its leaf. */
static void long_stacks_of_long_names_are_whole(void **state)
{
	struct export_fixture f;
	uint64_t addrs[DEEP];
	char name[LONG_LEN + 1], *text, *at;

	begin(&f);
	for (size_t i = 0; i < DEEP; i++) {
		addrs[i] = 0x1000 * (i + 1);
		long_name(i, name);
		must(recording_name(f.writer, addrs[i], i ? FRAME_RETURN : FRAME_PC, name, 0));
	}
	fixture_sample(&f, 0, VCPU_RUNNING, addrs, DEEP);
	addrs[1] = 0x999;
	fixture_sample(&f, 0, VCPU_RUNNING, addrs + 1, DEEP - 1);
	text = fixture_export(&f, &format_raw, &all, NULL);
	at = text + strlen(HEAD);
	for (int sample = 0; sample < 2; sample++) {
		for (size_t i = (size_t)sample; i < DEEP; i++) {
			long_name(i, name);
			if (sample && i == 1)
				strcpy(name, "0x999");
			assert_memory_equal(at, name, strlen(name));
			at += strlen(name);
			assert_int_equal(*at++, '\n');
		}
		assert_memory_equal(at, "1\n\n", 3);
		at += 3;
	}
	assert_int_equal(*at, '\0');
	free(text);
	fixture_end(&f);
}

static void standard_input_cannot_be_read_twice(void **state)
{
	struct error *err = format_raw.write(&(struct format_job){.path = "-"}, stdout);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_USAGE);
	error_free(err);
}

static void head_has_three_lines_whatever_the_recording_says(void **state)
{
	char *text = head_of(&(struct recording_info){.target = "replay",
						      .host = "a\nb",
						      .guest_id = "c\r\nd",
						      .start_unix_ns = UINT64_MAX});
	size_t lines = 0;

	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	assert_int_equal(lines, 3);
	assert_non_null(strstr(text, "#unikernel stack tracer using a" REPLACED
				     "b\n#tracing guest c" REPLACED REPLACED "d on "));
	free(text);
	text = head_of(&(struct recording_info){.start_unix_ns = START_NS});
	assert_string_equal(text, "#unikernel stack tracer using an unknown interface\n"
				  "#tracing guest ? on 2026-11-21 09:00:00 UTC (+0000)\n\n");
	free(text);
}

static void local_time_is_used(void **state)
{
	char *text;

	setenv("TZ", "XST-5:30", 1);
	tzset();
	text = head_of(&(struct recording_info){.target = "xen",
						.guest_id = "7",
						.start_unix_ns = START_NS});
	use_utc(NULL);
	assert_non_null(strstr(text, "#tracing domid 7 on 2026-11-21 14:30:00 XST (+0530)\n"));
	free(text);
}

static void frame(const char *name, uint64_t offset, const char *expected)
{
	struct named named = {.name = name, .symbol = name, .offset = offset, .resolved = true};
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	assert_null(raw_write_frame(0x1234, name ? &named : NULL, out));
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

static void frames_are_named_or_addresses(void **state)
{
	frame("main", 0x1f, "main+0x1f\n");
	frame("main", 0, "main\n");
	frame("main", UINT64_MAX, "main+0xffffffffffffffff\n");
	frame("feed", 0, "feed\n");
	frame(NULL, 0, "0x1234\n");
}

/* Names that look like a count, an address or a comment, or have a '+' of their own. */
static void ambiguous_names_always_have_an_offset(void **state)
{
	frame("123", 0, "123+0x0\n");
	frame("0x1f", 0, "0x1f+0x0\n");
	frame("#1", 0, "#1+0x0\n");
	frame("operator+", 0, "operator++0x0\n");
	frame("1st", 0, "1st\n");
	frame("0xyz", 0, "0xyz\n");
}

static void formats_are_found_by_name_and_ending(void **state)
{
	size_t n = 0;

	assert_ptr_equal(format_by_name("folded"), &format_folded);
	assert_ptr_equal(format_by_name("raw"), &format_raw);
	assert_null(format_by_name("nonsense"));
	assert_ptr_equal(format_by_ending("web.folded"), &format_folded);
	assert_ptr_equal(format_by_ending("/a/b.c/web.raw"), &format_raw);
	assert_null(format_by_ending("web.txt"));
	assert_null(format_by_ending("folded"));
	assert_null(format_by_ending(".folded"));
	while (format_at(n))
		n++;
	assert_true(n >= 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trace_is_the_classic_one),
		cmocka_unit_test(samples_without_frames_are_told),
		cmocka_unit_test(long_stacks_of_long_names_are_whole),
		cmocka_unit_test(standard_input_cannot_be_read_twice),
		cmocka_unit_test(head_has_three_lines_whatever_the_recording_says),
		cmocka_unit_test(local_time_is_used),
		cmocka_unit_test(frames_are_named_or_addresses),
		cmocka_unit_test(ambiguous_names_always_have_an_offset),
		cmocka_unit_test(formats_are_found_by_name_and_ending),
	};

	return cmocka_run_group_tests(tests, use_utc, NULL);
}
