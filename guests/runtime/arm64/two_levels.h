/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RUNTIME_ARM64_TWO_LEVELS_H
#define RUNTIME_ARM64_TWO_LEVELS_H

/*
 * For assembly: tables of two levels for addresses of 36 bits. The first
 * PAGES * PAGE_BYTES of memory are in pages, all else is in BLOCKS blocks.
 */

#include "tables.h"

	.globl translation_control, top_table
	.set translation_control, TCR(36, GRANULE)

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

#endif
