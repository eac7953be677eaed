/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A PVH guest that stays in 32-bit mode, on one of two kinds of page tables, or on none. Another
 * file defines `page_table`, `paging_mode` and `paging_on`, its bits of CR4 and of CR0, and
 * prepare_hypercalls.
 */
#include <xen/elfnote.h>

#include "assembly.h"

#define CODE   0x08
#define DATA   0x10

NOTE(XEN_ELFNOTE_XEN_VERSION, .asciz "xen-3.0")
NOTE(XEN_ELFNOTE_GUEST_OS, .asciz "uniprof guest")
NOTE(XEN_ELFNOTE_LOADER, .asciz "generic")
NOTE(XEN_ELFNOTE_PHYS32_ENTRY, .long _start)

	.text

FUNCTION(_start)
	.cfi_undefined eip
	cld
	lgdt gdt_pointer
	ljmp $CODE, $1f
1:	movl $DATA, %eax
	movl %eax, %ds
	movl %eax, %es
	movl %eax, %ss
	movl $boot_stack + BOOT_STACK_BYTES, %esp
	pushl $0
	xorl %ebp, %ebp
	pushl %ebp
	movl %esp, %ebp
	pushl %ebx
	call platform_init
	call prepare_hypercalls
	movl $page_table, %eax
	movl %eax, %cr3
	movl %cr4, %eax
	orl $paging_mode, %eax
	movl %eax, %cr4
	movl %cr0, %eax
	orl $paging_on, %eax
	movl %eax, %cr0
	call guest_start
	ud2
END(_start)

/* Xen writes the stubs: there is no CFI on purpose, as nothing in the image describes them. */
	.balign 4096
	.globl hypercall_page
	.type hypercall_page, @function
hypercall_page:
	.skip 4096, 0xcc
	.size hypercall_page, . - hypercall_page

	.data
	.balign 8
gdt:
	.quad 0
	.quad 0x00cf9a000000ffff
	.quad 0x00cf92000000ffff
gdt_pointer:
	.word gdt_pointer - gdt - 1
	.long gdt

	.bss
	.balign 4096
	.globl boot_stack
	.type boot_stack, @object
boot_stack:
	.zero BOOT_STACK_BYTES
	.size boot_stack, . - boot_stack

	.section .note.GNU-stack, "", @progbits
