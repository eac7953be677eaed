/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of 36 bits, in two levels: the first 32 MiB of memory with pages, all else with blocks. */
#include "tables.h"

#define PAGE_BYTES   0x4000
#define BLOCK_BYTES  0x2000000
#define PAGES        2048
#define BLOCKS       2048

	.globl translation_control, top_table
	.set translation_control, TCR(36, GRANULE_16K)

	.data
	.balign PAGE_BYTES
page_table_3:
	.set address, MEMORY
	.rept PAGES
	.quad address + PAGE
	.set address, address + PAGE_BYTES
	.endr
top_table:
	.set address, 0
	.rept MEMORY / BLOCK_BYTES
	.quad address + DEVICE
	.set address, address + BLOCK_BYTES
	.endr
	.quad page_table_3 + TABLE
	.set address, address + BLOCK_BYTES
	.rept BLOCKS - MEMORY / BLOCK_BYTES - 1
	.quad address + BLOCK
	.set address, address + BLOCK_BYTES
	.endr

	.section .note.GNU-stack, "", @progbits
