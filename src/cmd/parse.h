/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_PARSE_H
#define UNIPROF_CMD_PARSE_H

/* Values of options. Errors are ERR_USAGE and name the option. */

#include <stdint.h>

#include "base/error.h"
#include "profile/profile.h"

/* Samples a second: "101", "0.5"; RATE_MIN to RATE_MAX (sample/sampler.h). */
struct error *parse_rate(const char *option, const char *text, double *hz);

/* "10", "0.5" (seconds), "500ms", "250us", "2m", "1.5h", "1d"; more than 0, at most ten years. */
struct error *parse_duration(const char *option, const char *text, uint64_t *ns);

/* The same, of a moment since the start of a recording; 0 is one, too. */
struct error *parse_moment(const char *option, const char *text, uint64_t *ns);

/* A whole number within bounds. */
struct error *parse_count(const char *option, const char *text, uint64_t min, uint64_t max,
			  uint64_t *value);

/* "4096", "64k", "1M": bytes within bounds. */
struct error *parse_bytes(const char *option, const char *text, uint64_t min, uint64_t max,
			  uint64_t *value);

/* "auto", "fp", "cfi", "scan". */
struct error *parse_unwind(const char *option, const char *text, enum unwind_method *method);

/* "1", "0.5%": more than 0 and at most 100; *share is from 0 to 1. */
struct error *parse_percent(const char *option, const char *text, double *share);

/* "running,blocked", "on-cpu" (running), "all". */
struct error *parse_states(const char *option, const char *text, unsigned *states);

/* "0,2-3": vcpus[RECORDING_MAX_VCPUS] tells of each whether it is in the list. */
struct error *parse_vcpus(const char *option, const char *text, bool *vcpus);

#endif
