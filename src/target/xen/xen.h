/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Shared by the files of the Xen target, and private to them. */

#include "target/target.h"
#include "target/guard.h"
#include "target/inside/inside.h"
#include "target/window.h"
#include "target/xen/xen_if.h"

/*
 * Frames of a guest that stay mapped. The cache holds frames, never
 * translations: their contents are read anew each time.
 */

struct xen_frames;

struct error *xen_frames_new(struct xen_if *xi, struct xen_frames **out);
void xen_frames_free(struct xen_frames *frames);

/* The frame if it is mapped, else NULL. Touches nothing but the table: for the paused guest. */
const void *xen_frames_find(void *frames, uint64_t gfn);

/*
 * Returns the frame, mapped if need be; NULL if it cannot be mapped, which is
 * remembered for a while. When the table is full, frames that were not used
 * since the last call of xen_frames_tick are unmapped.
 */
const void *xen_frames_bring(void *frames, uint64_t gfn);

/* True if bringing this frame failed lately: asking again is no use now. */
bool xen_frames_refused(const struct xen_frames *frames, uint64_t gfn);

/* Ages the cache; call once a sample. */
void xen_frames_tick(struct xen_frames *frames);

/*
 * Trails for copies that only look frames up: others check the time, or have to
 * see each frame. NULL: no trails.
 */
struct window_trails *xen_frames_trails(struct xen_frames *frames, const struct physmem *mem);

/*
 * From the context that the hypervisor gives to registers. The first sets only
 * what copying the stack needs (sp, word, mmu), for use while the guest is
 * paused; the second then what copying a thread needs (kernel_root, and own, but see xen_find_own),
 * where that is wanted; the third sets everything else.
 * One file for each architecture of the host implements all of this.
 */
void xen_regs_for_copy(enum xen_context kind, const void *context, struct regs *regs);
void xen_regs_own_data(enum xen_context kind, const void *context, struct regs *regs);
void xen_regs_full(enum xen_context kind, const void *context, struct regs *regs);

/* The record of gethvmcontext_partial that has registers; 0: HVM guests have plain contexts here. */
extern const uint32_t xen_cpu_record;

/* Kind of this domain's contexts. */
enum xen_context xen_context_kind(struct xen_if *xi, const struct xen_domain *domain);

/* ... and the guest's architecture, by one of them; NULL if there is none yet. */
const struct arch *xen_context_arch(enum xen_context kind, const void *context);

/*
 * State of a domain's vCPUs from sample to sample, which selects those to read:
 * the CPU time that a vCPU has used tells whether it ran. One that did not
 * still has the stack that it had.
 */

/* One vCPU as of the last sample. */
struct xen_seen {
	bool online;
	bool busy;	   /* it had run: its context is asked for together with its state */
	uint64_t noted_ns; /* CPU time in this sample, before anything was read */
	uint8_t searches;  /* of xen_find_own that failed */
};

struct xen_vcpus {
	uint32_t n;
	struct xen_vcpu *now;  /* filled in by batches */
	struct xen_seen *seen; /* [n] */
	struct xen_ids online;
	struct xen_ids early; /* contexts that are asked for along with the states */
	struct xen_ids late;  /* contexts that turned out to be needed, too */
	struct xen_ids read;  /* vCPUs whose stacks are read in this sample */
	bool running;	      /* when states were last read, one of `read` was on a CPU */
	uint32_t turn;	      /* the first id that xen_vcpus_limit leaves */
};

struct error *xen_vcpus_new(struct xen_vcpus *vcpus, uint32_t n);
void xen_vcpus_free(struct xen_vcpus *vcpus);

/* Asks for those that are off-line whether they still are. Negative errno. */
int xen_vcpus_refresh(struct xen_vcpus *vcpus, struct xen_if *xi);

/*
 * Chooses `early`, before it is known which vCPUs ran: those that have been
 * busy, and those that must be read again. `pause`: the guest will probably be
 * paused, and contexts are asked for then; so none.
 */
void xen_vcpus_expect(struct xen_vcpus *vcpus, const struct sample *sample, bool pause);

/*
 * Notes the states that have come in, once in a sample: chooses `read` and
 * `late`, marks the others as the same, and those that are off-line.
 */
void xen_vcpus_note(struct xen_vcpus *vcpus, struct sample *sample);

/* Leaves only `n` of `read`, in turns, and gives up the others. */
void xen_vcpus_limit(struct xen_vcpus *vcpus, struct sample *sample, uint32_t n);

/* True if none of `read` has run since it was noted, going by newer states. */
bool xen_vcpus_still(const struct xen_vcpus *vcpus);

/*
 * The sample is done: keeps its state for the next one, and says how much CPU
 * time each vCPU has used.
 */
void xen_vcpus_done(struct xen_vcpus *vcpus, struct sample *sample);

/* Guard of a Xen domain (target/guard.h): its context. */
struct xen_undo {
	struct xen_domain domain;
	char name[256]; /* "" if it has none, or one that a shell would interpret */
	/*
	 * The guard's own devices, opened with the rights of the beginning. The
	 * profiler makes no call on them, so that each guard that it starts
	 * finds them fresh.
	 */
	struct xen_if *xi;
	struct descriptors devices; /* theirs */
};

/* Xen has refused to undo our pause, with this negative errno. */
struct error *xen_undo_refused(const struct xen_undo *undo, int rc);

struct xen_target {
	struct target base;
	struct xen_if *xi;
	struct xen_frames *frames;
	struct guard
		*guard; /* NULL: it has been given the domain, which must not be paused again */
	struct guard_page *guard_page;
	struct xen_undo undo; /* the guard's context */
	struct xen_domain domain;
	enum xen_context context;
	struct xen_vcpus vcpus;
	bool may_pause; /* Xen has paused and unpaused the guest, or always grants both together */
	bool premapped; /* the first sample is behind us */
	uint64_t hurry_until_ns; /* frames are found until then, when the pause has a bound */
	bool hurried;		 /* one was not found, for that reason */
	uint32_t fit; /* contexts that are read in one pause, when its length has a bound */
};

/*
 * One pause: contexts and copies of the vCPUs in xt->vcpus.read, with a bound
 * on its length of some of them only; negative errno as from xen_if_batch and
 * xen_if_go. *whole: no frame was missing. A domain that could not be let go
 * is left to the guard.
 */
int xen_read_paused(struct xen_target *xt, struct sample *sample, const struct physmem *mem,
		    bool *whole);

/*
 * Makes sure, before the first pause, that Xen grants what samples take; an error
 * names what is missing. Where somebody pauses the domain, the right to undo a
 * pause is tried again later.
 */
struct error *xen_check_rights(struct xen_target *xt);

/* The error for what Xen has refused to do with the domain; NULL: nothing. */
struct error *xen_refusal(const struct xen_target *xt);

/* Id of a vCPU that is on-line, if any is. */
static inline uint32_t xen_first_online(const struct xen_target *xt)
{
	return xt->vcpus.online.n ? xt->vcpus.online.id[0] : 0;
}

/* ... and its context as of now, read without a pause; NULL: there is none, or Xen refuses it. */
const void *xen_first_context(struct xen_target *xt);

/* Fills in what needs no hurry: all registers of the vCPUs that were read. */
void xen_finish_registers(const struct xen_target *xt, struct sample *sample);

/*
 * Finds, while the guest runs, where the CPUs' own data are, for the samples to come: on Arm, whose contexts do
 * not tell. It stays in the vCPUs' registers.
 */
void xen_find_own(struct xen_target *xt, struct sample *sample);

/* A sample came to nothing, for that reason. */
struct error *xen_failed(const struct xen_target *xt, int rc);

/*
 * Opens a domain without a guard: it must not be paused. What was opened is in
 * *out after an error, too; target_close() frees it.
 */
struct error *xen_open_unguarded(const char *name, struct xen_target **out);

/* Whether the domain is there and runs, but for pauses; *domain: its state now, or that of before. */
enum target_life xen_domain_life(const struct xen_target *xt, struct xen_domain *domain);

/* For target_ops. */
struct error *xen_inside(const char *name, struct inside_memory *out);
struct error *xen_sample(struct target *target, struct sample *sample);
struct error *xen_snapshot(struct target *target, struct sample *sample);
void xen_registers(struct target *target, uint32_t vcpu, struct registers *out);

/* A 64-bit PV guest has tables of its own for user mode, without the kernel. */
void xen_kernel_mmu(struct target *target, uint32_t vcpu, struct mmu *mmu);
size_t xen_read(struct target *target, const struct regs *regs, uint64_t va, void *buf, size_t len);
