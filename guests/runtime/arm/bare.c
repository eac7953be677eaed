/* SPDX-License-Identifier: BSD-3-Clause */
#include "bare.h"

#include "guest.h"
#include "hypercall.h"
#include "platform.h"

/* A PL011 (Arm DDI 0183, 3.2), where QEMU's virt has it. */
#define UART_DATA  ((volatile uint32_t *)0x09000000)
#define UART_FLAGS ((volatile uint32_t *)0x09000018)
#define UART_FULL  0x20

#define PSCI_SYSTEM_OFF 0x84000008ul

static VISIBLE void serial_put(char c)
{
	while (*UART_FLAGS & UART_FULL)
		;
	*UART_DATA = (uint8_t)c;
}

VISIBLE void bare_drain(struct xencons_interface *ring)
{
	while (ring->out_cons != ring->out_prod)
		serial_put(ring->out[MASK_XENCONS_IDX(ring->out_cons++, ring->out)]);
}

void bare_sleep_until(uint64_t deadline_ns)
{
	while (platform_clock_ns() < deadline_ns)
		__asm__ volatile("yield");
}

void bare_power_off(void)
{
	register unsigned long function __asm__(FIRST_ARGUMENT) = PSCI_SYSTEM_OFF;

	for (;;)
		__asm__ volatile("hvc #0" : "+r"(function) : : "memory");
}
