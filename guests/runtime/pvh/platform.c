/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"
#include "platform.h"

#include <xen/arch-x86/cpuid.h>
#include <xen/arch-x86/hvm/start_info.h>
#include <xen/hvm/hvm_op.h>
#include <xen/hvm/params.h>
#include <xen/memory.h>

#include "bare.h"
#include "hypercall.h"
#include "xen.h"

extern uint8_t hypercall_page[];

/* A page of the image in whose place shared_info is put. */
static uint8_t shared_info_page[4096] __attribute__((aligned(4096)));
static struct xencons_interface own_console;
static bool on_xen;

struct cpuid {
	uint32_t eax, ebx, ecx, edx;
};

static struct cpuid cpuid(uint32_t leaf)
{
	struct cpuid result;

	__asm__ volatile("cpuid"
			 : "=a"(result.eax), "=b"(result.ebx), "=c"(result.ecx), "=d"(result.edx)
			 : "a"(leaf), "c"(0));
	return result;
}

/* The first of Xen's CPUID leaves, which stand behind another hypervisor's if it plays one. */
static uint32_t xen_cpuid_base(void)
{
	for (uint32_t base = 0x40000000; base < 0x40010000; base += 0x100) {
		struct cpuid id = cpuid(base);

		if (id.ebx == XEN_CPUID_SIGNATURE_EBX && id.ecx == XEN_CPUID_SIGNATURE_ECX &&
		    id.edx == XEN_CPUID_SIGNATURE_EDX)
			return base;
	}
	return 0;
}

static void write_msr(uint32_t msr, uint64_t value)
{
	__asm__ volatile("wrmsr"
			 :
			 : "c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32))
			 : "memory");
}

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
	const struct hvm_start_info *start_info = boot;
	uint32_t base = xen_cpuid_base();

	platform.command_line = start_info->cmdline_paddr
					? (const char *)(unsigned long)start_info->cmdline_paddr
					: "";
	platform.console = &own_console;
	on_xen = base != 0;
	if (!on_xen)
		return;
	write_msr(cpuid(base + 2).ebx, (unsigned long)hypercall_page);
	platform.console =
		(struct xencons_interface *)((unsigned long)hvm_parameter(HVM_PARAM_CONSOLE_PFN)
					     << 12);
	platform.console_port = (evtchn_port_t)hvm_parameter(HVM_PARAM_CONSOLE_EVTCHN);
	map_shared_info();
	xen_watch_cpu_time();
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
	return on_xen ? xen_clock_ns(platform.shared) : bare_clock_ns();
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
	bare_power_off(ending);
}
