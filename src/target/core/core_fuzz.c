/* SPDX-License-Identifier: BSD-3-Clause */

/* libFuzzer target for core files: the input is one. */

#include "base/fuzz_testing.h"
#include "recording/recording.h"
#include "target/target.h"

static void take_sample(struct target *target)
{
	struct sample *sample = NULL;
	uint8_t bytes[64];

	need(target->info.arch && target->info.vcpus && target->info.vcpus <= RECORDING_MAX_VCPUS);
	need(!sample_new(target->info.vcpus < 4 ? target->info.vcpus : 4, 8192, &sample));
	need(!target->ops->sample(target, sample));
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		const struct vcpu_sample *vcpu = &sample->vcpu[i];

		need(vcpu->stack.len <= vcpu->request.want);
		need(target_read(target, &vcpu->regs, vcpu->regs.pc, bytes, sizeof(bytes)) <=
		     sizeof(bytes));
	}
	sample_free(sample);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct target *target = NULL;
	struct error *err;
	struct fuzz_file file = fuzz_file_new(data, size);

	err = target_core.open(file.path, NULL, &target);
	need(!err == !!target);
	if (target) {
		take_sample(target);
		target_close(target);
	}
	error_free(err);
	close(file.fd);
}
