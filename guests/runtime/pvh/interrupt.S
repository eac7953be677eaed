/* SPDX-License-Identifier: BSD-3-Clause */
#include "../assembly.h"
#include "../interrupt.h"

	.text

/* The processor enters here through an interrupt gate: interrupts are off. */
FUNCTION(timer_entry)
	.cfi_signal_frame
	.cfi_def_cfa rsp, 40
	.cfi_offset rip, -40
	.cfi_offset rsp, -16
	PUSH(r11)
	PUSH(rcx)
	CALL_INTERRUPTING(timer_event)
	POP(rcx)
	POP(r11)
	iretq
END(timer_entry)

	.section .note.GNU-stack, "", @progbits
