/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/export_fixture.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct profile_filter all = {.states = 0, .vcpu = -1};

/* The fixture as a classic trace, and the text that is expected behind the trace's head. */
static void compare(struct export_fixture *f, FILE *out, char **expected)
{
	char *text = fixture_export(f, &format_raw, &all, NULL);
	size_t len, head;
	bool same;

	fclose(out);
	len = strlen(*expected);
	head = strlen(text) - len;
	same = strlen(text) > len && !memcmp(text + head - 2, "\n\n", 2) &&
	       !memcmp(text + head, *expected, len);
	free(text);
	free(*expected);
	fixture_end(f);
	assert_true(same);
}

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

#define MANY 40000
#define DEEP 24

/* More than a batch: callers branch, some stacks come again, some end early, some have no frames. */
static void each_sample_has_its_own_stack_in_the_order_of_time(void **state)
{
	struct export_fixture f;
	char *expected = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&expected, &len);
	uint32_t seed = 7;

	fixture_begin(&f, &(struct recording_info){.vcpus = 1});
	for (int i = 0; i < MANY; i++) {
		uint64_t addrs[DEEP];
		const size_t n = next_random(&seed) % (DEEP + 1);
		uint32_t path = 0;

		for (size_t k = n; k--;) {
			path = path * 2 + next_random(&seed) % 2;
			addrs[k] = 0x1000 + path;
		}
		fixture_sample(&f, 0, VCPU_RUNNING, addrs, n);
		for (size_t k = 0; k < n; k++)
			fprintf(out, "0x%" PRIx64 "\n", addrs[k]);
		fputs(n ? "1\n\n" : "[no stack]\n1\n\n", out);
	}
	compare(&f, out, &expected);
}

/* Of these, all frames of ten stacks are more than a batch has room for. */
#define LONG_LEN 3000
#define FRAMES	 800

static void texts_that_find_no_room_are_whole_too(void **state)
{
	static char name[LONG_LEN + 1];
	struct export_fixture f;
	uint64_t addrs[FRAMES];
	char *expected = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&expected, &len);

	memset(name, 'x', LONG_LEN);
	fixture_begin(&f, &(struct recording_info){.vcpus = 1});
	for (int sample = 0; sample < 20; sample++) {
		for (uint64_t i = 0; i < FRAMES; i++) {
			addrs[i] = 0x1000 * (1 + i + (uint64_t)(sample % 10) * FRAMES);
			name[snprintf(name, LONG_LEN, "f%08" PRIx64, addrs[i])] = 'x';
			if (sample < 10)
				must(recording_name(f.writer, addrs[i], i ? FRAME_RETURN : FRAME_PC,
						    name, 0));
			fprintf(out, "%s\n", name);
		}
		fixture_sample(&f, 0, VCPU_RUNNING, addrs, FRAMES);
		fputs("1\n\n", out);
	}
	compare(&f, out, &expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_sample_has_its_own_stack_in_the_order_of_time),
		cmocka_unit_test(texts_that_find_no_room_are_whole_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
