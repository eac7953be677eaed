/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Makes a recording from folded stacks, for the browser tests: from there on
 * the real program draws. Standard input has a line "a;b;c SAMPLES" for each
 * stack; names that begin with "0x" are addresses without a name.
 *
 * A line "@VCPU STATE" tells of which vCPU and state (a number) the following
 * stacks are; at first 0 and running.
 *
 *	folded_to_recording OUTFILE [VCPUS]
 */

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recording/recording.h"

#define MAX_FRAMES 4096
#define TICK_NS	   1000000

struct function {
	char *name;
	uint64_t addr;
};

struct maker {
	struct recording_writer *writer;
	struct stacks *stacks;
	void *functions; /* of tsearch */
	uint64_t next_addr, time_ns;
	uint32_t vcpu;
	uint8_t state;
};

static void die(const char *what)
{
	fprintf(stderr, "folded_to_recording: %s\n", what);
	exit(1);
}

static void check(struct error *err)
{
	if (err)
		die(err->text);
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct function *)a)->name, ((const struct function *)b)->name);
}

static void forget(void *node)
{
	free(((struct function *)node)->name);
	free(node);
}

/* The address of a function; its name is recorded at the first use. */
static uint64_t address(struct maker *maker, const char *name)
{
	struct function *function, **found;

	if (strncmp(name, "0x", 2) == 0)
		return strtoull(name, NULL, 16);
	function = malloc(sizeof(*function));
	if (!function || !(function->name = strdup(name)))
		die("not enough memory");
	found = tsearch(function, &maker->functions, compare);
	if (!found)
		die("not enough memory");
	if (*found == function) {
		function->addr = maker->next_addr += 0x1000;
		check(recording_name(maker->writer, function->addr, FRAME_PC, name, 0));
		check(recording_name(maker->writer, function->addr, FRAME_RETURN, name, 0));
	} else {
		forget(function);
	}
	return (*found)->addr;
}

static void add_line(struct maker *maker, char *line)
{
	static struct frame frames[MAX_FRAMES];
	struct tick_entry entry = {.vcpu = maker->vcpu,
				   .state = maker->state,
				   .end = UNWIND_OUTERMOST};
	struct tick tick = {.weight_ns = TICK_NS, .n = 1, .entries = &entry};
	char *count = strrchr(line, ' '), *name;
	size_t n = 0;
	bool whole;

	if (!count)
		die("a line has no count");
	*count++ = '\0';
	while ((name = strrchr(line, ';')) || *line) { /* from the leaf on */
		frames[n] = (struct frame){.kind = n ? FRAME_RETURN : FRAME_PC};
		frames[n++].addr = address(maker, name ? name + 1 : line);
		*(name ? name : line) = '\0';
		if (n == MAX_FRAMES)
			die("a stack is too deep");
	}
	check(stacks_intern(maker->stacks, frames, n, &entry.stack, &whole));
	for (long i = atol(count); i > 0; i--) {
		tick.time_ns = maker->time_ns += TICK_NS;
		check(recording_tick(maker->writer, &tick));
	}
}

int main(int argc, char **argv)
{
	char target[] = "xen", guest[] = "web", reason[] = "time", arch[] = "x86_64";
	const struct recording_info info = {.target = target,
					    .guest_name = guest,
					    .arch = arch,
					    .vcpus = argc > 2 ? (uint32_t)atoi(argv[2]) : 1,
					    .rate_hz = 1e9 / TICK_NS};
	struct recording_end end = {.reason = reason};
	struct maker maker = {0};
	char *line = NULL;
	size_t room = 0;
	ssize_t len;

	if (argc < 2)
		die("usage: folded_to_recording OUTFILE [VCPUS]");
	check(stacks_new(&maker.stacks));
	check(recording_create(argv[1], &info, maker.stacks, &maker.writer));
	while ((len = getline(&line, &room, stdin)) > 0) {
		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		if (sscanf(line, "@%u %hhu", &maker.vcpu, &maker.state) == 2)
			continue;
		if (*line)
			add_line(&maker, line);
	}
	end.elapsed_ns = maker.time_ns;
	check(recording_close(maker.writer, &end));
	stacks_free(maker.stacks);
	tdestroy(maker.functions, forget);
	free(line);
	return 0;
}
