/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pauses GUEST LOOKS: takes so many ticks of a guest, half a millisecond apart, with a pause each
 * time, and prints one JSON object: how long it was paused for a tick (retries included), and how
 * long a tick took, in nanoseconds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/histogram.h"
#include "capture/capture.h"

#define APART_NS 500000

/* Looks that learn the code and how deep the stacks are. */
#define WARM_UP 100

static struct error *look_often(struct capture *capture, unsigned long n, struct histogram *paused,
				struct histogram *whole)
{
	struct error *err = NULL;

	for (unsigned long i = 0; i < WARM_UP + n && !err; i++) {
		uint64_t start = clock_now_ns();
		struct tick tick;

		err = capture_tick(capture, 0, &tick);
		if (!err && i >= WARM_UP) {
			histogram_add(paused, tick.paused_ns);
			histogram_add(whole, clock_now_ns() - start);
		}
		clock_sleep_until(clock_now_ns() + APART_NS);
	}
	return err;
}

static void print_histogram(const char *name, const struct histogram *histogram)
{
	printf("\"%s\": {\"median\": %" PRIu64 ", \"p99\": %" PRIu64 ", \"max\": %" PRIu64 "}",
	       name, histogram_quantile(histogram, 0.5), histogram_quantile(histogram, 0.99),
	       histogram->max);
}

static struct error *run(const char *guest, unsigned long n)
{
	const struct sampler_options options = {0};
	static struct histogram paused, whole;
	struct target *target = NULL;
	struct stacks *stacks = NULL;
	struct capture *capture = NULL;
	struct error *err = target_open(guest, NULL, &target);

	if (!err) {
		target->always_pause = true;
		err = stacks_new(&stacks);
	}
	if (!err)
		err = capture_new(target, stacks, &options, &capture);
	if (!err)
		err = look_often(capture, n, &paused, &whole);
	if (!err) {
		struct sampler_result result = {0};

		capture_tell(capture, &result);
		printf("{\"retakes\": %" PRIu64 ", ", result.retakes);
		print_histogram("paused", &paused);
		printf(", ");
		print_histogram("whole", &whole);
		printf("}\n");
	}
	capture_free(capture);
	stacks_free(stacks);
	target_close(target);
	return err;
}

int main(int argc, char **argv)
{
	struct error *err;

	if (argc != 3) {
		fprintf(stderr, "usage: pauses GUEST LOOKS\n");
		return 2;
	}
	err = run(argv[1], strtoul(argv[2], NULL, 10));
	if (err)
		fprintf(stderr, "pauses: %s\n", err->text);
	return err != NULL;
}
