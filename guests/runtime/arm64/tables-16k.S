/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of 36 bits, in two levels: the first 32 MiB of memory with pages, all else with blocks. */
#define PAGE_BYTES   0x4000
#define BLOCK_BYTES  0x2000000
#define PAGES        2048
#define BLOCKS       2048
#define GRANULE      GRANULE_16K

#include "two_levels.inc"

	.section .note.GNU-stack, "", @progbits
