/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"
#include "xen.h"

uint64_t xen_clock_ns(const struct shared_info *shared)
{
	const volatile struct vcpu_time_info *info = &shared->vcpu_info[0].time;
	uint32_t version;
	uint64_t delta, now;

	do {
		version = info->version & ~1u;
		__asm__ volatile("lfence" : : : "memory");
		delta = ticks() - info->tsc_timestamp;
		if (info->tsc_shift >= 0)
			delta <<= info->tsc_shift;
		else
			delta >>= -info->tsc_shift;
		now = info->system_time + (delta >> 32) * info->tsc_to_system_mul +
		      ((delta & UINT32_MAX) * info->tsc_to_system_mul >> 32);
		__asm__ volatile("lfence" : : : "memory");
	} while (version != info->version);
	return now;
}
