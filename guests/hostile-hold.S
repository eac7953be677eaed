/* SPDX-License-Identifier: BSD-3-Clause */
#include "assembly.h"

	.text

/*
 * hold(registers, code) loads all registers, the stack pointer with them, and jumps to code, which
 * counts hold_rounds down and comes back by hold_back. Nothing uses the stack meanwhile.
 */
FUNCTION(hold)
	pushq %rbx
	pushq %rbp
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	.cfi_def_cfa_offset 56
	movq %rsp, hold_stack
	movq %rsi, hold_code
	movq %rdi, %rsp
	popq %rax
	popq %rcx
	popq %rdx
	popq %rbx
	popq %rbp
	popq %rsi
	popq %rdi
	popq %r8
	popq %r9
	popq %r10
	popq %r11
	popq %r12
	popq %r13
	popq %r14
	popq %r15
	popq %rsp
	jmp *hold_code
/* With absolute addresses, so that a copy does as well. */
.Lhold_loop:
	decq hold_rounds
	jnz .Lhold_loop
	jmp *hold_back
.Lhold_loop_end:
.Lhold_done:
	movq hold_stack, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbp
	popq %rbx
	.cfi_def_cfa_offset 8
	ret
END(hold)

/* Entered at framed_loop only: a sample finds a frame pointer that has been set up. */
FUNCTION(framed)
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register rbp
.Lframed_loop:
	decq hold_rounds
	jnz .Lframed_loop
	jmp *hold_back
END(framed)

/* Never entered: frames of it are written down as if it had called itself, and framed in the end. */
FUNCTION(linked)
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register rbp
	call linked
.Llinked_return:
	call linked
.Lother_return:
	call framed
.Lframed_return:
	leave
	.cfi_def_cfa rsp, 8
	ret
END(linked)

	.data
	.balign 8
	.globl hold_rounds
hold_rounds:
	.quad 0
hold_back:
	.quad .Lhold_done
hold_code:
	.quad 0
hold_stack:
	.quad 0

	.section .rodata
	.balign 8
	.globl hold_loop, hold_loop_end, framed_loop, linked_return, other_return, framed_return
hold_loop:
	.quad .Lhold_loop
hold_loop_end:
	.quad .Lhold_loop_end
framed_loop:
	.quad .Lframed_loop
framed_return:
	.quad .Lframed_return
linked_return:
	.quad .Llinked_return
other_return:
	.quad .Lother_return

	.section .note.GNU-stack, "", @progbits
