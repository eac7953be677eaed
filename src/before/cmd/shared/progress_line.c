/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/meter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Nobody wonders about less. */
#define PATIENCE_NS NS_PER_S

/* Lines are this far apart. */
#define PERIOD_NS (NS_PER_S / 5)

static void put_left(uint64_t seconds, char *text, size_t size)
{
	if (seconds >= 3600)
		snprintf(text, size, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
			 seconds / 60 % 60);
	else if (seconds >= 60)
		snprintf(text, size, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
	else
		snprintf(text, size, "%" PRIu64 " s", seconds);
}

static void put_line(const struct meter *meter, uint64_t done, uint64_t all, uint64_t now_ns,
		     char *line, size_t size)
{
	double part = all ? (double)(done < all ? done : all) / (double)all : 0;
	double elapsed = (double)(now_ns - meter->began_ns) / 1e9;
	char left[64];

	if (!all) {
		snprintf(line, size, "%s: %s, %.1f MiB", meter->who, meter->what,
			 (double)done / (1 << 20));
		return;
	}
	/* Rounded up: the last second is not "0 s". */
	put_left(part > 0 ? (uint64_t)(elapsed * (1 - part) / part) + 1 : 0, left, sizeof(left));
	snprintf(line, size, "%s: %s, %.0f %%%s%s%s", meter->who, meter->what, 100 * part,
		 part > 0.01 ? ", " : "", part > 0.01 ? left : "", part > 0.01 ? " left" : "");
}

void meter_line(struct meter *meter, const char *what, uint64_t done, uint64_t all, uint64_t now_ns,
		char *line, size_t size)
{
	line[0] = '\0';
	if (!meter->first_ns)
		meter->first_ns = now_ns;
	if (!meter->what || strcmp(meter->what, what))
		meter->began_ns = now_ns;
	meter->what = what;
	if (now_ns - meter->first_ns < PATIENCE_NS ||
	    (meter->told_ns && now_ns - meter->told_ns < PERIOD_NS))
		return;
	meter->told_ns = now_ns;
	put_line(meter, done, all, now_ns, line, size);
}

static void at(struct progress_sink *progress, const char *what, uint64_t done, uint64_t all)
{
	struct meter *meter = (struct meter *)progress;
	char line[256];

	if (!meter->terminal)
		return;
	if (what)
		meter_line(meter, what, done, all, clock_now_ns(), line, sizeof(line));
	else
		line[0] = '\0';
	if (*line)
		fprintf(stderr, "\r\033[K%s", line);
	else if (!what && meter->shown)
		fputs("\r\033[K", stderr);
	meter->shown = what && (*line || meter->shown);
	fflush(stderr);
}

void meter_init(struct meter *meter, const char *who)
{
	*meter = (struct meter){.progress = {.at = at},
				.who = who,
				.terminal = isatty(STDERR_FILENO)};
}
