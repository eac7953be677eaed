/* SPDX-License-Identifier: BSD-3-Clause */

/* Which registers a perf event leaves, and how, is another matter for each processor: here it is not known. */

#include "target/process/perf.h"

const char *perf_missing(void)
{
	return "perf events would not stop it, which this uniprof knows of x86-64 only";
}

struct error *perf_new(uint32_t slots, struct perf **out)
{
	return error_new(ERR_DENIED, "this uniprof reads perf events on x86-64 only");
}

void perf_free(struct perf *perf)
{
}

struct error *perf_watch(struct perf *perf, uint32_t slot, pid_t tid)
{
	return NULL;
}

bool perf_watches(const struct perf *perf, uint32_t slot, pid_t tid)
{
	return false;
}

bool perf_waits(const struct perf *perf, uint32_t slot, struct regs *regs, uint64_t *moment)
{
	return false;
}

bool perf_still_waits(const struct perf *perf, uint32_t slot, uint64_t moment)
{
	return false;
}

bool perf_read(struct perf *perf, uint32_t slot, int memory, struct vcpu_sample *vcpu)
{
	return false;
}
