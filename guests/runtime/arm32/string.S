/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that compilers call on their own, and no others. */
#include "assembly.h"

	.arm
	.text

FUNCTION(memcpy)
	mov r3, r0
1:	subs r2, r2, #1
	bxlo lr
	ldrb r12, [r1], #1
	strb r12, [r3], #1
	b 1b
END(memcpy)

FUNCTION(memset)
	mov r3, r0
1:	subs r2, r2, #1
	bxlo lr
	strb r1, [r3], #1
	b 1b
END(memset)

	.section .note.GNU-stack, "", %progbits
