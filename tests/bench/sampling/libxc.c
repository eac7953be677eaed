/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <xenctrl.h>

#include "base/clock.h"
#include "walk.h"
#include "way.h"

struct libxc {
	xc_interface *xc;
	struct walk *walk;
	uint32_t domid, vcpus;
};

static struct error *open_libxc(const struct bench_guest *guest, void **state)
{
	struct libxc *libxc = calloc(1, sizeof(*libxc));

	if (!libxc)
		return error_no_memory();
	*state = libxc;
	libxc->domid = guest->domid;
	libxc->vcpus = guest->vcpus;
	libxc->xc = xc_interface_open(NULL, NULL, 0);
	if (!libxc->xc)
		return error_errno(ERR_DENIED, errno, "cannot open Xen's control interface");
	return walk_new(guest->domid, &libxc->walk);
}

static struct error *take(void *state, struct taken *out)
{
	struct libxc *libxc = state;
	uint64_t start = clock_now_ns();
	vcpu_guest_context_any_t context;
	bool done = !xc_domain_pause(libxc->xc, libxc->domid);

	out->frames = 0;
	for (uint32_t i = 0; i < libxc->vcpus; i++)
		if (!xc_vcpu_getcontext(libxc->xc, libxc->domid, i, &context))
			out->frames += walk_print(libxc->walk, i, &context);
	done &= !xc_domain_unpause(libxc->xc, libxc->domid);
	out->whole_ns = clock_now_ns() - start;
	out->paused_ns = out->whole_ns;
	return done ? NULL : error_errno(ERR_FAILED, errno, "cannot pause or unpause");
}

static void close_libxc(void *state)
{
	struct libxc *libxc = state;

	if (!libxc)
		return;
	walk_free(libxc->walk);
	if (libxc->xc)
		xc_interface_close(libxc->xc);
	free(libxc);
}

const struct way way_libxc = {.name = "libxc",
			      .open = open_libxc,
			      .take = take,
			      .close = close_libxc};
