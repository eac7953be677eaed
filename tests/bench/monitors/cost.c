/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * vmm_cost QMP PID CONSOLE [SECONDS] [WAY...]
 *
 * Samples a guest at 997 samples/s by several ways, which take turns in rounds,
 * and writes a line of JSON for each: how long the guest was stopped for a
 * sample and how long that took in all (medians, us), and the share of its work
 * that was lost. The work is what the guest writes to its console, a file; how
 * much that is without sampling is looked at before and after each turn.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ways.h"

#define RATE_HZ	    997u
#define SECONDS	    3.0
#define ROUNDS	    8
#define SAMPLES_MAX 50000
#define WARM_UP	    10
#define WARM_UP_US  30000

struct guest {
	const char *qmp, *pid, *console;
	double seconds;
};

/* Measurements of one way. */
struct found {
	uint64_t stopped_ns[SAMPLES_MAX], total_ns[SAMPLES_MAX];
	size_t n;
	double with, without; /* work a nanosecond, of all turns */
};

static struct found found[WAYS];

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x == *y ? 0 : *x < *y ? -1 : 1;
}

static double median_us(uint64_t *list, size_t n)
{
	qsort(list, n, sizeof(*list), by_value);
	return n ? (double)list[n / 2] / 1e3 : 0;
}

static uint64_t done(const struct guest *guest)
{
	struct stat about;

	return stat(guest->console, &about) ? 0 : (uint64_t)about.st_size;
}

/* Duration of one turn. */
static double turn_s(const struct guest *guest)
{
	return guest->seconds / ROUNDS;
}

/* Work without anything. */
static double alone(const struct guest *guest)
{
	const uint64_t began = clock_now_ns(), before = done(guest);

	usleep((useconds_t)(turn_s(guest) * 5e5));
	return (double)(done(guest) - before) / (double)(clock_now_ns() - began);
}

static struct error *sample_for_a_while(const struct guest *guest, const struct way *way,
					void *state, struct found *to)
{
	const uint64_t period = NS_PER_S / RATE_HZ, began = clock_now_ns(), before = done(guest);
	const uint64_t end = began + (uint64_t)(turn_s(guest) * 1e9);
	uint64_t due = began;
	struct error *err = NULL;

	for (; !err && to->n < SAMPLES_MAX && clock_now_ns() < end; to->n++) {
		const uint64_t start = clock_now_ns();

		err = way->take(state, &to->stopped_ns[to->n]);
		to->total_ns[to->n] = clock_now_ns() - start;
		/* Missed deadlines are left out. */
		while (due <= clock_now_ns())
			due += period;
		clock_sleep_until(due);
	}
	to->with += (double)(done(guest) - before) / (double)(clock_now_ns() - began);
	return err;
}

static struct error *take_turn(const struct guest *guest, const struct way *way, struct found *to)
{
	const double before = alone(guest);
	void *state = NULL;
	struct error *err = way->open(guest->qmp, guest->pid, &state);
	uint64_t unused;

	/* The first ones have to find things, and may not do so at once. */
	for (int i = 0; i < WARM_UP && !err; i++) {
		error_free(way->take(state, &unused));
		usleep(WARM_UP_US);
	}
	if (!err)
		err = sample_for_a_while(guest, way, state, to);
	if (state)
		way->close(state);
	to->without += (before + alone(guest)) / 2;
	return err ? error_prefix(err, "%s", way->name) : NULL;
}

static void tell(const struct guest *guest, const struct way *way, struct found *of)
{
	printf("{\"way\":\"%s\",\"stopped_us\":%.1f,\"total_us\":%.1f,\"work_lost\":%.4f,"
	       "\"samples\":%zu,\"hz\":%.0f}\n",
	       way->name, median_us(of->stopped_ns, of->n), median_us(of->total_ns, of->n),
	       1 - of->with / of->without, of->n, (double)of->n / guest->seconds);
}

static bool is_wanted(const char *name, int argc, char **argv)
{
	bool wanted = argc < 6;

	for (int k = 5; k < argc; k++)
		wanted |= !strcmp(argv[k], name);
	return wanted;
}

int main(int argc, char **argv)
{
	struct guest guest;
	struct error *err = NULL;

	if (argc < 4) {
		fputs("usage: vmm_cost QMP PID CONSOLE [SECONDS] [WAY...]\n", stderr);
		return 2;
	}
	guest = (struct guest){.qmp = argv[1],
			       .pid = argv[2],
			       .console = argv[3],
			       .seconds = argc > 4 ? atof(argv[4]) : SECONDS};
	for (int round = 0; round < ROUNDS; round++)
		for (size_t i = 0; i < WAYS && !err; i++)
			if (is_wanted(ways[i].name, argc, argv))
				err = take_turn(&guest, &ways[i], &found[i]);
	for (size_t i = 0; i < WAYS && !err; i++)
		if (found[i].n)
			tell(&guest, &ways[i], &found[i]);
	if (err)
		fprintf(stderr, "vmm_cost: %s\n", err->text);
	return err != NULL;
}
