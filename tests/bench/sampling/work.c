/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sample_work GUEST ADDRESS STEP SECONDS [BEGIN]
 *
 * Runs in dom0. Reads the counters that a guest keeps, one for each vCPU from
 * ADDRESS on, STEP bytes apart, twice with SECONDS between, and prints as a
 * JSON object what the guest has done in a second. The rest of the time it
 * sleeps; BEGIN is when it first reads, in seconds of CLOCK_MONOTONIC.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "target/target.h"

struct work {
	struct target *target;
	struct sample *sample;
	uint64_t address, step;
};

static struct error *work_open(struct work *work, const char *guest)
{
	struct error *err = target_open(guest, NULL, &work->target);

	if (!err)
		err = sample_new(work->target->info.vcpus, FRAME_SIZE, &work->sample);
	if (!err)
		err = work->target->ops->sample(work->target, work->sample);
	return err;
}

static struct error *count(struct work *work, uint64_t *total, uint64_t *when_ns)
{
	*total = 0;
	*when_ns = clock_now_ns();
	for (uint32_t i = 0; i < work->sample->vcpus; i++) {
		uint64_t one;

		if (target_read(work->target, &work->sample->vcpu[0].regs,
				work->address + i * work->step, &one, sizeof(one)) != sizeof(one))
			return error_new(ERR_FAILED, "cannot read the guest's counters");
		*total += one;
	}
	return NULL;
}

static struct error *run(struct work *work, double seconds, double begin)
{
	uint64_t before, after, from_ns, to_ns;
	struct error *err;

	clock_sleep_until((uint64_t)(begin * NS_PER_S));
	err = count(work, &before, &from_ns);
	if (err)
		return err;
	clock_sleep_until(from_ns + (uint64_t)(seconds * NS_PER_S));
	err = count(work, &after, &to_ns);
	if (err)
		return err;
	printf("{\"work\":%" PRIu64 ",\"seconds\":%.6f,\"per_second\":%.3f}\n", after - before,
	       (double)(to_ns - from_ns) / 1e9,
	       (double)(after - before) * 1e9 / (double)(to_ns - from_ns));
	return NULL;
}

int main(int argc, char **argv)
{
	struct work work = {0};
	struct error *err;

	if (argc != 5 && argc != 6) {
		fprintf(stderr, "usage: sample_work GUEST ADDRESS STEP SECONDS [BEGIN]\n");
		return ERR_USAGE;
	}
	work.address = strtoull(argv[2], NULL, 0);
	work.step = strtoull(argv[3], NULL, 0);
	err = work_open(&work, argv[1]);
	if (!err)
		err = run(&work, strtod(argv[4], NULL), argc > 5 ? strtod(argv[5], NULL) : 0);
	sample_free(work.sample);
	if (work.target)
		target_close(work.target);
	if (!err)
		return 0;
	fprintf(stderr, "sample_work: %s\n", err->text);
	error_free(err);
	return 1;
}
