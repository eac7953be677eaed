/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_GUEST_TEXT_H
#define UNIPROF_OUTPUT_GUEST_TEXT_H

/* What formats say of the guest. Text is cleaned and belongs to the job's namer. */

#include "output/output.h"

/* Bytes of a guest's name that are told: some formats repeat it in every sample. */
#define GUEST_NAME_MAX 255

/* "web", or its id, or "guest". */
struct error *guest_name(const struct output_job *job, const char **name);

/* "xen:web (pv), 9970 samples at 997/s in 10.0 s", not cleaned; the caller frees it. NULL: no memory. */
char *guest_line(const struct profile *profile);

/* The same, cleaned. */
struct error *guest_title(const struct output_job *job, const char **title);

/* Its id as a number for formats that have processes: more than 0. */
uint32_t guest_pid(const struct output_job *job);

/* What weights are: "nanoseconds", unless the profile says otherwise. */
struct error *guest_unit(const struct output_job *job, const char **unit);
bool guest_unit_is_time(const struct output_job *job);

/* Was the profile imported, without addresses or times of its own? */
bool guest_is_imported(const struct output_job *job);

#endif
