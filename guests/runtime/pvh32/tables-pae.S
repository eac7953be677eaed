/* SPDX-License-Identifier: BSD-3-Clause */
/* PAE, three levels: 4 GiB one to one, 4 MiB of it with pages of 4 KiB, the rest with 2 MiB. */
#include "assembly.h"

#define CR0_PG   0x80000000
#define CR0_WP   0x00010000
#define CR4_PAE  0x20
#define PRESENT  0x1
#define WRITABLE 0x2
#define ACCESSED 0x20
#define LARGE    0x80

#define STUBS      64
#define STUB_BYTES 32

	.globl paging_mode, paging_on
	.set paging_on, CR0_PG | CR0_WP
	.set paging_mode, CR4_PAE

	.text

/*
 * Puts stubs of our own in place of those in the hypercall page. The emulated CPU marks the top
 * level's entries as accessed, which no real one does, and Xen takes that bit for an invalid entry
 * when it reads the instruction that called it. It is cleared just before, in an instruction after
 * which the emulator walks no tables: the first one lets it remember the page.
 */
FUNCTION(prepare_hypercalls)
	pushl %esi
	.cfi_def_cfa_offset 8
	.cfi_offset esi, -8
	pushl %edi
	.cfi_def_cfa_offset 12
	.cfi_offset edi, -12
	movl $stubs, %esi
	movl $hypercall_page, %edi
	movl $STUBS * STUB_BYTES, %ecx
	rep movsb
	popl %edi
	.cfi_def_cfa_offset 8
	.cfi_restore edi
	popl %esi
	.cfi_def_cfa_offset 4
	.cfi_restore esi
	ret
END(prepare_hypercalls)

	.section .rodata
	.balign STUB_BYTES
stubs:
	.set operation, 0
	.rept STUBS
	orl $0, page_table
	andl $~ACCESSED, page_table
	movl $operation, %eax
	vmmcall
	ret
	.balign STUB_BYTES
	.set operation, operation + 1
	.endr

	.data
	.balign 4096
	.globl page_table
page_table:
	.long page_tables_2 + 0x0000 + PRESENT, 0
	.long page_tables_2 + 0x1000 + PRESENT, 0
	.long page_tables_2 + 0x2000 + PRESENT, 0
	.long page_tables_2 + 0x3000 + PRESENT, 0
	.balign 4096
page_tables_2:
	.long page_tables_1 + 0x0000 + (PRESENT | WRITABLE), 0
	.long page_tables_1 + 0x1000 + (PRESENT | WRITABLE), 0
	.set address, 0x400000
	.rept 4 * 512 - 2
	.long address + (PRESENT | WRITABLE | LARGE), 0
	.set address, address + 0x200000
	.endr
page_tables_1:
	.set address, 0
	.rept 2 * 512
	.long address + (PRESENT | WRITABLE), 0
	.set address, address + 0x1000
	.endr

	.section .note.GNU-stack, "", @progbits
