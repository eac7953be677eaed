/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In assembly: from an interrupt's frame to C and back. The frame is rcx, r11, rip, cs, rflags, rsp
 * and ss, as Xen lays it on a PV guest's stack; it begins 8 bytes above a multiple of 16.
 */
#pragma once

/* clang-format off */

#define PUSH(register)                          \
	pushq %register;                        \
	.cfi_adjust_cfa_offset 8;               \
	.cfi_rel_offset register, 0

#define POP(register)                           \
	popq %register;                         \
	.cfi_adjust_cfa_offset -8;              \
	.cfi_restore register

/* Saves the registers that C may change, except rcx and r11, and notes where rip and the rest lie. */
#define CALL_INTERRUPTING(function)             \
	PUSH(rax);                              \
	PUSH(rdx);                              \
	PUSH(rsi);                              \
	PUSH(rdi);                              \
	PUSH(r8);                               \
	PUSH(r9);                               \
	PUSH(r10);                              \
	leaq 72(%rsp), %rdi;                    \
	movq %rdi, interrupted_frame(%rip);     \
	movq %rbp, interrupted_fp(%rip);        \
	cld;                                    \
	call function;                          \
	POP(r10);                               \
	POP(r9);                                \
	POP(r8);                                \
	POP(rdi);                               \
	POP(rsi);                               \
	POP(rdx);                               \
	POP(rax)

/* clang-format on */
