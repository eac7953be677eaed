/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two address spaces. They agree on everything but a window of pages, which is empty at first and
 * which each of them maps as it likes. The guest starts in space 0. For the boot vCPU alone.
 */
#ifndef PAGING_H
#define PAGING_H

#define WINDOW	     0x8000000000ul
#define WINDOW_PAGES 512
#define SPACES	     2

/* Once, before the others. */
void paging_init(void);
/* Lets a page of the window show `frame`, a page of the image; NULL lets it show nothing. */
void paging_map(unsigned int space, unsigned int page, const void *frame);
/* Loads the space's page tables. */
void paging_use(unsigned int space);

#endif
