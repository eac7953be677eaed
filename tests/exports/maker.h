/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Makes recordings for the tests of formats. Whatever fails ends the program. */

#include <stddef.h>

#include "recording/recording.h"

#define TICK_NS 1000000

struct maker {
	struct recording_writer *writer;
	struct stacks *stacks;
	uint64_t time_ns, tick_ns;
	uint32_t thread;       /* of the samples from now on; 0: not known */
	const char *container; /* of the threads from now on; NULL: not known */
	uint64_t paused_ns;    /* ... and how long each stopped the guest */
};

void check(struct error *err);

/* Begins a recording of a guest with so many vCPUs. */
void maker_create(struct maker *m, const char *path, uint32_t vcpus, const char *guest,
		  const struct recorded_images *images);
void maker_close(struct maker *m);

/* One sample, a tick behind the one before. Frames are leaf first. */
void maker_sample(struct maker *m, uint32_t vcpu, uint8_t state, const uint64_t *addrs, size_t n);

/* Adds a thread, idle if its ID is 0; the first one is number 1. */
void maker_thread(struct maker *m, uint32_t pid, uint32_t tid, const char *process,
		  const char *name);

/* Names an address. */
void maker_name(struct maker *m, uint64_t addr, const char *text);

/* The recordings, which are left open. */
void make_plain(struct maker *m, const char *path);
/* ... the same stacks, in threads. */
void make_threads(struct maker *m, const char *path);
void make_inlined(struct maker *m, const char *path);
/* Many functions, of C and of C++, in threads and in none; each has a weight of its own. */
void make_many(struct maker *m, const char *path);
/* Names that mean something to some format: of functions, of the guest, of images and of source files. */
void make_hostile(struct maker *m, const char *path);
