/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the firmware below the guest (RISC-V Supervisor Binary Interface Specification). */
#pragma once

#define SBI_TIMER	 0x54494d45ul
#define SBI_HART_STATE	 0x48534dul
#define SBI_SYSTEM_RESET 0x53525354ul

/* A function of SBI_HART_STATE, and what it tells. */
#define SBI_HART_STATUS	 2
#define SBI_HART_STOPPED 1

/* Arguments of SBI_SYSTEM_RESET: a shutdown, and its reason. */
#define SBI_SHUTDOWN	   0
#define SBI_NO_REASON	   0
#define SBI_SYSTEM_FAILURE 1

/* An error of 0: it was done. */
struct sbi_result {
	long error;
	unsigned long value;
};

static inline struct sbi_result sbi_ask(unsigned long extension, unsigned long function,
					unsigned long a, unsigned long b, unsigned long c)
{
	register unsigned long a0 __asm__("a0") = a;
	register unsigned long a1 __asm__("a1") = b;
	register unsigned long a2 __asm__("a2") = c;
	register unsigned long a6 __asm__("a6") = function;
	register unsigned long a7 __asm__("a7") = extension;

	__asm__ volatile("ecall" : "+r"(a0), "+r"(a1) : "r"(a2), "r"(a6), "r"(a7) : "memory");
	return (struct sbi_result){(long)a0, a1};
}

/* Calls function 0 of an extension; 0: it was done. */
static inline long sbi_call(unsigned long extension, unsigned long a, unsigned long b,
			    unsigned long c)
{
	return sbi_ask(extension, 0, a, b, c).error;
}
