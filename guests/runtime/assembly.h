/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions and ELF notes in assembly. */
#pragma once

/* clang-format off */

#define FUNCTION(name)          \
	.globl name;            \
	.type name, %function;  \
name:                           \
	.cfi_startproc

#define END(name)               \
	.cfi_endproc;           \
	.size name, . - name

/* A note of Xen's: its loader and QEMU's read numbers of eight bytes. */
#define NOTE(kind, description...)              \
	.pushsection .note.xen, "a", @note;     \
	.balign 4;                              \
	.long 4, 2f - 1f, kind;                 \
	.asciz "Xen";                           \
1:	description;                            \
2:	.balign 4;                              \
	.popsection

/* As in guest.h. */
#define BOOT_STACK_BYTES 0x100000

/* clang-format on */
