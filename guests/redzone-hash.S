/* SPDX-License-Identifier: BSD-3-Clause */
#include "assembly.h"

/* DWARF 5, 7.7.1 and 7.24 */
#define DEF_CFA_EXPRESSION 0x0f
#define BREG_RSP	   0x77
#define MINUS_8		   0x78
#define DEREF		   0x06
#define PLUS_UCONST	   0x23

	.text

/*
 * hash_blocks(blocks): aligns the stack so that the bytes below the stack
 * pointer are in another page.
 */
FUNCTION(hash_blocks)
	movq %rsp, %rax
	.cfi_def_cfa_register rax
	andq $-4096, %rsp
	movq %rax, -8(%rsp)
	/* CFA = *(rsp - 8) + 8 */
	.cfi_escape DEF_CFA_EXPRESSION, 5, BREG_RSP, MINUS_8, DEREF, PLUS_UCONST, 8
	movq %rdi, %rax
1:	imulq $0x5851, %rax, %rax
	incq %rax
	rorq $13, %rax
	decq %rdi
	jnz 1b
	movq -8(%rsp), %rsp
	.cfi_def_cfa rsp, 8
	ret
END(hash_blocks)

	.section .note.GNU-stack, "", @progbits
