/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "top/top.h"

enum { MAIN = 0x1000, WORK = 0x2000, IDLE = 0x3000 };

static struct profile_name names[] = {
	{.addr = MAIN, .name = "main", .kind = FRAME_RETURN},
	{.addr = WORK, .name = "work", .kind = FRAME_PC},
	{.addr = IDLE, .name = "idle", .kind = FRAME_PC},
};
static struct profile named = {.names = names, .n_names = 3};
static struct stacks *stacks;
static struct symbolizer *symbolizer;
static struct recent_ticks *recent;
static struct live_view view;
static struct summary summary;
static struct text_buffer buffer;
static struct top_picture picture;

static void sample(uint64_t time_ns, uint64_t leaf, enum vcpu_state state)
{
	const struct frame frames[] = {{leaf, FRAME_PC, 0}, {MAIN, FRAME_RETURN, 0}};
	struct tick_entry entry = {.state = (uint8_t)state};
	bool whole;

	assert_null(stacks_intern(stacks, frames, 2, &entry.stack, &whole));
	assert_null(recent_add(recent, &(struct tick){.time_ns = time_ns,
						      .weight_ns = 10,
						      .paused_ns = 1,
						      .n = 1,
						      .entries = &entry}));
}

static int set_up(void **state)
{
	if (stacks_new(&stacks) || symbolizer_new(NULL, &named, &symbolizer) ||
	    recent_new(1000, &recent))
		return -1;
	live_view_init(&view);
	live_view_set_vcpus(&view, 1);
	picture = (struct top_picture){.view = &view,
				       .summary = &summary,
				       .symbolizer = symbolizer,
				       .guest = "xen:web",
				       .clock = "12:00:00",
				       .keys = true};
	sample(10, WORK, VCPU_RUNNING);
	sample(20, WORK, VCPU_RUNNING);
	sample(30, WORK, VCPU_RUNNING);
	sample(40, IDLE, VCPU_BLOCKED);
	return 0;
}

static int tear_down(void **state)
{
	summary_free(&summary);
	text_buffer_free(&buffer);
	live_view_free(&view);
	recent_free(recent);
	symbolizer_free(symbolizer);
	stacks_free(stacks);
	return 0;
}

/* The picture as text, a line a row. */
static const char *drawn(size_t width, size_t height)
{
	const struct summary_options how = {.all_states = view.all_states,
					    .vcpu = view.vcpu,
					    .zoom = view.zoom};
	static char text[16384];
	size_t line = 0, len = 0, rows;

	summary_free(&summary);
	assert_null(summary_make(recent, stacks, 1, symbolizer, &how, &summary));
	text_buffer_begin(&buffer, width, height);
	assert_null(top_draw(&picture, &buffer, &rows));
	for (size_t i = 0; i < buffer.n; i++) {
		assert_true(buffer.pieces[i].line < height);
		for (; line < buffer.pieces[i].line; line++)
			text[len++] = '\n';
		memcpy(text + len, buffer.text + buffer.pieces[i].text, buffer.pieces[i].len);
		len += buffer.pieces[i].len;
	}
	text[len] = '\0';
	return text;
}

static bool has(const char *what)
{
	return strstr(drawn(100, 30), what);
}

static void test_functions_states_pauses_and_the_hottest_stack_are_shown(void **state)
{
	assert_true(has("xen:web"));
	assert_true(has("100.00 % 43.9-100.0  100.00 % 43.9-100.0         3  work"));
	assert_true(has("running  75.0 %  runnable   0.0 %  blocked  25.0 %"));
	assert_true(has("paused 10.000 %"));
	assert_true(has("the hottest stack: 100.00 %\n  work\n  main"));
	assert_false(has("idle"));
}

static void test_idle_vcpus_are_shown_when_asked_for(void **state)
{
	live_view_key(&view, 'i', &summary);
	assert_true(has("  idle"));
	assert_true(has("  75.00 %"));
}

static void test_a_function_is_shown_with_its_callers_and_callees(void **state)
{
	(void)drawn(100, 30);
	live_view_key(&view, VIEW_ENTER, &summary);
	assert_true(has("callers and callees of work"));
	assert_true(has("called by main"));
	live_view_key(&view, VIEW_ENTER, &summary);
	assert_true(has("callers and callees of main"));
	assert_true(has("calls work"));
}

static void test_the_end_is_said_and_the_last_picture_stays(void **state)
{
	picture.ended = "the guest crashed";
	assert_true(has("the guest crashed; this is the last"));
	assert_true(has("  work"));
}

static void test_it_fits_every_screen(void **state)
{
	for (size_t width = 1; width < 120; width += 3) {
		for (size_t height = 1; height < 40; height++) {
			const char *line = drawn(width, height);

			while (line) {
				size_t len = strcspn(line, "\n");

				/* "…" is one cell, and counted as two. */
				assert_true(cells_of(line, len) <= width + 1);
				line = line[len] ? line + len + 1 : NULL;
			}
		}
	}
}

static void test_help_names_the_keys(void **state)
{
	live_view_key(&view, 'h', &summary);
	assert_true(has("quit"));
	assert_true(has("callers and callees of the chosen one"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_functions_states_pauses_and_the_hottest_stack_are_shown),
		TEST(test_idle_vcpus_are_shown_when_asked_for),
		TEST(test_a_function_is_shown_with_its_callers_and_callees),
		TEST(test_the_end_is_said_and_the_last_picture_stays),
		TEST(test_it_fits_every_screen),
		TEST(test_help_names_the_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
