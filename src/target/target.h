/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Sources of registers and memory: one `struct target_ops` for each kind of
 * guest (xen, replay, ...).
 *
 * A target hands out whole samples, not single steps, so that one multicall, a
 * ptrace stop and a recorded file can stand behind the same seam. It knows no
 * symbols, unwinds nothing and prints nothing. Only a target may compare names
 * of schemes.
 *
 * Invariants:
 * - sample() leaves the guest running on every path, errors included. A guard
 *   (target/guard.h) resumes it if uniprof is killed;
 * - between pausing and resuming there is no allocation, no mapping, no output.
 *   On a missing page: resume, map it, retry (retakes);
 * - every walk over guest memory is bounded by `stack_cap`, every conversation
 *   by a deadline.
 *
 * Checklist for a new target:
 * 1. Code: a directory target/<scheme>/ with its meson.build and a constant
 *    target_<scheme>; `subdir` in target/meson.build; its name in TARGET_KINDS.
 *    Guest memory behind page tables: fill in target->memory
 *    and leave read() out. Not on every host: what left_out.c answers.
 * 2. Shared parts: host/ for threads, memory and monitors of this host,
 *    the end of this header, window.h for copying stacks.
 * 3. Tests: a unit test beside each parser of what a guest or peer sends; a
 *    test in tests/vmm/ or tests/rig/ that profiles a guest with known answers,
 *    kills uniprof with SIGKILL and finds the guest running; a row in
 *    tests/checks/steps.py.
 * 4. Docs: docs/man/uniprof.1 (kinds of guests), README.md, CHANGELOG.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "arch/arch.h"
#include "base/error.h"
#include "base/privilege.h"
#include "base/sample_types.h"
#include "runtime/runtime.h"
#include "threads/threads.h"

/* The most stack that is ever copied from a vCPU, bytes. */
#define STACK_CAP_MAX (1u << 20)

/* In `host` of a guest without KVM whose vCPUs get to no device while it is being stopped. */
#define TARGET_HOLDS_VCPUS "vCPUs held"

struct target_info {
	char name[256]; /* the guest's own name; "" if it has none */
	char id[32];	/* "7" */
	char type[16];	/* "pv", "pvh", "hvm", "replay" */
	char host[256]; /* "Xen 4.17, libxencall" */
	/*
	 * Rate limit of the hypervisor's scheduler, µs: on a shared CPU a sampler waits for so
	 * long, unless the guest yields. 0: none.
	 */
	uint32_t rate_limit_us;
	char scheduler[16]; /* its name, "credit2"; only with a rate limit */
	char image[4096];   /* path of the ELF that the guest was started from, if known; else "" */
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

/* Wishes for one vCPU, set by the caller; they stay from sample to sample. */
struct vcpu_request {
	uint32_t want; /* bytes of stack to copy, at most the sample's stack_cap */
	bool again;    /* read it even if it has not run since the last sample */
	struct other_stack other[UNWIND_OTHERS]; /* stacks that this one leads to */
	uint8_t leads_on; /* bit n: other[n].want is not 0; if not set, others[n].len is 0 */
	bool red_zone;	  /* the walk needs it; targets that save the effort otherwise copy it */
};

/* The target's own account of one vCPU, from sample to sample. */
struct vcpu_account {
	bool held;	     /* the vcpu_sample was read when the vCPU's CPU time was cpu_ns */
	uint64_t cpu_ns;     /* CPU time used */
	uint64_t counted_ns; /* CPU time that owed_ns knows of */
	int64_t owed_ns;     /* CPU time used for which it was not seen running, lately */
};

/* Where the thread of a vCPU was, of targets that see the host, too. */
enum host_place {
	HOST_GUEST, /* the guest's code ran */
	HOST_SWITCH, /* the hypervisor was entering the guest or had just left it: its kernel knows no stack */
	HOST_EXIT,    /* the hypervisor in the host's kernel worked for the guest */
	HOST_MONITOR, /* the monitor ran, or the kernel for it */
	HOST_HALTED,  /* the guest has halted its vCPU */
	HOST_PLACES
};

/* Frames of each of the host's stacks, at most. */
#define HOST_FRAMES 127u

/* The host's side of a vCPU. */
struct host_stack {
	enum host_place place;
	/* Its registers and its stack were read; else nothing is known of the guest. */
	bool guest_known;
	/* Frames of the kernel's stack up to this function are of the sample itself; NULL: none are. */
	const char *skip;
	uint32_t kernel, user; /* frames of the kernel, and of the monitor's program behind them */
	/* Innermost first; all but the first of each are return addresses. */
	uint64_t at[2 * HOST_FRAMES];
};

/* Exits of a vCPU for one reason, at one place of the guest's code. */
struct vcpu_exits {
	uint32_t vcpu;
	const char *reason; /* "npf" */
	bool caused;	    /* by code of the guest, which is at: */
	bool user;	    /* in user mode */
	uint64_t address;
	uint64_t count;
};

/* One vCPU of a sample. The buffers are the sample's own, allocated by sample_new. */
struct vcpu_sample {
	struct vcpu_request request;
	enum vcpu_state state;
	bool online; /* false: off-line, nothing below is set */
	/* Not run since the last sample: registers and stack are still those read then. */
	bool same;
	bool given_up;	 /* not read: the pause would have exceeded max_pause_ns */
	bool hurried;	 /* for the same reason, less than `want` was copied */
	uint64_t ran_ns; /* CPU time that it has used since the last sample; 0 at the first */
	struct regs regs;
	struct window stack;		     /* bytes point into `buffer` */
	struct window others[UNWIND_OTHERS]; /* of request.other[]; len 0: nothing was asked for */
	uint8_t *buffer;		     /* stack_cap + RED_ZONE_MAX bytes */
	struct vcpu_account account;
	struct thread_copy thread;    /* what the sample's request asks for */
	struct runtime_copy *runtime; /* the caller's, for what the request asks for; or NULL */
	struct host_stack *host; /* the caller's, of targets that see the host; NULL: not wanted */
};

/* Frames of the interpreter that a program of the guest runs. */
struct frames_request {
	void *ctx;
	/*
	 * Copies them to vcpu->runtime, while the vCPU stands still, and its stack and thread are there.
	 * `memory` is the program's.
	 */
	void (*copy)(void *ctx, struct vcpu_sample *vcpu, const struct guest_memory *memory);
};

struct sample_request {
	/* Rather than pause the guest for longer, stacks are given up; 0: no bound. */
	uint64_t max_pause_ns;
	uint64_t now_ns; /* CLOCK_MONOTONIC, if it was read just now; 0: it was not */
	/* To be copied of each vCPU, where the target can; NULL: nothing. */
	const struct thread_request *thread;
	/* Copies frames of its interpreter, too, where the target can; NULL: nothing. */
	struct runtime *runtime;
	/* ... of a guest whose threads are copied; NULL: nothing. */
	const struct frames_request *frames;
};

/* The target's own account of samples. */
struct sample_account {
	uint64_t noted_ns; /* time_ns of the sample before */
	int64_t usual_ns;  /* between samples, lately */
};

/* What a target never has to tell stays as sample_new() makes it: 0. */
struct sample {
	struct sample_request request;
	uint64_t time_ns; /* CLOCK_MONOTONIC, when the guest was read */
	/* From entering the pause to leaving the unpause, the last try only; 0: none was needed. */
	uint64_t paused_ns;
	uint64_t stolen_ns; /* pauses of tries that were thrown away */
	/* Time that it stands for, and samples lost before it: of targets with ready() alone. */
	uint64_t weight_ns, lost;
	uint32_t retakes;
	uint32_t vcpus;
	uint32_t stack_cap; /* bytes */
	struct vcpu_sample *vcpu;
	struct sample_account account;
};

/* Buffers for `vcpus` vCPUs; every `want` starts at 4 KiB. */
struct error *sample_new(uint32_t vcpus, uint32_t stack_cap, struct sample **out);
void sample_free(struct sample *sample);

/* Number of entries of others[] to read; those without bytes among them do no harm. */
unsigned vcpu_others(const struct vcpu_sample *vcpu);

/* State of the guest, as far as the target can tell. */
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

/*
 * Guest memory behind page tables, for targets that have all frames at hand, or
 * bring them one by one: a monitor's memory, a core file, a snapshot.
 */
struct paged_memory {
	struct physmem frames;
	/* Drops frames that were read before, because they may have changed; NULL: they never do. */
	void (*renew)(void *ctx);
	/* A frame that is missing may exist in the guest: a stack that ends there counts as cut. */
	bool partial;
};

/* More sentences than any target has. */
#define TARGET_NEWS_MAX 8

/* Constant sentences, each of them once, in the order in which they came. */
struct target_news {
	const char *text[TARGET_NEWS_MAX];
	unsigned n;
};

/* Value of usual_overhead for guests whose stops take a conversation, some 0.1 to 2 ms. */
#define LONG_STOPS_OVERHEAD 0.05

struct target {
	const struct target_ops *ops;
	struct target_info info;
	/* Set by open, if page tables lead to all memory: ops->read may be NULL then. */
	struct paged_memory memory;
	/* Set by open: what sample(), life(), wait() and read() need; 0: SECCOMP_SAMPLER. */
	enum seccomp_role role;
	/* Set by open, where more is known than info.image: all of these. */
	const struct target_file *files;
	size_t n_files;
	/*
	 * Set by open: the file to which a JIT compiler in the guest writes names of its code, for
	 * symbols_load; it grows while the guest runs. NULL: none.
	 */
	const char *jit_names;
	/*
	 * Set by whoever wants it: shown every frame, page tables included,
	 * that read() and snapshot() looked at, while the guest runs.
	 */
	const struct frame_witness *witness;
	/* Set by open, where there is more than one: how it is read, "gdb stub". */
	const char *way;
	/* ... and a sentence on what that costs more than another way would; NULL: nothing. */
	const char *advice;
	/*
	 * Set by open, where one stop takes long: bound on the share of time that the guest is
	 * stopped, for those who give none; 0: no bound.
	 */
	double usual_overhead;
	/* News of the guest, added by sample() and life(); the caller that prints them empties it. */
	struct target_news news;
	/* Set by open: sample() copies what its request asks for of threads. */
	bool copies_threads;
	/* Set by open: ... and what it asks for of interpreters in programs. */
	bool copies_program_frames;
	/* Set by open: sample() copies frames of an interpreter; a thread on a CPU is stopped for that. */
	bool copies_frames;
	/* Set by open: to copy a stack in two pieces costs as much as to copy some 1,000 bytes more. */
	bool copies_pieces;
	/* Set by open: read() follows any page tables that the registers name, as target->memory does. */
	bool follows_tables;
	/* Set by open: nothing in it ever changes, so that one sample shows all of it. */
	bool still;
	/* Set by open: sample() tells the host's side of each vCPU, and exits() is there. */
	bool sees_host;
	/* ... and the files whose code the monitor has mapped: all of these. */
	const struct target_file *host_files;
	size_t n_host_files;
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
	pid_t pid; /* of the process of this host that runs it; 0: there is none */
	uint32_t vcpus;
	bool paused;	  /* by its administrator, or because it is still being built */
	const char *note; /* what stands in the way of profiling it; NULL: nothing */
	/* Why its name cannot be read, a sentence that stays; NULL: it is that. */
	const char *nameless;
	/* The way that would be used, as far as it shows without opening; NULL: none. */
	const struct target_way *way;
	/*
	 * Requirement that a cheaper way lacks (any way, if there is none), a
	 * sentence; NULL: nothing.
	 */
	const char *missing;
};

/* Is shown the guests of a list, one after the other. */
typedef void target_each(void *ctx, const struct target_listing *entry);

struct inside_memory; /* target/inside/inside.h */
struct monitor_kind;  /* target/host/proc.h */

struct target_ops {
	const char *scheme; /* the part before the colon: "xen" */
	/* True for a path that can be nothing but a guest of this kind; NULL: never. */
	bool (*is_file)(const char *path);
	/* The ways that can be chosen, the usual one first, up to one without a name; NULL: there is no choice. */
	const struct target_way *ways;

	/*
	 * Opens the guest called `name` (a name or an id, without the scheme),
	 * by one of the ways; NULL: by the cheapest that works.
	 * ERR_GUEST: no such guest, or not one to profile; ERR_DENIED: no
	 * rights, or nothing of this kind on this machine.
	 */
	struct error *(*open)(const char *name, const char *via, struct target **out);
	void (*close)(struct target *target);

	/*
	 * Takes one sample of all vCPUs. ERR_ENDED when the guest is gone; any
	 * other error is about this sample only, the next may succeed.
	 */
	struct error *(*sample)(struct target *target, struct sample *sample);

	/*
	 * True once a sample can be had from sample(), for guests that take theirs
	 * themselves, at their own times (target/inside/). Until it is called again,
	 * sample() hands out the same one. NULL: samples are taken when they are due.
	 */
	bool (*ready)(struct target *target);

	/* Must be cheap enough to be called a few times a second. */
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
	 * NULL: by target->memory, or not at all.
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
	 * Adds all known registers of an on-line vCPU, as they were in the last
	 * sample(): for a dump, not for sampling. NULL: no more than its
	 * `struct regs` (arch->show).
	 */
	void (*registers)(struct target *target, uint32_t vcpu, struct registers *out);

	/*
	 * Replaces the page tables of an on-line vCPU, as they were in the last
	 * sample(), by those that its kernel has. NULL: the vCPU has no others.
	 */
	void (*kernel_mmu)(struct target *target, uint32_t vcpu, struct mmu *mmu);

	/* Calls `each` for what the vCPUs have left the guest for since it was opened. NULL: not known. */
	void (*exits)(struct target *target,
		      void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx);

	/*
	 * Calls `each` for every guest there is. ERR_DENIED: cannot look. NULL:
	 * guests of this kind are not to be found, only named.
	 */
	struct error *(*list)(const struct target_ops *ops, target_each *each, void *ctx);

	/*
	 * As list(), for those who ask every few seconds: of a guest only scheme, id, name and
	 * note. NULL: list() is it, or `monitor` tells of single processes.
	 */
	struct error *(*list_names)(const struct target_ops *ops, target_each *each, void *ctx);

	/* The kind of monitor that list() finds among the processes of this host (host/proc.h); NULL: it looks at none. */
	const struct monitor_kind *monitor;

	/*
	 * Opens the memory of a guest for the sampler inside it (target/inside/),
	 * which nothing pauses. NULL: guests of this kind are memory of a process.
	 */
	struct error *(*inside)(const char *name, struct inside_memory *out);

	/*
	 * Tries whether guests can be read by a way that list() has told, which
	 * may take a second: an error says why not. NULL: list() knows.
	 */
	struct error *(*try_way)(const struct target_way *way);

	/*
	 * Why nobody can look into a guest that list() has told, a sentence; NULL:
	 * nothing of that kind is known. It takes longer than list(), which is
	 * called every few seconds by some. NULL: list() knows.
	 */
	const char *(*protection)(const char *id);
};

/* All kinds of guests, in the order in which bare names are tried. */
#define TARGET_KINDS(each) \
	each(xen) each(kvm) each(qemu) each(process) each(gdb) each(replay) each(core)

#define TARGET_DECLARE(name) extern const struct target_ops target_##name;
TARGET_KINDS(TARGET_DECLARE)
#undef TARGET_DECLARE

/* NULL behind the last. */
const struct target_ops *target_kind(size_t i);

/* For `uniprof -V`: "with Xen (libxencall)", "without Xen". */
extern const char target_features[];

/* ERR_GUEST with a sentence, if there is nothing to be seen by looking more than once. */
struct error *target_check_runs(const struct target *target);

/* Errors where not even one sample can be taken: of LIFE_GONE and LIFE_UNGUARDED. */
struct error *target_check_life(struct target *target, enum target_life *life);

/* Adds a sentence to the news, unless it is there already. The text must outlive the target. */
void target_tell(struct target *target, const char *text);

/* Reads through ops->read, or target->memory. */
bool target_can_read(const struct target *target);
size_t target_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
		   size_t len);

/* The guest's memory by the view of one vCPU: guest_memory.ctx and .read. */
struct memory_view {
	struct target *target;
	const struct regs *regs;
};

size_t memory_view_read(void *ctx, uint64_t va, void *buf, size_t len);

/*
 * Translates a guest-virtual address while the guest runs. False: there is no page, or the
 * target sees no page tables but those that a vCPU has.
 */
bool target_translate(struct target *target, const struct mmu *mmu, uint64_t va,
		      uint64_t *physical);

/* Sleeps until then, or until a signal comes, as the target needs it. */
void target_wait(struct target *target, uint64_t until_ns);

/*
 * Opens "SCHEME:NAME", or a bare NAME where only one thing can be meant: the
 * path of a core file, or a guest; by one of its kind's ways, NULL: by the
 * cheapest that works. An error names the candidates when there are several;
 * ERR_USAGE: it has no such way.
 */
struct error *target_open(const char *spec, const char *via, struct target **out);
void target_close(struct target *target);

/* For ENDED_BY(). */
static inline void target_end(struct target **target)
{
	target_close(*target);
}

/* The parts below are for targets alone. */

/* Copies a vCPU's stack and the other stacks that it asks for; a stack ends where a frame is missing. */
void paged_memory_copy_stacks(const struct paged_memory *memory, const struct arch *arch,
			      struct vcpu_sample *vcpu);

/* Copies pieces of the thread that a vCPU runs (window.h), as far as its registers tell of one; `request` may be NULL. */
void paged_memory_copy_thread(const struct paged_memory *memory, const struct arch *arch,
			      struct vcpu_sample *vcpu, const struct thread_request *request);

/* Lets frames of an interpreter be copied, behind both; `request` may be NULL. */
void paged_memory_copy_frames(const struct paged_memory *memory, const struct arch *arch,
			      struct vcpu_sample *vcpu, const struct frames_request *request);

/* State of a vCPU in a sample, where only its load is known. */
struct vcpu_load {
	uint64_t cpu_ns; /* CPU time used so far */
	bool running;	 /* on a CPU in this moment */
	bool blocked;	 /* waiting for something else than a CPU */
};

/*
 * The usual time between samples, which each of them stands for, though they
 * come at uneven times. Once a sample, when its time is set.
 */
int64_t vcpu_state_time(struct sample *sample);

/*
 * On a one-CPU host no vCPU is ever seen running: we preempt it. So, of the
 * samples in which a vCPU waits for a CPU, as many count as running as its CPU
 * time says. `usual_ns`: from vcpu_state_time. Once a sample; keeps its account
 * in the vcpu_sample.
 */
enum vcpu_state vcpu_state_of(const struct vcpu_load *now, struct vcpu_sample *vcpu,
			      int64_t usual_ns);
