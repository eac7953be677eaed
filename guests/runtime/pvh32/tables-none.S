/* SPDX-License-Identifier: BSD-3-Clause */
/* No tables: addresses are physical ones. */
#include "assembly.h"

	.globl page_table, paging_mode, paging_on
	.set page_table, 0
	.set paging_mode, 0
	.set paging_on, 0

	.text

FUNCTION(prepare_hypercalls)
	ret
END(prepare_hypercalls)

	.section .note.GNU-stack, "", @progbits
