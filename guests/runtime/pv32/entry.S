/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A PV guest of 32 bits begins in ring 1, on page tables of three levels that Xen's domain builder
 * made, esi = start_info. Only a Xen that is built with PV32 runs it.
 */
#include <xen/elfnote.h>

#include "assembly.h"

#include "../pv/machine.h"

NOTE(XEN_ELFNOTE_XEN_VERSION, .asciz "xen-3.0")
NOTE(XEN_ELFNOTE_GUEST_OS, .asciz "uniprof guest")
NOTE(XEN_ELFNOTE_LOADER, .asciz "generic")
NOTE(XEN_ELFNOTE_PAE_MODE, .asciz "yes")
NOTE(XEN_ELFNOTE_ENTRY, .long _start)
NOTE(XEN_ELFNOTE_HYPERCALL_PAGE, .long hypercall_page)
NOTE(XEN_ELFNOTE_VIRT_BASE, .long VIRT_BASE)
NOTE(XEN_ELFNOTE_PADDR_OFFSET, .long VIRT_BASE)

	.text

FUNCTION(_start)
	.cfi_undefined eip
	cld
	movl $boot_stack + BOOT_STACK_BYTES, %esp
	pushl $0
	xorl %ebp, %ebp
	pushl %ebp
	movl %esp, %ebp
	pushl %esi
	call platform_init
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

	.bss
	.balign 4096
	.globl boot_stack
	.type boot_stack, @object
boot_stack:
	.zero BOOT_STACK_BYTES
	.size boot_stack, . - boot_stack

	.section .note.GNU-stack, "", @progbits
