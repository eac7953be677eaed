/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/vcpu_state.h"

int64_t vcpu_state_time(struct sample *sample)
{
	int64_t since_ns = (int64_t)(sample->time_ns - sample->noted_ns);

	if (sample->noted_ns)
		sample->usual_ns += sample->usual_ns ? (since_ns - sample->usual_ns) / 8 : since_ns;
	sample->noted_ns = sample->time_ns;
	return sample->usual_ns;
}

enum vcpu_state vcpu_state_of(const struct vcpu_load *now, struct vcpu_sample *vcpu,
			      int64_t usual_ns)
{
	const int64_t most = 2 * usual_ns;
	enum vcpu_state state;

	if (vcpu->held)
		vcpu->owed_ns += (int64_t)(now->cpu_ns - vcpu->counted_ns);
	vcpu->counted_ns = now->cpu_ns;
	if (now->running)
		state = VCPU_RUNNING;
	else if (now->blocked)
		state = VCPU_BLOCKED;
	else
		state = vcpu->owed_ns > usual_ns / 2 ? VCPU_RUNNING : VCPU_RUNNABLE;
	if (state == VCPU_RUNNING)
		vcpu->owed_ns -= usual_ns;
	if (vcpu->owed_ns > most)
		vcpu->owed_ns = most;
	else if (vcpu->owed_ns < -most)
		vcpu->owed_ns = -most;
	return state;
}
