/* SPDX-License-Identifier: BSD-3-Clause */
#include "../assembly.h"
#include "../interrupt.h"

/* vcpu_info[0].evtchn_upcall_mask in struct shared_info (xen/xen.h). */
#define UPCALL_MASK 1
/* In the selectors that Xen saves, the privilege level of a PV kernel is missing. */
#define RING 3

	.text

/* Xen enters here with events masked and with its frame on the stack that it interrupted. */
FUNCTION(timer_entry)
	.cfi_signal_frame
	.cfi_def_cfa rsp, 56
	.cfi_offset rcx, -56
	.cfi_offset r11, -48
	.cfi_offset rip, -40
	.cfi_offset rsp, -16
	CALL_INTERRUPTING(timer_event)
	POP(rcx)
	POP(r11)
	orb $RING, 8(%rsp)
	orb $RING, 32(%rsp)
	/* An event that comes right now interrupts the next instruction: no harm. */
	movb $0, shared_info_page + UPCALL_MASK
	iretq
END(timer_entry)

	.section .note.GNU-stack, "", @progbits
