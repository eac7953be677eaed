/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_XEN_IF_H
#define UNIPROF_TARGET_XEN_XEN_IF_H

/*
 * How to talk to the hypervisor. Two files implement this, and the build picks
 * one: if_xencall.c (the stable libraries, all calls of a sample in one
 * multicall) and if_xenctrl.c (libxenctrl, for Xen before 4.7).
 *
 * Errors of the calls on the hot path are negative errno values, as the
 * hypervisor gives them; everything else gives sentences.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct xen_if;

/* "libxencall" or "libxenctrl": goes into recordings and traces. */
extern const char xen_if_name[];

/*
 * Opens the hypervisor's devices, which takes rights that nothing afterwards
 * takes. Until xen_if_begin, the handle may be carried over into a process
 * forked from this one; hypercall buffers are not inherited. ERR_DENIED.
 */
struct error *xen_if_open_devices(struct xen_if **out);

/* Finds out which interface version the hypervisor speaks: then all calls may be made. ERR_DENIED. */
struct error *xen_if_begin(struct xen_if *xi);

/* Both. */
struct error *xen_if_open(struct xen_if **out);
void xen_if_close(struct xen_if *xi);

/* The hypervisor's version, e.g. 4 and 17. */
void xen_if_version(const struct xen_if *xi, unsigned *major, unsigned *minor);

/* What getdomaininfo says of a domain (xen/domctl.h, XEN_DOMINF_*). */
struct xen_domain {
	uint32_t domid;
	bool hvm; /* HVM or PVH */
	bool dying, shutdown, paused;
	uint8_t reason; /* SHUTDOWN_* (xen/sched.h), if shutdown */
};

/* For the two implementations: from the flags of getdomaininfo. */
struct xen_domain xen_domain_from_flags(uint32_t domid, uint32_t flags);

/* The domain with the lowest id that is at least `first`; false if there is none. */
bool xen_if_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out);

/* vCPUs that the domain was given, on-line or not; 0 when it is gone. */
uint32_t xen_if_vcpus(struct xen_if *xi, uint32_t domid);

/* True if the PV domain is a 32-bit one (its contexts have the x86_32 layout). */
bool xen_if_pv32(struct xen_if *xi, uint32_t domid);

/* What a vCPU's `context` points to. */
enum xen_context {
	XEN_CONTEXT_PV64, /* vcpu_guest_context_t (xen/xen.h) */
	XEN_CONTEXT_PV32, /* vcpu_guest_context_x86_32_t (xen/foreign/x86_32.h) */
	XEN_CONTEXT_HVM,  /* struct hvm_hw_cpu (xen/hvm/save.h) */
	XEN_CONTEXT_ARM,  /* vcpu_guest_context_t (xen/xen.h), 64 and 32 bits */
};

struct xen_vcpu {
	/* As of the last batch that asked for its state: */
	bool online;
	bool running;	 /* on a CPU at that moment */
	bool blocked;	 /* waits for an event */
	uint64_t cpu_ns; /* CPU time that it has used; grows as long as it runs */
	/* As of the last batch that asked for its context: */
	int status;	     /* 0: context is valid; -ENOENT: off-line; else why there is none */
	const void *context; /* belongs to the interface, valid until that batch */
};

/* What to ask in one go: states of some vCPUs, then perhaps a pause, then contexts. */
struct xen_batch {
	const uint32_t *states; /* ids of vCPUs */
	uint32_t n_states;
	const uint32_t *contexts; /* ids of vCPUs */
	uint32_t n_contexts;
	bool pause;
};

/*
 * Chooses the domain for the calls below, and allocates their buffers: after
 * this, batch and go allocate nothing.
 */
struct error *xen_if_attach(struct xen_if *xi, const struct xen_domain *domain, uint32_t vcpus);

/*
 * Carries out a batch, in its order, and fills in those of vcpus[] that it is
 * about. 0: all was asked, and if the batch says so the domain is paused.
 * Negative errno: it is not paused by us (-ESRCH: it is gone). Without a
 * pause, each context is that of one moment, but not the same one for all.
 */
int xen_if_batch(struct xen_if *xi, const struct xen_batch *batch, struct xen_vcpu *vcpus);

/* Undoes one pause. */
int xen_if_go(struct xen_if *xi);

/* Maps one frame of the attached domain, read-only; NULL if it cannot be. */
const void *xen_if_map(struct xen_if *xi, uint64_t gfn);
void xen_if_unmap(struct xen_if *xi, const void *frame);

/* The same for up to XEN_IF_MANY frames at once, one behind the other; NULL if one of them fails. */
#define XEN_IF_MANY 128u
const void *xen_if_map_many(struct xen_if *xi, const uint64_t *gfn, size_t n);
void xen_if_unmap_many(struct xen_if *xi, const void *frames, size_t n);

#endif
