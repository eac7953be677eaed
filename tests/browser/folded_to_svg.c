/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Draws folded stacks, for the browser tests: any picture can be had without a
 * recording. Standard input has a line "a;b;c SAMPLES WEIGHT" for each stack;
 * without WEIGHT a sample weighs a millisecond. Names that begin with "0x" are
 * unresolved.
 *
 *	folded_to_svg [title=T] [subtitle=T] [warning=T] [width=N] [min-width=N] [icicle] [reverse]
 */

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/svg/flamegraph.h"

static void die(const char *what)
{
	fprintf(stderr, "folded_to_svg: %s\n", what);
	exit(1);
}

static void check(struct error *err)
{
	if (err)
		die(err->text);
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Equal texts give the same pointer, which stays valid until the program ends. */
static const char *intern(const char *text)
{
	static void *names;
	char *copy = strdup(text);
	char **found = copy ? tsearch(copy, &names, compare) : NULL;

	if (!found)
		die("not enough memory");
	if (*found != copy)
		free(copy);
	return *found;
}

/* Cuts the numbers off the end of a line. */
static struct profile_cell cut_numbers(char *line)
{
	struct profile_cell cell;
	char *last = strrchr(line, ' '), *before;

	if (!last)
		die("a line has no count");
	*last = '\0';
	before = strrchr(line, ' ');
	if (before && before[1] && strspn(before + 1, "0123456789") == strlen(before + 1)) {
		*before = '\0';
		cell.samples = strtoull(before + 1, NULL, 10);
		cell.weight_ns = strtoull(last + 1, NULL, 10);
	} else {
		cell.samples = strtoull(last + 1, NULL, 10);
		cell.weight_ns = cell.samples * 1000000;
	}
	return cell;
}

static void add_line(struct tree *tree, char *line)
{
	struct profile_cell cell = cut_numbers(line);
	uint32_t node = 0;

	for (char *name; (name = strsep(&line, ";"));) {
		check(tree_child(tree, node, intern(name), &node));
		tree->nodes[node].unresolved = strncmp(name, "0x", 2) == 0;
	}
	tree->nodes[node].self.samples += cell.samples;
	tree->nodes[node].self.weight_ns += cell.weight_ns;
}

static void set_option(struct flamegraph_options *options, const char *arg)
{
	const char *value = strchr(arg, '=');

	value = value ? value + 1 : "";
	if (strcmp(arg, "icicle") == 0)
		options->icicle = true;
	else if (strcmp(arg, "reverse") == 0)
		options->reverse = true;
	else if (strncmp(arg, "title=", 6) == 0)
		options->title = value;
	else if (strncmp(arg, "subtitle=", 9) == 0)
		options->subtitle = value;
	else if (strncmp(arg, "warning=", 8) == 0)
		options->warning = value;
	else if (strncmp(arg, "width=", 6) == 0)
		options->width = (unsigned)atoi(value);
	else if (strncmp(arg, "min-width=", 10) == 0)
		options->min_width = atof(value);
	else
		die("no such option");
}

int main(int argc, char **argv)
{
	struct flamegraph_options options = {.min_width = -1};
	struct tree *tree;
	char *line = NULL;
	size_t room = 0;
	ssize_t len;

	for (int i = 1; i < argc; i++)
		set_option(&options, argv[i]);
	check(tree_new(&tree));
	while ((len = getline(&line, &room, stdin)) > 0) {
		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		if (*line)
			add_line(tree, line);
	}
	check(tree_sum(tree));
	check(flamegraph_write(tree, &options, stdout));
	if (fflush(stdout) || ferror(stdout))
		die("cannot write");
	tree_free(tree);
	free(line);
	return 0;
}
