/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that compilers call on their own, and no others. */
#include "assembly.h"

	.text

FUNCTION(memcpy)
	mov x3, x0
1:	cbz x2, 2f
	ldrb w4, [x1], #1
	strb w4, [x3], #1
	sub x2, x2, #1
	b 1b
2:	ret
END(memcpy)

FUNCTION(memset)
	mov x3, x0
1:	cbz x2, 2f
	strb w1, [x3], #1
	sub x2, x2, #1
	b 1b
2:	ret
END(memset)

	.section .note.GNU-stack, "", @progbits
