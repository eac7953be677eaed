/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Takes a dump of a guest: registers, stacks, code, memory and names
 * (view/guest_dump.h); and lists its threads, with the view of its memory that
 * has its kernel.
 */

#include "cmd/shared/session.h"
#include "target/target.h"
#include "threads/threads.h"
#include "view/guest_dump.h"

/* Threads of a guest, and the one of each CPU. */
struct thread_listing {
	struct target *target;
	const struct images *images;
	struct sample *sample;
	struct regs regs; /* of the vCPU whose view of memory is read */
	struct memory_view view;
	struct budget budget;
	struct guest_memory memory;
	struct guest_threads *threads;
	struct guest_thread_list list;
	struct guest_thread *running; /* [cpus] */
	bool *is_running;	      /* [cpus] */
	uint32_t cpus;
};

#define GUEST_DUMP_MEMORY_BYTES 256u
#define GUEST_DUMP_MEMORY_CAP	(1u << 20)

struct guest_dump_wanted {
	int64_t vcpu; /* -1: all */
	bool full_names;
	bool threads;  /* all of the guest's, with their stacks */
	bool mappings; /* ... and with what is mapped in their processes */
	size_t n_memory;
	struct guest_dump_memory memory[GUEST_DUMP_MEMORY_MAX]; /* va, asked, as_stack */
};

struct guest_dump_taken;

/*
 * Looks at an open target, whose rights have been given up. Takes `files`,
 * `sampler`, `always_pause`, `quiet` and `verbose` of the session's options.
 * The guest is as it was when this returns, whatever it returns.
 */
struct error *guest_dump_take(struct target *target, const struct session_options *options,
			      const struct guest_dump_wanted *wanted,
			      struct disassembler *disassembler, struct guest_dump_taken **out);
const struct guest_dump *guest_dump_of(const struct guest_dump_taken *taken);

/* The threads that were wanted, in the order of those of the dump. */
const struct thread_listing *guest_dump_listing(const struct guest_dump_taken *taken);
void guest_dump_free(struct guest_dump_taken *taken);

/* The code around `regs->pc`, read from the guest while it runs on. */
void guest_dump_read_code(struct target *target, const struct images *images,
			  const struct regs *regs, struct disassembler *disassembler,
			  struct guest_dump_vcpu *out);
