/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SAMPLE_SETTLE_KERNEL_H
#define UNIPROF_SAMPLE_SETTLE_KERNEL_H

#include "symbol/images/images.h"
#include "symbol/kernel/modules.h"
#include "target/target.h"

/*
 * Takes a Linux kernel's names and unwind tables from the guest's own memory
 * (symbol/kernel_memory.h), once a vCPU is seen to execute one, and those of
 * its modules; of those that are loaded later once a vCPU executes them. What
 * the user gave comes first where it has the same.
 */
struct settle_kernel {
	unsigned tries; /* for the kernel, then for modules that have come */
	uint64_t next_ns;
	bool done; /* with the kernel */
	struct kernel_modules modules;
};

/*
 * To be asked with every sample, before it is unwound: whether it is worth
 * looking for a kernel, and from where; NULL if it is not.
 */
const struct regs *settle_kernel_from(const struct settle_kernel *kernel,
				      const struct target *target, const struct images *images,
				      const struct sample *sample);

/* Looks for one; the guest runs meanwhile. *added: a kernel was found. */
struct error *settle_kernel_look(struct settle_kernel *kernel, struct target *target,
				 struct images *images, const struct regs *from, uint64_t now_ns,
				 bool *added);

#endif
