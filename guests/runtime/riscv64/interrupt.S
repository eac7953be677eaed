/* SPDX-License-Identifier: BSD-3-Clause */
#include "assembly.h"

/* Frame of the registers that C may change (RISC-V ELF psABI, 1.1), and of sepc. */
#define SAVED_BYTES 144
#define SEPC        136

	.text

/* Interrupts are off. The interrupted code's own return address is kept like any other register. */
	.balign 4
FUNCTION(timer_entry)
	.cfi_signal_frame
	.cfi_return_column 64
	addi sp, sp, -SAVED_BYTES
	.cfi_def_cfa_offset SAVED_BYTES
	sd ra, 0(sp)
	.cfi_rel_offset ra, 0
	.set at, 8
	.irp reg, t0, t1, t2, a0, a1, a2, a3, a4, a5, a6, a7, t3, t4, t5, t6
	sd \reg, at(sp)
	.set at, at + 8
	.endr
	csrr t0, sepc
	sd t0, SEPC(sp)
	.cfi_rel_offset 64, SEPC
	call timer_event
	ld t0, SEPC(sp)
	csrw sepc, t0
	.set at, 8
	.irp reg, t0, t1, t2, a0, a1, a2, a3, a4, a5, a6, a7, t3, t4, t5, t6
	ld \reg, at(sp)
	.set at, at + 8
	.endr
	ld ra, 0(sp)
	addi sp, sp, SAVED_BYTES
	sret
END(timer_entry)

	.section .note.GNU-stack, "", @progbits
