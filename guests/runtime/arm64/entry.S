/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest begins at EL1 with the MMU off, x0 = the device tree. Addresses are translated one to
 * one, by the tables of another file.
 */
#include "assembly.h"

#define SCTLR_M      (1 << 0)
#define SCTLR_C      (1 << 2)
#define SCTLR_I      (1 << 12)
/* Attributes of memory: 0 is cached, 1 a device's. */
#define MAIR         0x00ff

	.section .head, "ax"

/* Image header, as Linux's Documentation/arm64/booting.rst defines it. */
FUNCTION(_start)
	.cfi_undefined x30
	b start
	.word 0
	.quad image_offset
	.quad image_bytes
	.quad 0x2
	.quad 0, 0, 0
	.ascii "ARM\x64"
	.word 0
END(_start)

	.text

FUNCTION(start)
	.cfi_undefined x30
	mov x20, x0
	bl mmu_on
	ldr x1, =bss_start
	ldr x2, =bss_end
1:	cmp x1, x2
	b.hs 2f
	str xzr, [x1], #8
	b 1b
2:	ldr x1, =boot_stack + BOOT_STACK_BYTES
	mov sp, x1
	mov x29, #0
	mov x30, #0
	mov x0, x20
	bl platform_init
	bl guest_start
	brk #0
END(start)

/* Entry of a vCPU that platform_start_vcpu started: x0 = struct vcpu_start. */
FUNCTION(vcpu_boot)
	.cfi_undefined x30
	mov x20, x0
	bl mmu_on
	ldp x1, x0, [x20]
	mov sp, x1
	b vcpu_entry
END(vcpu_boot)

/* x0 = its number. */
FUNCTION(vcpu_entry)
	.cfi_undefined x30
	mov x29, #0
	mov x30, #0
	bl vcpu_start
	brk #0
END(vcpu_entry)

FUNCTION(mmu_on)
	ldr x1, =vectors
	msr vbar_el1, x1
	mov x1, #MAIR
	msr mair_el1, x1
	ldr x1, =translation_control
	msr tcr_el1, x1
	ldr x1, =top_table
	msr ttbr0_el1, x1
	tlbi vmalle1
	dsb nsh
	isb
	mrs x1, sctlr_el1
	ldr x2, =SCTLR_M | SCTLR_C | SCTLR_I
	orr x1, x1, x2
	msr sctlr_el1, x1
	isb
	ret
END(mmu_on)

/* call_on_stack(function, top) */
FUNCTION(call_on_stack)
	stp x29, x30, [sp, #-16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov x29, sp
	.cfi_def_cfa_register x29
	mov sp, x1
	blr x0
	mov sp, x29
	.cfi_def_cfa sp, 16
	ldp x29, x30, [sp], #16
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	.cfi_restore x30
	ret
END(call_on_stack)

/* No exception is expected. */
	.balign 2048
FUNCTION(vectors)
	.cfi_undefined x30
	.rept 16
	.balign 128
	b unexpected_exception
	.endr
END(vectors)

	.ltorg

	.bss
	.balign 4096
	.globl boot_stack
	.type boot_stack, @object
boot_stack:
	.zero BOOT_STACK_BYTES
	.size boot_stack, . - boot_stack

	.section .note.GNU-stack, "", @progbits
