/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/quality.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above these shares a profile is not to be read without a warning. */
#define WARN_TRUNCATED 0.05
#define WARN_NAMELESS  0.20

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

/* Appends a sentence to the text of `size` bytes. */
static void add(char *text, size_t size, double percent, const char *sentence)
{
	size_t len = strlen(text);

	snprintf(text + len, size - len, "%s%.*f %% of the %s", len ? "; " : "",
		 percent < 1 ? 1 : 0, percent, sentence);
}

struct error *quality_warning(const struct quality *quality, char **text)
{
	double truncated = share(quality->truncated, quality->stacks);
	double leaf = share(quality->nameless_leaf, quality->stacks);
	double any = share(quality->nameless, quality->stacks);
	char all[512] = "";

	*text = NULL;
	if (truncated > WARN_TRUNCATED)
		add(all, sizeof(all), 100 * truncated, "stacks are cut short: callers are missing");
	if (quality->no_room)
		add(all, sizeof(all), 100 * share(quality->no_room, quality->stacks),
		    "stacks lack the functions that were at work: there were more different stacks "
		    "than memory for them (--max-memory)");
	if (leaf > WARN_NAMELESS)
		add(all, sizeof(all), 100 * leaf, "samples are in code without a name");
	else if (any > WARN_NAMELESS)
		add(all, sizeof(all), 100 * any, "stacks have callers without a name");
	if (!*all)
		return NULL;
	*text = strdup(all);
	return *text ? NULL : error_no_memory();
}
