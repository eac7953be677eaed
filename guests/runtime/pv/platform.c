/* SPDX-License-Identifier: BSD-3-Clause */
#include "platform.h"

#include "guest.h"
#include "machine.h"
#include "xen.h"

#define LIST_ENTRIES (4096 / sizeof(xen_pfn_t))

/* A page of the image behind which shared_info appears; interrupt.S writes to it. */
uint8_t shared_info_page[4096] __attribute__((aligned(4096)));
static const struct start_info *start_info;

static void *machine_frame_to_virtual(xen_pfn_t frame)
{
	return (void *)((machine_to_phys_mapping[frame] << 12) + VIRT_BASE);
}

xen_pfn_t machine_frame_of(const void *address)
{
	return ((const xen_pfn_t *)
			start_info->mfn_list)[((unsigned long)address - VIRT_BASE) >> 12];
}

const uint64_t *boot_page_tables(void)
{
	return (const uint64_t *)start_info->pt_base;
}

struct shared_info *shared_info_of_guest(void)
{
	return (struct shared_info *)shared_info_page;
}

/* Publishes the list of the guest's frames, for tools that dump or save it (arch-x86/xen.h). */
static void publish_frames(struct arch_shared_info *shared)
{
	static xen_pfn_t list[LIST_ENTRIES] __attribute__((aligned(4096)));
	static xen_pfn_t list_of_lists[LIST_ENTRIES] __attribute__((aligned(4096)));
	const xen_pfn_t *frames = (const xen_pfn_t *)start_info->mfn_list;

	for (unsigned int i = 0; i < LIST_ENTRIES && i * LIST_ENTRIES < start_info->nr_pages; i++)
		list[i] = machine_frame_of(&frames[i * LIST_ENTRIES]);
	list_of_lists[0] = machine_frame_of(list);
	shared->pfn_to_mfn_frame_list_list = machine_frame_of(list_of_lists);
	shared->max_pfn = start_info->nr_pages;
}

void platform_init(const void *boot)
{
	start_info = boot;
	platform.command_line = (const char *)start_info->cmd_line;
	platform.console = machine_frame_to_virtual(start_info->console.domU.mfn);
	platform.console_port = start_info->console.domU.evtchn;
	/* Present and writable. */
	map_page(shared_info_page, start_info->shared_info | 3);
	platform.shared = (const struct shared_info *)shared_info_page;
	publish_frames(&shared_info_of_guest()->arch);
	xen_watch_cpu_time();
}

VISIBLE void platform_notify_console(void)
{
	xen_event_send(platform.console_port);
}

VISIBLE void platform_yield(void)
{
	xen_yield();
}

uint64_t platform_clock_ns(void)
{
	return xen_clock_ns(platform.shared);
}

uint64_t platform_cpu_time(void)
{
	return xen_cpu_ns(platform.shared);
}

void platform_sleep_until(uint64_t deadline_ns)
{
	xen_sleep_until(deadline_ns);
}

void platform_shut_down(enum ending ending)
{
	xen_shut_down(ending);
}
