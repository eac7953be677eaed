/* SPDX-License-Identifier: BSD-3-Clause */
#include "console.h"
#include "guest.h"
#include "platform.h"

#define VCPU_STACK_BYTES 16384

struct platform platform;

static void (*vcpu_entries[MAX_VCPUS])(unsigned int vcpu);
static uint8_t vcpu_stacks[MAX_VCPUS][VCPU_STACK_BYTES] __attribute__((aligned(4096)));

VISIBLE void guest_start(void)
{
	main();
	shut_down(ENDING_POWEROFF);
}

VISIBLE void vcpu_start(unsigned int vcpu)
{
	vcpu_entries[vcpu](vcpu);
	shut_down(ENDING_CRASH);
}

bool start_vcpu(unsigned int vcpu, void (*entry)(unsigned int vcpu))
{
	if (vcpu == 0 || vcpu >= MAX_VCPUS)
		return false;
	vcpu_entries[vcpu] = entry;
	return platform_start_vcpu(vcpu, vcpu_stacks[vcpu] + VCPU_STACK_BYTES);
}

void shut_down(enum ending ending)
{
	console_flush();
	platform_shut_down(ending);
}

uint64_t cpu_time(void)
{
	return platform_cpu_time();
}

uint64_t clock_ns(void)
{
	return platform_clock_ns();
}

void sleep_until(uint64_t deadline_ns)
{
	platform_sleep_until(deadline_ns);
}
