/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * vmm_cost QMP PID CONSOLE [SECONDS] [WAY...]
 *
 * Samples a guest at 997 samples/s, one way after the other, and writes a line
 * of JSON for each: how long the guest was stopped for a sample and how long
 * that took in all (medians, us), and the share of its work that was lost. The
 * work is what the guest writes to its console, a file; how much that is
 * without sampling is looked at before and after each way.
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
#define SAMPLES_MAX 100000
#define WARM_UP	    30
#define WARM_UP_US  30000

struct guest {
	const char *qmp, *pid, *console;
	double seconds;
};

static uint64_t values[2][SAMPLES_MAX];

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

/* Work a second, without anything. */
static double alone(const struct guest *guest)
{
	const uint64_t began = clock_now_ns(), before = done(guest);

	usleep((useconds_t)(guest->seconds * 5e5));
	return (double)(done(guest) - before) / (double)(clock_now_ns() - began);
}

static struct error *sample_for_a_while(const struct guest *guest, const struct way *way,
					void *state, size_t *n, double *work)
{
	const uint64_t period = NS_PER_S / RATE_HZ, began = clock_now_ns(), before = done(guest);
	const uint64_t end = began + (uint64_t)(guest->seconds * 1e9);
	uint64_t due = began;
	struct error *err = NULL;

	for (*n = 0; !err && *n < SAMPLES_MAX && clock_now_ns() < end; (*n)++) {
		const uint64_t start = clock_now_ns();

		err = way->take(state, &values[0][*n]);
		values[1][*n] = clock_now_ns() - start;
		/* What is late is left out. */
		while (due <= clock_now_ns())
			due += period;
		clock_sleep_until(due);
	}
	*work = (double)(done(guest) - before) / (double)(clock_now_ns() - began);
	return err;
}

static struct error *measure(const struct guest *guest, const struct way *way)
{
	void *state = NULL;
	double before = alone(guest), after, work = 0;
	struct error *err = way->open(guest->qmp, guest->pid, &state);
	uint64_t unused;
	size_t n = 0;

	/* The first ones have to find things, and may not do so at once. */
	for (int i = 0; i < WARM_UP && !err; i++) {
		error_free(way->take(state, &unused));
		usleep(WARM_UP_US);
	}
	if (!err)
		err = sample_for_a_while(guest, way, state, &n, &work);
	if (state)
		way->close(state);
	if (err)
		return error_prefix(err, "%s", way->name);
	after = alone(guest);
	printf("{\"way\":\"%s\",\"stopped_us\":%.1f,\"total_us\":%.1f,\"work_lost\":%.4f,"
	       "\"samples\":%zu,\"hz\":%.0f}\n",
	       way->name, median_us(values[0], n), median_us(values[1], n),
	       1 - 2 * work / (before + after), n, (double)n / guest->seconds);
	fflush(stdout);
	return NULL;
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
	for (size_t i = 0; i < n_ways && !err; i++) {
		bool wanted = argc < 6;

		for (int k = 5; k < argc; k++)
			wanted |= !strcmp(argv[k], ways[i].name);
		if (wanted)
			err = measure(&guest, &ways[i]);
	}
	if (err)
		fprintf(stderr, "vmm_cost: %s\n", err->text);
	return err != NULL;
}
