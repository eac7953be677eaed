/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses of 39 bits. Pages: the image's 4 MiB. Blocks of 2 MiB: the other memory in the first
 * GiB and, below it, Xen's own addresses and the serial port of QEMU's virt.
 */
#include "tables.h"

#define SERIAL       0x09000000
#define XEN_PAGES    0x39000000
#define BLOCK_BYTES  0x200000

	.globl translation_control, top_table
	.set translation_control, TCR(39, GRANULE_4K)

	.data
	.balign 4096
top_table:
	.quad page_table_2_low + TABLE
	.quad page_table_2 + TABLE
	.fill 510, 8, 0
page_table_2_low:
	.fill SERIAL / BLOCK_BYTES, 8, 0
	.quad SERIAL + DEVICE
	.fill (XEN_PAGES - SERIAL) / BLOCK_BYTES - 1, 8, 0
	.quad XEN_PAGES + BLOCK
	.fill 511 - XEN_PAGES / BLOCK_BYTES, 8, 0
page_table_2:
	.quad page_tables_3 + TABLE
	.quad page_tables_3 + 0x1000 + TABLE
	.set address, MEMORY + 2 * BLOCK_BYTES
	.rept 510
	.quad address + BLOCK
	.set address, address + BLOCK_BYTES
	.endr
page_tables_3:
	.set address, MEMORY
	.rept 1024
	.quad address + PAGE
	.set address, address + 0x1000
	.endr

	.section .note.GNU-stack, "", @progbits
