/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/profile.h"

/* Above these shares a profile is not to be read without a warning. */
#define WARN_TRUNCATED 0.05
#define WARN_BROKEN    0.05
#define WARN_NAMELESS  0.20
#define WARN_FAR       0.01
#define WARN_STOPPED   0.05
#define WARN_AT_YIELDS 0.05

/* ... and below this share of the samples. */
#define WARN_DRAWS 0.25

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

/* Sentences, up to so many. */
struct sentences {
	char text[1024];
	unsigned left;
};

static void add(struct sentences *to, const char *format, ...)
{
	size_t len = strlen(to->text);
	va_list args;

	if (!to->left)
		return;
	to->left--;
	len += (size_t)snprintf(to->text + len, sizeof(to->text) - len, "%s", len ? "; " : "");
	va_start(args, format);
	vsnprintf(to->text + len, sizeof(to->text) - len, format, args);
	va_end(args);
}

static void add_percent(struct sentences *to, double percent, const char *sentence)
{
	add(to, "%.*f %% of the %s", percent < 1 ? 1 : 0, percent, sentence);
}

static void judge_stops(const struct quality *quality, struct sentences *to)
{
	const bool bounded = quality->max_overhead > 0 && quality->max_overhead <= WARN_STOPPED;

	if (quality->stopped <= WARN_STOPPED)
		return;
	if (bounded)
		add(to,
		    "the guest was stopped for %.0f %% of the time, though the bound is %g %%: "
		    "single stops are long on this host",
		    100 * quality->stopped, 100 * quality->max_overhead);
	else
		add(to,
		    "the guest was stopped for %.0f %% of the time, and behaved as if it was "
		    "slower: --max-overhead 5 samples less often",
		    100 * quality->stopped);
}

/* How far shares can be believed, whatever the stacks are. */
static void judge_sampling(const struct quality *quality, struct sentences *to)
{
	if (quality->draws < WARN_DRAWS * (double)quality->ticks)
		add(to,
		    "%" PRIu64
		    " samples are worth %.0f draws only, as few of them stand for most of "
		    "the time: sample for longer (-T), or give uniprof a CPU that is not busy",
		    quality->stacks, quality->draws);
	if (quality->at_yields > WARN_AT_YIELDS)
		add(to,
		    "%.0f %% of the samples had to wait until the guest yielded the CPU that "
		    "it shares with uniprof, and what yields has too large a share: give "
		    "domain 0 a CPU of its own, or run `xl sched-%.7s -s -p Pool-0 -r 0`",
		    100 * quality->at_yields, quality->scheduler);
	judge_stops(quality, to);
}

static void judge_stacks(const struct quality *quality, struct sentences *to)
{
	double truncated = share(quality->truncated, quality->stacks);
	double broken = share(quality->broken, quality->stacks);

	if (truncated > WARN_TRUNCATED)
		add_percent(to, 100 * truncated, "stacks are cut short: callers are missing");
	if (broken > WARN_BROKEN)
		add_percent(to, 100 * broken,
			    "stacks end where no caller was found: callers may be missing");
	if (quality->no_room)
		add_percent(to, 100 * share(quality->no_room, quality->stacks),
			    "stacks lack the functions that were at work: there were more "
			    "different stacks than memory for them (--max-memory)");
}

static void judge_names(const struct quality *quality, struct sentences *to)
{
	double leaf = share(quality->nameless_leaf, quality->stacks);
	double any = share(quality->nameless, quality->stacks);
	double far = share(quality->far_leaf, quality->stacks);
	char sentence[256];

	if (leaf > WARN_NAMELESS)
		add_percent(to, 100 * leaf, "samples are in code without a name");
	else if (any > WARN_NAMELESS)
		add_percent(to, 100 * any, "stacks have callers without a name");
	if (far > WARN_FAR) {
		snprintf(sentence, sizeof(sentence),
			 "samples are more than 64 KiB behind the symbol that names them (%.100s): "
			 "other symbols are missing",
			 quality->far_name);
		add_percent(to, 100 * far, sentence);
	}
}

struct error *quality_warning(const struct quality *quality, unsigned most, char **text)
{
	struct sentences all = {.left = most};

	*text = NULL;
	judge_sampling(quality, &all);
	judge_stacks(quality, &all);
	judge_names(quality, &all);
	if (!*all.text)
		return NULL;
	*text = strdup(all.text);
	return *text ? NULL : error_no_memory();
}

double profile_draws(const struct profile *profile)
{
	return profile->tick_weights_squared > 0 ? profile->tick_weights * profile->tick_weights /
							   profile->tick_weights_squared
						 : 0;
}

double profile_share_draws(const struct profile *profile, const struct profile_cell *cell)
{
	const double all = (double)profile->selected.weight_ns, squares = profile->selected.squares;
	const double draws = profile_draws(profile),
		     share = all > 0 ? (double)cell->weight_ns / all : 0;
	const double variance = cell->squares * (1 - 2 * share) + share * share * squares;

	if (!(variance > 0))
		return draws;
	/* draws * squares / all^2: fewer draws than samples, as several belong to one tick. */
	return fmin(draws, draws * squares * share * (1 - share) / variance);
}

double profile_not_sampled(const struct profile *profile)
{
	const double left_out = (double)profile->not_sampled_ns;

	return left_out > 0 ? left_out / (left_out + (double)profile->selected.weight_ns) : 0;
}
