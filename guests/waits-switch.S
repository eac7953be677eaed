/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Without CFI, as such code usually is: __arch_switch_threads(from, to) leaves stack pointer and
 * address of one thread in two words, and takes those of another.
 */
	.text

	.globl __arch_switch_threads
	.type __arch_switch_threads, @function
__arch_switch_threads:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	leaq .Lgoes_on(%rip), %rax
	movq %rax, 8(%rdi)
	movq (%rsi), %rsp
	pushq 8(%rsi)
	ret
.Lgoes_on:
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size __arch_switch_threads, . - __arch_switch_threads

/* A new thread's stack: argument, function, and a word that is free. */
	.globl thread_starter
	.type thread_starter, @function
thread_starter:
	popq %rdi
	popq %rbx
	pushq $0
	xorq %rbp, %rbp
	call *%rbx
	ud2
	.size thread_starter, . - thread_starter

	.section .note.GNU-stack, "", @progbits
