/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "symbol/names/display_name.h"
#include "target/target.h"

/* Of a bool. */
static const struct option_row own_options[] = {
	{"ways", NULL, 0, take_true, 0,
	 .text = "show instead all ways in which guests can be read (for --via)"},
	{0}};

static const struct option_group options_of_list[] = {{own_options, 0}, {0}};

struct list_state {
	unsigned n;
	const struct target_ops *ops;	/* of the kind whose guests are printed */
	const struct target_way *tried; /* of this kind, the last one */
	struct error *refusal;		/* ... and why it does not work; NULL: it does */
	const char
		*nameless; /* why names of some that can be profiled are not shown; NULL: all are */
};

/* A way is tried once for all guests of a kind. If it does not work, the next one will be taken. */
static void try_way(struct list_state *listing, struct target_listing *entry)
{
	if (!entry->way || entry->note || !listing->ops->try_way)
		return;
	if (entry->way != listing->tried) {
		error_free(listing->refusal);
		listing->tried = entry->way;
		listing->refusal = listing->ops->try_way(entry->way);
	}
	if (listing->refusal) {
		entry->way++;
		entry->missing = listing->refusal->text;
	}
}

static void print_guest(const struct target_listing *entry)
{
	const int blanks = 24 - (int)strlen(entry->name);

	printf("%-8s %-6s ", entry->scheme, entry->id);
	sanitize_print(entry->name, stdout);
	printf("%*s %-8s %5u  ", blanks > 0 ? blanks : 0, "", entry->type, entry->vcpus);
	if (entry->note || !entry->way) {
		printf("%-10s %7s  - (%s)\n", "-", "-", entry->note ?: entry->missing);
		return;
	}
	printf("%-10s %7s  uniprof record %s:", entry->way->name, entry->way->cost, entry->scheme);
	sanitize_print(*entry->name ? entry->name : entry->id, stdout);
	if (entry->missing)
		printf("  (%s)", entry->missing);
	puts(entry->paused ? "  (paused now)" : "");
}

static void print(void *ctx, const struct target_listing *entry)
{
	struct list_state *listing = ctx;
	struct target_listing tried = *entry;

	if (!listing->n++)
		printf("%-8s %-6s %-24s %-8s %5s  %-10s %-7s  %s\n", "kind", "id", "name", "type",
		       "vcpus", "via", "stopped", "profile it with");
	if (!tried.note && listing->ops->protection)
		tried.note = listing->ops->protection(entry->id);
	try_way(listing, &tried);
	if (!tried.note)
		listing->nameless = entry->nameless ?: listing->nameless;
	print_guest(&tried);
}

static struct error *list_kind(const struct target_ops *ops, unsigned *n)
{
	struct list_state listing = {.n = *n, .ops = ops};
	struct error *err = ops->list(ops, print, &listing);

	if (listing.nameless)
		cmd_say("%s", listing.nameless);
	error_free(listing.refusal);
	*n = listing.n;
	return err;
}

static void list_ways(void)
{
	const struct target_ops *ops;

	printf("%-8s %-10s %-7s  %s\n", "kind", "via", "stopped", "what it is");
	for (size_t i = 0; (ops = target_kind(i)); i++)
		for (const struct target_way *way = ops->ways; way && way->name; way++)
			printf("%-8s %-10s %7s  %s\n", ops->scheme, way->name, way->cost,
			       way->text);
}

static struct error *list_guests(void)
{
	const struct target_ops *ops;
	struct error *err = NULL;
	unsigned n = 0, kinds = 0;

	for (size_t i = 0; (ops = target_kind(i)); i++) {
		if (!ops->list)
			continue;
		kinds++;
		err = error_first(err, list_kind(ops, &n));
	}
	/* A machine that is no host of one kind may well be one of another. */
	if (err && n) {
		cmd_say("%s", err->text);
		error_free(err);
		err = NULL;
	}
	if (!err && geteuid())
		cmd_say("only guests that you may read are shown: root sees all");
	if (!err && !n && kinds)
		cmd_say("no guest runs here, neither of Xen nor of KVM or QEMU");
	if (!kinds)
		return error_new(ERR_DENIED,
				 "this uniprof was built without any kind of guest that "
				 "can be listed (see uniprof -V)");
	return err;
}

static struct error *list(int argc, char **argv, int *status)
{
	bool ways = false;
	int first;

	TRY(options_parse(&verb_list, argc, argv, &ways, &first));
	if (first != argc)
		return cmd_usage_error(&verb_list, "list takes no arguments but --ways");
	if (!ways)
		return list_guests();
	list_ways();
	return NULL;
}

const struct verb verb_list = {
	.name = "list",
	.summary = "which guests can be profiled here",
	.arguments = "[--ways]",
	.about =
		"Shows the guests that are there, and what stands in the way of profiling them: "
		"Xen's\n"
		"(xen), those that any program runs by KVM (kvm), those that QEMU emulates (qemu), "
		"and\n"
		"unikernels that are processes of this machine (process). Any other process is "
		"profiled\n"
		"as process:PID, too.\n"
		"\n"
		"\"via\" is the way in which a guest would be read: whether this kernel takes the\n"
		"program for BPF has been tried. \"stopped\" is for how long that stops a vCPU for "
		"a\n"
		"sample, about; in parentheses is what a cheaper way lacks.\n",
	.options = options_of_list,
	.run = list,
};
