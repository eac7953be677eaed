/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_DRAW_H
#define UNIPROF_TOP_DRAW_H

/* Composes a picture of the live view. */

#include "top/sheet.h"
#include "top/view.h"

struct picture {
	const struct view *view;
	const struct summary *summary;
	struct namer *namer;
	const char *guest;   /* clean: what is looked at */
	const char *clock;   /* the time of day */
	const char *ended;   /* why there is nothing more to see; NULL: there is */
	const char *warning; /* NULL: none */
	double rate_hz;
	bool keys; /* somebody can press any */
};

/* *rows is how many functions there is room for. */
struct error *draw(const struct picture *picture, struct sheet *sheet, size_t *rows);

#endif
