/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A vCPU that is on a CPU is read from within an interrupt of that CPU. One
 * whose thread waits, for a CPU or for something else, stands still anyway: it
 * is read as it left its CPU, and if it has not run meanwhile, that holds.
 */

#include "target/kvm/kvm.h"
#include "target/vcpu_copy.h"

/* It may come and go while we look. */
#define ROUNDS 3

bool kvm_peek(void *ctx, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
	      bool *on_cpu)
{
	struct kvm *kvm = ctx;
	const struct thread *thread = &kvm->stops.threads.at[i];
	const struct physmem mem = {guest_ram_frame, kvm->ram};

	for (int round = 0; round < ROUNDS; round++) {
		const uint64_t slices = time->slices;

		*on_cpu = !unpaused_waits(kvm->unpaused, i, time, &vcpu->regs);
		if (*on_cpu && unpaused_read(kvm->unpaused, i, vcpu)) {
			thread_time(thread, time);
			return true;
		}
		if (!*on_cpu) {
			guest_ram_forget(kvm->ram);
			vcpu_copy_stacks(&arch_x86_64, &mem, vcpu);
		}
		thread_time(thread, time);
		if (!*on_cpu && time->slices == slices)
			return true;
	}
	return false;
}
