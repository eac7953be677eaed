/* SPDX-License-Identifier: BSD-3-Clause */

/* libFuzzer target for core files: the input is one. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "recording/recording.h"
#include "target/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool good)
{
	if (!good)
		abort();
}

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct target *target = NULL;
	struct error *err;
	char path[32];
	int fd = memfd_create("core", MFD_CLOEXEC);

	need(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = target_core.open(path, NULL, &target);
	need(!err == !!target);
	if (target) {
		take_sample(target);
		target_close(target);
	}
	error_free(err);
	close(fd);
	return 0;
}
