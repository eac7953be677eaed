/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A PV guest's event, in pieces of code that jump to or fall through into the next, most of them under
 * labels that have neither type nor size; there is no CFI. On the stack, from its top on: Xen's frame
 * (interrupt.h), a word that stands for an error code, and the other registers.
 */
#include "assembly.h"

#define RING	    3
#define UPCALL_MASK 1
/* The event's stack is below the one that main has, close, but too far to be copied with it. */
#define EVENT_STACK boot_stack + BOOT_STACK_BYTES - 0x60000
/* Offsets of the saved registers: r15 to rdi, then the error code, then rip. */
#define R(n)	    (8 * (n))
#define RDI	    14
#define ERROR	    15
#define RIP	    16
#define CS	    17
#define SS	    20

	.text

	.globl event_entry
	.type event_entry, @function
event_entry:
	popq %rcx
	popq %r11
	pushq $0
	pushq %rax
	leaq event_run(%rip), %rax
	jmp save_registers
	.size event_entry, . - event_entry

/* With rax in the place of rdi, and in rax where to go on. */
save_registers:
	cld
	subq $R(RDI), %rsp
	movq %rsi, R(13)(%rsp)
	movq R(RDI)(%rsp), %rsi
	movq %rdx, R(12)(%rsp)
	movq %rcx, R(11)(%rsp)
	movq %rsi, R(10)(%rsp)
	movq %r8, R(9)(%rsp)
	movq %r9, R(8)(%rsp)
	movq %r10, R(7)(%rsp)
	movq %r11, R(6)(%rsp)
	movq %rbx, R(5)(%rsp)
	movq %rbp, R(4)(%rsp)
	movq %r12, R(3)(%rsp)
	movq %r13, R(2)(%rsp)
	movq %r14, R(1)(%rsp)
	movq %r15, R(0)(%rsp)
	movq %rdi, R(RDI)(%rsp)
	movq %rsp, %rdi
	call *%rax
	jmp event_leave

/* Drops the return address; the outermost event takes the other stack. */
event_run:
	movq %rdi, %rsp
	leaq EVENT_STACK(%rip), %rax
	incl event_depth(%rip)
	cmovzq %rax, %rsp
	pushq %rdi
	call timer_event
	popq %rsp
	decl event_depth(%rip)

event_leave:
	orb $RING, R(CS)(%rsp)
	orb $RING, R(SS)(%rsp)
	/* An event that comes right now interrupts the next instruction: no harm. */
	movb $0, shared_info_page + UPCALL_MASK
	movq R(0)(%rsp), %r15
	movq R(1)(%rsp), %r14
	movq R(2)(%rsp), %r13
	movq R(3)(%rsp), %r12
	movq R(4)(%rsp), %rbp
	movq R(5)(%rsp), %rbx
	movq R(6)(%rsp), %r11
	movq R(7)(%rsp), %r10
	movq R(8)(%rsp), %r9
	movq R(9)(%rsp), %r8
	movq R(10)(%rsp), %rax
	movq R(11)(%rsp), %rcx
	movq R(12)(%rsp), %rdx
	movq R(13)(%rsp), %rsi
	movq R(RDI)(%rsp), %rdi
	addq $R(RIP), %rsp
	iretq

	.data
	.balign 4
event_depth:
	.long -1

	.section .note.GNU-stack, "", @progbits
