/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for command lines and files of settings: a byte that chooses
 * the verb, and words with a 0 behind each, which are lines, too. Nothing is done
 * but to take them.
 */

#include <regex.h>

#include "base/fuzz_testing.h"
#include "cmd/cmd.h"

#define WORDS 64
#define WORD  64

/* Larger than any verb's struct of options. */
#define OPTIONS (1u << 17)

static const struct verb *const verbs[] = {&verb_record, &verb_run,	   &verb_top,
					   &verb_report, &verb_flamegraph, &verb_diff,
					   &verb_export, &verb_merge,	   &verb_list,
					   &verb_stack,	 &verb_ps,	   &verb_push,
					   &verb_classic};

/* No file but those of this directory, which are none. */
static void tame(char *word)
{
	for (; *word; word++)
		if (*word == '/')
			*word = '_';
}

/* What their user's regular expressions cost is not asked here. */
int regcomp(regex_t *regex, const char *text, int flags)
{
	memset(regex, 0, sizeof(*regex));
	return *text == '(' ? REG_EPAREN : 0;
}

static int split(struct fuzz_input *in, char (*words)[WORD], char **argv)
{
	int n = 1;

	while (n < WORDS && fuzz_left(in)) {
		size_t len = 0;
		char c;

		while (fuzz_left(in) && (c = (char)fuzz_number(in, 1)))
			if (len + 1 < WORD)
				words[n][len++] = c;
		words[n][len] = '\0';
		tame(words[n]);
		argv[n] = words[n];
		n++;
	}
	argv[n] = NULL;
	return n;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	unsetenv("DEBUGINFOD_URLS");
	return 0;
}

/* The words as lines of a file, in which they are cut. */
static void take_lines(const struct verb *verb, int argc, char **argv, void *options)
{
	static char text[WORDS * (WORD + 1) + 1];
	struct option_file file = {.path = "", .rest = text};
	unsigned lines = 0;
	bool more = true;

	text[0] = '\0';
	for (int i = 1; i < argc; i++)
		strcat(strcat(text, argv[i]), "\n");
	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	while (more) {
		struct error *err = option_file_next(&file, verb->options, options, &more);

		need(!err || (more && file.line <= lines));
		error_free(err);
	}
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	static char words[WORDS][WORD];
	struct fuzz_input in = {data, data + size};
	const struct verb *verb = verbs[fuzz_number(&in, 1) % (sizeof(verbs) / sizeof(*verbs))];
	char *argv[WORDS + 1] = {(char *)verb->name};
	const int argc = split(&in, words, argv);
	void *options = calloc(1, OPTIONS);
	struct error *err;
	int first = 0;

	need(options != NULL);
	err = options_parse(verb, argc, argv, options, &first);
	need(!err || err->text[0]);
	need(first >= 1 && first <= argc);
	error_free(err);
	take_lines(verb, argc, argv, options);
	free(options);
}
