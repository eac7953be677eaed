/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Lists of threads as Unikraft and Mini-OS keep them, in a memory that a test has built. */

#define START 0x100000ull
#define SIZE  0x200000u

#include "threads/guest_testing.h"

/* Mini-OS's stacks; the threads of both systems lie elsewhere. */
#define STACK(i)     (START + 0x10000 * (1ull + (i)))
#define STACK_SIZE   0x10000u
#define THREAD(i)    (START + 0x100 + 0x100 * (uint64_t)(i))
#define NAME(i)	     (START + 0x8000 + 32 * (uint64_t)(i))
#define HEAD	     (START + 0x10)
#define CURRENT	     (START + 0x20)
#define SCHEDULER(i) (START + 0x9000 + 0x400 * (uint64_t)(i))
#define STARTER	     (CODE + 0x100)
#define RESUMES	     (CODE + 0x200)

#define LINK  0x20u
#define FIRST 0x48u /* a scheduler's list */
#define NEXT  0x60u
#define IDLE  0x80u

static const struct thread_layout layouts[UNIKERNELS] = {
	[UNIKERNEL_UNIKRAFT] = {.system = UNIKERNEL_UNIKRAFT,
				.typed = 1,
				.head = HEAD - SLIDE,
				.current = CURRENT - SLIDE,
				.cpus = 1,
				.at = {[MEMBER_IP] = 0,
				       [MEMBER_SP] = 8,
				       [MEMBER_STACK] = 16,
				       [MEMBER_LINK] = LINK,
				       [MEMBER_FLAGS] = 0x30,
				       [MEMBER_NAME] = 0x38,
				       [MEMBER_SCHEDULER] = 0x40,
				       [MEMBER_CPU_TIME] = 0x48,
				       [SCHEDULER_LIST] = FIRST,
				       [SCHEDULER_NEXT] = NEXT,
				       [SCHEDULER_IDLE] = IDLE}},
	[UNIKERNEL_MINIOS] = {.system = UNIKERNEL_MINIOS,
			      .typed = 1,
			      .head = HEAD - SLIDE,
			      .starter = STARTER - SLIDE,
			      .cpus = 1,
			      .at = {[MEMBER_SP] = 0,
				     [MEMBER_IP] = 8,
				     [MEMBER_STACK] = 16,
				     [MEMBER_LINK] = LINK,
				     [MEMBER_FLAGS] = 0x30,
				     [MEMBER_NAME] = 0x38}},
};

/* Puts a thread at the end of a list (sys/queue.h: TAILQ_INSERT_TAIL). */
static inline void append(struct guest *guest, uint64_t head, uint64_t thread)
{
	const uint64_t last = get(guest, head + 8);

	put(guest, thread + LINK, 0);
	put(guest, thread + LINK + 8, last);
	put(guest, last, thread);
	put(guest, head + 8, thread + LINK);
}

/* TAILQ_REMOVE */
static inline void take_out(struct guest *guest, uint64_t head, uint64_t thread)
{
	const uint64_t to = get(guest, thread + LINK), back = get(guest, thread + LINK + 8);

	put(guest, to ? to + LINK + 8 : head + 8, back);
	put(guest, back, to);
}

static inline void put_head(struct guest *guest, uint64_t head)
{
	put(guest, head, 0);
	put(guest, head + 8, head);
}

static inline void put_thread(struct guest *guest, unsigned i, uint64_t thread)
{
	const bool minios = guest->file.threads.system == UNIKERNEL_MINIOS;

	put_member(guest, thread, MEMBER_IP, RESUMES);
	put_member(guest, thread, MEMBER_STACK, STACK(i));
	put_member(guest, thread, MEMBER_SP, STACK(i) + STACK_SIZE - 0x80);
	put_member(guest, thread, MEMBER_NAME, NAME(i));
	snprintf((char *)guest->bytes + (NAME(i) - START), 32, "thread-%u", i);
	if (minios)
		put(guest, STACK(i), thread);
	else
		put_member(guest, thread, MEMBER_SCHEDULER, SCHEDULER(0));
}

#define THREADS 6u

static inline void open_guest(struct guest *guest)
{
	assert_null(unikernel_threads_find(&guest->memory, &guest->file, SLIDE, &guest->threads));
}

/* Threads 0 to 5, of which the last one runs. */
static inline int make(void **state, enum unikernel system)
{
	static const struct threads_system *const systems[] = {
		[UNIKERNEL_UNIKRAFT] = &threads_unikraft, [UNIKERNEL_MINIOS] = &threads_minios};
	struct guest *guest = guest_new(&layouts[system], systems[system]);
	uint64_t head = HEAD;

	if (system == UNIKERNEL_UNIKRAFT) {
		put(guest, HEAD, SCHEDULER(0));
		put(guest, CURRENT, THREAD(THREADS - 1));
		head = SCHEDULER(0) + FIRST;
	}
	put_head(guest, head);
	for (unsigned i = 0; i < THREADS; i++) {
		put_thread(guest, i, THREAD(i));
		append(guest, head, THREAD(i));
	}
	put_member(guest, THREAD(THREADS - 1), MEMBER_FLAGS,
		   system == UNIKERNEL_UNIKRAFT ? 0x8 : 1);
	open_guest(guest);
	*state = guest;
	return 0;
}

static inline int make_unikraft(void **state)
{
	return make(state, UNIKERNEL_UNIKRAFT);
}

static inline int make_minios(void **state)
{
	return make(state, UNIKERNEL_MINIOS);
}

static inline uint64_t head_of(const struct guest *guest)
{
	return guest->file.threads.system == UNIKERNEL_MINIOS ? HEAD : SCHEDULER(0) + FIRST;
}
