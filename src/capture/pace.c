/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/pace.h"

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
	pace->start_ns = now_ns;
	pace->period_ns = period_ns;
	pace->next = 0;
	pace->random = seed | 1;
	pace->jitter = jitter;
	set_deadline(pace);
}

void pace_delay(struct pace *pace, uint64_t ns)
{
	pace->start_ns += ns;
	set_deadline(pace);
}

uint64_t pace_deadline(const struct pace *pace)
{
	return pace->deadline_ns;
}

uint64_t pace_take(struct pace *pace, uint64_t now_ns)
{
	uint64_t current =
		now_ns > pace->start_ns ? (now_ns - pace->start_ns) / pace->period_ns : 0;
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
	uint64_t current =
		now_ns > pace->start_ns ? (now_ns - pace->start_ns) / pace->period_ns : 0;

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
