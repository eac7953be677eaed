/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The memory of a kernel with tasks: number 0 is init_task, each other a process until it joins one. */

#include "threads/linux.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define START  0xffff888000000000ull
#define SIZE   0x40000u
#define STRIDE 0x400u
#define TASKS  64u
#define SPAN   0x100u
#define CPUS   2u

#define TASK(i)	  (START + STRIDE * (uint64_t)(i))
#define SIGNAL(i) (TASK(i) + 0x200)
#define HEAD(i)	  (SIGNAL(i) + 0x18)
#define GLOBALS	  (START + STRIDE * TASKS)
#define CPU(i)	  (GLOBALS + 0x1000 * (1ull + (i)))
#define CURRENT	  0x40u

static const struct linux_threads layout = {
	.init_task = TASK(0),
	.at = {[TASK_STATE] = 0,
	       [TASK_EXIT_STATE] = 4,
	       [TASK_FLAGS] = 8,
	       [TASK_ON_CPU] = 12,
	       [TASK_CPU] = 16,
	       [TASK_PID] = 20,
	       [TASK_TGID] = 24,
	       [TASK_TASKS] = 32,
	       [TASK_THREAD_NODE] = 48,
	       [TASK_SIGNAL] = 64,
	       [TASK_START] = 72,
	       [TASK_CPU_TIME] = 80,
	       [TASK_SWITCHES] = 88,
	       [TASK_SWITCHES_FORCED] = 96,
	       [TASK_COMM] = 104,
	       [TASK_LEADER] = 120,
	       [TASK_STACK] = 128,
	       [TASK_GROUPS] = 152,
	       [TASK_CREDENTIALS] = 160},
	.span = SPAN,
	.user = 24,
	.thread_head = 0x18,
	.offsets = GLOBALS,
	.current = CURRENT,
	.online = GLOBALS + 0x100,
	.cpus = GLOBALS + 0x108,
	.switches = {{0x1000, 0x1020}, {0x2000, 0x2100}},
	.saved = {.known = true,
		  .framed = true,
		  .sp = 136,
		  .fp = 40,
		  .pc = 48,
		  .entered = 168,
		  .mm = 144,
		  .pgd = 16},
	.maps = {.known = true,
		 .groups = true,
		 .tree = true,
		 .at = {[MAPS_MM] = 144,    [MM_COUNT] = 24,	    [MM_ROOT] = 32,
			[MM_HEAP] = 40,	    [MM_HEAP_END] = 48,	    [MM_STACK] = 56,
			[MM_VDSO] = 64,	    [VMA_START] = 0,	    [VMA_END] = 8,
			[VMA_NEXT] = 16,    [VMA_MM] = 24,	    [VMA_FLAGS] = 32,
			[VMA_OFFSET] = 40,  [VMA_FILE] = 48,	    [FILE_MOUNT] = 8,
			[FILE_DENTRY] = 16, [DENTRY_HASHED] = 16,   [DENTRY_PARENT] = 24,
			[DENTRY_NAME] = 40, [DENTRY_NAME_LEN] = 36, [MOUNT_PARENT] = 0,
			[MOUNT_POINT] = 8,  [MOUNT_MNT] = 16,	    [MNT_ROOT] = 16,
			[LEAF_PIVOTS] = 8,  [LEAF_SLOTS] = 128,	    [INNER_PIVOTS] = 8,
			[INNER_SLOTS] = 80, [SET_GROUP] = 24,	    [SET_STATES] = 0,
			[SET_BEHIND] = 16,  [STATE_GROUP] = 8,	    [GROUP_NODE] = 16,
			[NODE_PARENT] = 0,  [NODE_NAME] = 8}},
};

struct kernel {
	uint8_t bytes[SIZE];
	uint64_t reads;
	/* Called before each read: a guest that runs. */
	void (*runs)(struct kernel *kernel, uint64_t va);
	unsigned changes;
	struct budget budget;
	struct guest_memory memory;
	struct guest_thread_list list;
};

static inline size_t read_kernel(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct kernel *kernel = ctx;
	uint64_t at = va - START;

	kernel->reads++;
	if (kernel->runs)
		kernel->runs(kernel, va);
	if (at >= SIZE)
		return 0;
	if (len > SIZE - at)
		len = SIZE - at;
	memcpy(buf, kernel->bytes + at, len);
	return len;
}

static inline void put_word(struct kernel *kernel, uint64_t va, uint64_t value)
{
	memcpy(kernel->bytes + (va - START), &value, 8);
}

static inline void put(struct kernel *kernel, unsigned task, enum task_member member,
		       uint32_t value)
{
	memcpy(kernel->bytes + (TASK(task) - START) + layout.at[member], &value, 4);
}

static inline uint64_t get_word(const struct kernel *kernel, uint64_t va)
{
	uint64_t value;

	memcpy(&value, kernel->bytes + (va - START), 8);
	return value;
}

static inline void put_at(struct kernel *kernel, uint64_t va, enum linux_map_member member,
			  uint64_t value)
{
	put_word(kernel, va + layout.maps.at[member], value);
}

/* Puts a node at the end of a list. */
static inline void append(struct kernel *kernel, uint64_t head, uint64_t node)
{
	const uint64_t last = get_word(kernel, head + 8);

	put_word(kernel, node, head);
	put_word(kernel, node + 8, last);
	put_word(kernel, last, node);
	put_word(kernel, head + 8, node);
}

static inline void put_head(struct kernel *kernel, uint64_t head)
{
	put_word(kernel, head, head);
	put_word(kernel, head + 8, head);
}

/* A thread of the process `leader`, which it may be itself. */
static inline void put_task(struct kernel *kernel, unsigned i, unsigned leader)
{
	put(kernel, i, TASK_PID, i);
	put(kernel, i, TASK_TGID, leader);
	put(kernel, i, TASK_STATE, 1);
	put_word(kernel, TASK(i) + layout.at[TASK_START], 1000 * i);
	put_word(kernel, TASK(i) + layout.at[TASK_SIGNAL], SIGNAL(leader));
	put_word(kernel, TASK(i) + layout.at[TASK_LEADER], TASK(leader));
	snprintf((char *)kernel->bytes + (TASK(i) - START) + layout.at[TASK_COMM], 16, "task-%u",
		 i);
	if (i == leader)
		put_head(kernel, HEAD(leader));
	if (i && i == leader)
		append(kernel, TASK(0) + layout.at[TASK_TASKS], TASK(i) + layout.at[TASK_TASKS]);
	append(kernel, HEAD(leader), TASK(i) + layout.at[TASK_THREAD_NODE]);
}

/* Processes 1 to 9, of which number 5 has threads 20 and 21; number 5 runs on CPU 0, CPU 1 is idle. */
static inline int make(void **state)
{
	struct kernel *kernel = calloc(1, sizeof(*kernel));

	assert_non_null(kernel);
	put_head(kernel, TASK(0) + layout.at[TASK_TASKS]);
	for (unsigned i = 0; i < 10; i++)
		put_task(kernel, i, i);
	put_task(kernel, 20, 5);
	put_task(kernel, 21, 5);
	for (unsigned i = 0; i < CPUS; i++)
		put_word(kernel, GLOBALS + 8ull * i, CPU(i));
	put_word(kernel, CPU(0) + CURRENT, TASK(5));
	put_word(kernel, CPU(1) + CURRENT, TASK(0));
	put_word(kernel, layout.online, 3);
	put_word(kernel, layout.cpus, CPUS);
	kernel->budget.left = UINT64_C(1) << 32;
	kernel->memory = (struct guest_memory){kernel, read_kernel, &kernel->budget};
	*state = kernel;
	return 0;
}

static inline int drop(void **state)
{
	struct kernel *kernel = *state;

	guest_thread_list_free(&kernel->list);
	free(kernel);
	return 0;
}

static inline struct guest_thread thread_of(unsigned i)
{
	return (struct guest_thread){.at = TASK(i), .pid = i, .tid = i, .start_ns = 1000ull * i};
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
