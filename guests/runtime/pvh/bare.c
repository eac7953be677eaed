/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"

#include "bare.h"
#include "port.h"

#define COM1_DATA	 0x3f8
#define COM1_LINE_STATUS 0x3fd
#define COM1_CAN_SEND	 0x20
#define DEBUG_EXIT	 0xf4
#define DEBUG_EXIT_CRASH 3 /* QEMU exits with twice that and 1 */
#define ACPI_PM1_CONTROL 0x604
#define ACPI_SLEEP_S5	 0x2000
#define ACPI_TIMER	 0x608
#define ACPI_TIMER_MASK	 0xffffff
#define ACPI_TIMER_HZ	 3579545

static VISIBLE void serial_put(char c)
{
	while (!(in8(COM1_LINE_STATUS) & COM1_CAN_SEND))
		;
	out8(COM1_DATA, (uint8_t)c);
}

VISIBLE void bare_drain(struct xencons_interface *ring)
{
	while (ring->out_cons != ring->out_prod)
		serial_put(ring->out[MASK_XENCONS_IDX(ring->out_cons++, ring->out)]);
}

uint64_t bare_clock_ns(void)
{
	static uint64_t passed;
	uint64_t seconds, rest;
	static uint32_t last;
	uint32_t now = in32(ACPI_TIMER) & ACPI_TIMER_MASK;

	passed += (now - last) & ACPI_TIMER_MASK;
	last = now;
	seconds = passed;
	rest = divide(&seconds, ACPI_TIMER_HZ) * 1000000000ull;
	divide(&rest, ACPI_TIMER_HZ);
	return seconds * 1000000000 + rest;
}

void bare_power_off(enum ending ending)
{
	out32(DEBUG_EXIT, ending == ENDING_CRASH ? DEBUG_EXIT_CRASH : 0);
	out16(ACPI_PM1_CONTROL, ACPI_SLEEP_S5);
	for (;;)
		__asm__ volatile("cli; hlt");
}
