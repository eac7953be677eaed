/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A way of taking one sample of a guest, to be timed beside others. One file
 * implements each; cost.c lists and runs them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "unwind/unwind.h"

/* Time that the guest runs between two samples. */
#define NAP_NS 200000

struct bench_guest {
	const char *spec;  /* as on uniprof's command line: "xen:NAME" */
	const char *image; /* the ELF file that runs in it; NULL: not known */
	enum unwind_method method;
	uint32_t domid;
	uint32_t vcpus;
	uint32_t busy; /* vCPUs that always run */
	bool hvm;      /* PVH */
};

/* Cost of one sample. */
struct taken {
	uint64_t paused_ns; /* of that, with the guest paused */
	uint64_t whole_ns;
	uint32_t frames; /* of all vCPUs; 0: the way does not walk */
	bool spared;	 /* fewer vCPUs have run since the last sample than should have */
};

struct way {
	const char *name;
	bool hvm_only;
	bool alone;	/* is run only when named */
	uint32_t every; /* is run in each n-th round only, because it is slow; 0: in each */
	struct error *(*open)(const struct bench_guest *guest, void **state);
	struct error *(*take)(void *state, struct taken *out);
	void (*close)(void *state); /* NULL is none */
};

/*
 * Bare hypercalls by libxencall, with nothing read (bare.c). "floor" is one
 * multicall of the pause and all contexts, then the unpause. On PVH it asks for
 * the CPU record of the HVM context, the cheapest call that has the registers;
 * "floor_context" asks for getvcpucontext as on PV. "calls" makes one call for
 * each of the same steps. The others are single steps; "step_states" asks for
 * the states of all vCPUs, as uniprof does ahead of a pause.
 */
extern const struct way way_floor, way_floor_context, way_calls, way_step_clock, way_step_states,
	way_step_pause, way_step_go;

/*
 * The classic way (classic.c, libxc.c): one call for each step and, while the
 * guest is paused, a walk by frame pointers that prints each frame to a file.
 * Pages are mapped when first met and stay so.
 */
extern const struct way way_classic, way_libxc;

/*
 * As way_pause, but from the very first sample of a guest on: nothing has been
 * mapped or learned before.
 */
extern const struct way way_first;

/* `xenctx -S` as a whole process (xenctx.c). */
extern const struct way way_xenctx;

/*
 * uniprof's sample with all that belongs to it, as it does by default, and
 * pausing the guest for each; "single" does the latter with one call for each
 * step instead of a multicall; "unread" pauses, and copies and unwinds nothing
 * (product.c).
 */
extern const struct way way_auto, way_pause, way_single, way_unread;

/* All ways on this architecture (ways_ARCH.c); ends with NULL. */
#define MAX_WAYS 16
extern const struct way *const all_ways[MAX_WAYS];
