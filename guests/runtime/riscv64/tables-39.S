/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of 39 bits. */
#define MODE 8

#include "tables.inc"
	.set top_table, table_2
	.set table_3, 0

	.section .note.GNU-stack, "", @progbits
