/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "cmd/cmd.h"
#include "target/target.h"

static const char help[] =
	"usage: uniprof list\n"
	"\n"
	"Shows the guests that are there, and what stands in the way of profiling them.\n";

static void print(void *ctx, const struct target_listing *entry)
{
	unsigned *n = ctx;

	if (!(*n)++)
		printf("%-8s %-6s %-24s %-5s %5s  %s\n", "kind", "id", "name", "type", "vcpus",
		       "profile it with");
	printf("%-8s %-6s %-24s %-5s %5u  ", entry->scheme, entry->id, entry->name, entry->type,
	       entry->vcpus);
	if (entry->note)
		printf("- (%s)\n", entry->note);
	else
		printf("uniprof record %s:%s\n", entry->scheme,
		       *entry->name ? entry->name : entry->id);
}

static struct error *list(int argc, char **argv, int *status)
{
	const struct target_ops *ops;
	struct error *err = NULL;
	unsigned n = 0, kinds = 0;

	if (argc > 1)
		return usage_error(&verb_list, "list takes no arguments");
	for (size_t i = 0; (ops = target_kind(i)); i++) {
		if (!ops->list)
			continue;
		kinds++;
		err = error_first(err, ops->list(print, &n));
	}
	if (!kinds)
		return error_new(ERR_DENIED,
				 "this uniprof was built without any kind of guest that "
				 "can be listed (see uniprof -V)");
	return err;
}

const struct verb verb_list = {
	.name = "list",
	.summary = "which guests can be profiled here",
	.help = help,
	.run = list,
};
