/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_VCPU_STATE_H
#define UNIPROF_TARGET_VCPU_STATE_H

/* Which of the states of a sample a vCPU is in, for targets to share. */

#include "target/target.h"

struct vcpu_load {
	uint64_t cpu_ns; /* CPU time used so far */
	bool running;	 /* on a CPU in this moment */
	bool blocked;	 /* waiting for something else than a CPU */
};

/*
 * The usual time between looks, which is what each of them stands for, though
 * they come at uneven times. Once a sample, when its time is set.
 */
int64_t vcpu_state_time(struct sample *sample);

/*
 * Who waits for a CPU at this moment may have been put off it by us: on a
 * machine with one CPU nobody is ever seen running. So of the looks at a vCPU
 * that waits, as many count as running as the CPU time that it has used says.
 * `usual_ns`: from vcpu_state_time. Once a sample; keeps its account in the
 * vcpu_sample.
 */
enum vcpu_state vcpu_state_of(const struct vcpu_load *now, struct vcpu_sample *vcpu,
			      int64_t usual_ns);

#endif
