/* SPDX-License-Identifier: BSD-3-Clause */
/* A PV guest begins in 64-bit mode, on page tables that Xen's domain builder made, rsi = start_info. */
#include <xen/elfnote.h>

#include "assembly.h"
#include "frames.h"
#include "machine.h"

NOTE(XEN_ELFNOTE_XEN_VERSION, .asciz "xen-3.0")
NOTE(XEN_ELFNOTE_GUEST_OS, .asciz "uniprof guest")
NOTE(XEN_ELFNOTE_LOADER, .asciz "generic")
NOTE(XEN_ELFNOTE_ENTRY, .quad _start)
NOTE(XEN_ELFNOTE_HYPERCALL_PAGE, .quad hypercall_page)
NOTE(XEN_ELFNOTE_VIRT_BASE, .quad VIRT_BASE)
NOTE(XEN_ELFNOTE_PADDR_OFFSET, .quad VIRT_BASE)

/* Alone in its page, so that a guest can do without that page once it runs. */
	.section .head, "ax", @progbits

FUNCTION(_start)
	cld
	movq $boot_stack + BOOT_STACK_BYTES, %rsp
	OUTERMOST_FRAME
	movq %rsi, %rdi
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

	.section .note.GNU-stack, "", @progbits
