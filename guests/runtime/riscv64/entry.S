/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest begins in supervisor mode without translation, a0 = the number of its hart, a1 = the
 * device tree. Addresses are translated one to one, by the tables of another file.
 */
#include "assembly.h"

	.section .head, "ax"

FUNCTION(_start)
	.cfi_undefined ra
	j start
END(_start)

	.text

FUNCTION(start)
	.cfi_undefined ra
	bnez a0, leave_to_hart_0
	mv s1, a1
	call mmu_on
	la a1, bss_start
	la a2, bss_end
1:	bgeu a1, a2, 2f
	sd zero, (a1)
	addi a1, a1, 8
	j 1b
2:	la sp, boot_stack + BOOT_STACK_BYTES
	li s0, 0
	mv a0, s1
	call platform_init
	call guest_start
	ebreak
END(start)

/*
 * The firmware begins with whichever hart comes first, but vCPU 0 is hart 0: starts that one in its
 * place, with the same device tree, and stops, so that it can be started as any other (SBI, 9).
 */
FUNCTION(leave_to_hart_0)
	.cfi_undefined ra
	li a7, 0x48534d
	li a6, 0
	li a0, 0
	mv a2, a1
	la a1, _start
	ecall
	li a6, 1
	ecall
	ebreak
END(leave_to_hart_0)

/* Entry of a vCPU that platform_start_vcpu started: a1 = struct vcpu_start. */
FUNCTION(vcpu_boot)
	.cfi_undefined ra
	mv s1, a1
	call mmu_on
	ld sp, 0(s1)
	ld a0, 8(s1)
	j vcpu_entry
END(vcpu_boot)

/* a0 = its number. */
FUNCTION(vcpu_entry)
	.cfi_undefined ra
	li s0, 0
	call vcpu_start
	ebreak
END(vcpu_entry)

FUNCTION(mmu_on)
	la t0, unexpected_trap
	csrw stvec, t0
	la t0, top_table
	srli t0, t0, 12
	ld t1, translation_mode
	or t0, t0, t1
	sfence.vma
	csrw satp, t0
	sfence.vma
	ret
END(mmu_on)

/* call_on_stack(function, top) */
FUNCTION(call_on_stack)
	addi sp, sp, -16
	.cfi_def_cfa_offset 16
	sd ra, 8(sp)
	sd s0, 0(sp)
	.cfi_offset ra, -8
	.cfi_offset s0, -16
	addi s0, sp, 16
	.cfi_def_cfa s0, 0
	mv sp, a1
	jalr a0
	addi sp, s0, -16
	.cfi_def_cfa sp, 16
	ld ra, 8(sp)
	ld s0, 0(sp)
	.cfi_restore ra
	.cfi_restore s0
	addi sp, sp, 16
	.cfi_def_cfa_offset 0
	ret
END(call_on_stack)

/* No exception is expected. */
	.balign 4
FUNCTION(unexpected_trap)
	.cfi_undefined ra
	j unexpected_exception
END(unexpected_trap)

	.bss
	.balign 4096
	.globl boot_stack
	.type boot_stack, @object
boot_stack:
	.zero BOOT_STACK_BYTES
	.size boot_stack, . - boot_stack

	.section .note.GNU-stack, "", @progbits
