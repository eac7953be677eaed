/* SPDX-License-Identifier: BSD-3-Clause */
/* Without CFI, as such code usually is. */
	.text

#ifdef __x86_64__
/* switch_threads(from, to): a stack that is left has the registers that C code keeps, and the return address. */
	.globl switch_threads
	.type switch_threads, @function
switch_threads:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size switch_threads, . - switch_threads

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

#else
/* switch_threads(from, to): a stack that is left has the registers that C code keeps, and the return address. */
	.globl switch_threads
	.type switch_threads, @function
switch_threads:
	movl 4(%esp), %eax
	movl 8(%esp), %edx
	pushl %ebp
	pushl %ebx
	pushl %esi
	pushl %edi
	movl %esp, (%eax)
	movl %edx, %esp
	popl %edi
	popl %esi
	popl %ebx
	popl %ebp
	ret
	.size switch_threads, . - switch_threads

/* A new thread's stack: argument, function, and a word that is free. */
	.globl thread_starter
	.type thread_starter, @function
thread_starter:
	popl %esi
	popl %ebx
	pushl $0
	xorl %ebp, %ebp
	pushl %esi
	call *%ebx
	ud2
	.size thread_starter, . - thread_starter

#endif

	.section .note.GNU-stack, "", @progbits
