/* SPDX-License-Identifier: BSD-3-Clause */
/* Four levels. */
#define CR4_PAE 0x20

	.globl paging_root, paging_mode
	.set paging_mode, CR4_PAE

	.data
paging_root:
	.long page_table_4

	.section .note.GNU-stack, "", @progbits
