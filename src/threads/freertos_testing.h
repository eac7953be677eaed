/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Lists of tasks as FreeRTOS keeps them, in a memory that a test has built. */

#define START 0x40000000ull
#define SIZE  0x40000u

#include "threads/guest_testing.h"

#define TASK(i)	 (START + 0x1000 + 0x200 * (uint64_t)(i))
#define STACK(i) (START + 0x8000 + 0x1000 * (uint64_t)(i))
#define TOP(i)	 (STACK(i) + 0x800)
#define SP(i)	 (TOP(i) + 36 * 8)
#define RESUMES	 (CODE + 0x200)

#define LIST_SIZE     40u
#define PRIORITIES    4u
#define READY(i)      (START + 0x100 + (uint64_t)LIST_SIZE * (i))
#define LIST(i)	      (START + 0x300 + (uint64_t)LIST_SIZE * (i))
#define VARIABLE(i)   (START + 0x20 + 8 * (uint64_t)(i))
#define CURRENT	      (START + 0x10)
#define EVENTS	      (START + 0x600)
#define NUMBER(i)     (100u + (i))
#define FIRST_X29     0x2929292929292929ull
#define ITEM_LIST     32u
#define ITEM_PREVIOUS 16u

enum { RUNS, READIES, SLEEPS, WAITS, STOPS, LISTENS, ENDS, IDLES, TASKS };

static const struct thread_layout layout = {
	.system = UNIKERNEL_FREERTOS,
	.typed = 1,
	.head = READY(0) - SLIDE,
	.current = CURRENT - SLIDE,
	.cpus = 1,
	.variables = {[TASKS_DELAYED] = VARIABLE(TASKS_DELAYED) - SLIDE,
		      [TASKS_OVERFLOW] = VARIABLE(TASKS_OVERFLOW) - SLIDE,
		      [TASKS_PENDING] = LIST(TASKS_PENDING) - SLIDE,
		      [TASKS_SUSPENDED] = LIST(TASKS_SUSPENDED) - SLIDE,
		      [TASKS_ENDED] = LIST(TASKS_ENDED) - SLIDE,
		      [TASKS_COUNT] = VARIABLE(TASKS_COUNT) - SLIDE,
		      [TASKS_IDLE] = VARIABLE(TASKS_IDLE) - SLIDE},
	.priorities = PRIORITIES,
	.list_size = LIST_SIZE,
	.at = {[MEMBER_SP] = 0,
	       [MEMBER_LINK] = 8,
	       [MEMBER_EVENT] = 48,
	       [MEMBER_PRIORITY] = 88,
	       [MEMBER_STACK] = 96,
	       [MEMBER_NAME] = 104,
	       [MEMBER_NUMBER] = 136,
	       [MEMBER_NOTIFIED] = 144,
	       [MEMBER_NOTIFICATION] = 152,
	       [ITEM_NEXT] = 8,
	       [ITEM_OWNER] = 24,
	       [LIST_END] = 16}};

static inline uint64_t end_of(uint64_t list)
{
	return list + layout.at[LIST_END];
}

static inline void clear_list(struct guest *guest, uint64_t list)
{
	put(guest, end_of(list) + 8, end_of(list));
	put(guest, end_of(list) + 16, end_of(list));
}

/* include/list.h: vListInsertEnd, uxListRemove */
static inline void append(struct guest *guest, uint64_t list, uint64_t item)
{
	const uint64_t last = get(guest, end_of(list) + 16);

	put(guest, item + 8, end_of(list));
	put(guest, item + ITEM_PREVIOUS, last);
	put(guest, last + 8, item);
	put(guest, end_of(list) + 16, item);
	put(guest, item + ITEM_LIST, list);
}

static inline void take_out(struct guest *guest, uint64_t item)
{
	const uint64_t to = get(guest, item + 8), back = get(guest, item + ITEM_PREVIOUS);

	put(guest, to + ITEM_PREVIOUS, back);
	put(guest, back + 8, to);
	put(guest, item + ITEM_LIST, 0);
}

static inline uint64_t state_item(unsigned i)
{
	return TASK(i) + layout.at[MEMBER_LINK];
}

static inline uint64_t event_item(unsigned i)
{
	return TASK(i) + layout.at[MEMBER_EVENT];
}

static inline void move_to(struct guest *guest, unsigned i, uint64_t list)
{
	take_out(guest, state_item(i));
	append(guest, list, state_item(i));
}

static inline void put_task(struct guest *guest, unsigned i, const char *name, uint64_t list)
{
	put_member(guest, TASK(i), MEMBER_SP, TOP(i));
	put_member(guest, TASK(i), MEMBER_STACK, STACK(i));
	put_member(guest, TASK(i), MEMBER_PRIORITY, i == IDLES ? 0 : 1);
	put_member(guest, TASK(i), MEMBER_NUMBER, NUMBER(i));
	strcpy((char *)guest->bytes + (TASK(i) + layout.at[MEMBER_NAME] - START), name);
	put(guest, state_item(i) + 24, TASK(i));
	put(guest, event_item(i) + 24, TASK(i));
	append(guest, list, state_item(i));
	/* pc, PSTATE, x30; x28 and x29, ... x0 and x1. */
	put(guest, TOP(i) + 16, RESUMES);
	put(guest, TOP(i) + 24, 0x4);
	put(guest, TOP(i) + 32, RESUMES + 0x30);
	for (unsigned n = 0; n < 30; n++)
		put(guest, TOP(i) + 16 + 8 * (32 - n / 2 * 2 + n % 2), 0x100 * i + n);
	put(guest, SP(i) + 0x40, FIRST_X29);
}

static inline void open_guest(struct guest *guest)
{
	free(guest->threads);
	guest->threads = NULL;
	assert_null(freertos_threads_find(&guest->memory, &guest->file, SLIDE, &guest->threads));
}

static inline void put_lists(struct guest *guest)
{
	for (unsigned i = 0; i < PRIORITIES; i++)
		clear_list(guest, READY(i));
	for (unsigned i = 0; i <= TASKS_ENDED; i++)
		clear_list(guest, LIST(i));
	clear_list(guest, EVENTS);
	put(guest, VARIABLE(TASKS_DELAYED), LIST(TASKS_DELAYED));
	put(guest, VARIABLE(TASKS_OVERFLOW), LIST(TASKS_OVERFLOW));
	put(guest, VARIABLE(TASKS_COUNT), TASKS);
	put(guest, VARIABLE(TASKS_IDLE), TASK(IDLES));
	put(guest, CURRENT, TASK(RUNS));
}

static inline int make(void **state)
{
	struct guest *guest = guest_new(&layout, &threads_freertos);

	put_lists(guest);
	put_task(guest, RUNS, "runs", READY(1));
	put_task(guest, READIES, "readies", READY(1));
	put_task(guest, SLEEPS, "sleeps", LIST(TASKS_DELAYED));
	put_task(guest, WAITS, "waits", LIST(TASKS_SUSPENDED));
	append(guest, EVENTS, event_item(WAITS));
	put_task(guest, STOPS, "stops", LIST(TASKS_SUSPENDED));
	put_task(guest, LISTENS, "listens", LIST(TASKS_SUSPENDED));
	/* The second of its notifications. */
	guest->bytes[TASK(LISTENS) + layout.at[MEMBER_NOTIFICATION] + 1 - START] = 1;
	put_task(guest, ENDS, "ends", LIST(TASKS_ENDED));
	put_task(guest, IDLES, "IDLE", READY(0));
	open_guest(guest);
	*state = guest;
	return 0;
}

static inline const struct guest_thread *find(const struct guest *guest, unsigned i)
{
	return thread_listed(guest, TASK(i));
}

static inline enum guest_thread_state state_of(struct guest *guest, unsigned i)
{
	list(guest);
	assert_non_null(find(guest, i));
	return find(guest, i)->state;
}
