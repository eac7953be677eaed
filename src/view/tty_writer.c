/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/tty_writer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "symbol/names/display_name.h"

enum style tty_style_of_share(double share)
{
	return share >= 0.05 ? STYLE_HOT : share >= 0.005 ? STYLE_WARM : STYLE_PLAIN;
}

/* Width of the character that begins with this byte; 0 for bytes within one. */
static size_t cells_of_lead(unsigned char lead)
{
	if ((lead & 0xc0) == 0x80)
		return 0;
	return lead < 0xe1 ? 1 : 2; /* 0xe1: U+1000 */
}

size_t cells_of(const char *text, size_t len)
{
	size_t cells = 0;

	for (size_t i = 0; i < len; i++)
		cells += cells_of_lead((unsigned char)text[i]);
	return cells;
}

size_t cells_fit(const char *text, size_t len, size_t cells)
{
	size_t n = 0;

	for (; n < len; n++) {
		size_t more = cells_of_lead((unsigned char)text[n]);

		if (more > cells)
			break;
		cells -= more;
	}
	return n;
}

/* ECMA-48, 8.3.117 (SGR). */
static const char *const codes[STYLES] = {
	[STYLE_PLAIN] = "\033[m", [STYLE_HEAD] = "\033[1m",  [STYLE_WARNING] = "\033[1;33m",
	[STYLE_HOT] = "\033[31m", [STYLE_WARM] = "\033[32m", [STYLE_DIM] = "\033[2m",
};

static bool wants_colors(enum color_mode mode)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	if (mode != COLOR_AUTO)
		return mode == COLOR_ALWAYS;
	return isatty(STDOUT_FILENO) && !(no && *no) && term && *term && strcmp(term, "dumb");
}

void tty_writer_init(enum color_mode mode, struct tty_writer *writer)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size = {0};

	*writer = (struct tty_writer){.out = stdout, .colors = wants_colors(mode)};
	if (!isatty(STDOUT_FILENO))
		return;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
		writer->width = size.ws_col;
	else if (columns)
		writer->width = strtoul(columns, NULL, 10);
}

void tty_writer_style(const struct tty_writer *writer, enum style style)
{
	if (writer->colors)
		fputs(codes[style], writer->out);
}

void tty_writer_warn(const struct tty_writer *writer, const char *text)
{
	tty_writer_style(writer, STYLE_WARNING);
	fputs("WARNING  ", writer->out);
	sanitize_print(text, writer->out);
	tty_writer_style(writer, STYLE_PLAIN);
	fputc('\n', writer->out);
}

size_t tty_writer_put(const struct tty_writer *writer, const char *text, size_t len, size_t cells)
{
	size_t whole = cells_of(text, len), n;

	if (!cells || whole <= cells) {
		fwrite(text, 1, len, writer->out);
		return whole;
	}
	n = cells_fit(text, len, cells - 1);
	fwrite(text, 1, n, writer->out);
	fputs("…", writer->out);
	return cells_of(text, n) + 1;
}

size_t tty_writer_put_end(const struct tty_writer *writer, const char *text, size_t len,
			  size_t cells)
{
	if (!cells || cells_of(text, len) <= cells)
		return tty_writer_put(writer, text, len, cells);
	while (len && (cells_of(text, len) > cells - 1 || ((unsigned char)*text & 0xc0) == 0x80)) {
		text++;
		len--;
	}
	fputs("…", writer->out);
	fwrite(text, 1, len, writer->out);
	return cells_of(text, len) + 1;
}
