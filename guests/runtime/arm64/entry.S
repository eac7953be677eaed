/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest begins at EL1 with the MMU off, x0 = the device tree. Addresses of 39 bits are translated
 * one to one in granules of 4 KiB: the image's 4 MiB with pages, the rest of the memory's first
 * GiB and what Xen puts below it with blocks of 2 MiB.
 */
#include "assembly.h"

#define SCTLR_M      (1 << 0)
#define SCTLR_C      (1 << 2)
#define SCTLR_I      (1 << 12)
/* Normal memory, cached: the only attribute. */
#define MAIR         0xff
/* T0SZ for 39 bits, cached and shared walks, none by TTBR1, physical addresses of 36 bits. */
#define TCR          (25 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 1 << 32)
/* Accessed and shared. */
#define PAGE         0x703
#define BLOCK        0x701
#define TABLE        0x3

#define MEMORY       0x40000000
#define XEN_PAGES    0x39000000
#define BLOCK_BYTES  0x200000

	.section .head, "ax"

/* What Linux's Documentation/arm64/booting.rst wants of an image. */
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

/* Of a vCPU that platform_start_vcpu started: x0 = struct vcpu_start. */
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
	ldr x1, =TCR
	msr tcr_el1, x1
	ldr x1, =page_table_1
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

	.data
	.balign 4096
	.globl page_table_1
page_table_1:
	.quad page_table_2_low + TABLE
	.quad page_table_2 + TABLE
	.fill 510, 8, 0
page_table_2_low:
	.fill XEN_PAGES / BLOCK_BYTES, 8, 0
	.quad XEN_PAGES + BLOCK
	.fill 511 - XEN_PAGES / BLOCK_BYTES, 8, 0
page_table_2:
	.quad page_tables_3 + TABLE
	.quad page_tables_3 + 0x1000 + TABLE
	.set address, MEMORY + 2 * BLOCK_BYTES
	.rept 510
	.quad address + BLOCK
	.set address, address + BLOCK_BYTES
	.endr
page_tables_3:
	.set address, MEMORY
	.rept 1024
	.quad address + PAGE
	.set address, address + 0x1000
	.endr

	.bss
	.balign 4096
	.globl boot_stack
	.type boot_stack, @object
boot_stack:
	.zero BOOT_STACK_BYTES
	.size boot_stack, . - boot_stack

	.section .note.GNU-stack, "", @progbits
