/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/merge_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEVERAL "several"

void merge_align(struct merge_guest *guests, size_t n)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < n; i++)
		if (guests[i].info.start_unix_ns < first)
			first = guests[i].info.start_unix_ns;
	for (size_t i = 0; i < n; i++)
		guests[i].offset_ns = guests[i].info.start_unix_ns - first;
}

static const char *called(const struct merge_guest *guest)
{
	const struct recording_info *info = &guest->info;

	if (info->guest_name && *info->guest_name)
		return info->guest_name;
	return info->guest_id ? info->guest_id : "";
}

char *merge_name(const struct merge_guest *guests, size_t n, size_t guest)
{
	const char *name = called(&guests[guest]), *id = guests[guest].info.guest_id;
	bool alone = true;
	char *both;

	for (size_t i = 0; i < n; i++)
		alone = alone && (i == guest || strcmp(called(&guests[i]), name));
	if (alone)
		return strdup(name);
	return asprintf(&both, "%s-%s", name, id ? id : "?") < 0 ? NULL : both;
}

/* "web, mail" */
static char *all_names(const struct merge_guest *guests, size_t n)
{
	size_t len;
	char *text = NULL;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		char *name = merge_name(guests, n, i);

		fprintf(out, "%s%s", i ? ", " : "", name ? name : "?");
		free(name);
	}
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* What the texts at `offset` of all infos are; SEVERAL if they differ. */
static char *common(const struct merge_guest *guests, size_t n, size_t offset)
{
	const char *first = *(char *const *)((const char *)&guests[0].info + offset);

	for (size_t i = 1; i < n; i++) {
		const char *other = *(char *const *)((const char *)&guests[i].info + offset);

		if (!first || !other || strcmp(first, other))
			return strdup(SEVERAL);
	}
	return first ? strdup(first) : NULL;
}

#define COMMON(field) common(guests, n, offsetof(struct recording_info, field))

struct error *merge_info(const struct merge_guest *guests, size_t n, struct recording_info *out)
{
	*out = (struct recording_info){.tool = COMMON(tool),
				       .target = COMMON(target),
				       .guest_type = COMMON(guest_type),
				       .host = COMMON(host),
				       .arch = COMMON(arch),
				       .unwind = COMMON(unwind),
				       .guest_id = COMMON(guest_id),
				       .guest_name = all_names(guests, n),
				       .start_unix_ns = UINT64_MAX};
	for (size_t i = 0; i < n; i++) {
		const struct recording_info *info = &guests[i].info;

		out->vcpus += info->vcpus;
		out->rate_hz += info->rate_hz;
		out->jitter = out->jitter || info->jitter;
		if (info->duration_ns > out->duration_ns)
			out->duration_ns = info->duration_ns;
		if (info->start_unix_ns < out->start_unix_ns)
			out->start_unix_ns = info->start_unix_ns;
	}
	return out->guest_name ? NULL : error_no_memory();
}

struct error *merge_end(const struct merge_guest *guests, size_t n, struct recording_end *out)
{
	const char *reason = guests[0].end.reason;

	*out = (struct recording_end){0};
	for (size_t i = 0; i < n; i++) {
		const struct recording_end *end = &guests[i].end;

		if (guests[i].offset_ns + end->elapsed_ns > out->elapsed_ns)
			out->elapsed_ns = guests[i].offset_ns + end->elapsed_ns;
		out->missed += end->missed;
		out->retakes += end->retakes;
		out->failed += end->failed;
		out->given_up += end->given_up;
		if (!reason || !end->reason || strcmp(reason, end->reason))
			reason = SEVERAL " things";
	}
	out->reason = strdup(reason);
	return out->reason ? NULL : error_no_memory();
}
