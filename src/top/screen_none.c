/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/screen.h"

const char screen_feature[] = "without a live screen";

struct error *screen_prepare(void)
{
	return error_new(ERR_USAGE, "this uniprof was built without ncurses: only top -b works");
}

void screen_begin(void)
{
}

void screen_end(void)
{
}

void screen_rescue(void)
{
}

void screen_size(size_t *width, size_t *height)
{
	*width = *height = 0;
}

int screen_key(void)
{
	return 0;
}

void screen_show(const struct text_buffer *buffer)
{
}
