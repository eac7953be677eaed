/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hypercalls, by a call into the page of stubs that Xen writes. The stack pointer as an operand
 * tells the compiler that the statement calls, so that a frame is set up before it.
 */
#pragma once

#include <xen/xen.h>

/* operation is a constant: macros, because a parameter is none when nothing is inlined. */
#define HYPERCALL2(operation, a, b)    HYPERCALL4(operation, a, b, 0, 0)
#define HYPERCALL3(operation, a, b, c) HYPERCALL4(operation, a, b, c, 0)

#ifdef __x86_64__

register unsigned long stack_pointer __asm__("rsp");

#define HYPERCALL4(operation, a, b, c, d)                                                        \
	({                                                                                       \
		long hypercall_result;                                                           \
		unsigned long hypercall_a = (unsigned long)(a);                                  \
		unsigned long hypercall_b = (unsigned long)(b);                                  \
		unsigned long hypercall_c = (unsigned long)(c);                                  \
		register unsigned long hypercall_d __asm__("r10") = (unsigned long)(d);          \
		__asm__ volatile("call hypercall_page + %c[stub]"                                \
				 : "=a"(hypercall_result), "+D"(hypercall_a), "+S"(hypercall_b), \
				   "+d"(hypercall_c), "+r"(hypercall_d), "+r"(stack_pointer)     \
				 : [stub] "i"((operation)*32)                                    \
				 : "memory");                                                    \
		hypercall_result;                                                                \
	})

#else

register unsigned long stack_pointer __asm__("esp");

#define HYPERCALL4(operation, a, b, c, d)                                                        \
	({                                                                                       \
		long hypercall_result;                                                           \
		unsigned long hypercall_a = (unsigned long)(a);                                  \
		unsigned long hypercall_b = (unsigned long)(b);                                  \
		unsigned long hypercall_c = (unsigned long)(c);                                  \
		unsigned long hypercall_d = (unsigned long)(d);                                  \
		__asm__ volatile("call hypercall_page + %c[stub]"                                \
				 : "=a"(hypercall_result), "+b"(hypercall_a), "+c"(hypercall_b), \
				   "+d"(hypercall_c), "+S"(hypercall_d), "+r"(stack_pointer)     \
				 : [stub] "i"((operation)*32)                                    \
				 : "memory");                                                    \
		hypercall_result;                                                                \
	})

#endif
