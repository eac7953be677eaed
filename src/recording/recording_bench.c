/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measures how large recordings get and how fast they are written and summed up:
 *
 *   recording_bench write FILE TICKS STACKS VCPUS [DEPTH]
 *   recording_bench load FILE
 *
 * `write` makes up a recording with so many distinct stacks of 12 (or
 * DEPTH) frames, the first of them far more frequent than the last, at about 1000 ticks a second.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "profile/profile.h"

#define DEPTH	  12
#define MAX_DEPTH 128

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

	if (take_made_up(argc, argv, &what))
		bench_write(argv[2], &what);
	else if (argc == 3 && strcmp(argv[1], "load") == 0)
		bench_load(argv[2]);
	else
		die(error_new(ERR_USAGE, "write FILE TICKS STACKS VCPUS [DEPTH], or load FILE"));
	return 0;
}
