/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of 36 bits, in two levels: the first 512 MiB of memory with pages, all else with blocks. */
#define PAGE_BYTES   0x10000
#define BLOCK_BYTES  0x20000000
#define PAGES        8192
#define BLOCKS       128
#define GRANULE      GRANULE_64K

#include "two_levels.inc"

	.section .note.GNU-stack, "", @progbits
