/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* State of threads_linux: found once in a kernel, it leads through its lists again and again. */

#include "symbol/kernel/kernel.h"
#include "threads/threads.h"

/* All members of task_struct lie in so many bytes. */
#define LINUX_TASK_MAX 16384u
/* arch/x86/include/asm/page_64_types.h, arch/arm64/include/asm/memory.h: more with KASAN */
#define LINUX_THREAD_SIZE (16u << 10)

/* Members of struct task_struct. */
enum task_member {
	TASK_PID,
	TASK_TGID,
	TASK_COMM,
	TASK_FLAGS,
	TASK_STATE,
	TASK_EXIT_STATE,
	TASK_ON_CPU,
	TASK_CPU,
	TASK_START,
	TASK_CPU_TIME,
	TASK_SWITCHES,
	TASK_SWITCHES_FORCED,
	TASK_TASKS,
	TASK_SIGNAL,
	TASK_THREAD_NODE,
	TASK_LEADER,
	TASK_STACK,
	TASK_GROUPS, /* a kernel without control groups has none: 0 */
	TASK_CREDENTIALS,
	TASK_MEMBERS
};

/*
 * Where the registers are of a thread that does not run, from the beginning of
 * task_struct. On x86 that has the stack pointer alone: the others are in the
 * frame that it leads to, of which the return address is the last word.
 */
struct linux_saved {
	bool known, framed;
	uint32_t pc, sp, fp;
	uint32_t
		entered; /* registers of programs: bytes at the end of the kernel's stack; 0: they are not found */
	uint32_t mm, pgd; /* the address space, in task_struct; its page tables, in mm_struct */
};

/*
 * Members on the way from a task to its mappings and the paths of their files, and to its control
 * group. Those of one structure stand behind each other.
 */
enum linux_map_member {
	MAPS_MM,  /* struct task_struct */
	MM_COUNT, /* struct mm_struct */
	MM_ROOT,
	MM_HEAP,
	MM_HEAP_END,
	MM_STACK,
	MM_VDSO,
	VMA_START, /* struct vm_area_struct */
	VMA_END,
	VMA_MM,
	VMA_FLAGS,
	VMA_OFFSET,
	VMA_FILE,
	VMA_NEXT,
	FILE_MOUNT, /* struct file */
	FILE_DENTRY,
	DENTRY_PARENT, /* struct dentry */
	DENTRY_NAME,
	DENTRY_NAME_LEN,
	DENTRY_HASHED,
	MOUNT_MNT, /* struct mount, which holds a struct vfsmount */
	MOUNT_PARENT,
	MOUNT_POINT,
	MNT_ROOT,
	LEAF_PIVOTS, /* struct maple_node */
	LEAF_SLOTS,
	INNER_PIVOTS,
	INNER_SLOTS,
	SET_GROUP, /* struct css_set: the group of cgroup v2, and those of each controller */
	SET_STATES,
	SET_BEHIND,  /* those end here */
	STATE_GROUP, /* struct cgroup_subsys_state */
	GROUP_NODE,  /* struct cgroup */
	NODE_PARENT, /* struct kernfs_node */
	NODE_NAME,
	LINUX_MAP_MEMBERS
};

struct linux_maps {
	bool known;
	bool groups; /* control groups are known */
	bool tree;   /* mappings are in a maple tree, else (before Linux 6.1) in a list */
	uint32_t at[LINUX_MAP_MEMBERS]; /* offsets; 0 for one that this kernel has not */
};

struct linux_threads {
	uint64_t init_task;	   /* begins and ends the list of processes */
	uint32_t at[TASK_MEMBERS]; /* offsets */
	uint32_t span;		   /* bytes of task_struct with all of them */
	uint32_t thread_head;	   /* in signal_struct */
	uint32_t user;		   /* in struct cred: whose the files are that it makes */
	uint64_t offsets;	   /* of each CPU's own data */
	uint64_t ids;		   /* of the CPUs in the machine (arm64); 0: there are none */
	uint64_t current; /* in that data: the address of the task that runs; 0: not known */
	/* Code that has the stack of the next task, but not yet made it the CPU's. */
	struct {
		uint64_t start, end;
	} switches[2];
	struct linux_saved saved;
	struct linux_maps maps;
	uint64_t online, cpus; /* the mask of CPUs that are on-line; how many there may be */
};

/* Finds all of it by a kernel's names and BTF; freed by threads_linux.close. */
struct error *linux_threads_find(const struct guest_memory *memory, const struct kallsyms *names,
				 void **state);

/* The parts below are for Linux's files alone. */

/* True for a pointer to the kernel's data. */
static inline bool linux_is_pointer(uint64_t value)
{
	return value >> 63 && value % 8 == 0;
}

static inline bool linux_get_pointer(const struct guest_memory *memory, uint64_t va,
				     uint64_t *pointer)
{
	return guest_memory_get(memory, va, pointer, 8) && linux_is_pointer(*pointer);
}

/* Reads a thread that was read before; false: it has ended. */
bool linux_read_again(const struct linux_threads *own, const struct guest_memory *memory,
		      const struct guest_thread *thread, struct guest_thread *now);

/* threads_system.saved and .stands; and what they need. */
bool linux_saved_read(const void *state, const struct guest_memory *memory,
		      struct guest_thread *thread, struct thread_saved *out);
bool linux_saved_stands(const void *state, const struct guest_memory *memory,
			const struct guest_thread *thread);
void linux_saved_find(const struct btf *btf, struct linux_saved *at);

/* threads_system.mappings, .place and .container; and what they need. */
struct error *linux_maps_read(const void *state, const struct guest_memory *memory,
			      const struct guest_thread *thread, struct guest_mapping_list *out);
bool linux_maps_place(const void *state, const struct guest_memory *memory,
		      const struct guest_thread *thread, uint64_t va, struct guest_place *out);
bool linux_maps_container(const void *state, const struct guest_memory *memory,
			  const struct guest_thread *thread, char container[GUEST_PATH_MAX + 1]);
void linux_maps_find(const struct btf *btf, struct linux_maps *maps);
