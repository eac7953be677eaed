/* SPDX-License-Identifier: BSD-3-Clause */
/* Five levels: a top one, whose first and last entry lead to the four, where these have addresses, too. */
#define CR4_PAE  0x20
#define CR4_LA57 0x1000
#define PRESENT  0x1
#define WRITABLE 0x2

	.globl paging_root, paging_mode
	.set paging_mode, CR4_PAE | CR4_LA57

	.data
paging_root:
	.long page_table_5
	.balign 4096
page_table_5:
	.quad page_table_4 + (PRESENT | WRITABLE)
	.fill 510, 8, 0
	.quad page_table_4 + (PRESENT | WRITABLE)

	.section .note.GNU-stack, "", @progbits
