/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/top.h"

#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

const char screen_feature[] = "with a live screen (ncurses)";

/* Names are UTF-8, whatever the locale; C.UTF-8 comes with the C library. */
static void set_locale(void)
{
	if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8"))
		setlocale(LC_CTYPE, "C.UTF-8");
}

/* 0 ms would lose keys that are several bytes, as arrows are. */
#define ESCAPE_MS 25

static void set_colors(void)
{
	const char *no = getenv("NO_COLOR");

	if ((no && *no) || !has_colors())
		return;
	start_color();
	use_default_colors();
	init_pair(STYLE_HEAD, -1, -1);
	init_pair(STYLE_DIM, -1, -1);
	init_pair(STYLE_WARNING, COLOR_YELLOW, -1);
	init_pair(STYLE_HOT, COLOR_RED, -1);
	init_pair(STYLE_WARM, COLOR_GREEN, -1);
}

struct error *screen_prepare(void)
{
	const char *term = getenv("TERM");
	SCREEN *screen;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return error_new(ERR_USAGE, "top needs a terminal; top -b writes text into pipes");
	set_locale();
	set_escdelay(ESCAPE_MS);
	/* We could not go on being stopped in the middle of a sample: the guest would wait, too. */
	signal(SIGTSTP, SIG_IGN);
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return error_new(ERR_USAGE,
				 "the terminal \"%s\" cannot be used as a screen; top -b writes "
				 "plain text",
				 term ? term : "");
	set_colors();
	endwin();
	return NULL;
}

void screen_begin(void)
{
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	refresh();
}

void screen_end(void)
{
	if (stdscr && !isendwin())
		endwin();
}

/* The shell's modes are those that curses saved at newterm (def_shell_mode). */
void screen_rescue(void)
{
	putp(exit_attribute_mode);
	putp(cursor_normal);
	putp(exit_ca_mode);
	fflush(stdout);
	reset_shell_mode();
}

void screen_size(size_t *width, size_t *height)
{
	*width = (size_t)COLS;
	*height = (size_t)LINES;
}

int screen_key(void)
{
	static const struct {
		int pressed, key;
	} keys[] = {{ERR, 0},
		    {KEY_UP, VIEW_UP},
		    {KEY_DOWN, VIEW_DOWN},
		    {KEY_PPAGE, VIEW_PAGE_UP},
		    {KEY_NPAGE, VIEW_PAGE_DOWN},
		    {KEY_HOME, VIEW_HOME},
		    {KEY_ENTER, VIEW_ENTER},
		    {KEY_RIGHT, VIEW_ENTER},
		    {'\r', VIEW_ENTER},
		    {'\n', VIEW_ENTER},
		    {KEY_LEFT, VIEW_BACK},
		    {27, VIEW_BACK},
		    {KEY_BACKSPACE, VIEW_ERASE},
		    {127, VIEW_ERASE},
		    {'\b', VIEW_ERASE}};
	const int pressed = getch();

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (keys[i].pressed == pressed)
			return keys[i].key;
	return pressed < 128 ? pressed : VIEW_REDRAW;
}

static attr_t attributes(const struct text_buffer_piece *piece)
{
	static const attr_t own[STYLES] = {
		[STYLE_HEAD] = A_BOLD, [STYLE_WARNING] = A_BOLD, [STYLE_DIM] = A_DIM};
	attr_t attr = own[piece->style];

	if (piece->chosen)
		return A_REVERSE;
	return attr | (attr_t)COLOR_PAIR(piece->style);
}

void screen_show(const struct text_buffer *buffer)
{
	size_t line = SIZE_MAX;

	erase();
	for (size_t i = 0; i < buffer->n; i++) {
		const struct text_buffer_piece *piece = &buffer->pieces[i];

		if (piece->line != line)
			move((int)piece->line, 0);
		line = piece->line;
		attrset(attributes(piece));
		addnstr(buffer->text + piece->text, (int)piece->len);
	}
	attrset(A_NORMAL);
	refresh();
}
