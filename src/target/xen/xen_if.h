/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Interface to the hypervisor. Two files implement it, and the build picks one:
 * if_xencall.c (the stable libraries, all calls of a sample in one multicall)
 * and if_xenctrl.c (libxenctrl, for Xen before 4.7).
 *
 * Errors of the calls on the hot path are negative errno values, as the
 * hypervisor gives them; everything else gives sentences.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct xen_if;

/* The state that every implementation keeps: the first member of its struct xen_if. */
struct xen_if_state {
	unsigned major, minor; /* the hypervisor's version, e.g. 4 and 17 */
	/* Permissions are granted one by one, by a policy (XSM/Flask), and not all to the control domain. */
	bool has_policy;
	/* This domain is PVH, HVM or on Arm: Xen maps frames of others into its memory, to be read and written. */
	bool translated;
	/* A batch has paused the domain, and nothing has undone that; errors do not tell. */
	bool holds;
	const char *refused; /* the permission that was missing last, and for which domain */
	uint32_t refused_domid;
};

static inline const struct xen_if_state *xen_if_state(const struct xen_if *xi)
{
	return (const struct xen_if_state *)xi;
}

/* For the implementations: notes that Xen lacks a permission, if this negative errno says so, and returns it. */
int xen_if_note(struct xen_if *xi, uint32_t domid, const char *permission, int rc);

/* For the implementations: notes a frame of the attached domain that could not be mapped, with this negative errno. */
void xen_if_note_map(struct xen_if *xi, uint32_t domid, bool writable, int rc);

/* "libxencall" or "libxenctrl": goes into recordings and traces. */
extern const char xen_if_name[];

/*
 * Opens the hypervisor's devices, which takes rights that nothing afterwards
 * takes. Until xen_if_begin, the handle may be carried over into a process
 * forked from this one; hypercall buffers are not inherited. ERR_DENIED. What
 * was opened is in *out after an error, too: xen_if_close() frees it.
 */
struct error *xen_if_open_devices(struct xen_if **out);

/* Finds out which interface version the hypervisor speaks: then all calls may be made. ERR_DENIED. */
struct error *xen_if_begin(struct xen_if *xi);

/* Both. */
struct error *xen_if_open(struct xen_if **out);
void xen_if_close(struct xen_if *xi);

/* State of a domain from getdomaininfo (xen/domctl.h, XEN_DOMINF_*). */
struct xen_domain {
	uint32_t domid;
	bool hvm; /* HVM or PVH */
	bool dying, shutdown, paused;
	uint8_t reason; /* SHUTDOWN_* (xen/sched.h), if shutdown */
};

/*
 * Without a logger, Xen's libraries print to stderr. Errors are in errno as
 * well, and only the verbs print.
 */
extern struct xentoollog_logger xen_if_quiet_log;

/* For the two implementations: converts the flags of getdomaininfo. */
struct xen_domain xen_domain_from_flags(uint32_t domid, uint32_t flags);

/* 0, or a negative errno: -ESRCH: there is no such domain. */
int xen_if_domain(struct xen_if *xi, uint32_t domid, struct xen_domain *out);

/*
 * The domain with the lowest id that is at least `first`: 0. -ESRCH: there is
 * none; any other negative errno: Xen refuses to tell more of it than its id.
 */
int xen_if_next_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out);

/*
 * The permission that was missing when Xen last refused a call about this
 * domain, as policies write it: "domain { pause }", or what this kind of
 * domain may not do at all. NULL: nothing was refused.
 */
const char *xen_if_refused(const struct xen_if *xi, uint32_t domid);

/* The error that says so. */
struct error *xen_if_refusal(const struct xen_if *xi, uint32_t domid);

/* vCPUs that the domain was given, on-line or not; 0 when it is gone. */
uint32_t xen_if_vcpus(struct xen_if *xi, uint32_t domid);

/* True if the PV domain is a 32-bit one (its contexts have the x86_32 layout). */
bool xen_if_pv32(struct xen_if *xi, uint32_t domid);

/* Scheduler of the first pool of CPUs. */
struct xen_scheduler {
	char name[16]; /* "credit2", as in xl sched-credit2; "": not known */
	/*
	 * How long a vCPU that has just got a CPU keeps it from others that wake up, unless it
	 * yields, µs (xen/sysctl.h, scheduler_op); 0: no longer than its credit allows.
	 */
	uint32_t rate_limit_us;
};

/* Asks for it; a refusal counts as not known. */
void xen_if_scheduler(struct xen_if *xi, struct xen_scheduler *out);

/* Type of a vCPU's `context`. */
enum xen_context {
	XEN_CONTEXT_NATIVE, /* vcpu_guest_context_t (xen/xen.h): of 64-bit PV guests; on Arm of all */
	XEN_CONTEXT_PV32,   /* vcpu_guest_context_x86_32_t (xen/foreign/x86_32.h) */
	XEN_CONTEXT_HVM,    /* struct hvm_hw_cpu (xen/hvm/save.h) */
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

/* Ids of vCPUs, ascending. */
struct xen_ids {
	uint32_t n;
	uint32_t *id;
};

/* Questions of one batch: states of some vCPUs, then perhaps a pause, then contexts. */
struct xen_batch {
	struct xen_ids states, contexts;
	bool pause;
};

/*
 * Chooses the domain for the calls below, once, and allocates their buffers: after
 * this, batch and go allocate nothing.
 */
struct error *xen_if_attach(struct xen_if *xi, const struct xen_domain *domain, uint32_t vcpus);

/*
 * Carries out a batch, in its order, and fills in those of vcpus[] that it is
 * about. 0: all was asked; negative errno: not all was (-ESRCH: the domain is
 * gone). Without a pause, each context is that of one moment, but not the same
 * one for all.
 */
int xen_if_batch(struct xen_if *xi, const struct xen_batch *batch, struct xen_vcpu *vcpus);

/*
 * Undoes one pause. -ESRCH: the domain is gone; -EINVAL: nobody pauses it (any
 * more). After any other error it is paused as before.
 */
int xen_if_go(struct xen_if *xi);

/*
 * Maps up to XEN_IF_MANY frames of the attached domain, one behind the other; NULL if one of them cannot be.
 * `prot`: as of mmap(2), PROT_WRITE only for what the guest offers (target/inside/), and for nothing else.
 */
#define XEN_IF_MANY 128u
void *xen_if_map(struct xen_if *xi, int prot, const uint64_t *gfn, size_t n);
void xen_if_unmap(struct xen_if *xi, const void *frames, size_t n);
