/* SPDX-License-Identifier: BSD-3-Clause */
/* QEMU's virt, with OpenSBI below the guest. */
#include "platform.h"

#include "device_tree.h"
#include "guest.h"
#include "sbi.h"

/* A 16550: its data, and whether it takes more. */
#define UART_DATA     ((volatile uint8_t *)0x10000000)
#define UART_STATUS   ((volatile uint8_t *)0x10000005)
#define UART_CAN_SEND 0x20

#define NS_PER_TICK (1000000000 / TICKS_PER_S)

static struct xencons_interface own_console;

void platform_init(const void *boot)
{
	platform.command_line = device_tree_property(boot, "chosen", "bootargs");
	if (!platform.command_line)
		platform.command_line = "";
	platform.console = &own_console;
}

static VISIBLE void serial_put(char c)
{
	while (!(*UART_STATUS & UART_CAN_SEND))
		;
	*UART_DATA = (uint8_t)c;
}

static VISIBLE void bare_drain(struct xencons_interface *ring)
{
	while (ring->out_cons != ring->out_prod)
		serial_put(ring->out[MASK_XENCONS_IDX(ring->out_cons++, ring->out)]);
}

VISIBLE void platform_notify_console(void)
{
	bare_drain(platform.console);
}

VISIBLE void platform_yield(void)
{
}

uint64_t platform_clock_ns(void)
{
	return ticks() * NS_PER_TICK;
}

uint64_t platform_cpu_time(void)
{
	return ticks();
}

void platform_sleep_until(uint64_t deadline_ns)
{
	while (platform_clock_ns() < deadline_ns)
		;
}

void platform_shut_down(enum ending ending)
{
	for (;;)
		sbi_call(SBI_SYSTEM_RESET, SBI_SHUTDOWN,
			 ending == ENDING_CRASH ? SBI_SYSTEM_FAILURE : SBI_NO_REASON, 0);
}

void unexpected_exception(void);
void unexpected_exception(void)
{
	platform_shut_down(ENDING_CRASH);
}
