/* SPDX-License-Identifier: BSD-3-Clause */
/* Xen's timer of the boot vCPU, whose events call timer_handler. */
#include "guest.h"
#include "platform.h"

#include <xen/callback.h>
#include <xen/event_channel.h>
#include <xen/vcpu.h>

#include "hypercall.h"
#include "machine.h"

#define WORD_BITS (8 * sizeof(xen_ulong_t))

static evtchn_port_t port;

static void mask_all_but(evtchn_port_t one)
{
	xen_ulong_t *masks = shared_info_of_guest()->evtchn_mask;

	for (unsigned int i = 0; i < WORD_BITS; i++)
		masks[i] = ~0ul;
	masks[one / WORD_BITS] &= ~(1ul << one % WORD_BITS);
}

bool platform_take_tick(void)
{
	struct shared_info *shared = shared_info_of_guest();
	xen_ulong_t bit = 1ul << port % WORD_BITS;

	shared->vcpu_info[0].evtchn_upcall_pending = 0;
	__atomic_exchange_n(&shared->vcpu_info[0].evtchn_pending_sel, 0, __ATOMIC_ACQ_REL);
	return __atomic_fetch_and(&shared->evtchn_pending[port / WORD_BITS], ~bit,
				  __ATOMIC_ACQ_REL) &
	       bit;
}

/* Xen leaves a PV kernel's events on the stack that they interrupt: there is no other stack. */
void platform_start_timer(uint64_t period_ns, void *stack_top)
{
	struct callback_register callback = {.type = CALLBACKTYPE_event,
					     .address = (unsigned long)timer_handler};
	struct evtchn_bind_virq bind = {.virq = VIRQ_TIMER};
	struct vcpu_set_periodic_timer timer = {.period_ns = period_ns};

	(void)stack_top;
	HYPERCALL2(__HYPERVISOR_callback_op, CALLBACKOP_register, &callback);
	HYPERCALL2(__HYPERVISOR_event_channel_op, EVTCHNOP_bind_virq, &bind);
	port = bind.port;
	mask_all_but(port);
	HYPERCALL3(__HYPERVISOR_vcpu_op, VCPUOP_set_periodic_timer, 0, &timer);
	__atomic_store_n(&shared_info_of_guest()->vcpu_info[0].evtchn_upcall_mask, 0,
			 __ATOMIC_RELEASE);
}

void platform_stop_timer(void)
{
	__atomic_store_n(&shared_info_of_guest()->vcpu_info[0].evtchn_upcall_mask, 1,
			 __ATOMIC_RELEASE);
	HYPERCALL3(__HYPERVISOR_vcpu_op, VCPUOP_stop_periodic_timer, 0, 0);
}
