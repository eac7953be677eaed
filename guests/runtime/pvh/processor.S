/* SPDX-License-Identifier: BSD-3-Clause */
/* Entry points that CPUs use when there is no Xen: other CPUs' start, and the timer's interrupt. */
#include "assembly.h"
#include "frames.h"

#define CR0_PE   0x1
#define CODE_32  0x18
#define DATA     0x10
#define APIC_EOI 0xfee000b0

	.section .rodata
	.globl trampoline, trampoline_end
	.code16
/* Copied below 1 MiB; in real mode, with cs as its only clue to where it is. */
trampoline:
	cli
	movw %cs, %ax
	movw %ax, %ds
	lgdtl trampoline_gdt - trampoline
	movl %cr0, %eax
	orl $CR0_PE, %eax
	movl %eax, %cr0
	ljmpl $CODE_32, $start_vcpu_32
trampoline_gdt:
	.word GDT_BYTES - 1
	.long gdt
trampoline_end:

	.text
	.code32
FUNCTION(start_vcpu_32)
	.cfi_undefined 16
	movl $DATA, %eax
	movl %eax, %ds
	movl %eax, %es
	movl %eax, %ss
	movl $1, %ebx
	jmp enter_long_mode
END(start_vcpu_32)

	.code64
FUNCTION(start_vcpu_64)
	.cfi_undefined rip
	movq started_vcpu, %rdi
	movq started_stack_top, %rsp
	movq $0, started_stack_top
	jmp vcpu_entry
END(start_vcpu_64)

FUNCTION(timer_interrupt)
	.cfi_signal_frame
	.cfi_def_cfa rsp, 40
	.cfi_offset rip, -40
	.cfi_offset rsp, -16
	pushq %rax
	.cfi_def_cfa_offset 48
	movl $APIC_EOI, %eax
	movl $0, (%rax)
	popq %rax
	.cfi_def_cfa_offset 40
	iretq
END(timer_interrupt)

	.data
	.balign 8
	.globl started_vcpu, started_stack_top
started_vcpu:
	.quad 0
started_stack_top:
	.quad 0

	.section .note.GNU-stack, "", @progbits
