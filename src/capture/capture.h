/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Captures a tick: samples all vCPUs of a guest, unwinds them and interns the
 * stacks. The size of the copied windows follows what was needed lately; when
 * it was too small, the sample is retried at once.
 */

#include "capture/sampler.h"
#include "symbol/images/images.h"
#include "threads/threads.h"

struct capture;

/* Copies its part of the options. `target` and `stacks` must outlive it. */
struct error *capture_new(struct target *target, struct stacks *stacks,
			  const struct sampler_options *options, struct capture **out);
void capture_free(struct capture *capture);

/*
 * Captures a tick at `now_ns`, CLOCK_MONOTONIC, just read; 0: not read. Fills
 * in the tick but for its weight: time_ns is CLOCK_MONOTONIC, paused_ns is the
 * sum of all pauses, retries included, entries are valid until the next call.
 * Errors are those of the target's sample(), and of a lack of memory.
 */
struct error *capture_tick(struct capture *capture, uint64_t now_ns, struct tick *tick);

/*
 * A stack that was read apart from samples, of a thread that does not run, in three steps. First
 * images are located as for a vCPU that has these registers: it may be that none was seen in the
 * kernel. Errors are those of image_locator_sample.
 */
struct error *capture_locate(struct capture *capture, const struct regs *regs);

/*
 * Then the stack is walked, in the kernel, with `n` 0; and in its program, behind the `n` frames that
 * this gave. Bytes that are missing are not asked for. False, of a program: of its code there is
 * no file, or no room for its frames. As of vCPUs in a kernel, such code is not walked.
 */
bool capture_walk(struct capture *capture, const struct regs *regs, const struct window *stack,
		  size_t n, struct unwind_result *out);

/* As memory_view_read, of the kernel's memory: by the vCPU's view, or by that of its kernel. */
size_t kernel_view_read(void *ctx, uint64_t va, void *buf, size_t len);

/* True if the kernel is about to change the thread in the innermost frames of a stack. */
bool is_switching(const struct guest_threads *threads, const struct stacks *stacks, uint32_t stack);

/* True if it chooses the next one there, and may wait for that on the stack of a thread that waits. */
bool is_idling(const struct guest_threads *threads, const struct stacks *stacks, uint32_t stack);

/* The thread of a stack, and the view that its program has of memory. */
struct program_of {
	struct target *target;
	const struct guest_threads *threads;
	const struct guest_thread *thread;
	const struct regs *regs;
	struct interpreters *interpreters; /* NULL: none are wanted */
};

/*
 * Puts frames in code of programs, of which no image is known, to the addresses of their files
 * (MAPPED_FILES_ADDR): the same in each program, and for good. The system tells which file is mapped
 * there, while the guest runs; its mappings are believed for a moment. *missed: it did not tell, this time.
 * The only error is a lack of memory.
 */
struct error *programs_place(struct programs *programs, const struct program_of *of,
			     struct frame *frames, size_t n, bool *missed);

/*
 * Looks for the copies on this machine of all files that a program has mapped (base/preopen.h), before
 * its stack is walked. The only error is a lack of memory.
 */
struct error *programs_seek(struct programs *programs, const struct program_of *of,
			    const struct guest_mapping_list *list);

/* Puts the frames of a stack that was walked to their files, as programs_place. */
struct error *capture_place(struct capture *capture, const struct unwind_result *walked,
			    const struct program_of *of);

/* At last all of its frames, walked->n, are interned; fills in stack and end. The only error is a lack of memory. */
struct error *capture_keep(struct capture *capture, const struct unwind_result *walked,
			   struct tick_entry *out);

/* The sample that the last capture_tick ended with; valid until the next. */
const struct sample *capture_sample(const struct capture *capture);

/* The store of all stacks. */
const struct stacks *capture_stacks(const struct capture *capture);

/* Threads by the numbers that ticks tell; NULL: they are not wanted. */
struct thread_numbers *capture_threads(const struct capture *capture);

/* Time that the last capture_tick spent on locating images, while the guest ran. */
uint64_t capture_locating_ns(const struct capture *capture);

/* What there was since the beginning: retakes, given_up, no_room, and the interpreters. NULL: nothing. */
void capture_tell(const struct capture *capture, struct sampler_result *out);

/* The most bytes of a stack that were needed, in this stretch of samples and in the one before. */
struct reach {
	uint64_t now, before; /* bytes */
	uint32_t samples;
	uint32_t stretch; /* samples, */
	uint32_t least;	  /* and bytes that are copied at least */
};

/* The beginning of another stack. */
struct stack_front {
	uint32_t unread;  /* bytes that no sample needed */
	uint32_t samples; /* that were counted */
	bool outgrown;	  /* more was needed once than was copied */
};

/* Account of what was needed of a vCPU's stack, and of those that this one leads to. */
struct stack_depth {
	struct reach own, other[UNWIND_OTHERS];
	struct stack_front front[UNWIND_OTHERS];
	uint32_t idle[UNWIND_OTHERS]; /* stacks since the last that led to this one */
	uint32_t idle_red_zone;	      /* ... since the last that needed the red zone */
	uint64_t gap;		      /* end of a large gap between frames, a stretch ago */
	bool pieces;		      /* such a gap may be left out */
	bool apart; /* it is not copied: what is above is asked for as another stack */
	uint32_t gap_wait,
		gap_patience; /* stretches until it is tried again, now and the next time */
};

/* `pieces`: as target.copies_pieces. */
void stack_depth_begin(struct stack_depth *depth, bool pieces);

/* Asks for as much of the stacks as the last one needed, and sets request.again if that was not there. */
void stack_depth_adapt(struct stack_depth *depth, struct vcpu_sample *vcpu, uint32_t cap,
		       const struct unwind_result *out);

/*
 * The guest's code, for the unwinder: read from the running guest's memory, page
 * by page, and kept for a second, because code hardly ever changes. If a page is
 * gone, or wiped to zeros, but a file that was compared with the guest has code
 * there, it is read from that file: return addresses still lead there, and their
 * calls were made when the page was as loaded (Unikraft unmaps the page with its
 * entry, and the call there, once it has started). A page with other contents is
 * read as it is. Bounds of functions and unwind tables come from images, where
 * there are any, and not where a program's image is meant and another program runs.
 */
struct code_cache;

/*
 * True if code at `va` is a program's on a vCPU with these registers: below a kernel, which has page
 * tables for each program. Code of a unikernel in the lower half is none.
 */
static inline bool is_program_code(const struct regs *regs, uint64_t va)
{
	return va < LOWER_HALF && regs->mmu.mode != MMU_OFF &&
	       (regs->user || regs->pc >= LOWER_HALF);
}

/* `images` may be NULL; both must outlive it. */
struct error *code_cache_new(struct target *target, const struct images *images,
			     struct code_cache **out);
void code_cache_free(struct code_cache *cache);

/*
 * Code as seen by a vCPU with these registers, valid until the next call. The
 * registers must stay while it is used. Forgets what is older than a second.
 */
const struct code *code_cache_for(struct code_cache *cache, const struct regs *regs,
				  uint64_t now_ns);

/* True if an image has the code at `va`, and no other program runs there in the address space of these registers. */
bool code_cache_knows(struct code_cache *cache, uint64_t va);

/*
 * Marks frames (FRAME_FOREIGN) where the image of a program is meant and the address space of these
 * registers has something else: its memory is compared with the file, now and then. Frames of
 * programs that are seen before a file was found are marked, too.
 */
void code_cache_mark_foreign(struct code_cache *cache, struct frame *frames, size_t n);

/* An interpreter (runtime/runtime.h) that is the process that is sampled. */
struct interpreter;

/*
 * Looks for one in the files of the process; *out is NULL if there is none. From then on
 * the sample asks for its frames, which have room here.
 */
struct error *interpreter_new(struct target *target, struct stand_ins *stand_ins,
			      struct sample *sample, struct interpreter **out);
void interpreter_free(struct interpreter *interpreter);

/* To be called before each sample. */
void interpreter_refresh(struct interpreter *interpreter);

/* Puts its functions into the stack of a vCPU that was just unwound. */
struct error *interpreter_merge(struct interpreter *interpreter, const struct vcpu_sample *vcpu,
				struct runtime_stack *stack);

/* What was found, and how many stacks have its functions. NULL: nothing. */
void interpreter_tell(const struct interpreter *interpreter, struct sampler_result *out);

/*
 * Interpreters that programs of a guest run, whose system tells of its threads: found by the files that
 * are mapped where a sampled program has its code. Of those that are known, each sample has the frames,
 * copied in its pause: INTERPRETER_PAGES pages and INTERPRETER_IDENTITIES functions are read then at most.
 * All else is read while the guest runs.
 */
struct interpreters;
struct program_interpreter; /* of one program */

#define INTERPRETERS_MAX       8u
#define INTERPRETER_PAGES      32u
#define INTERPRETER_IDENTITIES 16u

/* All must outlive it. */
struct error *interpreters_new(const struct guest_threads *threads, struct stand_ins *stand_ins,
			       struct sample *sample, struct interpreters **out);
void interpreters_free(struct interpreters *all);

/* The one of the program that has the page tables of a vCPU; NULL: none is known, or `all` is NULL. */
struct program_interpreter *interpreters_find(struct interpreters *all, const struct regs *regs);

/*
 * A program has this mapping where it has code, and page tables at `root`: if that is an interpreter's file, its
 * functions are shown from the next sample on. The only error is a lack of memory.
 */
struct error *interpreters_meet(struct interpreters *all, const struct program_of *of,
				const struct guest_place *place, uint64_t root);

/*
 * As interpreter_merge, of the sample's thread: where the program still has mapped what was found. Before frames
 * are put to their files.
 */
struct error *interpreters_merge(struct interpreters *all, const struct program_of *of,
				 const struct vcpu_sample *vcpu, struct runtime_stack *stack);

/* As interpreter_tell, of all together. */
void interpreters_tell(const struct interpreters *all, struct sampler_result *out);

/*
 * The host's side of vCPUs, of a target that sees it: puts one frame for the vCPU, and one for where its
 * thread was, around the frames that it had there. Functions of the host are told by their names
 * (symbolizer.h), for their addresses may be the guest's, too.
 */
struct host_view;

/* All must outlive it. From then on the sample has the host's side of vCPUs. */
struct error *host_view_new(const struct images *images, struct stand_ins *stand_ins,
			    struct sample *sample, struct host_view **out);
void host_view_free(struct host_view *view);

/* Room for frames that takes at least. */
#define HOST_VIEW_FRAMES (2 * HOST_FRAMES + HOST_VIEW_AROUND)
#define HOST_VIEW_AROUND 2u

/*
 * False if the vCPU of a sample that was taken again was somewhere else the first time: what was seen
 * then stays.
 */
bool host_view_holds(struct host_view *view, uint32_t i, const struct vcpu_sample *vcpu,
		     bool first);

/* Did the guest run, and are its registers known? Then its stack is walked. */
static inline bool host_view_has_guest(const struct vcpu_sample *vcpu)
{
	return vcpu->host->place == HOST_GUEST && vcpu->host->guest_known;
}

/* The frames of a vCPU whose guest did not run, or is not known; `frames` has room for HOST_VIEW_FRAMES. */
struct error *host_view_frames(struct host_view *view, const struct vcpu_sample *vcpu,
			       struct frame *frames, struct unwind_result *out);

/* Puts the frames around; there is room for HOST_VIEW_AROUND more. */
struct error *host_view_enclose(struct host_view *view, uint32_t i, const struct vcpu_sample *vcpu,
				struct frame *frames, struct unwind_result *out);

/*
 * Registers with which the kernel's memory is read: of a vCPU of the sample that sees the kernel, one
 * that is in it if there is one. `beside`: in user mode, by the page tables that go with its own, where
 * the kernel has two for each program. False: no vCPU can see one.
 */
bool waiting_choose_view(struct target *target, const struct sample *sample, bool beside,
			 struct regs *out);

/*
 * Stacks of threads that do not run, in the kernel and in their programs: read
 * while the guest runs, without a pause. A thread that had the CPU meanwhile is
 * read again. Programs are read by page tables of their own.
 */
struct waiting {
	struct target *target;
	struct capture *capture; /* has taken a tick */
	const struct guest_threads *threads;
	const struct guest_memory *memory;
	const struct regs *regs;       /* of a vCPU that sees the kernel */
	struct image_locator *locator; /* of the capture; may be NULL */
};

struct waiting_stack {
	/* False: it runs, has ended, never stood still or cannot be read; nothing below is set. */
	bool read;
	uint32_t stack; /* id in the store of `capture` */
	enum unwind_end end;
	uint64_t
		called; /* the program called the kernel, and goes on at this address; 0: neither */
	bool program;	/* its frames are there, at least that one */
};

/*
 * *thread is read anew. With `search`, if the program's part is not whole, the user's files are
 * compared with what it has mapped under their names: one that is loaded elsewhere in each program
 * (PIE, libraries) is found in each. Errors are those of capture_locate,
 * and of a lack of memory.
 */
struct error *waiting_unwind(const struct waiting *waiting, struct guest_thread *thread,
			     bool search, struct waiting_stack *out);

/*
 * Samples of the threads that do not run, beside those of the vCPUs: at each
 * tick so many of all threads as the options say, by turns, read while the guest
 * runs. So a guest with very many costs no more than one with few. A thread that
 * has not run since it was looked at last still has the stack that it had.
 *
 * Looks take no more CPU time than the options say, so that a turn takes longer
 * where they cost more: a guest that shares its CPU with us would else go on
 * between looks only, and looks would come when it suits its threads.
 *
 * Each sample stands for the time since its thread was looked at last, whatever
 * was seen then: the looks do not come when it suits the thread, so that the
 * state at a look speaks for the time before without bias, and what a thread has
 * in all is the time that went by, however many others there are. A thread that
 * is met first stands for the time since the turns were last at its place, in the first
 * turn for that since the tick before; a stretch without ticks counts as four usual ones
 * at most. One
 * that is met running, or that did not stand still while it was read, has no
 * sample for that time, and the next does not make up for it.
 */
struct waits;

/* All must outlive it. */
struct error *waits_new(struct target *target, struct capture *capture,
			const struct sampler_options *options, struct waits **out);
void waits_free(struct waits *waits);

/*
 * To be called after capture_tick, whose tick it appends to. Without `threads`, as long
 * as they are not found, it does nothing. Entries are valid until the next
 * call. Errors are those of waiting_unwind.
 */
struct error *waits_tick(struct waits *waits, const struct guest_threads *threads,
			 struct tick *tick);

/* Since the beginning; all 0 for NULL. */
struct waits_counts {
	uint64_t samples;
	uint64_t unproven; /* threads that ran, again and again, while they were read */
	uint64_t lost;	   /* turns that led nowhere, and began again */
};

struct waits_counts waits_count(const struct waits *waits);
