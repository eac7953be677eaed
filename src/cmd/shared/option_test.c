/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <string.h>
#include <time.h>

#include "cmd/cmd.h"

struct inner {
	bool flag;
	uint64_t count;
};

struct outer {
	const char *word;
	struct inner inner;
	const char *way;
};

static const struct option_row outer_rows[] = {{"word", "TEXT", 'w', take_text,
						offsetof(struct outer, word), .text = "a word"},
					       {"way", "[WAY]", 'g', take_text,
						offsetof(struct outer, way), .text = "a way",
						.values = "down up"},
					       {0}};
static const struct option_row inner_rows[] = {
	{"flag", NULL, 'f', take_true, offsetof(struct inner, flag), .text = "a flag"},
	{"count", "N", 0, take_count, offsetof(struct inner, count), 2, 9,
	 .text = "a number of things that is told in more words than there is room for in one line "
		 "of help",
	 .more = "It has a\n.Fl flag ."},
	{"number", "N", 0, take_count, offsetof(struct inner, count), 2, 9, .text = NULL},
	{0}};
static const struct option_group groups[] = {{outer_rows, 0},
					     {inner_rows, offsetof(struct outer, inner)},
					     {0}};

static const struct verb verb = {.name = "do",
				 .summary = "it's done",
				 .arguments = "[options] GUEST",
				 .about = "Does it.\n",
				 .options = groups,
				 .takes = TAKES_GUESTS};

static const struct verb verb_of_command = {
	.name = "run", .arguments = "", .about = "", .options = groups, .takes = TAKES_COMMAND};

/* Parses "VERB WORD...". */
static struct error *parse(const struct verb *of, const char *const *words, struct outer *out,
			   int *first)
{
	char *argv[16] = {(char *)"verb"};
	int argc = 1;

	for (; *words; words++)
		argv[argc++] = (char *)*words;
	*out = (struct outer){0};
	return options_parse(of, argc, argv, out, first);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void values_reach_the_fields_of_their_structs(void **state)
{
	struct outer out;
	int first;

	assert_null(parse(&verb, WORDS("-w", "x", "guest", "--count=7", "-f"), &out, &first));
	assert_string_equal(out.word, "x");
	assert_int_equal(out.inner.count, 7);
	assert_true(out.inner.flag);
	assert_int_equal(first, 5);
}

static void an_alias_is_understood(void **state)
{
	struct outer out;
	int first;

	assert_null(parse(&verb, WORDS("--number", "3"), &out, &first));
	assert_int_equal(out.inner.count, 3);
}

static void a_value_may_be_left_out_where_help_says_so(void **state)
{
	struct outer out;
	int first;

	assert_null(parse(&verb, WORDS("--way=up", "-g", "guest"), &out, &first));
	assert_null(out.way);
	assert_int_equal(first, 3);
}

static void options_behind_a_command_are_the_commands(void **state)
{
	struct outer out;
	int first;

	assert_null(parse(&verb_of_command, WORDS("-f", "sh", "-w"), &out, &first));
	assert_true(out.inner.flag);
	assert_int_equal(first, 2);
}

static void refused(const char *const *words, const char *text)
{
	struct outer out;
	int first;
	struct error *err = parse(&verb, words, &out, &first);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_USAGE);
	assert_string_equal(err->text, text);
	error_free(err);
}

static void wrong_options_are_named(void **state)
{
	refused(WORDS("--bogus"), "there is no option --bogus; see uniprof do --help");
	refused(WORDS("-fx"), "there is no option -x; see uniprof do --help");
	refused(WORDS("-w"), "option -w lacks its value; see uniprof do --help");
	refused(WORDS("--word"), "option --word lacks its value; see uniprof do --help");
}

static void a_number_out_of_bounds_names_its_option(void **state)
{
	struct outer out;
	int first;
	struct error *err = parse(&verb, WORDS("--count", "10"), &out, &first);

	assert_non_null(err);
	assert_non_null(strstr(err->text, "--count"));
	error_free(err);
}

static void written_as(void (*write)(const struct verb *, FILE *), const char *expected)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	write(&verb, out);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

static void help_wraps_texts_and_leaves_aliases_out(void **state)
{
	written_as(manual_write_help,
		   "usage: uniprof do [options] GUEST\n\nDoes it.\n\n"
		   "  -w, --word TEXT         a word\n"
		   "  -g, --way[=WAY]         a way\n"
		   "  -f, --flag              a flag\n"
		   "      --count N           a number of things that is told in more "
		   "words than there is room\n"
		   "                          for in one line of help\n");
}

static void manual_has_texts_as_sentences_and_more(void **state)
{
	written_as(manual_write_options,
		   ".Bl -tag -width indent\n"
		   ".It Fl w , Fl -word Ar TEXT\nA word.\n"
		   ".It Fl g , Fl -way Ns Op = Ns Ar WAY\nA way.\n"
		   ".It Fl f , Fl -flag\nA flag.\n"
		   ".It Fl -count Ar N\n"
		   "A number of things that is told in more words than there is room "
		   "for in one line of help.\n"
		   "It has a\n.Fl flag .\n"
		   ".El\n");
}

static const struct option_row repeated_rows[] = {{"word", "TEXT", 'w', take_text,
						   offsetof(struct outer, word), .text = "a word",
						   .repeats = true},
						  {0}};
static const struct option_group settings[] = {{repeated_rows, 0},
					       {inner_rows, offsetof(struct outer, inner)},
					       {0}};

/* Takes all lines of a file, and adds up what is wrong with them. */
static void take_file(const char *text, struct outer *out, const char *expected)
{
	char copy[256], said[512] = "";
	struct option_file file = {.path = "f", .rest = copy};
	bool more = true;

	strcpy(copy, text);
	*out = (struct outer){0};
	while (more) {
		struct error *err = option_file_next(&file, settings, out, &more);

		if (err)
			strcat(strcat(said, err->text), "|");
		error_free(err);
	}
	assert_string_equal(said, expected);
}

static void a_file_sets_options_by_their_names(void **state)
{
	struct outer out;

	take_file("# count = 1\n\n count=3 \r\nflag = yes\nword = a\n\tword = b = c #d", &out, "");
	assert_int_equal(out.inner.count, 3);
	assert_true(out.inner.flag);
	assert_string_equal(out.word, "b = c #d");
	take_file("", &out, "");
	take_file("flag = no\n", &out, "");
	assert_false(out.inner.flag);
}

static void each_wrong_line_of_a_file_is_named(void **state)
{
	struct outer out;

	take_file("count\ncount = 10\ncount = 3\nword =\nflag = 1\n=\nsize = 1\n--word = x", &out,
		  "f:1: there is no \"=\": a line is NAME = VALUE|"
		  "f:2: count 10: must be from 2 to 9|"
		  "f:3: count is set in line 2 already|"
		  "f:4: word lacks its value|"
		  "f:5: flag 1: it is yes or no|"
		  "f:6: there is no setting \"\"|"
		  "f:7: there is no setting \"size\"|"
		  "f:8: there is no setting \"--word\"|");
}

static void assert_wall_clock(const char *text, int64_t after_s, int64_t wanted)
{
	int64_t at_s;

	assert_true(option_wall_clock(text, after_s, &at_s));
	assert_int_equal(at_s, wanted);
}

static void test_moments_of_the_wall_clock(void **state)
{
	const int64_t day_s = 1795219200; /* 2026-11-21 */
	int64_t at_s;

	setenv("TZ", "UTC-2", 1);
	tzset();
	assert_wall_clock("2026-11-21T14:00Z", 0, day_s + 14 * 3600);
	assert_wall_clock("2026-11-21 14:00:05Z", 0, day_s + 14 * 3600 + 5);
	assert_wall_clock("2026-11-21T14:00", 0, day_s + 12 * 3600);
	assert_wall_clock("2026-11-21Z", 0, day_s);
	assert_wall_clock("2026-11-21", 0, day_s - 2 * 3600);
	assert_wall_clock("14:20Z", day_s + 14 * 3600, day_s + 14 * 3600 + 1200);
	assert_wall_clock("00:10Z", day_s + 23 * 3600, day_s + 86400 + 600);
	assert_true(option_wall_clock("23:59:59", 0, &at_s) && at_s <= (int64_t)time(NULL));
	for (const char *const *text =
		     (const char *const[]){"10", "2.5", "500ms", "1m", "", "Z", "2026-11-21T",
					   "2026-13-01", "25:00", "14:00x", "-1", NULL};
	     *text; text++)
		assert_false(option_wall_clock(*text, 0, &at_s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moments_of_the_wall_clock),
		cmocka_unit_test(values_reach_the_fields_of_their_structs),
		cmocka_unit_test(an_alias_is_understood),
		cmocka_unit_test(a_value_may_be_left_out_where_help_says_so),
		cmocka_unit_test(options_behind_a_command_are_the_commands),
		cmocka_unit_test(wrong_options_are_named),
		cmocka_unit_test(a_number_out_of_bounds_names_its_option),
		cmocka_unit_test(a_file_sets_options_by_their_names),
		cmocka_unit_test(each_wrong_line_of_a_file_is_named),
		cmocka_unit_test(help_wraps_texts_and_leaves_aliases_out),
		cmocka_unit_test(manual_has_texts_as_sentences_and_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
