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

/* Opens the hypervisor and finds out which interface version it speaks. ERR_DENIED if not. */
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
};

struct xen_vcpu {
	int status;	       /* 0: context is valid; -ENOENT: off-line; else why there is none */
	bool running, blocked; /* just before the pause */
	uint64_t cpu_ns;       /* CPU time that it has used */
	const void *context;   /* belongs to the interface, valid until the next stop */
};

/*
 * Chooses the domain for stop, go and map, and allocates their buffers: after
 * this, stop and go allocate nothing.
 */
struct error *xen_if_attach(struct xen_if *xi, const struct xen_domain *domain, uint32_t vcpus);

/*
 * Asks for the states of all vCPUs, pauses the domain and reads the registers
 * of all vCPUs. 0: the domain is paused, and vcpus[] is filled. Negative
 * errno: it is not paused by us (-ESRCH: it is gone).
 */
int xen_if_stop(struct xen_if *xi, struct xen_vcpu *vcpus);

/* Undoes one stop. */
int xen_if_go(struct xen_if *xi);

/* Maps one frame of the attached domain, read-only; NULL if it cannot be. */
const void *xen_if_map(struct xen_if *xi, uint64_t gfn);
void xen_if_unmap(struct xen_if *xi, const void *frame);

#endif
