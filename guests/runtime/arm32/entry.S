/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest of 32 bits begins in supervisor mode with the MMU off, r2 = the device tree. tables-*.S
 * translate addresses one to one: the image's 4 MiB with pages, the other memory in the first GiB,
 * and Xen's own below it, with larger ones.
 */
#include "assembly.h"

#define SCTLR_M      (1 << 0)
#define SCTLR_C      (1 << 2)
#define SCTLR_I      (1 << 12)

	.arm
	.section .head, "ax"

/* A zImage header, as Linux's boot code has it. */
FUNCTION(_start)
	.cfi_undefined lr
	b start
	.fill 8, 4, 0
	.word 0x016f2818
	.word 0
	.word image_bytes
END(_start)

	.text

FUNCTION(start)
	.cfi_undefined lr
	mov r4, r2
	bl tables_set
	bl mmu_on
	ldr r1, =bss_start
	ldr r2, =bss_end
	mov r0, #0
1:	cmp r1, r2
	bhs 2f
	str r0, [r1], #4
	b 1b
2:	ldr sp, =boot_stack + BOOT_STACK_BYTES
	mov r7, #0
	mov fp, #0
	mov lr, #0
	mov r0, r4
	bl platform_init
	bl guest_start
	udf #0
END(start)

/* Entry of a vCPU that platform_start_vcpu started: r0 = struct vcpu_start. */
FUNCTION(vcpu_boot)
	.cfi_undefined lr
	mov r4, r0
	bl tables_set
	bl mmu_on
	ldr sp, [r4]
	ldr r0, [r4, #4]
	b vcpu_entry
END(vcpu_boot)

/* r0 = its number. */
FUNCTION(vcpu_entry)
	.cfi_undefined lr
	mov r7, #0
	mov fp, #0
	mov lr, #0
	bl vcpu_start
	udf #0
END(vcpu_entry)

FUNCTION(mmu_on)
	ldr r1, =vectors
	mcr p15, 0, r1, c12, c0, 0
	mov r0, #0
	mcr p15, 0, r0, c8, c7, 0
	dsb
	isb
	mrc p15, 0, r1, c1, c0, 0
	ldr r0, =SCTLR_M | SCTLR_C | SCTLR_I
	orr r1, r1, r0
	mcr p15, 0, r1, c1, c0, 0
	isb
	bx lr
END(mmu_on)

/* call_on_stack(function, top) */
FUNCTION(call_on_stack)
	push {fp, lr}
	.cfi_def_cfa_offset 8
	.cfi_offset fp, -8
	.cfi_offset lr, -4
	mov fp, sp
	.cfi_def_cfa_register fp
	mov sp, r1
	blx r0
	mov sp, fp
	.cfi_def_cfa sp, 8
	pop {fp, pc}
END(call_on_stack)

/* No exception is expected. */
	.balign 32
FUNCTION(vectors)
	.cfi_undefined lr
	.rept 8
	b trapped
	.endr
END(vectors)

FUNCTION(trapped)
	.cfi_undefined lr
	bl unexpected_exception
	udf #0
END(trapped)

	.ltorg

	.bss
	.balign 4096
	.globl boot_stack
	.type boot_stack, %object
boot_stack:
	.zero BOOT_STACK_BYTES
	.size boot_stack, . - boot_stack

	.section .note.GNU-stack, "", %progbits
