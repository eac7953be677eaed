/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "base/clock.h"
#include "capture/capture.h"
#include "capture/image_locator.h"
#include "recording/stacks.h"
#include "single.h"
#include "target/target.h"
#include "way.h"

/* The unwinder has learned the code, and the copies fit the stacks, after this many samples. */
#define WARM_UP 300

struct product {
	struct target *target;
	struct stacks *stacks;
	struct images *images;
	struct image_locator *locator;
	struct capture *capture;
	struct sample *sample; /* for "unread" */
	uint32_t busy;
};

/* The file that the guest was started from, as `uniprof record` uses it by itself. */
static struct error *load_image(struct product *product, const struct bench_guest *guest)
{
	const struct image_spec spec = {.path = guest->image, .given = true, .names = true};
	struct error *err = images_new(&product->images);

	if (!err && guest->image)
		err = images_load(product->images, &spec, NULL);
	return err ? err
		   : image_locator_new(product->target, product->images, NULL, &product->locator);
}

static struct error *open_target(const struct bench_guest *guest, bool always_pause, void **state)
{
	struct sampler_options options = {.method = guest->method};
	struct product *product = calloc(1, sizeof(*product));
	struct error *err;

	if (!product)
		return error_no_memory();
	*state = product;
	product->busy = guest->busy;
	err = target_open(guest->spec, NULL, &product->target);
	if (err)
		return err;
	product->target->always_pause = always_pause;
	err = stacks_new(&product->stacks);
	if (!err)
		err = load_image(product, guest);
	options.images = product->images;
	options.locator = product->locator;
	if (!err)
		err = capture_new(product->target, product->stacks, &options, &product->capture);
	return err;
}

static struct error *take_look(void *state, struct taken *out)
{
	struct product *product = state;
	struct tick tick = {0};
	uint32_t ran = 0;
	uint64_t start = clock_now_ns();
	struct error *err = capture_tick(product->capture, start, &tick);

	out->whole_ns = clock_now_ns() - start;
	out->paused_ns = tick.paused_ns;
	out->frames = 0;
	for (uint32_t i = 0; i < tick.n && !err; i++) {
		out->frames += (uint32_t)stacks_depth(product->stacks, tick.entries[i].stack);
		ran += tick.entries[i].ran_ns > 0;
	}
	/* On a busy host, a CPU of the emulated machine may stand still for a while. */
	out->spared = ran < product->busy;
	return err;
}

static struct error *open_look(const struct bench_guest *guest, bool always_pause, void **state)
{
	struct error *err = open_target(guest, always_pause, state);
	struct taken taken;

	for (unsigned i = 0; i < WARM_UP && !err; i++) {
		clock_sleep_until(clock_now_ns() + NAP_NS);
		err = take_look(*state, &taken);
	}
	return err;
}

static struct error *open_auto(const struct bench_guest *guest, void **state)
{
	return open_look(guest, false, state);
}

static struct error *open_pause(const struct bench_guest *guest, void **state)
{
	return open_look(guest, true, state);
}

static struct error *take_singly(void *state, struct taken *out)
{
	struct error *err;

	single_calls(true);
	err = take_look(state, out);
	single_calls(false);
	return err;
}

static struct error *open_unread(const struct bench_guest *guest, void **state)
{
	struct error *err = open_target(guest, true, state);
	struct product *product = *state;

	return err ? err : sample_new(product->target->info.vcpus, STACK_DEFAULT, &product->sample);
}

static struct error *take_unread(void *state, struct taken *out)
{
	struct product *product = state;
	uint64_t start = clock_now_ns();
	struct error *err;

	for (uint32_t i = 0; i < product->sample->vcpus; i++) {
		product->sample->vcpu[i].request.want = 0;
		product->sample->vcpu[i].request.again = true;
	}
	err = product->target->ops->sample(product->target, product->sample);
	out->whole_ns = clock_now_ns() - start;
	out->paused_ns = product->sample->paused_ns;
	return err;
}

static void close_product(void *state)
{
	struct product *product = state;

	if (!product)
		return;
	sample_free(product->sample);
	capture_free(product->capture);
	image_locator_free(product->locator);
	images_free(product->images);
	stacks_free(product->stacks);
	if (product->target)
		target_close(product->target);
	free(product);
}

static struct error *open_first(const struct bench_guest *guest, void **state)
{
	return open_target(guest, true, state);
}

const struct way way_auto = {.name = "auto",
			     .open = open_auto,
			     .take = take_look,
			     .close = close_product};
const struct way way_pause = {.name = "pause",
			      .open = open_pause,
			      .take = take_look,
			      .close = close_product};
const struct way way_first = {.name = "first",
			      .alone = true,
			      .open = open_first,
			      .take = take_look,
			      .close = close_product};
const struct way way_single = {.name = "single",
			       .open = open_pause,
			       .take = take_singly,
			       .close = close_product};
const struct way way_unread = {.name = "unread",
			       .open = open_unread,
			       .take = take_unread,
			       .close = close_product};
