/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_TARGET_H
#define UNIPROF_TARGET_TARGET_H

/*
 * Where registers and memory come from: one `struct target_ops` for each kind
 * of guest (xen, replay, ...).
 *
 * A target hands out whole samples, not single steps, so that one multicall, a
 * ptrace stop and a recorded file can stand behind the same seam. It knows no
 * symbols, unwinds nothing and prints nothing.
 *
 * To add one: implement the ops, list them in target.c. What has to hold:
 * - sample() leaves the guest running on every path, errors included;
 * - between stopping the guest and letting it run there is no allocation, no
 *   mapping, no output; what turns out to be missing is brought afterwards and
 *   the sample is taken again (retakes);
 * - every walk over the guest's memory is bounded by `stack_cap`.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "arch/registers.h"
#include "base/error.h"
#include "base/seccomp.h"
#include "recording/recording.h"
#include "unwind/unwind.h"

/* The most stack that is ever copied from a vCPU, bytes. */
#define STACK_CAP_MAX (1u << 20)

struct target_info {
	char name[256];	  /* the guest's own name; "" if it has none */
	char id[32];	  /* "7" */
	char type[16];	  /* "pv", "pvh", "hvm", "replay" */
	char host[256];	  /* "Xen 4.17, libxencall" */
	char image[4096]; /* path of the ELF that the guest was started from, if known; else "" */
	const struct arch *arch;
	uint32_t vcpus; /* valid ids are 0 to vcpus - 1; some may be off-line */
	uint32_t spare; /* of these, for what may begin later: people are not told of them */
};

/* The most that is ever copied of another stack that a stack leads to, bytes. */
#define OTHER_STACK_CAP 16384u

struct other_stack {
	uint64_t va;	 /* where it is */
	uint32_t want;	 /* bytes to copy from there, at most OTHER_STACK_CAP; 0: nothing */
	uint8_t *buffer; /* OTHER_STACK_CAP bytes */
};

/*
 * One vCPU of a sample. The buffers are the sample's own, allocated by
 * sample_new.
 */
struct vcpu_sample {
	uint32_t want; /* in: bytes of stack to copy, at most the sample's stack_cap */
	bool again;    /* in: read it even if it has not run since the last sample */
	struct other_stack other[UNWIND_OTHERS]; /* in: stacks that this one leads to */
	bool leads_on; /* in: there may be one that is wanted among them */
	enum vcpu_state state;
	bool online; /* false: off-line, nothing below is set */
	/*
	 * It has not run since this sample object last held it: what is below
	 * is still what was read then, and its stack holds.
	 */
	bool same;
	bool given_up;	 /* not read: that would have held the guest longer than max_pause_ns */
	bool hurried;	 /* for the same reason, less than `want` was copied */
	uint64_t ran_ns; /* CPU time that it has used since the last sample; 0 at the first */
	struct regs regs;
	struct window stack;		     /* bytes point to `buffer` */
	struct window others[UNWIND_OTHERS]; /* of other[]; len 0 if nothing was asked for */
	uint8_t *buffer;		     /* stack_cap bytes */
	/* The target's own: */
	bool held; /* what is above was read when the vCPU's CPU time was cpu_ns */
	uint64_t cpu_ns;
	uint64_t counted_ns; /* CPU time that owed_ns knows of */
	int64_t owed_ns;     /* CPU time used for which it was not seen running, lately */
};

struct sample {
	/* In: rather than stop the guest for longer, stacks are given up; 0: no bound. */
	uint64_t max_pause_ns;
	/* In: CLOCK_MONOTONIC, if it was read just now; 0: it was not. */
	uint64_t now_ns;
	uint64_t time_ns; /* CLOCK_MONOTONIC, when the guest was read */
	/* From entering the pause to leaving the unpause, the last take only; 0: none was needed. */
	uint64_t paused_ns;
	uint64_t stolen_ns; /* pauses of takes that were thrown away */
	uint32_t retakes;
	uint32_t vcpus;
	uint32_t stack_cap; /* bytes */
	struct vcpu_sample *vcpu;
	/* The target's own: */
	uint64_t noted_ns; /* time_ns of the sample before */
	int64_t usual_ns;  /* between samples, lately */
};

/* Buffers for `vcpus` vCPUs; every `want` starts at 4 KiB. */
struct error *sample_new(uint32_t vcpus, uint32_t stack_cap, struct sample **out);
void sample_free(struct sample *sample);

/* How many of others[] there are to look at; those with no bytes among them do no harm. */
unsigned vcpu_others(const struct vcpu_sample *vcpu);

/* How a guest left, as far as the target can tell. */
enum target_life {
	LIFE_RUNS,
	LIFE_PAUSED, /* by its administrator: there is nothing to sample, and nothing of ours to undo */
	LIFE_UNGUARDED, /* nothing would let it run again if we were killed: it must not be sampled */
	LIFE_SHUT_DOWN, /* it ended by itself or was told to, and is still there */
	LIFE_CRASHED,
	LIFE_GONE, /* destroyed, or no longer there for whatever reason */
};

/* Sees frames of guest memory pass by, for `record --snapshot`. */
struct frame_witness {
	void (*frame)(void *ctx, uint64_t gfn, const void *bytes);
	void *ctx;
};

/* A file whose code is in the guest, and where: the page that the code begins in. */
struct target_file {
	const char *path;
	uint64_t address;
};

struct target {
	const struct target_ops *ops;
	struct target_info info;
	/* Set by open: what sample(), life(), wait() and read() need; 0: SECCOMP_SAMPLER. */
	enum seccomp_role role;
	/* Set by open, where more is known than info.image: all of these, and their places. */
	const struct target_file *files;
	size_t n_files;
	/*
	 * Set by whoever wants it: shown every frame, page tables included,
	 * that read() and snapshot() looked at, while the guest runs.
	 */
	const struct frame_witness *witness;
	/* Set by open, where there is more than one: how it is read, "gdb stub". */
	const char *way;
	/* ... and a sentence on what that costs more than another way would; NULL: nothing. */
	const char *advice;
	/* Set by sample() and life(): what has become of the guest, a sentence; who tells it clears it. */
	const char *news;
	/* Set by open: nothing in it ever changes, so that one sample shows all of it. */
	bool still;
	/* Set by whoever wants it: stop the guest for each sample, even where it could be read without. */
	bool always_pause;
};

/* One of several ways to read guests of a kind. */
struct target_way {
	const char *name; /* for --via */
	const char *cost; /* how long it stops a vCPU for a sample, about: "15 us" */
	const char *text; /* what it is */
};

struct target_listing {
	const char *scheme; /* "xen" */
	const char *name, *id, *type;
	uint32_t vcpus;
	bool paused;	  /* by its administrator, or because it is still being built */
	const char *note; /* what stands in the way of profiling it; NULL: nothing */
	/* By which it would be read, as far as can be told from afar; NULL: by none. */
	const struct target_way *way;
	/* What a cheaper way lacks (any way, if there is none), a sentence; NULL: nothing. */
	const char *missing;
};

struct target_ops {
	const char *scheme; /* the part before the colon: "xen" */
	/* The ways that can be chosen, the usual one first, up to one without a name; NULL: there is no choice. */
	const struct target_way *ways;

	/*
	 * Opens the guest called `name` (a name or an id, without the scheme).
	 * ERR_GUEST: no such guest, or not one to profile; ERR_DENIED: no
	 * rights, or nothing of this kind on this machine.
	 */
	struct error *(*open)(const char *name, struct target **out);
	void (*close)(struct target *target);
	/* The same by one of the ways; NULL: there is one only. */
	struct error *(*open_via)(const char *name, const char *via, struct target **out);

	/*
	 * Takes one sample of all vCPUs. ERR_ENDED when the guest is gone; any
	 * other error is about this sample only, the next may succeed.
	 */
	struct error *(*sample)(struct target *target, struct sample *sample);

	/* Cheap enough to ask a few times a second. */
	enum target_life (*life)(struct target *target);

	/*
	 * Sleeps until then, or until a signal comes, and deals meanwhile with
	 * whatever the guest does that cannot wait for the next sample. NULL:
	 * there is nothing of this kind.
	 */
	void (*wait)(struct target *target, uint64_t until_ns);

	/*
	 * Reads guest-virtual memory as `regs` translate it, while the guest
	 * runs: for code, which does not change. Returns bytes read, 0 if none.
	 */
	size_t (*read)(struct target *target, const struct regs *regs, uint64_t va, void *buf,
		       size_t len);

	/*
	 * Like sample(), and then shows the witness every frame that
	 * translating and copying touched, as it was during the pause. May
	 * pause longer than sample(). NULL: not supported.
	 */
	struct error *(*snapshot)(struct target *target, struct sample *sample);

	/*
	 * Adds all registers of an on-line vCPU that there are, as they were in
	 * the last sample(): for one look, not for sampling. NULL: no more than
	 * its `struct regs` (arch->show).
	 */
	void (*registers)(struct target *target, uint32_t vcpu, struct registers *out);

	/*
	 * Calls `each` for every guest there is. ERR_DENIED: cannot look. NULL:
	 * guests of this kind are not to be found, only named.
	 */
	struct error *(*list)(void (*each)(void *ctx, const struct target_listing *entry),
			      void *ctx);
};

/*
 * The built-in kinds, in the order in which bare names are tried; NULL behind
 * the last. The build chooses between kinds_xen.c and kinds_no_xen.c.
 */
const struct target_ops *target_kind(size_t i);

/* For `uniprof -V`: "with Xen (libxencall)", "without Xen". */
extern const char target_features[];

extern const struct target_ops target_xen, target_kvm, target_qemu, target_process, target_replay,
	target_core;

/* ERR_GUEST with a sentence, if there is nothing to be seen by looking more than once. */
struct error *target_check_runs(const struct target *target);

/* Sleeps until then, or until a signal comes, as the target needs it. */
void target_wait(struct target *target, uint64_t until_ns);

/*
 * Opens "SCHEME:NAME", or a bare NAME where only one thing can be meant: the
 * path of a core file, or a guest. An error names the candidates when there are
 * several.
 */
struct error *target_open(const char *spec, struct target **out);
/* ... by one of its kind's ways; NULL: by the cheapest that works. ERR_USAGE if it has no such way. */
struct error *target_open_via(const char *spec, const char *via, struct target **out);
void target_close(struct target *target);

#endif
