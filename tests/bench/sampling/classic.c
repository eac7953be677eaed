/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "bare.h"
#include "base/clock.h"
#include "walk.h"
#include "way.h"

struct classic {
	struct bare *bare;
	struct walk *walk;
	uint32_t vcpus;
};

static struct error *open_classic(const struct bench_guest *guest, void **state)
{
	struct classic *classic = calloc(1, sizeof(*classic));
	struct error *err;

	if (!classic)
		return error_no_memory();
	*state = classic;
	classic->vcpus = guest->vcpus;
	err = bare_open(guest, false, &classic->bare);
	if (!err)
		err = walk_new(guest->domid, &classic->walk);
	return err;
}

static struct error *take(void *state, struct taken *out)
{
	struct classic *classic = state;
	uint64_t start = clock_now_ns();
	bool done = bare_pause(classic->bare);

	out->frames = 0;
	for (uint32_t i = 0; i < classic->vcpus; i++) {
		const vcpu_guest_context_t *context = bare_context(classic->bare, i);

		if (context)
			out->frames += walk_print(classic->walk, i, context);
	}
	done &= bare_unpause(classic->bare);
	out->whole_ns = clock_now_ns() - start;
	out->paused_ns = out->whole_ns;
	return done ? NULL : error_errno(ERR_FAILED, errno, "cannot pause or unpause");
}

static void close_classic(void *state)
{
	struct classic *classic = state;

	if (!classic)
		return;
	walk_free(classic->walk);
	bare_close(classic->bare);
	free(classic);
}

const struct way way_classic = {.name = "classic",
				.open = open_classic,
				.take = take,
				.close = close_classic};
