/* SPDX-License-Identifier: BSD-3-Clause */
#include "running.h"

#include <errno.h>
#include <stdlib.h>

#include <xenctrl.h>

#include "base/clock.h"

#define PATIENCE 1000 /* naps */

struct running {
	xc_interface *xc;
	uint32_t domid, vcpus;
};

struct error *running_open(const struct bench_guest *guest, struct running **out)
{
	struct running *running = calloc(1, sizeof(*running));

	if (!running)
		return error_no_memory();
	*out = running;
	running->domid = guest->domid;
	running->vcpus = guest->vcpus;
	running->xc = xc_interface_open(NULL, NULL, 0);
	return running->xc ? NULL : error_errno(ERR_DENIED, errno, "cannot open libxenctrl");
}

void running_close(struct running *running)
{
	if (!running)
		return;
	if (running->xc)
		xc_interface_close(running->xc);
	free(running);
}

static bool any(const struct running *running)
{
	for (uint32_t i = 0; i < running->vcpus; i++) {
		xc_vcpuinfo_t info;

		if (!xc_vcpu_getinfo(running->xc, running->domid, i, &info) && info.running)
			return true;
	}
	return false;
}

bool running_wait(struct running *running)
{
	for (unsigned naps = 0; naps < PATIENCE; naps++) {
		if (any(running))
			return true;
		clock_sleep_until(clock_now_ns() + NAP_NS);
	}
	return false;
}
