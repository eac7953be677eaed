/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/progress_line.h"

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

static void put_line(struct progress_line *display, uint64_t done, uint64_t all, uint64_t now_ns)
{
	const size_t size = sizeof(display->text);
	char *line = display->text;
	double part = all ? (double)(done < all ? done : all) / (double)all : 0;
	double elapsed = (double)(now_ns - display->began_ns) / 1e9;
	char left[64];

	if (!all) {
		snprintf(line, size, "%s: %s, %.1f MiB", display->who, display->what,
			 (double)done / (1 << 20));
		return;
	}
	/* Rounded up: the last second is not "0 s". */
	put_left(part > 0 ? (uint64_t)(elapsed * (1 - part) / part) + 1 : 0, left, sizeof(left));
	snprintf(line, size, "%s: %s, %.0f %%%s%s%s", display->who, display->what, 100 * part,
		 part > 0.01 ? ", " : "", part > 0.01 ? left : "", part > 0.01 ? " left" : "");
}

void progress_line_update(struct progress_line *display, const char *what, uint64_t done,
			  uint64_t all, uint64_t now_ns)
{
	*display->text = '\0';
	if (!display->first_ns)
		display->first_ns = now_ns;
	if (!display->what || strcmp(display->what, what))
		display->began_ns = now_ns;
	display->what = what;
	if (now_ns - display->first_ns < PATIENCE_NS ||
	    (display->told_ns && now_ns - display->told_ns < PERIOD_NS))
		return;
	display->told_ns = now_ns;
	put_line(display, done, all, now_ns);
}

static void at(struct progress_sink *progress, const char *what, uint64_t done, uint64_t all)
{
	struct progress_line *display = (struct progress_line *)progress;

	if (!display->terminal)
		return;
	if (what)
		progress_line_update(display, what, done, all, clock_now_ns());
	if (what && *display->text)
		fprintf(stderr, "\r\033[K%s", display->text);
	else if (!what && display->visible)
		fputs("\r\033[K", stderr);
	display->visible = what && (*display->text || display->visible);
	fflush(stderr);
}

void progress_line_init(struct progress_line *display, const char *who)
{
	*display = (struct progress_line){.progress = {.at = at},
					  .who = who,
					  .terminal = isatty(STDERR_FILENO)};
}
