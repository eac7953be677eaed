/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/weighting.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "import/import.h"
#include "profile/profile.h"

/* The median hardly moves after so many ticks: it is taken anew once in as many. */
#define FEW_TICKS 64

void weighting_start(struct weighting *weighting, enum weight_by by, unsigned states,
		     const struct recording_info *info)
{
	const bool runs_only = states == 1u << VCPU_RUNNING;

	memset(weighting, 0, sizeof(*weighting));
	weighting->by = by == WEIGHT_BY_BEST && !runs_only ? WEIGHT_BY_TIME : by;
	weighting->bounded = !import_is_target(info->target);
	weighting->period_ns = recording_period_ns(info);
	weighting->bound_ns = UINT64_MAX;
}

static uint64_t times_saturating(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* How many of the periods that were asked for the tick's is: recordings of several rates may be read as one. */
static double periods(const struct weighting *weighting, const struct tick *tick)
{
	return tick->period_ns ? (double)tick->period_ns / (double)weighting->period_ns : 1;
}

static uint64_t scaled(uint64_t ns, double by)
{
	const double value = (double)ns * by;

	if (by == 1)
		return ns;
	return value < 0x1p64 ? (uint64_t)value : UINT64_MAX;
}

static struct weight bounded(const struct weighting *weighting, const struct tick *tick,
			     uint64_t ns)
{
	const uint64_t bound_ns = scaled(weighting->bound_ns, periods(weighting, tick));

	return ns > bound_ns ? (struct weight){bound_ns, ns - bound_ns} : (struct weight){ns, 0};
}

void weighting_tick(struct weighting *weighting, const struct tick *tick)
{
	struct histogram *stretches = &weighting->stretches;
	struct weight stretch;

	weighting->running = 0;
	for (uint32_t i = 0; i < tick->n; i++) {
		weighting->has_cpu[tick->entries[i].vcpu] |= tick->entries[i].ran_ns > 0;
		weighting->running += tick->entries[i].state == VCPU_RUNNING;
	}
	if (!weighting->bounded)
		return;
	histogram_add(stretches, scaled(tick->weight_ns, 1 / periods(weighting, tick)));
	if (stretches->n < FEW_TICKS || stretches->n % FEW_TICKS == 0)
		weighting->bound_ns =
			times_saturating(histogram_quantile(stretches, 0.5), WEIGHTING_STRETCHES);
	stretch = bounded(weighting, tick, tick->weight_ns);
	weighting->stretch.sampled_ns =
		weight_sum(weighting->stretch.sampled_ns, stretch.sampled_ns);
	weighting->stretch.not_sampled_ns =
		weight_sum(weighting->stretch.not_sampled_ns, stretch.not_sampled_ns);
}

struct weight weighting_time(const struct weighting *weighting, const struct tick *tick)
{
	const uint64_t period_ns = tick->period_ns ?: weighting->period_ns;

	if (weighting->by != WEIGHT_BY_SAMPLES)
		return bounded(weighting, tick, tick->weight_ns);
	if (!weighting->bounded || tick->weight_ns < period_ns)
		return (struct weight){period_ns, 0};
	return (struct weight){period_ns, tick->weight_ns - period_ns};
}

bool weighting_is_cpu_time(const struct weighting *weighting, const struct tick_entry *entry)
{
	const bool best = weighting->by == WEIGHT_BY_BEST || weighting->by == WEIGHT_BY_LATENCY;

	return entry->state < VCPU_STATES &&
	       (weighting->by == WEIGHT_BY_CPU || (best && weighting->has_cpu[entry->vcpu]));
}

static struct weight whole(const struct weighting *weighting, const struct tick *tick,
			   const struct tick_entry *entry)
{
	if (weighting_is_cpu_time(weighting, entry))
		return bounded(weighting, tick, entry->ran_ns);
	return weighting_time(weighting, tick);
}

/*
 * A thread that does not run uses no CPU time. The sampler weighs it, and has left out
 * stretches in which nobody looked: as many as there were so far in all ticks.
 */
static struct weight of_wait(const struct weighting *weighting, const struct tick_entry *entry)
{
	const struct weight *stretch = &weighting->stretch;
	const double not_sampled =
		fmin(0x1p62, (double)entry->weight_ns * (double)stretch->not_sampled_ns /
				     fmax(1, (double)stretch->sampled_ns));

	if (weighting->by == WEIGHT_BY_SAMPLES)
		return (struct weight){weighting->period_ns, 0};
	if (weighting->by == WEIGHT_BY_BEST || weighting->by == WEIGHT_BY_TIME)
		return (struct weight){entry->weight_ns, (uint64_t)not_sampled};
	return (struct weight){0};
}

struct weight weighting_entry(const struct weighting *weighting, const struct tick *tick,
			      const struct tick_entry *entry)
{
	struct weight weight;

	if (entry->state >= VCPU_STATES)
		return of_wait(weighting, entry);
	weight = whole(weighting, tick, entry);
	if (weighting->by != WEIGHT_BY_LATENCY)
		return weight;
	if (entry->state != VCPU_RUNNING)
		return (struct weight){0};
	weight.sampled_ns /= weighting->running;
	weight.not_sampled_ns /= weighting->running;
	return weight;
}

struct breakdown {
	struct ids *ids; /* of stack, thread, vCPU and state: the index of the entry */
	struct breakdown_entry *at;
	size_t room;
};

struct error *breakdown_new(struct breakdown **out)
{
	struct breakdown *breakdown = calloc(1, sizeof(*breakdown));
	struct error *err = breakdown ? ids_new(&breakdown->ids) : error_no_memory();

	if (err)
		free(breakdown);
	else
		*out = breakdown;
	return err;
}

void breakdown_free(struct breakdown *breakdown)
{
	if (!breakdown)
		return;
	ids_free(breakdown->ids);
	free(breakdown->at);
	free(breakdown);
}

size_t breakdown_count(const struct breakdown *breakdown)
{
	return ids_count(breakdown->ids);
}

const struct breakdown_entry *breakdown_at(const struct breakdown *breakdown, size_t i)
{
	return &breakdown->at[i];
}

struct error *breakdown_add(struct breakdown *breakdown, const struct tick_entry *entry,
			    uint64_t times, uint64_t weight_ns)
{
	uint32_t i;
	bool added;

	TRY(ids_get(breakdown->ids, (uint64_t)entry->thread << 32 | entry->stack,
		    (uint64_t)entry->vcpu << 8 | entry->state, &i, &added));
	TRY(ARRAY_RESERVE(&breakdown->at, &breakdown->room, i + (size_t)1));
	if (added)
		breakdown->at[i] = (struct breakdown_entry){.stack = entry->stack,
							    .thread = entry->thread,
							    .vcpu = (uint16_t)entry->vcpu,
							    .state = entry->state};
	profile_cell_count(&breakdown->at[i].cell, times, weight_ns);
	return NULL;
}

/* True if the text is one of the words of a list. */
static bool lists(const char *words, const char *text)
{
	const size_t len = strlen(text);

	for (;; words++) {
		const size_t word = strcspn(words, ",");

		if (word == len && !memcmp(words, text, len))
			return true;
		words += word;
		if (!*words)
			return false;
	}
}

static bool lists_number(const char *words, uint32_t number)
{
	char text[16];

	snprintf(text, sizeof(text), "%" PRIu32, number);
	return lists(words, text);
}

static bool lists_container(const char *words, const char *path)
{
	char name[CONTAINER_NAME_ROOM];

	if (!path)
		return false;
	recorded_container_name(path, name);
	return lists(words, name) || lists(words, path);
}

bool profile_selects_thread(const struct profile_filter *filter, const struct tick *tick,
			    const struct tick_entry *entry)
{
	const struct recorded_thread *thread;

	if (!filter->comm && !filter->pid && !filter->tid && !filter->container)
		return true;
	if (!entry->thread || !tick->threads)
		return false;
	thread = &tick->threads[entry->thread - 1];
	return (!filter->comm || lists(filter->comm, thread->name) ||
		lists(filter->comm, thread->process)) &&
	       (!filter->pid || lists_number(filter->pid, thread->pid)) &&
	       (!filter->tid || lists_number(filter->tid, thread->tid)) &&
	       (!filter->container || lists_container(filter->container, thread->container));
}
