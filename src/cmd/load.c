/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/preopen.h"
#include "base/privilege.h"
#include "cmd/confine.h"
#include "cmd/load_images.h"
#include "cmd/parse.h"
#include "output/guest_text.h"
#include "profile/distinct.h"
#include "profile/quality.h"
#include "symbol/symbol_cache.h"
#include "unwind/tables/debug_file.h"

void load_defaults(struct load_options *options)
{
	memset(options, 0, sizeof(*options));
	options->filter = PROFILE_ON_CPU;
	meter_init(&options->meter, "uniprof");
	options->filter.progress = &options->meter.progress;
}

struct error *load_option(struct load_options *options, int option, const char *value, bool *known)
{
	*known = true;
	switch (option) {
	case 'o':
		options->output = value;
		break;
	case 's':
		return image_args_add(&options->files, value, true);
	case LOAD_DEBUG_DIR:
		return debug_file_ahead(value);
	case LOAD_STATE:
		options->state_given = true;
		return parse_states("--state", value, &options->filter.states);
	case LOAD_VCPU:
		options->filter.vcpus = options->vcpus;
		return parse_vcpus("--vcpu", value, options->vcpus);
	case LOAD_FROM:
		return parse_moment("--from", value, &options->filter.from_ns);
	case LOAD_TO:
		return parse_moment("--to", value, &options->filter.to_ns);
	case LOAD_WEIGHT:
		options->filter.by_cpu = !strcmp(value, "cpu");
		if (!options->filter.by_cpu && strcmp(value, "time"))
			return error_new(ERR_USAGE, "--weight %s: it is time or cpu", value);
		break;
	case LOAD_NO_INLINE:
		options->naming.no_inline = true;
		break;
	case LOAD_NO_DEMANGLE:
		options->naming.no_demangle = true;
		break;
	default:
		*known = false;
	}
	return NULL;
}

double load_truncated_share(const struct profile *profile)
{
	uint64_t all = profile->selected.samples;

	uint64_t good = profile->ends[UNWIND_OUTERMOST] + profile->ends[UNWIND_NO_ROOM];

	return all ? 1 - (double)good / (double)all : 0;
}

struct error *load_unresolved_share(const struct loaded *loaded, double *share)
{
	const struct profile *profile = loaded->profile;
	uint32_t n = stacks_count(profile->stacks);
	uint64_t unresolved = 0;

	for (uint32_t i = 1; i < n; i++) {
		const struct stack_node *node = stacks_node(profile->stacks, i);
		struct named named;
		struct error *err;

		if (!profile->cells[i].samples)
			continue;
		err = namer_name(loaded->namer, node->addr, node->kind, &named);
		if (err)
			return err;
		if (!named.resolved)
			unresolved += profile->cells[i].samples;
	}
	*share = profile->selected.samples ? (double)unresolved / (double)profile->selected.samples
					   : 0;
	return NULL;
}

/* Appends a sentence to the warning; takes it over, NULL: none. */
static struct error *warn(struct loaded *loaded, char *text)
{
	char *both;
	int rc;

	if (!text || !loaded->warning) {
		loaded->warning = text ? text : loaded->warning;
		return NULL;
	}
	rc = asprintf(&both, "%s; %s", loaded->warning, text);
	free(text);
	if (rc < 0)
		return error_no_memory();
	free(loaded->warning);
	loaded->warning = both;
	return NULL;
}

/* Samples of stacks in which any frame has no name. */
static struct error *count_nameless(const struct loaded *loaded, uint64_t *samples)
{
	const struct profile *profile = loaded->profile;
	uint32_t n = stacks_count(profile->stacks);
	bool *nameless = calloc(n, sizeof(*nameless));
	struct error *err = nameless ? NULL : error_no_memory();

	*samples = 0;
	/* A node's parent comes before it. */
	for (uint32_t i = 1; i < n && !err; i++) {
		const struct stack_node *node = stacks_node(profile->stacks, i);
		struct named named = {0};

		if (i % PROGRESS_STEP == 0)
			progress_at(loaded->progress, "finding names", i, n);
		err = namer_name(loaded->namer, node->addr, node->kind, &named);
		nameless[i] = nameless[node->parent] || !named.resolved;
		if (nameless[i])
			*samples += profile->cells[i].samples;
	}
	free(nameless);
	return err;
}

static struct error *add_warnings(struct loaded *loaded)
{
	const struct profile *profile = loaded->profile;
	struct quality quality = {.stacks = profile->selected.samples};
	double unresolved;
	struct error *err = load_unresolved_share(loaded, &unresolved);
	char *text = NULL;

	if (!err)
		err = count_nameless(loaded, &quality.nameless);
	if (err)
		return err;
	quality.truncated =
		(uint64_t)(load_truncated_share(profile) * (double)quality.stacks + 0.5);
	quality.no_room = profile->ends[UNWIND_NO_ROOM];
	quality.nameless_leaf = (uint64_t)(unresolved * (double)quality.stacks + 0.5);
	err = quality_warning(&quality, &text);
	if (!err)
		err = warn(loaded, text);
	if (!err && profile->cut) {
		text = strdup("the recording stops in the middle: its writer was killed");
		err = text ? warn(loaded, text) : error_no_memory();
	}
	return err;
}

char *load_subtitle(const struct profile *profile)
{
	return guest_line(profile);
}

struct error *load_confine(const struct load_options *options)
{
	struct error *err = ahead_input(options->path);

	if (!err)
		err = symbol_cache_ahead();
	if (!err && privilege_is_special())
		err = ahead_output(options->output);
	if (!err)
		confine_reader();
	return err;
}

/* All names at once. */
static struct error *prepare(struct loaded *loaded)
{
	const char *trouble;
	struct frame *frames;
	struct error *err;
	char *text;
	size_t n;

	err = distinct_frames(loaded->profile->stacks, &frames, &n);
	if (err)
		return err;
	err = namer_prepare(loaded->namer, frames, n);
	free(frames);
	trouble = namer_trouble(loaded->namer);
	if (err || !trouble)
		return err;
	text = strdup(trouble);
	return text ? warn(loaded, text) : error_no_memory();
}

/* Without a word, nothing would be shown of them. */
static struct error *check_vcpus(const struct profile_filter *filter, const struct profile *profile)
{
	for (uint32_t i = 0; filter->vcpus && i < RECORDING_MAX_VCPUS; i++)
		if (filter->vcpus[i] && !profile->seen[i])
			return error_new(ERR_USAGE,
					 "--vcpu: nothing was recorded of vCPU %" PRIu32
					 " (the guest has %" PRIu32 ", numbered from 0)",
					 i, profile_vcpus(profile));
	return NULL;
}

struct error *load(const struct load_options *options, struct loaded *out)
{
	const bool to_stdout = !options->output || !strcmp(options->output, "-");
	struct error *err;

	memset(out, 0, sizeof(*out));
	out->progress = options->filter.progress;
	err = profile_load(options->path, &options->filter, &out->profile);
	if (!err)
		err = check_vcpus(&options->filter, out->profile);
	if (!err)
		err = load_images(&options->files, out->profile, &out->images, &out->warning);
	if (!err)
		err = namer_new(out->images, out->profile, &out->namer);
	if (!err)
		namer_set(out->namer, &options->naming);
	if (!err)
		err = prepare(out);
	if (!err)
		err = add_warnings(out);
	progress_end(out->progress);
	/* What follows comes in between otherwise. */
	if (out->progress && to_stdout)
		out->progress->silent = isatty(STDOUT_FILENO);
	if (err)
		unload(out);
	return err;
}

void unload(struct loaded *loaded)
{
	progress_end(loaded->progress);
	namer_free(loaded->namer);
	images_free(loaded->images);
	profile_free(loaded->profile);
	free(loaded->warning);
	memset(loaded, 0, sizeof(*loaded));
}
