/* SPDX-License-Identifier: BSD-3-Clause */
/* Three levels of entries of 8 bytes: pages of 4 KiB and blocks of 2 MiB (DDI 0406C, B3.6). */
#include "assembly.h"

/* Normal memory, cached; devices. */
#define MAIR         0x04ff
/* These tables, from TTBR0 only, cached and shared. */
#define TTBCR        (1 << 31 | 1 << 23 | 3 << 12 | 1 << 10 | 1 << 8)
/* Accessed, shared, for all to read and write. */
#define PAGE         0x743
#define BLOCK        0x741
/* ... with the second attribute: QEMU's serial port. */
#define DEVICE       0x745
#define TABLE        0x3

#define MEMORY       0x40000000
#define DEVICES      0x09000000
#define XEN_PAGES    0x39000000
#define BLOCK_SIZE   0x200000

	.arm
	.text

FUNCTION(tables_set)
	ldr r0, =MAIR
	mcr p15, 0, r0, c10, c2, 0
	ldr r0, =TTBCR
	mcr p15, 0, r0, c2, c0, 2
	ldr r0, =page_table_1
	mov r1, #0
	mcrr p15, 0, r0, r1, c2
	bx lr
END(tables_set)

	.ltorg

	.data
	.balign 4096
page_table_1:
	.word page_table_2_low + TABLE, 0
	.word page_table_2 + TABLE, 0
	.word 0, 0
	.word 0, 0
	.balign 4096
page_table_2_low:
	.fill DEVICES / BLOCK_SIZE, 8, 0
	.word DEVICES + DEVICE, 0
	.fill (XEN_PAGES - DEVICES) / BLOCK_SIZE - 1, 8, 0
	.word XEN_PAGES + BLOCK, 0
	.fill 511 - XEN_PAGES / BLOCK_SIZE, 8, 0
page_table_2:
	.word page_tables_3 + TABLE, 0
	.word page_tables_3 + 0x1000 + TABLE, 0
	.set address, MEMORY + 2 * BLOCK_SIZE
	.rept 510
	.word address + BLOCK, 0
	.set address, address + BLOCK_SIZE
	.endr
page_tables_3:
	.set address, MEMORY
	.rept 1024
	.word address + PAGE, 0
	.set address, address + 0x1000
	.endr

	.section .note.GNU-stack, "", %progbits
