/* SPDX-License-Identifier: BSD-3-Clause */
/* Two levels of entries of 4 bytes: pages of 4 KiB and sections of 1 MiB (DDI 0406C, B3.5). */
#include "assembly.h"

/* Shared, cached, for all to read and write. */
#define SECTION      0x11c0e
#define PAGE         0x47e
/* ... and not cached: QEMU's serial port. */
#define DEVICE       0xc06
#define TABLE        0x1

#define MEMORY       0x40000000
#define DEVICES      0x09000000
#define XEN_PAGES    0x39000000
#define SECTION_SIZE 0x100000

	.arm
	.text

FUNCTION(tables_set)
	mov r0, #0
	mcr p15, 0, r0, c2, c0, 2
	ldr r0, =page_table_1 + 0x4a
	mcr p15, 0, r0, c2, c0, 0
	mov r0, #1
	mcr p15, 0, r0, c3, c0, 0
	bx lr
END(tables_set)

	.ltorg

	.data
	.balign 0x4000
page_table_1:
	.fill DEVICES / SECTION_SIZE, 4, 0
	.word DEVICES + DEVICE
	.fill (XEN_PAGES - DEVICES) / SECTION_SIZE - 1, 4, 0
	.word XEN_PAGES + SECTION
	.word XEN_PAGES + SECTION_SIZE + SECTION
	.fill (MEMORY - XEN_PAGES) / SECTION_SIZE - 2, 4, 0
	.set offset, 0
	.rept 4
	.word page_tables_2 + offset + TABLE
	.set offset, offset + 0x400
	.endr
	.set address, MEMORY + 4 * SECTION_SIZE
	.rept 1020
	.word address + SECTION
	.set address, address + SECTION_SIZE
	.endr
	.fill 2048, 4, 0
page_tables_2:
	.set address, MEMORY
	.rept 1024
	.word address + PAGE
	.set address, address + 0x1000
	.endr

	.section .note.GNU-stack, "", %progbits
