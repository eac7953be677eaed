/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_FORMAT_SAMPLES_H
#define UNIPROF_FORMAT_SAMPLES_H

/* For formats that show time: the selected samples of a recording, in order. */

#include "format/format.h"

struct sample {
	uint64_t time_ns;
	uint64_t weight_ns; /* of one; of CPU time, if the job's filter says so */
	uint64_t times;	    /* so many like this one; only of the first the time is known */
	uint32_t stack;	    /* id in the job's profile */
	uint16_t vcpu;
	uint8_t state; /* enum vcpu_state */
};

/*
 * Reads the recording once more, up to where it ended when the profile was
 * loaded. An error of `visit` ends it and is returned. ERR_USAGE if the
 * recording comes from standard input.
 */
struct error *samples_read(const struct format_job *job,
			   struct error *(*visit)(void *ctx, const struct sample *sample),
			   void *ctx);

/* All of one vCPU together, in order of time: 32 bytes a sample. */
struct samples {
	struct sample *at;
	size_t n;
};

struct error *samples_collect(const struct format_job *job, struct samples **out);
void samples_free(struct samples *samples);

/* The end of the samples that are of the same vCPU as number `i`. */
size_t samples_vcpu_end(const struct samples *samples, size_t i);

#endif
