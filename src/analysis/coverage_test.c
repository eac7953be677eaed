/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measures how often intervals hold the truth: recordings of guests whose work
 * is known, sampled on hosts with and without other work, by the weights, draws
 * and intervals of all reports.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "analysis/diff.h"
#include "profile/profile.h"

#define RECORDINGS 10000 /* of each test */
#define TICKS	   300
#define MS	   1e6

/* The sampler's lateness, in periods (of 1 ms). */
struct host {
	double late_chance, late; /* so often, and so long on average */
	double stall_chance, stall;
	double least_cpu; /* the guest gets a share of the CPU between this and all of it */
};

static const struct host quiet = {.least_cpu = 1};
static const struct host busy = {.late_chance = 0.3, .late = 4, .least_cpu = 0.2};
static const struct host stalling = {.stall_chance = 1.0 / 300, .stall = 1000, .least_cpu = 1};

static uint64_t seed;

/* xorshift64* (Vigna, 2016); 0 to 1. */
static double chance(void)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (double)(seed * UINT64_C(0x2545f4914f6cdd1d) >> 11) * 0x1p-53;
}

static double exponential(double mean)
{
	return -mean * log(1 - chance());
}

/* Two functions by turns. */
struct guest {
	double share;	     /* of the first */
	double turn;	     /* both together, of its CPU time, in periods; 0: far less than one */
	double left;	     /* of this function's turn */
	bool first;	     /* ... and which it is */
	double sampled, all; /* CPU time of the first, and of both, in what samples stand for */
};

/* Lets the guest run. */
static void run(struct guest *guest, double time, bool sampled)
{
	if (sampled)
		guest->all += time;
	if (guest->turn <= 0) {
		guest->first = chance() < guest->share;
		guest->sampled += sampled ? time * guest->share : 0;
		return;
	}
	while (time > 0) {
		const double step = fmin(time, guest->left);

		guest->sampled += sampled && guest->first ? step : 0;
		guest->left -= step;
		time -= step;
		if (guest->left > 0)
			continue;
		guest->first = !guest->first;
		guest->left =
			exponential(guest->turn * (guest->first ? guest->share : 1 - guest->share));
	}
}

struct recording {
	struct profile profile;
	struct weighting weighting;
	struct profile_cell first;
};

static void count(struct recording *recording, const struct tick *tick, struct guest *guest)
{
	struct profile *profile = &recording->profile;
	struct weight weight;
	struct profile_cell cell;

	weighting_tick(&recording->weighting, tick);
	weight = weighting_entry(&recording->weighting, tick, tick->entries);
	cell = (struct profile_cell){.samples = 1,
				     .weight_ns = weight.sampled_ns,
				     .squares = pow((double)weight.sampled_ns, 2)};
	run(guest, (double)weight.not_sampled_ns / MS, false);
	run(guest, (double)weight.sampled_ns / MS, true);
	profile_cell_add(&profile->selected, &cell);
	if (guest->first)
		profile_cell_add(&recording->first, &cell);
	profile->tick_weights += (double)cell.weight_ns;
	profile->tick_weights_squared += cell.squares;
}

/* Samples one recording; true if the interval holds the truth. */
static bool holds(const struct host *host, enum weight_by by, struct guest *guest)
{
	static const struct recording_info info = {.rate_hz = 1000, .vcpus = 1};
	struct recording recording = {0};
	double before = 0, share, truth;
	struct interval interval;

	weighting_start(&recording.weighting, by, 1u << VCPU_RUNNING, &info);
	guest->sampled = guest->all = 0;
	for (double period = 0; period < TICKS; period++) {
		double now = period + chance();
		struct tick_entry entry = {.state = VCPU_RUNNING};
		struct tick tick = {.n = 1, .entries = &entry};

		if (chance() < host->late_chance)
			now += exponential(host->late);
		if (chance() < host->stall_chance)
			now += host->stall;
		now = fmax(now, before + 0.01);
		tick.weight_ns = (uint64_t)(fmax(1, floor(now) - period) * MS);
		entry.ran_ns = (uint64_t)((now - before) * MS *
					  (host->least_cpu + chance() * (1 - host->least_cpu)));
		before = now;
		period = fmax(period, floor(now) - 1);
		count(&recording, &tick, guest);
	}
	share = (double)recording.first.weight_ns / (double)recording.profile.selected.weight_ns;
	truth = guest->turn > 0 ? guest->sampled / guest->all : guest->share;
	interval =
		interval_of_share(share, profile_share_draws(&recording.profile, &recording.first));
	return interval.low <= truth && truth <= interval.high;
}

/* The part of `n` recordings whose interval holds the truth; `turn` as in struct guest. */
static double coverage(const struct host *host, enum weight_by by, double turn, size_t n)
{
	size_t held = 0;

	seed = 20261122;
	for (size_t i = 0; i < n; i++) {
		struct guest guest = {.share = 0.05 + 0.9 * chance(), .turn = turn};

		held += holds(host, by, &guest);
	}
	return (double)held / (double)n;
}

static void covers(const struct host *host, double turn, size_t n, double least, double most)
{
	static const enum weight_by all[] = {WEIGHT_BY_BEST, WEIGHT_BY_TIME, WEIGHT_BY_SAMPLES};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const double part = coverage(host, all[i], turn, n);

		print_message("# weight %d, turns of %g periods: %.4f\n", (int)all[i], turn, part);
		assert_in_range((uint64_t)(part * 1e4), (uint64_t)(least * 1e4),
				(uint64_t)(most * 1e4));
	}
}

static void intervals_hold_the_truth_95_times_in_100_on_a_quiet_host(void **state)
{
	covers(&quiet, 0, RECORDINGS / 3, 0.93, 0.97);
}

static void intervals_hold_the_truth_95_times_in_100_on_a_busy_host(void **state)
{
	covers(&busy, 0, RECORDINGS / 3, 0.93, 0.97);
}

static void intervals_hold_the_truth_95_times_in_100_with_stalls(void **state)
{
	covers(&stalling, 0, RECORDINGS / 3, 0.93, 0.97);
}

static void long_turns_make_intervals_hold_more_often(void **state)
{
	static const struct host *const hosts[] = {&quiet, &busy, &stalling};
	static const double turns[] = {0.5, 3, 30}; /* periods */

	for (size_t h = 0; h < 3; h++)
		for (size_t t = 0; t < 3; t++)
			covers(hosts[h], turns[t], RECORDINGS / 30, 0.93, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(intervals_hold_the_truth_95_times_in_100_on_a_quiet_host),
		cmocka_unit_test(intervals_hold_the_truth_95_times_in_100_on_a_busy_host),
		cmocka_unit_test(intervals_hold_the_truth_95_times_in_100_with_stalls),
		cmocka_unit_test(long_turns_make_intervals_hold_more_often),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
