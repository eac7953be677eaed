/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that compilers call on their own, and no others. */
#include "assembly.h"

	.text

FUNCTION(memcpy)
	mv a3, a0
1:	beqz a2, 2f
	lbu a4, (a1)
	sb a4, (a3)
	addi a1, a1, 1
	addi a3, a3, 1
	addi a2, a2, -1
	j 1b
2:	ret
END(memcpy)

FUNCTION(memset)
	mv a3, a0
1:	beqz a2, 2f
	sb a1, (a3)
	addi a3, a3, 1
	addi a2, a2, -1
	j 1b
2:	ret
END(memset)

	.section .note.GNU-stack, "", @progbits
