/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tasks run on SP_EL0, and leave the CPU by a supervisor call, whose handler runs on SP_EL1: it puts all
 * registers below the task's stack pointer, as FreeRTOS's ports for AArch64 do, and takes those of the task
 * that was chosen.
 */
#include "assembly.h"

#define WORD         8
#define SAVED_BYTES  (34 * WORD)

/* Of x0 to x29, which stand in pairs, the first pair last. */
	.macro move_registers instruction
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
	\instruction x\n, [sp, #WORD * (32 - (\n / 2) * 2 + (\n & 1))]
	.endr
	\instruction x30, [sp, #WORD * 2]
	.endm

	.text

FUNCTION(leave_cpu)
	svc #0
	ret
END(leave_cpu)

FUNCTION(switch_tasks)
	.cfi_undefined x30
	msr spsel, #0
	sub sp, sp, #SAVED_BYTES
	move_registers str
	mrs x0, elr_el1
	mrs x1, spsr_el1
	stp x0, x1, [sp]
	stp xzr, xzr, [sp, #-16]!
	ldr x0, =pxCurrentTCB
	ldr x0, [x0]
	mov x1, sp
	str x1, [x0]
	msr spsel, #1
	bl vTaskSwitchContext
	b enter_task
END(switch_tasks)

FUNCTION(enter_first_task)
	.cfi_undefined x30
	ldr x0, =task_vectors
	msr vbar_el1, x0
	isb
	b enter_task
END(enter_first_task)

FUNCTION(enter_task)
	.cfi_undefined x30
	ldr x0, =pxCurrentTCB
	ldr x0, [x0]
	ldr x0, [x0]
	msr spsel, #0
	add sp, x0, #16
	ldp x0, x1, [sp]
	msr elr_el1, x0
	msr spsr_el1, x1
	move_registers ldr
	add sp, sp, #SAVED_BYTES
	msr spsel, #1
	eret
END(enter_task)

	.ltorg

	.balign 2048
FUNCTION(task_vectors)
	.cfi_undefined x30
	b switch_tasks
	.rept 15
	.balign 128
	b unexpected_exception
	.endr
END(task_vectors)

	.section .note.GNU-stack, "", @progbits
