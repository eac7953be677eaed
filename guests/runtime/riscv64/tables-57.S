/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of 57 bits. */
#define MODE 10

#include "tables.inc"
table_3:
	.quad entry_2
	.fill 511, 8, 0
top_table:
	.quad entry_3
	.fill 511, 8, 0

	.section .note.GNU-stack, "", @progbits
