/* SPDX-License-Identifier: BSD-3-Clause */
#include "assembly.h"

	.text

/* One frame record, {itself, here}. */
FUNCTION(spin_in_self_loop)
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	pushq $1f
	.cfi_def_cfa_offset 24
	pushq %rsp
	.cfi_def_cfa_offset 32
	movq %rsp, %rbp
	movq %rbp, (%rbp)
	call spin
1:	addq $16, %rsp
	.cfi_def_cfa_offset 16
	popq %rbp
	.cfi_def_cfa_offset 8
	.cfi_restore rbp
	ret
END(spin_in_self_loop)

/* Two frame records, {the upper, here} and above it {the lower, here}. */
FUNCTION(spin_in_two_cycle)
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	subq $32, %rsp
	.cfi_def_cfa_offset 48
	movq %rsp, %rbp
	leaq 16(%rbp), %rax
	movq %rax, (%rbp)
	movq $1f, 8(%rbp)
	movq %rbp, 16(%rbp)
	movq $1f, 24(%rbp)
	call spin
1:	addq $32, %rsp
	.cfi_def_cfa_offset 16
	popq %rbp
	.cfi_def_cfa_offset 8
	.cfi_restore rbp
	ret
END(spin_in_two_cycle)

	.section .note.GNU-stack, "", @progbits
