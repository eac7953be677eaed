/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/vcpu_copy.h"

#include "target/window.h"

void vcpu_copy_stacks(const struct arch *arch, const struct physmem *mem, struct vcpu_sample *vcpu)
{
	const struct regs *regs = &vcpu->regs;
	uint64_t gfn;

	if (!window_copy(arch, regs, vcpu->want, mem, vcpu->buffer, &vcpu->stack, &gfn))
		vcpu->stack.cut = false;
	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		const struct other_stack *other = &vcpu->other[i];

		vcpu->others[i].len = 0;
		if (other->want)
			(void)window_copy_at(arch, regs, other->va, other->want, mem, other->buffer,
					     &vcpu->others[i], &gfn);
	}
}
