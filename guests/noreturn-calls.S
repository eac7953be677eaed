/* SPDX-License-Identifier: BSD-3-Clause */
#include "assembly.h"

/* clang-format off */
#define PROLOGUE                                \
	pushq %rbp;                             \
	.cfi_def_cfa_offset 16;                 \
	.cfi_offset rbp, -16;                   \
	movq %rsp, %rbp;                        \
	.cfi_def_cfa_register rbp
/* clang-format on */

	.text

	.balign 64
FUNCTION(into_padding)
	PROLOGUE
	subq $48, %rsp
	call onto_a_function
END(into_padding)

	.balign 64
FUNCTION(onto_a_function)
	subq $56, %rsp
	.cfi_def_cfa_offset 64
	call endless
END(onto_a_function)

/* Here ends the call: a rule that is looked up for this address is of another frame. */
FUNCTION(never_called)
	PROLOGUE
	popq %rbp
	.cfi_restore rbp
	.cfi_def_cfa rsp, 8
	ret
END(never_called)

	.section .note.GNU-stack, "", @progbits
