/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two address spaces. They agree on everything but a window of pages, which is empty at first and
 * which each of them maps as it likes. The guest starts in space 0. For the boot vCPU alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A slot of the top table that is empty otherwise. */
#ifdef __aarch64__
#define WINDOW 0x4000000000ul
#else
#define WINDOW 0x8000000000ul
#endif
#define WINDOW_PAGES 512
#define SPACES	     2

/* Once, before the others. */
void paging_init(void);
/* Lets a page of the window show `frame`, a page of the image; NULL lets it show nothing. */
void paging_map(unsigned int space, unsigned int page, const void *frame);
/* Loads the space's page tables. */
void paging_use(unsigned int space);

/* The rest is x86's alone. */

/* Zeroes a page of the image below 4 MiB and takes it from the address space that the guest started in. */
void paging_drop(void *page);

/* For hostile guests. */
enum paging_level { PAGING_1 = 1, PAGING_2, PAGING_3, PAGING_4 };

/*
 * The entry that points to the space's own table of that level: one of the tables that lead to the
 * window's first pages.
 */
uint64_t paging_entry(unsigned int space, enum paging_level level);
/* Writes any value into such a table; false where Xen does not allow it. */
bool paging_write(unsigned int space, enum paging_level level, unsigned int index, uint64_t entry);
