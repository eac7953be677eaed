/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/output.h"

#include <string.h>

static const struct output_format *const formats[] = {
	&output_folded,	    &output_raw,       &output_pprof,
	&output_speedscope, &output_firefox,   &output_perf_script,
	&output_perf_data,  &output_callgrind, &output_chrome,
};

#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

const struct output_format *output_format_at(size_t i)
{
	return i < N_FORMATS ? formats[i] : NULL;
}

const struct output_format *output_format_by_name(const char *name)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}

/* The longest ending that fits, so that ".perf.json" and ".json" can both be one. */
const struct output_format *output_format_by_ending(const char *path)
{
	const struct output_format *best = NULL;
	size_t len = strlen(path), longest = 0;

	for (size_t i = 0; i < N_FORMATS; i++) {
		size_t ending = strlen(formats[i]->ending);

		if (ending > longest && len > ending &&
		    !strcmp(path + len - ending, formats[i]->ending)) {
			best = formats[i];
			longest = ending;
		}
	}
	return best;
}
