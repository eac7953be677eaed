/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_VCPUS_H
#define UNIPROF_TARGET_XEN_VCPUS_H

/*
 * What is known of a domain's vCPUs from sample to sample, and so which of
 * them have to be read this time: the CPU time that a vCPU has used tells
 * whether it ran. One that did not still has the stack that it had.
 */

#include "target/target.h"
#include "target/xen/xen_if.h"

/* One vCPU as of the last sample. */
struct xen_seen {
	bool online;
	bool busy;	   /* it had run: its context is asked for along with its state */
	uint64_t noted_ns; /* CPU time in this sample, before anything was read */
};

/* Ids of vCPUs, ascending. */
struct xen_ids {
	uint32_t n;
	uint32_t *id;
};

struct xen_vcpus {
	uint32_t n;
	struct xen_vcpu *now;  /* [n]: what batches fill in */
	struct xen_seen *seen; /* [n] */
	struct xen_ids online;
	struct xen_ids ahead; /* contexts that are asked for along with the states */
	struct xen_ids late;  /* ... and those that turned out to be needed, too */
	struct xen_ids read;  /* vCPUs whose stacks are read in this sample */
	bool running;	      /* at the last look, one of those was on a CPU */
	uint32_t turn;	      /* the first id that xen_vcpus_limit leaves */
};

struct error *xen_vcpus_new(struct xen_vcpus *vcpus, uint32_t n);
void xen_vcpus_free(struct xen_vcpus *vcpus);

/* Asks for those that are off-line whether they still are. Negative errno. */
int xen_vcpus_refresh(struct xen_vcpus *vcpus, struct xen_if *xi);

/*
 * Chooses `ahead`, before it is known who ran: those that have been busy, and
 * those that must be read again. `pause`: the guest will probably be paused, and
 * contexts are asked for then; so none.
 */
void xen_vcpus_expect(struct xen_vcpus *vcpus, const struct sample *sample, bool pause);

/*
 * States have come in, once in a sample: notes them, chooses `read` and `late`,
 * marks the others as the same, says who is off-line.
 */
void xen_vcpus_note(struct xen_vcpus *vcpus, struct sample *sample);

/* Leaves only `n` of `read`, in turns, and gives up the others. */
void xen_vcpus_limit(struct xen_vcpus *vcpus, struct sample *sample, uint32_t n);

/* True if none of `read` has run since it was noted, going by newer states. */
bool xen_vcpus_still(const struct xen_vcpus *vcpus);

/* The sample is done: remembers what it held, and says how much CPU time each has used. */
void xen_vcpus_done(struct xen_vcpus *vcpus, struct sample *sample);

#endif
