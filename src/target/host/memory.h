/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The memory of another process, through /proc/PID/mem: access is checked when
 * it is opened, so that it can be read after all rights have been given up.
 * After an exec, it stays the old program's.
 */

#include <stdio.h>

#include "arch/arch.h"
#include "base/error.h"
#include "target/host/threads.h"
#include "target/target.h"

/* *fd is for reading, and for writing if so asked; the caller closes it. */
struct error *host_memory_open(pid_t pid, bool write, int *fd);

/* Returns the bytes read, fewer where the process has no memory. */
size_t host_memory_read(int fd, uint64_t va, void *buf, size_t len);

/* Copies up to `want` bytes for a window; false if it ran out of time. */
typedef bool window_reader(void *ctx, uint64_t va, uint32_t want, uint8_t *buffer,
			   struct window *out);

/* Copies the stacks that are asked for, with the red zone of the thread's own, by its registers. */
void virtual_memory_copy_stacks(window_reader *read, void *ctx, struct vcpu_sample *vcpu);

/* A window_reader of a process's memory, and its ctx. */
struct host_memory {
	int fd;
	uint64_t until_ns; /* end of copying; 0: no bound */
};
bool host_memory_window(void *memory, uint64_t va, uint32_t want, uint8_t *buffer,
			struct window *out);

/*
 * A guest's physical memory where it is memory of a process of this host: its
 * virtual machine monitor.
 */

/* Guest-physical addresses gpa to gpa + size are at hva in the process; all in whole frames. */
struct ram_slot {
	uint64_t gpa, size, hva; /* bytes */
};

#define RAM_SLOTS_MAX 32

struct ram_map {
	struct ram_slot slot[RAM_SLOTS_MAX];
	size_t n;
};

/* False if there is no room for more. */
bool ram_map_add(struct ram_map *map, uint64_t gpa, uint64_t size, uint64_t hva);

/* True if both lead everywhere to the same address. */
bool ram_map_is_same(const struct ram_map *a, const struct ram_map *b);

/* Total size of the memory, bytes. */
uint64_t ram_map_size(const struct ram_map *map);

struct guest_ram;

/* Reads through `fd` (host/memory.h), which must outlive it. */
struct error *guest_ram_new(int fd, struct guest_ram **out);
void guest_ram_free(struct guest_ram *ram);

struct ram_map *guest_ram_map(struct guest_ram *ram);

struct paged_memory guest_ram_memory(struct guest_ram *ram);

/* Drops all frames: their contents may have changed. */
void guest_ram_forget(void *ram);

/* True if a frame could not be read since the last call. */
bool guest_ram_missed(struct guest_ram *ram);

/*
 * The bytes of a frame, or of a part of one, read the first time that they are asked for since
 * guest_ram_forget(); NULL if they cannot be. Fit `frame` and `part` of struct physmem.
 * Valid until the next call.
 */
const void *guest_ram_frame(void *ram, uint64_t gfn);
const void *guest_ram_part(void *ram, uint64_t addr, size_t len);

/*
 * Copies pieces of the thread that a vCPU runs, as window_copy_thread() does, in few calls: for
 * kernels whose own data stay where their page tables have said lately that they are, as Linux's do.
 */
void guest_ram_copy_thread(struct guest_ram *ram, const struct arch *arch, const struct regs *regs,
			   const struct thread_request *request, struct thread_copy *out);

/*
 * Finds the guest's memory in its virtual machine monitor, without the
 * monitor's help: every mapping that could be it is tried, and taken only if
 * the guest's own page tables, read through it, lead from where a vCPU executes
 * to code.
 */

struct ram_search;

/* Remembers the mappings of a process (host/proc.h) that may be memory of a guest, on a host of this architecture. */
struct error *ram_search_new(FILE *maps, const struct arch *arch, struct ram_search **out);
void ram_search_free(struct ram_search *search);

/*
 * Tries them for vCPUs with these registers, and leaves the map of the guest's
 * memory in `ram`. False, with an empty map, when none fits, or when
 * several do and tell different things. Takes milliseconds.
 */
bool ram_search_run(struct ram_search *search, struct guest_ram *ram, const struct regs *regs,
		    size_t n);

/* Total size of these mappings, bytes. */
uint64_t ram_search_size(const struct ram_search *search);
