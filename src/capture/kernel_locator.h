/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CAPTURE_KERNEL_LOCATOR_H
#define UNIPROF_CAPTURE_KERNEL_LOCATOR_H

#include "symbol/images/images.h"
#include "symbol/kernel/modules.h"
#include "target/target.h"
#include "threads/threads.h"

/*
 * Takes a Linux kernel's names and unwind tables from the guest's own memory
 * (symbol/kernel/memory.h), once a vCPU is seen to execute one, and those of
 * its modules; of modules that are loaded later, once a vCPU executes them. The
 * user's files come first where they cover the same code. With `with_threads`
 * also finds where its threads are.
 */
struct kernel_locator {
	unsigned tries; /* for the kernel, then for modules that have come */
	uint64_t next_ns;
	bool done; /* with the kernel */
	bool with_threads;
	struct kernel_modules modules;
	struct guest_threads *threads; /* NULL: not found, or not wanted */
};

/*
 * To be asked with every sample, before it is unwound: whether it is worth
 * looking for a kernel, and from where; NULL if it is not.
 */
const struct regs *kernel_locator_regs(const struct kernel_locator *kernel,
				       const struct target *target, const struct images *images,
				       const struct sample *sample);

/* To be called when a search begins: the next begins some time later. */
void kernel_locator_defer(struct kernel_locator *kernel, uint64_t now_ns);

/* Steps of a search for a kernel's names, or for its modules;
 * Debian's 6.1 with random addresses takes between 2^26 and 2^27. */
#define KERNEL_LOCATOR_STEPS (1ull << 28)

/* Searches for one, while the guest runs. *added: a kernel was found. */
struct error *kernel_locator_search(struct kernel_locator *kernel, struct target *target,
				    struct images *images, const struct regs *from,
				    struct budget *budget, bool *added);

#endif
