/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "symbol/names/display_name.h"
#include "target/target.h"

static const char help[] =
	"usage: uniprof list [--ways]\n"
	"\n"
	"Shows the guests that are there, and what stands in the way of profiling them: Xen's\n"
	"(xen), those that any program runs by KVM (kvm), those that QEMU emulates (qemu), and\n"
	"unikernels that are processes of this machine (process). Any other process is profiled\n"
	"as process:PID, too.\n"
	"\n"
	"\"via\" is the way in which a guest would be read, as far as can be told without\n"
	"trying, and \"stopped\" for how long that stops a vCPU for a sample, about; in\n"
	"parentheses is what a cheaper way lacks.\n"
	"\n"
	"      --ways            show instead all ways in which guests can be read (for --via)\n";

/* In a column of this width. */
static void print_name(const char *name, int width)
{
	put_clean(name, stdout);
	printf("%*s ", width > (int)strlen(name) ? width - (int)strlen(name) : 0, "");
}

static void print(void *ctx, const struct target_listing *entry)
{
	unsigned *n = ctx;

	if (!(*n)++)
		printf("%-8s %-6s %-24s %-8s %5s  %-10s %-7s  %s\n", "kind", "id", "name", "type",
		       "vcpus", "via", "stopped", "profile it with");
	printf("%-8s %-6s ", entry->scheme, entry->id);
	print_name(entry->name, 24);
	printf("%-8s %5u  ", entry->type, entry->vcpus);
	if (entry->note || !entry->way) {
		printf("%-10s %7s  - (%s)\n", "-", "-", entry->note ?: entry->missing);
		return;
	}
	printf("%-10s %7s  uniprof record %s:", entry->way->name, entry->way->cost, entry->scheme);
	put_clean(*entry->name ? entry->name : entry->id, stdout);
	if (entry->missing)
		printf("  (%s)", entry->missing);
	puts(entry->paused ? "  (paused now)" : "");
}

static struct error *list_ways(void)
{
	const struct target_ops *ops;

	printf("%-8s %-10s %-7s  %s\n", "kind", "via", "stopped", "what it is");
	for (size_t i = 0; (ops = target_kind(i)); i++)
		for (const struct target_way *way = ops->ways; way && way->name; way++)
			printf("%-8s %-10s %7s  %s\n", ops->scheme, way->name, way->cost,
			       way->text);
	return NULL;
}

static struct error *list(int argc, char **argv, int *status)
{
	const struct target_ops *ops;
	struct error *err = NULL;
	unsigned n = 0, kinds = 0;

	if (argc == 2 && !strcmp(argv[1], "--ways"))
		return list_ways();
	if (argc > 1)
		return usage_error(&verb_list, "list takes no arguments but --ways");
	for (size_t i = 0; (ops = target_kind(i)); i++) {
		if (!ops->list)
			continue;
		kinds++;
		err = error_first(err, ops->list(print, &n));
	}
	/* A machine that is no host of one kind may well be one of another. */
	if (err && n) {
		say("%s", err->text);
		error_free(err);
		err = NULL;
	}
	if (!err && geteuid())
		say("only guests that you may read are shown: root sees all");
	if (!err && !n && kinds)
		say("no guest runs here, neither of Xen nor of KVM or QEMU");
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
