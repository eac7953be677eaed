/* SPDX-License-Identifier: BSD-3-Clause */
/* For assembly: where frames begin, and the segments. */
#pragma once

/* clang-format off */

/*
 * The outermost frame: no return address, no frame pointer, and CFI that says so.
 * After it, a call leads into C.
 */
#define OUTERMOST_FRAME         \
	.cfi_undefined rip;     \
	pushq $0;               \
	xorl %ebp, %ebp;        \
	pushq %rbp;             \
	movq %rsp, %rbp

/* A null descriptor, 64-bit code, data, 32-bit code. */
#define GDT_BYTES 32

/* clang-format on */
