/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/sampler.h"

/* xorshift64* (Vigna, 2016): plenty for choosing moments. */
static uint64_t next_random(struct pace *pace)
{
	pace->random ^= pace->random >> 12;
	pace->random ^= pace->random << 25;
	pace->random ^= pace->random >> 27;
	return pace->random * 0x2545f4914f6cdd1dull;
}

static void set_deadline(struct pace *pace)
{
	pace->deadline_ns = pace->start_ns + pace->next * pace->period_ns;
	if (pace->jitter)
		pace->deadline_ns += next_random(pace) % pace->period_ns;
}

void pace_start(struct pace *pace, uint64_t now_ns, uint64_t period_ns, bool jitter, uint64_t seed)
{
	*pace = (struct pace){.start_ns = now_ns,
			      .period_ns = period_ns,
			      .random = seed | 1,
			      .jitter = jitter};
	set_deadline(pace);
}

void pace_delay(struct pace *pace, uint64_t ns)
{
	pace->start_ns += ns;
	set_deadline(pace);
}

/* The number of the period that is now. */
static uint64_t current_period(const struct pace *pace, uint64_t now_ns)
{
	return now_ns > pace->start_ns ? (now_ns - pace->start_ns) / pace->period_ns : 0;
}

uint64_t pace_take(struct pace *pace, uint64_t now_ns)
{
	const uint64_t current = current_period(pace, now_ns);
	uint64_t periods = 1;

	/*
	 * A sample that was due late in its period may well be taken early in the
	 * next one, which still gets its own.
	 */
	if (current > pace->next + 1)
		periods = current - pace->next;
	pace->next += periods;
	set_deadline(pace);
	return periods;
}

void pace_skip(struct pace *pace, uint64_t now_ns)
{
	const uint64_t current = current_period(pace, now_ns);

	if (current <= pace->next)
		return;
	pace->next = current;
	set_deadline(pace);
}

/* Time that may be owed. */
#define CREDIT_NS 1000000ull

/* Returns the time that is owed: that of samples, less all time between them, less the credit. */
static uint64_t owe(struct throttle *throttle, uint64_t began_ns, uint64_t now_ns)
{
	const uint64_t rested = began_ns > throttle->last_ns ? began_ns - throttle->last_ns : 0;

	throttle->owed_ns -= rested < throttle->owed_ns ? rested : throttle->owed_ns;
	throttle->owed_ns += now_ns - began_ns;
	throttle->last_ns = now_ns;
	return throttle->owed_ns > CREDIT_NS ? throttle->owed_ns - CREDIT_NS : 0;
}

bool throttle_after(struct throttle *throttle, uint64_t began_ns, uint64_t now_ns,
		    uint64_t paused_ns)
{
	const uint64_t least = owe(throttle, began_ns, now_ns);
	const double bound = throttle->max_overhead;

	throttle->until_ns = now_ns + least;
	if (bound > 0) {
		double share = (double)paused_ns * (1 - bound) / bound;

		if (throttle->max_rest_ns && share > (double)throttle->max_rest_ns)
			share = (double)throttle->max_rest_ns;
		if (share > (double)least) {
			throttle->until_ns = now_ns + (uint64_t)share;
			return true;
		}
	}
	return false;
}

uint64_t throttle_due(const struct throttle *throttle, uint64_t deadline_ns)
{
	return deadline_ns > throttle->until_ns ? deadline_ns : throttle->until_ns;
}

/* Rates are made for less than the budget, so that a small deviation changes none; below RATES_RAISE of it there is room. */
#define RATES_AIM	0.9
#define RATES_RAISE	0.75
#define RATES_MOST_MORE 2.0
/* Changes by less than this are not worth a new recording. */
#define RATES_LEAST_MORE 1.1

/* Share of a CPU that the sampler would take at the wanted rate. */
static double demand(const struct rate_share *share, double wanted_hz)
{
	return share->cpu * wanted_hz / share->rate_hz;
}

/* The share of a CPU for each sampler at which all together take `available`: those that need less leave the rest to others. */
static double fair_level(const struct rate_share *shares, size_t n, double wanted_hz,
			 double available)
{
	double level = 0, last = -1;

	while (level > last) {
		double left = available;
		size_t limited = 0;

		last = level;
		for (size_t i = 0; i < n; i++) {
			const double wants = shares[i].cpu < 0 ? 0 : demand(&shares[i], wanted_hz);

			if (wants > level)
				limited++;
			else
				left -= wants;
		}
		if (limited && left / (double)limited > level)
			level = left / (double)limited;
	}
	return level;
}

static double clamp(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

static double raised(double rate_hz, double next, double wanted_hz)
{
	if (next < wanted_hz && next < RATES_LEAST_MORE * rate_hz)
		return rate_hz;
	return clamp(next, rate_hz, RATES_MOST_MORE * rate_hz);
}

bool rates_fit(struct rate_share *shares, size_t n, const struct rate_limits *limits)
{
	double all = limits->others, level;
	bool over, changed = false;

	for (size_t i = 0; i < n; i++)
		all += shares[i].cpu > 0 ? shares[i].cpu : 0;
	over = all > limits->max_cpu;
	if (limits->max_cpu <= 0 ||
	    (!over && !(limits->may_raise && all < RATES_RAISE * limits->max_cpu)))
		return false;
	level = fair_level(shares, n, limits->wanted_hz,
			   RATES_AIM * limits->max_cpu - limits->others);
	for (size_t i = 0; i < n; i++) {
		const double rate_hz = shares[i].rate_hz,
			     wants = demand(&shares[i], limits->wanted_hz),
			     next = wants > level ? limits->wanted_hz * level / wants
						  : limits->wanted_hz;

		if (shares[i].cpu >= 0)
			shares[i].rate_hz = over ? clamp(next, limits->least_hz, rate_hz)
						 : raised(rate_hz, next, limits->wanted_hz);
		changed = changed || shares[i].rate_hz != rate_hz;
	}
	return changed;
}
