/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A PVH guest begins in 32-bit protected mode without paging, ebx = hvm_start_info. The file that is
 * linked in has where its tables begin (at paging_root) and which bits of CR4 they take. The first
 * 4 GiB are mapped one to one: the image's 4 MiB with pages of 4 KiB, the rest with 2 MiB.
 */
#include <xen/elfnote.h>

#include "assembly.h"
#include "frames.h"

#define CR0_PG      0x80000000
#define CR0_WP      0x00010000
#define MSR_EFER    0xc0000080
#define EFER_LME    0x100
#define PRESENT     0x1
#define WRITABLE    0x2
#define LARGE       0x80
#define CODE_64     0x08
#define DATA        0x10

NOTE(XEN_ELFNOTE_XEN_VERSION, .asciz "xen-3.0")
NOTE(XEN_ELFNOTE_GUEST_OS, .asciz "uniprof guest")
NOTE(XEN_ELFNOTE_LOADER, .asciz "generic")
NOTE(XEN_ELFNOTE_PHYS32_ENTRY, .quad _start)

/* In a page of their own, so that a guest can do without that page once it runs. */
	.section .head, "ax", @progbits

	.code32
FUNCTION(_start)
	.cfi_undefined 16
	cld
	movl %ebx, %edi
	xorl %ebx, %ebx
	lgdt gdt_pointer
	jmp enter_long_mode
END(_start)

/* Goes on at start_long_mode in 64-bit mode, at start_vcpu_64 if ebx is not zero. */
FUNCTION(enter_long_mode)
	.cfi_undefined 16
	movl paging_root, %eax
	movl %eax, %cr3
	movl %cr4, %eax
	orl $paging_mode, %eax
	movl %eax, %cr4
	movl $MSR_EFER, %ecx
	rdmsr
	orl $EFER_LME, %eax
	wrmsr
	movl %cr0, %eax
	orl $CR0_PG | CR0_WP, %eax
	movl %eax, %cr0
	ljmp $CODE_64, $1f
	.code64
1:	movl $DATA, %eax
	movl %eax, %ds
	movl %eax, %es
	movl %eax, %ss
	testl %ebx, %ebx
	jnz start_vcpu_64
	jmp start_long_mode
END(enter_long_mode)

FUNCTION(start_long_mode)
	movl $boot_stack + BOOT_STACK_BYTES, %esp
	OUTERMOST_FRAME
	movl %edi, %edi
	call platform_init
	call guest_start
	ud2
END(start_long_mode)

/* Xen writes the stubs: there is no CFI on purpose, as nothing in the image describes them. */
	.balign 4096
	.globl hypercall_page
	.type hypercall_page, @function
hypercall_page:
	.skip 4096, 0xcc
	.size hypercall_page, . - hypercall_page

	.data
	.balign 8
	.globl gdt
gdt:
	.quad 0
	.quad 0x00af9a000000ffff
	.quad 0x00cf92000000ffff
	.quad 0x00cf9a000000ffff
gdt_pointer:
	.word GDT_BYTES - 1
	.long gdt

	.balign 4096
	.globl page_table_4
page_table_4:
	.quad page_table_3 + (PRESENT | WRITABLE)
	.fill 511, 8, 0
page_table_3:
	.quad page_tables_2 + 0x0000 + (PRESENT | WRITABLE)
	.quad page_tables_2 + 0x1000 + (PRESENT | WRITABLE)
	.quad page_tables_2 + 0x2000 + (PRESENT | WRITABLE)
	.quad page_tables_2 + 0x3000 + (PRESENT | WRITABLE)
	.fill 508, 8, 0
page_tables_2:
	.quad page_tables_1 + 0x0000 + (PRESENT | WRITABLE)
	.quad page_tables_1 + 0x1000 + (PRESENT | WRITABLE)
	.set address, 0x400000
	.rept 4 * 512 - 2
	.quad address + (PRESENT | WRITABLE | LARGE)
	.set address, address + 0x200000
	.endr
	.globl page_tables_1
page_tables_1:
	.set address, 0
	.rept 2 * 512
	.quad address + (PRESENT | WRITABLE)
	.set address, address + 0x1000
	.endr

	.section .note.GNU-stack, "", @progbits
