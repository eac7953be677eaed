/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A guest whose threads a test puts into its memory. A test of a system says before where that
 * memory is: START, its first address, and SIZE, its bytes.
 */

#include "threads/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CODE  0x1000ull /* not in that memory */
#define SLIDE 0x10ull

struct guest {
	uint8_t bytes[SIZE];
	struct image_file file;
	struct elf_code code;
	const struct threads_system *system;
	void *threads;
	/* Called before each read: a guest that runs. */
	void (*runs)(struct guest *guest, uint64_t va);
	unsigned changes;
	uint64_t reads;
	struct budget budget;
	struct guest_memory memory;
	struct guest_thread_list list;
};

static inline size_t read_guest(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct guest *guest = ctx;
	const uint64_t at = va - START;

	guest->reads++;
	if (guest->runs)
		guest->runs(guest, va);
	if (at >= SIZE)
		return 0;
	if (len > SIZE - at)
		len = SIZE - at;
	memcpy(buf, guest->bytes + at, len);
	return len;
}

static inline void put(struct guest *guest, uint64_t va, uint64_t value)
{
	memcpy(guest->bytes + (va - START), &value, 8);
}

static inline uint64_t get(const struct guest *guest, uint64_t va)
{
	uint64_t value;

	memcpy(&value, guest->bytes + (va - START), 8);
	return value;
}

static inline void put_member(struct guest *guest, uint64_t thread, enum thread_member member,
			      uint64_t value)
{
	put(guest, thread + guest->file.threads.at[member], value);
}

/* A guest without threads; drop() frees it. */
static inline struct guest *guest_new(const struct thread_layout *layout,
				      const struct threads_system *system)
{
	struct guest *guest = calloc(1, sizeof(*guest));

	assert_non_null(guest);
	guest->system = system;
	guest->code = (struct elf_code){.start = CODE - SLIDE, .end = CODE + 0x1000 - SLIDE};
	guest->file = (struct image_file){.code = &guest->code, .threads = *layout};
	guest->budget.left = UINT64_C(1) << 32;
	guest->memory = (struct guest_memory){guest, read_guest, &guest->budget};
	return guest;
}

static inline int drop(void **state)
{
	struct guest *guest = *state;

	free(guest->threads);
	guest_thread_list_free(&guest->list);
	free(guest);
	return 0;
}

static inline void list(struct guest *guest)
{
	guest_thread_list_free(&guest->list);
	assert_null(guest->system->list(guest->threads, &guest->memory, &guest->list));
}

static inline const struct guest_thread *thread_listed(const struct guest *guest, uint64_t at)
{
	for (size_t i = 0; i < guest->list.n; i++)
		if (guest->list.at[i].at == at)
			return &guest->list.at[i];
	return NULL;
}
