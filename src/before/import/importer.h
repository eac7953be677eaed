/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_IMPORT_BUILD_H
#define UNIPROF_PROFILE_IMPORT_BUILD_H

/* What the importers share: they collect, and what they have is told in the end. Private to src/profile. */

#include "profile/import_text.h"
#include "recording/recording.h"

/* So many samples at most in all, so that sums of them cannot overflow. */
#define IMPORT_SAMPLES_MAX (UINT64_C(1) << 60)

struct import_sample {
	uint64_t time_ns;
	uint64_t weight;
	uint64_t times;
	uint32_t stack;
	uint16_t vcpu;
};

struct import {
	struct import_text text;
	struct stacks *stacks;
	const struct recording_visitor *visitor;
	struct import_names *names;
	struct import_sample *samples;
	size_t n, room;
	uint64_t total; /* samples */
	uint32_t vcpus;
	/* To be set by the importer: */
	const char *target; /* "folded" */
	char host[128];	    /* where it is from: "perf script, cycles" */
	char unit[64];	    /* of weights; "": nanoseconds */
	char reason[128];   /* why it ended */
};

struct error *import_new(struct import *import);
void import_free(struct import *import);

/* The child of stack `parent` whose function has this name. */
struct error *import_frame(struct import *import, uint32_t parent, const char *name, size_t len,
			   uint32_t *id);

/* The same for a frame of which only the address is known. */
struct error *import_address(struct import *import, uint32_t parent, uint64_t addr, uint32_t *id);

/* ERR_INPUT when there are too many. */
struct error *import_sample(struct import *import, const struct import_sample *sample);

/* Tells the visitor everything, in order of time. */
struct error *import_tell(struct import *import);

/* The importers: from the text to the samples. */
struct error *import_folded(struct import *import);
struct error *import_perf(struct import *import);

/* Can a file begin with this line? */
bool import_is_folded(const char *line, size_t len);
bool import_is_perf(const char *line);

#endif
