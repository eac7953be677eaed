/* SPDX-License-Identifier: BSD-3-Clause */
#include "xen.h"

#include <xen/event_channel.h>
#include <xen/sched.h>
#include <xen/vcpu.h>

#include "guest.h"
#include "hypercall.h"

VISIBLE void xen_event_send(evtchn_port_t port)
{
	struct evtchn_send send = {.port = port};

	HYPERCALL2(__HYPERVISOR_event_channel_op, EVTCHNOP_send, &send);
}

VISIBLE void xen_yield(void)
{
	HYPERCALL2(__HYPERVISOR_sched_op, SCHEDOP_yield, 0);
}

static volatile struct vcpu_runstate_info runstate;

void xen_watch_cpu_time(void)
{
	struct vcpu_register_runstate_memory_area area = {.addr.v = (void *)&runstate};

	HYPERCALL3(__HYPERVISOR_vcpu_op, VCPUOP_register_runstate_memory_area, 0, &area);
}

uint64_t xen_running_since(void)
{
	return runstate.state_entry_time;
}

uint64_t xen_cpu_ns(const struct shared_info *shared)
{
	uint64_t since, ran;

	/* Xen writes it anew whenever the vCPU gets the CPU back, with another state_entry_time. */
	do {
		since = runstate.state_entry_time;
		ran = runstate.time[RUNSTATE_running] + xen_clock_ns(shared) - since;
	} while (since != runstate.state_entry_time);
	return ran;
}

VISIBLE void xen_sleep_until(uint64_t deadline_ns)
{
	struct sched_poll poll = {.timeout = deadline_ns};

	HYPERCALL2(__HYPERVISOR_sched_op, SCHEDOP_poll, &poll);
}

VISIBLE void xen_shut_down(enum ending ending)
{
	struct sched_shutdown shutdown = {.reason = ending == ENDING_CRASH ? SHUTDOWN_crash
									   : SHUTDOWN_poweroff};

	for (;;)
		HYPERCALL2(__HYPERVISOR_sched_op, SCHEDOP_shutdown, &shutdown);
}

VISIBLE bool xen_start_vcpu(unsigned int vcpu, const void *context)
{
	if (HYPERCALL3(__HYPERVISOR_vcpu_op, VCPUOP_initialise, vcpu, context))
		return false;
	return !HYPERCALL3(__HYPERVISOR_vcpu_op, VCPUOP_up, vcpu, 0);
}
