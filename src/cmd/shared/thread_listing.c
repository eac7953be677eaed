/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/guest_dump_take.h"

#include <stdlib.h>

#include "base/clock.h"
#include "capture/capture.h"

/*
 * Views of memory that are tried, each with a sample of its own: it may be that
 * of a process that ends meanwhile, or lack the kernel. A vCPU in the kernel
 * hardly ever has such a view: it counts for several.
 */
#define VIEWS_MOST  100u
#define KERNEL_VIEW 12u
#define VIEW_NAP_NS (10 * 1000000ull)
/* Steps for all that is read: some seconds. */
#define STEPS (1ull << 31)

static size_t read_view(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct thread_listing *listing = ctx;

	return target_read(listing->target, &listing->regs, va, buf, len);
}

static struct error *take_view(struct thread_listing *listing, unsigned turn)
{
	struct error *err = listing->target->ops->sample(listing->target, listing->sample);

	if (err)
		return err;
	/* The kernel's page tables are by turns those of user mode, and beside them. */
	if (!waiting_choose_view(listing->target, listing->sample, turn % 2, &listing->regs))
		return error_new(ERR_GUEST, "no vCPU of the guest runs a system whose threads are "
					    "known: Linux of 64 bits on x86 or Arm");
	return NULL;
}

static struct error *open_system(struct thread_listing *listing)
{
	struct error *err = guest_threads_open(&listing->memory, &listing->regs, &listing->threads);

	if (!err && !listing->threads)
		err = error_new(ERR_GUEST,
				listing->regs.user
					? "no vCPU was ever seen in the guest's kernel: try again"
					: "the guest runs no system whose threads are known: Linux "
					  "of 64 bits with kallsyms is");
	return err;
}

static struct error *list_running(struct thread_listing *listing)
{
	listing->cpus = guest_threads_cpus(listing->threads, &listing->memory);
	listing->running = calloc(listing->cpus + 1ull, sizeof(*listing->running));
	listing->is_running = calloc(listing->cpus + 1ull, sizeof(*listing->is_running));
	if (!listing->running || !listing->is_running)
		return error_no_memory();
	for (uint32_t i = 0; i < listing->cpus; i++)
		listing->is_running[i] = guest_threads_running(listing->threads, &listing->memory,
							       i, &listing->running[i]);
	return NULL;
}

static struct error *list_from_view(struct thread_listing *listing, unsigned turn)
{
	struct error *err = take_view(listing, turn);

	if (!err && !listing->threads)
		err = open_system(listing);
	if (!err)
		err = guest_threads_list(listing->threads, &listing->memory, &listing->list);
	return err;
}

static struct error *list_threads(struct thread_listing *listing)
{
	struct error *err = list_from_view(listing, 0);
	unsigned used = 0;

	for (unsigned turn = 1; err || listing->list.trouble; turn++) {
		used += listing->regs.user ? 1 : KERNEL_VIEW;
		if (listing->target->still || used >= VIEWS_MOST || budget_over(&listing->budget) ||
		    (err && err->kind == ERR_ENDED))
			break;
		target_wait(listing->target, clock_now_ns() + VIEW_NAP_NS);
		error_free(err);
		guest_thread_list_free(&listing->list);
		err = list_from_view(listing, turn);
	}
	return err;
}

static struct error *take(struct thread_listing *listing)
{
	enum target_life life;
	struct error *err = target_check_life(listing->target, &life);

	if (!err && !target_can_read(listing->target))
		err = error_new(ERR_GUEST, "the memory of this guest cannot be read");
	if (!err)
		err = sample_new(listing->target->info.vcpus, FRAME_SIZE, &listing->sample);
	if (!err)
		err = list_threads(listing);
	if (!err)
		err = list_running(listing);
	return err;
}

struct error *thread_listing_take(struct target *target, struct thread_listing *out)
{
	struct error *err;

	*out = (struct thread_listing){.target = target, .budget = {.left = STEPS}};
	out->memory = (struct guest_memory){out, read_view, &out->budget};
	err = take(out);
	if (err)
		thread_listing_free(out);
	return err;
}

void thread_listing_free(struct thread_listing *listing)
{
	free(listing->running);
	free(listing->is_running);
	guest_thread_list_free(&listing->list);
	guest_threads_free(listing->threads);
	sample_free(listing->sample);
	*listing = (struct thread_listing){0};
}
