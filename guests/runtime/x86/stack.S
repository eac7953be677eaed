/* SPDX-License-Identifier: BSD-3-Clause */
#include "assembly.h"
#include "frames.h"

	.text

/* A vCPU that main started: rsp is the top of its stack, rdi its number. */
FUNCTION(vcpu_entry)
	OUTERMOST_FRAME
	call vcpu_start
	ud2
END(vcpu_entry)

/* call_on_stack(function, top) */
FUNCTION(call_on_stack)
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register rbp
	movq %rsi, %rsp
	call *%rdi
	leave
	.cfi_def_cfa rsp, 8
	.cfi_restore rbp
	ret
END(call_on_stack)

	.bss
	.balign 4096
	.globl boot_stack
	.type boot_stack, @object
boot_stack:
	.zero BOOT_STACK_BYTES
	.size boot_stack, . - boot_stack

	.section .note.GNU-stack, "", @progbits
