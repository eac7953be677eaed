/* SPDX-License-Identifier: BSD-3-Clause */
/* Two levels, entries of four bytes: 4 GiB one to one, 4 MiB of it with pages of 4 KiB, the rest with 4 MiB. */
#include "assembly.h"

#define CR0_PG   0x80000000
#define CR0_WP   0x00010000
#define CR4_PSE  0x10
#define PRESENT  0x1
#define WRITABLE 0x2
#define LARGE    0x80

	.globl paging_mode, paging_on
	.set paging_on, CR0_PG | CR0_WP
	.set paging_mode, CR4_PSE

	.text

FUNCTION(prepare_hypercalls)
	ret
END(prepare_hypercalls)

	.data
	.balign 4096
	.globl page_table
page_table:
	.long page_tables_1 + (PRESENT | WRITABLE)
	.set address, 0x400000
	.rept 1023
	.long address + (PRESENT | WRITABLE | LARGE)
	.set address, address + 0x400000
	.endr
page_tables_1:
	.set address, 0
	.rept 1024
	.long address + (PRESENT | WRITABLE)
	.set address, address + 0x1000
	.endr

	.section .note.GNU-stack, "", @progbits
