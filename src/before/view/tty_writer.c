/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/paper.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ECMA-48, 8.3.117 (SGR). */
static const char *const codes[STYLES] = {
	[STYLE_PLAIN] = "\033[m", [STYLE_HEAD] = "\033[1m",  [STYLE_WARNING] = "\033[1;33m",
	[STYLE_HOT] = "\033[31m", [STYLE_WARM] = "\033[32m", [STYLE_DIM] = "\033[2m",
};

struct error *color_parse(const char *option, const char *text, enum color_mode *mode)
{
	static const char *const names[] = {"auto", "always", "never"};

	for (int i = 0; i < 3; i++) {
		if (!strcmp(text, names[i])) {
			*mode = (enum color_mode)i;
			return NULL;
		}
	}
	return error_new(ERR_USAGE, "%s %s: it is auto, always or never", option, text);
}

static bool wants_colors(enum color_mode mode)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	if (mode != COLOR_AUTO)
		return mode == COLOR_ALWAYS;
	return isatty(STDOUT_FILENO) && !(no && *no) && term && *term && strcmp(term, "dumb");
}

void paper_look(enum color_mode mode, struct paper *paper)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size = {0};

	*paper = (struct paper){.out = stdout, .colors = wants_colors(mode)};
	if (!isatty(STDOUT_FILENO))
		return;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
		paper->width = size.ws_col;
	else if (columns)
		paper->width = strtoul(columns, NULL, 10);
}

void paper_style(const struct paper *paper, enum style style)
{
	if (paper->colors)
		fputs(codes[style], paper->out);
}

size_t paper_put(const struct paper *paper, const char *text, size_t len, size_t cells)
{
	size_t whole = cells_of(text, len), n;

	if (!cells || whole <= cells) {
		fwrite(text, 1, len, paper->out);
		return whole;
	}
	n = cells_fit(text, len, cells - 1);
	fwrite(text, 1, n, paper->out);
	fputs("…", paper->out);
	return cells_of(text, n) + 1;
}

size_t paper_put_end(const struct paper *paper, const char *text, size_t len, size_t cells)
{
	if (!cells || cells_of(text, len) <= cells)
		return paper_put(paper, text, len, cells);
	while (len && (cells_of(text, len) > cells - 1 || ((unsigned char)*text & 0xc0) == 0x80)) {
		text++;
		len--;
	}
	fputs("…", paper->out);
	fwrite(text, 1, len, paper->out);
	return cells_of(text, len) + 1;
}
