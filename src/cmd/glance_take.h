/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_GLANCE_TAKE_H
#define UNIPROF_CMD_GLANCE_TAKE_H

/* One look at a guest, with all that is to be known of it (output/glance.h). */

#include "cmd/session.h"
#include "view/guest_dump.h"

#define GLANCE_MEMORY_BYTES 256u
#define GLANCE_MEMORY_CAP   (1u << 20)

struct glance_wanted {
	int64_t vcpu; /* -1: all */
	size_t n_memory;
	struct glance_memory memory[GLANCE_MEMORY_MAX]; /* va, asked, as_stack */
};

struct glance_taken;

/*
 * Looks at an open target, whose rights have been given up. Takes `files`,
 * `sampler`, `always_pause`, `quiet` and `verbose` of the session's options.
 * The guest is as it was when this returns, whatever it returns.
 */
struct error *glance_take(struct target *target, const struct session_options *options,
			  const struct glance_wanted *wanted, struct disassembler *disassembler,
			  struct glance_taken **out);
const struct glance *glance_of(const struct glance_taken *taken);
void glance_free(struct glance_taken *taken);

/* The code around `regs->pc`, read from the guest while it runs on (glance_code.c). */
void glance_read_code(struct target *target, const struct images *images, const struct regs *regs,
		      struct disassembler *disassembler, struct glance_vcpu *out);

#endif
