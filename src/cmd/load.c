/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/load.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/parse.h"

/* Above these shares a profile is not to be read without a warning. */
#define WARN_TRUNCATED	0.05
#define WARN_UNRESOLVED 0.20

void load_defaults(struct load_options *options)
{
	memset(options, 0, sizeof(*options));
	options->filter = PROFILE_ON_CPU;
}

struct error *load_option(struct load_options *options, int option, const char *value, bool *known)
{
	struct error *err = NULL;
	uint64_t number;

	*known = true;
	switch (option) {
	case 'o':
		options->output = value;
		break;
	case 's':
		options->symbols = value;
		break;
	case LOAD_STATE:
		return parse_states("--state", value, &options->filter.states);
	case LOAD_VCPU:
		err = parse_count("--vcpu", value, 0, RECORDING_MAX_VCPUS - 1, &number);
		if (!err)
			options->filter.vcpu = (int64_t)number;
		break;
	default:
		*known = false;
	}
	return err;
}

/*
 * A recording whose writer was killed carries no names, but tells which image
 * it is about; it is used only if it still is the same one.
 */
static struct error *find_symbols(const struct load_options *options, const struct profile *profile,
				  struct symbols **symbols)
{
	const struct recording_info *info = &profile->info;
	const char *id;
	struct error *err;

	if (options->symbols)
		return symbols_load(options->symbols, symbols);
	if (profile->n_names || !info->image)
		return NULL;
	err = symbols_load(info->image, symbols);
	if (err) {
		error_free(err);
		return NULL;
	}
	id = symbols_build_id(*symbols);
	if (info->build_id && (!id || strcmp(id, info->build_id))) {
		symbols_free(*symbols);
		*symbols = NULL;
	}
	return NULL;
}

double load_truncated_share(const struct profile *profile)
{
	uint64_t all = profile->selected.samples;

	return all ? 1 - (double)profile->ends[UNWIND_OUTERMOST] / (double)all : 0;
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

/* Appends a sentence to the warning. */
static struct error *warn(struct loaded *loaded, const char *format, ...) PRINTF_LIKE(2, 3);

static struct error *warn(struct loaded *loaded, const char *format, ...)
{
	char *text, *both;
	va_list args;
	int rc;

	va_start(args, format);
	rc = vasprintf(&text, format, args);
	va_end(args);
	if (rc < 0)
		return error_no_memory();
	rc = asprintf(&both, "%s%s%s", loaded->warning ? loaded->warning : "",
		      loaded->warning ? "; " : "", text);
	free(text);
	if (rc < 0)
		return error_no_memory();
	free(loaded->warning);
	loaded->warning = both;
	return NULL;
}

static struct error *add_warnings(struct loaded *loaded)
{
	const struct profile *profile = loaded->profile;
	double truncated = load_truncated_share(profile), unresolved;
	struct error *err = load_unresolved_share(loaded, &unresolved);

	if (!err && truncated > WARN_TRUNCATED)
		err = warn(loaded, "%.0f %% of the stacks are cut short: callers are missing",
			   100 * truncated);
	if (!err && unresolved > WARN_UNRESOLVED)
		err = warn(loaded, "%.0f %% of the samples are in code without a name",
			   100 * unresolved);
	if (!err && profile->cut)
		err = warn(loaded, "the recording stops in the middle: its writer was killed");
	return err;
}

char *load_subtitle(const struct profile *profile)
{
	const struct recording_info *info = &profile->info;
	char *text;

	if (asprintf(&text, "%s:%s (%s), %" PRIu64 " samples at %g/s in %.1f s",
		     info->target ? info->target : "?",
		     info->guest_name && *info->guest_name ? info->guest_name
		     : info->guest_id			   ? info->guest_id
							   : "?",
		     info->guest_type ? info->guest_type : "?", profile->selected.samples,
		     info->rate_hz, (double)profile->last_ns / 1e9) < 0)
		return NULL;
	return text;
}

struct error *load(const struct load_options *options, struct loaded *out)
{
	struct error *err;

	memset(out, 0, sizeof(*out));
	err = profile_load(options->path, &options->filter, &out->profile);
	if (!err)
		err = find_symbols(options, out->profile, &out->symbols);
	if (!err)
		err = namer_new(out->symbols, out->profile, &out->namer);
	if (!err)
		err = add_warnings(out);
	if (err)
		unload(out);
	return err;
}

void unload(struct loaded *loaded)
{
	namer_free(loaded->namer);
	symbols_free(loaded->symbols);
	profile_free(loaded->profile);
	free(loaded->warning);
	memset(loaded, 0, sizeof(*loaded));
}
