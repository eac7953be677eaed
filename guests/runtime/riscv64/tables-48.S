/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of 48 bits. */
#define MODE 9

#include "tables.inc"
table_3:
	.quad entry_2
	.fill 511, 8, 0
	.set top_table, table_3

	.section .note.GNU-stack, "", @progbits
