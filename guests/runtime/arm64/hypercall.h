/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <xen/xen.h>

/* Register of the first argument, in hypercalls and functions. */
#define FIRST_ARGUMENT "x0"

#define HYPERCALL2(operation, a, b) HYPERCALL3(operation, a, b, 0)

#define HYPERCALL3(operation, a, b, c)                                                      \
	({                                                                                  \
		register unsigned long hypercall_a __asm__("x0") = (unsigned long)(a);      \
		register unsigned long hypercall_b __asm__("x1") = (unsigned long)(b);      \
		register unsigned long hypercall_c __asm__("x2") = (unsigned long)(c);      \
		register unsigned long hypercall_operation __asm__("x16") = (operation);    \
		__asm__ volatile("hvc %[tag]"                                               \
				 : "+r"(hypercall_a), "+r"(hypercall_b), "+r"(hypercall_c), \
				   "+r"(hypercall_operation)                                \
				 : [tag] "i"(XEN_HYPERCALL_TAG)                             \
				 : "memory");                                               \
		(long)hypercall_a;                                                          \
	})
