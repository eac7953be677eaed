/* SPDX-License-Identifier: BSD-3-Clause */
#include "platform.h"

#include <xen/hvm/hvm_op.h>
#include <xen/hvm/params.h>
#include <xen/memory.h>

#include "bare.h"
#include "clock.h"
#include "device_tree.h"
#include "guest.h"
#include "hypercall.h"
#include "xen.h"

/* A page of the image in whose place shared_info is put. */
static uint8_t shared_info_page[4096] __attribute__((aligned(4096)));
static struct xencons_interface own_console;
static bool on_xen;

static uint64_t hvm_parameter(uint32_t index)
{
	struct xen_hvm_param parameter = {.domid = DOMID_SELF, .index = index};

	HYPERCALL2(__HYPERVISOR_hvm_op, HVMOP_get_param, &parameter);
	return parameter.value;
}

static void map_shared_info(void)
{
	struct xen_add_to_physmap map = {.domid = DOMID_SELF,
					 .space = XENMAPSPACE_shared_info,
					 .gpfn = (unsigned long)shared_info_page >> 12};

	HYPERCALL2(__HYPERVISOR_memory_op, XENMEM_add_to_physmap, &map);
	platform.shared = (const struct shared_info *)shared_info_page;
}

void platform_init(const void *boot)
{
	platform.command_line = device_tree_property(boot, "chosen", "bootargs");
	if (!platform.command_line)
		platform.command_line = "";
	platform.console = &own_console;
	on_xen = device_tree_property(boot, "hypervisor", "compatible");
	if (!on_xen)
		return;
	platform.console =
		(struct xencons_interface *)(uintptr_t)(hvm_parameter(HVM_PARAM_CONSOLE_PFN) << 12);
	platform.console_port = (evtchn_port_t)hvm_parameter(HVM_PARAM_CONSOLE_EVTCHN);
	map_shared_info();
	xen_watch_cpu_time();
	/* A deadline that has passed: Xen wakes this vCPU at once, and writes down when. */
	xen_sleep_until(1);
	clock_set(xen_running_since());
}

VISIBLE void platform_notify_console(void)
{
	if (on_xen)
		xen_event_send(platform.console_port);
	else
		bare_drain(platform.console);
}

VISIBLE void platform_yield(void)
{
	if (on_xen)
		xen_yield();
}

uint64_t platform_clock_ns(void)
{
	return xen_clock_ns(platform.shared);
}

uint64_t platform_cpu_time(void)
{
	return on_xen ? xen_cpu_ns(platform.shared) : ticks();
}

void platform_sleep_until(uint64_t deadline_ns)
{
	if (on_xen)
		xen_sleep_until(deadline_ns);
	else
		bare_sleep_until(deadline_ns);
}

void platform_shut_down(enum ending ending)
{
	if (on_xen)
		xen_shut_down(ending);
	bare_power_off();
}

void unexpected_exception(void);
void unexpected_exception(void)
{
	platform_shut_down(ENDING_CRASH);
}
