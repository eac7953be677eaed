/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measures how large recordings get and how fast they are written and summed up:
 *
 *   recording_bench write FILE TICKS STACKS VCPUS [DEPTH]
 *   recording_bench load FILE
 *   recording_bench segment FILE START SECONDS HZ STACKS VCPUS [GUEST]
 *
 * `write` makes up a recording with so many distinct stacks of 12 (or
 * DEPTH) frames, the first of them far more frequent than the last, at about 1000 ticks a second.
 * `segment` makes up what `uniprof agent` keeps of a guest from START (s since the epoch) on: more load
 * by day than by night, names, and an hour with other functions each evening.
 */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "profile/profile.h"

#define DEPTH	  12
#define MAX_DEPTH 128
#define FUNCTION  0x800 /* bytes of a named function */

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(struct error *err)
{
	if (!err)
		return;
	fprintf(stderr, "recording_bench: %s\n", err->text);
	exit(err->kind);
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *seed >> 33;
}

/* Stack number i: its digits choose the functions, so that stacks share their outer frames. */
static void make_chain(uint64_t i, struct frame *frames, int n)
{
	frames[0] =
		(struct frame){0xffffffff81000000 + i * 37 % (9000 * 0x130), FRAME_PC, TRUST_SURE};
	for (int depth = 1; depth < n; depth++) {
		i = depth % 3 ? i : i / 7;
		frames[depth] = (struct frame){0xffffffff81000000 + (i % 5000) * 0x130 +
						       (uint64_t)depth * 0x10000,
					       FRAME_RETURN, TRUST_SURE};
	}
}

struct made_up {
	uint64_t ticks, stacks;
	uint32_t vcpus;
	int depth;
};

static void write_ticks(struct recording_writer *writer, struct stacks *stacks,
			const struct made_up *what)
{
	struct tick_entry *entries = calloc(what->vcpus, sizeof(*entries));
	struct tick tick = {.n = what->vcpus, .entries = entries, .weight_ns = 1000000};
	uint64_t seed = 1;

	if (!entries)
		die(error_no_memory());
	for (uint64_t t = 0; t < what->ticks; t++) {
		tick.time_ns += 900000 + next_random(&seed) % 200000;
		tick.paused_ns = 15000 + next_random(&seed) % 6000;
		for (uint32_t vcpu = 0; vcpu < what->vcpus; vcpu++) {
			/* The product of two numbers: low stacks are frequent, every one comes. */
			uint64_t a = next_random(&seed) % what->stacks;
			uint64_t b = t < what->stacks ? t : a * (next_random(&seed) % 1000) / 1000;
			struct frame frames[MAX_DEPTH];
			bool whole;

			make_chain(b, frames, what->depth);
			entries[vcpu].vcpu = vcpu;
			die(stacks_intern(stacks, frames, (size_t)what->depth, &entries[vcpu].stack,
					  &whole));
		}
		die(recording_tick(writer, &tick));
	}
	free(entries);
}

static void bench_write(const char *path, const struct made_up *what)
{
	struct recording_info info = {.tool = (char *)"recording_bench", .vcpus = what->vcpus};
	struct recording_end end = {.reason = (char *)"time"};
	double start = seconds(), took;
	struct recording_writer *writer;
	struct stacks *stacks;
	struct stat file;

	die(stacks_new(&stacks));
	die(recording_create(path, &info, stacks, &writer));
	write_ticks(writer, stacks, what);
	die(recording_close(writer, &end));
	took = seconds() - start;
	if (stat(path, &file))
		die(error_new(ERR_FAILED, "cannot look at %s", path));
	printf("{\"ticks\":%" PRIu64 ",\"vcpus\":%u,\"stacks\":%" PRIu64
	       ",\"nodes\":%u,\"seconds\":%.2f,\"ns_per_tick\":%.0f,\"bytes\":%lld,"
	       "\"bytes_per_tick\":%.2f}\n",
	       what->ticks, what->vcpus, what->stacks, stacks_count(stacks), took,
	       took * 1e9 / (double)what->ticks, (long long)file.st_size,
	       (double)file.st_size / (double)what->ticks);
	stacks_free(stacks);
}

struct segment {
	int64_t start_s;
	uint64_t seconds, hz, stacks;
	uint32_t vcpus;
	char *guest;
};

/* One vCPU at one moment: it is at work as often as the time of the day wants. */
static void fill_entry(struct stacks *stacks, const struct segment *what, double day,
		       uint64_t *seed, struct tick_entry *entry)
{
	const double busy = 0.1 + 0.6 * pow(sin(day * M_PI), 4);
	const uint64_t peak = day > 0.75 && day < 0.79 ? what->stacks / 2 : 0;
	const uint64_t a = next_random(seed) % what->stacks;
	const uint64_t b =
		a * (next_random(seed) % 1000) / 1000 * (next_random(seed) % 1000) / 1000;
	const bool runs = (double)(next_random(seed) % 1000) < busy * 1000;
	struct frame frames[DEPTH];
	bool whole;

	entry->state = runs ? VCPU_RUNNING : VCPU_BLOCKED;
	entry->end = UNWIND_OUTERMOST;
	entry->ran_ns = runs ? 1000000000 / what->hz : 0;
	make_chain(runs ? (b + peak) % what->stacks : 0, frames, runs ? DEPTH : 2);
	die(stacks_intern(stacks, frames, runs ? DEPTH : 2, &entry->stack, &whole));
}

static void write_segment_ticks(struct recording_writer *writer, struct stacks *stacks,
				const struct segment *what)
{
	struct tick_entry *entries = calloc(what->vcpus, sizeof(*entries));
	struct tick tick = {.n = what->vcpus, .entries = entries};
	uint64_t seed = (uint64_t)what->start_s;

	if (!entries)
		die(error_no_memory());
	tick.weight_ns = 1000000000 / what->hz;
	for (uint64_t t = 0; t < what->seconds * what->hz; t++) {
		const double s = (double)what->start_s + (double)t / (double)what->hz;

		tick.time_ns = t * tick.weight_ns + next_random(&seed) % tick.weight_ns;
		for (uint32_t vcpu = 0; vcpu < what->vcpus; vcpu++) {
			entries[vcpu].vcpu = vcpu;
			fill_entry(stacks, what, fmod(s, 86400) / 86400, &seed, &entries[vcpu]);
		}
		die(recording_tick(writer, &tick));
	}
	free(entries);
}

static void write_names(struct recording_writer *writer, const struct stacks *stacks)
{
	for (uint32_t i = 1; i < stacks_count(stacks); i++) {
		const struct stack_node *node = stacks_node(stacks, i);
		const uint64_t offset = node->addr - 0xffffffff81000000;
		char name[32];

		snprintf(name, sizeof(name), "function_%" PRIu64, offset / FUNCTION);
		die(recording_name(writer, node->addr, node->kind, name, offset % FUNCTION));
	}
}

static void write_segment(const char *path, const struct segment *what)
{
	struct recording_info info = {.tool = (char *)"recording_bench",
				      .target = (char *)"xen",
				      .guest_name = what->guest,
				      .guest_id = (char *)"7",
				      .guest_type = (char *)"pvh",
				      .vcpus = what->vcpus,
				      .rate_hz = (double)what->hz,
				      .start_unix_ns = (uint64_t)what->start_s * 1000000000};
	struct recording_end end = {.reason = (char *)"the minute is over",
				    .elapsed_ns = what->seconds * 1000000000};
	struct recording_writer *writer;
	struct stacks *stacks;

	die(stacks_new(&stacks));
	die(recording_create(path, &info, stacks, &writer));
	write_segment_ticks(writer, stacks, what);
	write_names(writer, stacks);
	die(recording_close(writer, &end));
	stacks_free(stacks);
}

static bool take_segment(int argc, char **argv, struct segment *what)
{
	if (argc < 8 || argc > 9 || strcmp(argv[1], "segment") != 0)
		return false;
	*what = (struct segment){.start_s = strtoll(argv[3], NULL, 10),
				 .seconds = strtoull(argv[4], NULL, 10),
				 .hz = strtoull(argv[5], NULL, 10),
				 .stacks = strtoull(argv[6], NULL, 10),
				 .vcpus = (uint32_t)strtoul(argv[7], NULL, 10),
				 .guest = argc == 9 ? argv[8] : (char *)"web"};
	return what->start_s > 0 && what->seconds && what->hz && what->stacks && what->vcpus;
}

static void bench_load(const char *path)
{
	struct profile_filter all = {.vcpu = -1};
	double start = seconds(), took;
	struct profile *profile;
	struct rusage usage;

	die(profile_load(path, &all, &profile));
	took = seconds() - start;
	getrusage(RUSAGE_SELF, &usage);
	printf("{\"ticks\":%" PRIu64
	       ",\"nodes\":%u,\"seconds\":%.2f,\"ns_per_tick\":%.0f,\"max_rss_mib\":%.1f}\n",
	       profile->ticks, stacks_count(profile->stacks), took,
	       took * 1e9 / (double)profile->ticks, (double)usage.ru_maxrss / 1024);
	profile_free(profile);
}

static bool take_made_up(int argc, char **argv, struct made_up *what)
{
	if (argc < 6 || argc > 7 || strcmp(argv[1], "write") != 0)
		return false;
	*what = (struct made_up){.ticks = strtoull(argv[3], NULL, 10),
				 .stacks = strtoull(argv[4], NULL, 10),
				 .vcpus = (uint32_t)strtoul(argv[5], NULL, 10),
				 .depth = argc == 7 ? atoi(argv[6]) : DEPTH};
	return what->ticks && what->stacks && what->vcpus && what->depth > 0 &&
	       what->depth <= MAX_DEPTH;
}

int main(int argc, char **argv)
{
	struct made_up what;
	struct segment segment;

	if (take_made_up(argc, argv, &what))
		bench_write(argv[2], &what);
	else if (take_segment(argc, argv, &segment))
		write_segment(argv[2], &segment);
	else if (argc == 3 && strcmp(argv[1], "load") == 0)
		bench_load(argv[2]);
	else
		die(error_new(ERR_USAGE, "write FILE TICKS STACKS VCPUS [DEPTH], load FILE, or "
					 "segment FILE START SECONDS HZ STACKS VCPUS [GUEST]"));
	return 0;
}
