/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for reading other tools' profiles: an accepted profile must
 * add up, and be exported as folded stacks that are read again as the same.
 */

#include "base/fuzz_testing.h"
#include "format/format.h"

/* NULL if it is refused. */
static struct profile *load(const void *data, size_t size)
{
	const struct profile_filter all = {.vcpu = -1};
	struct fuzz_file file = fuzz_file_new(data, size);
	struct profile *profile = NULL;
	struct error *err;

	err = profile_load(file.path, &all, &profile);
	need(!err || err->kind == ERR_INPUT);
	error_free(err);
	close(file.fd);
	return profile;
}

static char *fold(const struct profile *profile, size_t *len)
{
	struct format_job job = {.profile = profile};
	char *text = NULL;
	FILE *out = open_memstream(&text, len);

	need(out && !symbolizer_new(NULL, profile, &job.symbolizer));
	need(!format_folded.write(&job, out));
	fclose(out);
	symbolizer_free(job.symbolizer);
	return text;
}

static void use(const struct profile *profile)
{
	struct profile *again;
	uint64_t samples = 0;
	size_t len;
	char *text;

	for (uint32_t id = 0; id < stacks_count(profile->stacks); id++)
		samples += profile_cell(&profile->cells, id)->samples;
	need(samples == profile->selected.samples);
	text = fold(profile, &len);
	again = len && *text != '#' ? load(text, len) : NULL;
	need(!again || again->selected.samples <= samples);
	profile_free(again);
	free(text);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct profile *profile = load(data, size);

	if (profile)
		use(profile);
	profile_free(profile);
}
