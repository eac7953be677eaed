/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_X86_CALL_H
#define UNIPROF_UNWIND_X86_CALL_H

/* Is an address one that a call returns to, and what did it call? */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define X86_CALL_MAX  9	 /* the longest call, bytes: prefix, REX, FF, ModRM, SIB, displacement */
#define X86_STUB_SLOT 32 /* the hypercall page has one stub in each of its slots, bytes */

/* The bytes before an address may be read in more than one way: both can be set. */
struct x86_call {
	bool direct; /* call rel32, to `target` */
	bool indirect;
	uint64_t target;
};

/* `n` bytes of code that end right before address `ret`; false if no call ends there. */
bool x86_call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word,
		     struct x86_call *out);

/*
 * Does this slot of X86_STUB_SLOT bytes hold a stub as Xen writes them into a
 * guest's hypercall page?
 */
bool x86_is_hypercall_stub(const uint8_t *slot, unsigned word);

#endif
