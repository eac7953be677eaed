/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/guest_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "import/import.h"
#include "symbol/names/display_name.h"

static const char *name_of(const struct recording_info *info)
{
	if (info->guest_name && *info->guest_name)
		return info->guest_name;
	return info->guest_id && *info->guest_id ? info->guest_id : "guest";
}

/* In memory of its own; NULL: there is none. */
static char *short_name(const struct recording_info *info)
{
	const char *name = name_of(info);

	return strndup(name, clean_cut(name, GUEST_NAME_MAX));
}

struct error *guest_name(const struct output_job *job, const char **name)
{
	char *text = short_name(&job->profile->info);
	struct error *err = text ? namer_intern(job->namer, text, name) : error_no_memory();

	free(text);
	return err;
}

char *guest_line(const struct profile *profile)
{
	const struct recording_info *info = &profile->info;
	const char *target = info->target ? info->target : "?";
	uint64_t n = profile->selected.samples;
	char *text, *name = short_name(info);
	int rc;

	if (!name)
		return NULL;
	if (import_is_target(info->target))
		rc = asprintf(&text, "%s:%s, %" PRIu64 " samples", target, name, n);
	else
		rc = asprintf(&text, "%s:%s (%s), %" PRIu64 " samples at %g/s in %.1f s", target,
			      name, info->guest_type ? info->guest_type : "?", n, info->rate_hz,
			      (double)profile_elapsed_ns(profile) / 1e9);
	free(name);
	return rc < 0 ? NULL : text;
}

struct error *guest_title(const struct output_job *job, const char **title)
{
	char *text = guest_line(job->profile);
	struct error *err = text ? namer_intern(job->namer, text, title) : error_no_memory();

	free(text);
	return err;
}

uint32_t guest_pid(const struct output_job *job)
{
	const char *id = job->profile->info.guest_id;
	unsigned long number = id ? strtoul(id, NULL, 10) : 0;

	/* 0 is the idle task for perf, and all other numbers are as good. */
	return number > 0 && number < INT32_MAX / 2 ? (uint32_t)number : 1;
}

bool guest_unit_is_time(const struct output_job *job)
{
	return !job->profile->info.weight_unit;
}

struct error *guest_unit(const struct output_job *job, const char **unit)
{
	const char *text = job->profile->info.weight_unit;

	return namer_intern(job->namer, text ? text : "nanoseconds", unit);
}

bool guest_is_imported(const struct output_job *job)
{
	return import_is_target(job->profile->info.target);
}
