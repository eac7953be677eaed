/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_GUEST_RAM_H
#define UNIPROF_TARGET_HOST_GUEST_RAM_H

/*
 * A guest's physical memory where it is memory of a process of this host: its
 * virtual machine monitor.
 */

#include "arch/arch.h"
#include "base/error.h"

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

/* Do they lead everywhere to the same place? */
bool ram_map_is_same(const struct ram_map *a, const struct ram_map *b);

/* How much memory that is, bytes. */
uint64_t ram_map_size(const struct ram_map *map);

/* Where a frame is in the process; false if the guest has no memory there. */
bool ram_map_find(const struct ram_map *map, uint64_t gfn, uint64_t *hva);

struct guest_ram;

/* Reads through `fd` (host/memory.h), which must outlive it. */
struct error *guest_ram_new(int fd, struct guest_ram **out);
void guest_ram_free(struct guest_ram *ram);

struct ram_map *guest_ram_map(struct guest_ram *ram);

/* From now on, frames are read anew: what was read before may have changed. */
void guest_ram_forget(struct guest_ram *ram);

/* Has there been a frame, since this was asked last, that could not be read? */
bool guest_ram_missed(struct guest_ram *ram);

/*
 * The bytes of a frame, read the first time that it is asked for since
 * guest_ram_forget(); NULL if it cannot be. Fits `frame` of struct physmem.
 * Valid until the next call.
 */
const void *guest_ram_frame(void *ram, uint64_t gfn);

#endif
