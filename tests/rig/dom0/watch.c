/* SPDX-License-Identifier: BSD-3-Clause */
#include "watch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <xenctrl.h>

#define LOOK_EVERY_US 500

/* Longest time of one check and one nap in a dom0 that runs. */
#define TURN_MAX_NS 5000000u

struct watch {
	xc_interface *xc;
	uint32_t domid;
};

void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void nap_us(uint64_t us)
{
	const struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

	nanosleep(&time, NULL);
}

struct watch *watch_open(uint32_t domid)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		give_up("no memory");
	watch->domid = domid;
	watch->xc = xc_interface_open(NULL, NULL, 0);
	if (!watch->xc)
		give_up("cannot open Xen's control interface");
	return watch;
}

static xc_domaininfo_t look(struct watch *watch)
{
	xc_domaininfo_t info;

	if (xc_domain_getinfolist(watch->xc, watch->domid, 1, &info) != 1 ||
	    info.domain != watch->domid)
		give_up("domain %u is gone", watch->domid);
	return info;
}

bool watch_paused(struct watch *watch)
{
	return look(watch).flags & XEN_DOMINF_paused;
}

uint64_t watch_runs(struct watch *watch, uint64_t since_ns, uint64_t limit_ns)
{
	const uint64_t before = look(watch).cpu_time;
	uint64_t last = since_ns, still = 0, took = NEVER;

	for (;;) {
		uint64_t now = now_ns();
		xc_domaininfo_t info = look(watch);

		if (now - last > TURN_MAX_NS)
			still += now - last - TURN_MAX_NS;
		last = now;
		if (took == NEVER && !(info.flags & XEN_DOMINF_paused))
			took = now - since_ns - still;
		if (took != NEVER && info.cpu_time > before)
			return took;
		if (now - since_ns >= limit_ns)
			return NEVER;
		nap_us(LOOK_EVERY_US);
	}
}
