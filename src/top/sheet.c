/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/sheet.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sheet_begin(struct sheet *sheet, size_t width, size_t height)
{
	sheet->len = sheet->n = sheet->line = sheet->used = 0;
	sheet->width = width;
	sheet->height = height;
	sheet->chosen = sheet->no_memory = false;
}

void sheet_free(struct sheet *sheet)
{
	free(sheet->text);
	free(sheet->pieces);
	*sheet = (struct sheet){0};
}

static bool reserve(struct sheet *sheet, size_t len)
{
	if (sheet->len + len > sheet->room) {
		size_t room = 2 * (sheet->len + len);
		char *text = realloc(sheet->text, room);

		if (!text)
			return false;
		sheet->text = text;
		sheet->room = room;
	}
	if (sheet->n == sheet->pieces_room) {
		size_t room = sheet->n ? 2 * sheet->n : 64;
		struct sheet_piece *pieces = realloc(sheet->pieces, room * sizeof(*pieces));

		if (!pieces)
			return false;
		sheet->pieces = pieces;
		sheet->pieces_room = room;
	}
	return true;
}

static void add(struct sheet *sheet, enum style style, const char *text, size_t len)
{
	if (!len)
		return;
	if (!reserve(sheet, len)) {
		sheet->no_memory = true;
		return;
	}
	sheet->pieces[sheet->n++] = (struct sheet_piece){.line = sheet->line,
							 .text = sheet->len,
							 .len = len,
							 .style = style,
							 .chosen = sheet->chosen};
	memcpy(sheet->text + sheet->len, text, len);
	sheet->len += len;
	sheet->used += cells_of(text, len);
}

static void put(struct sheet *sheet, enum style style, const char *text, size_t len)
{
	size_t left = sheet->width > sheet->used ? sheet->width - sheet->used : 0;

	if (sheet->line >= sheet->height || (sheet->width && !left))
		return;
	if (!sheet->width || cells_of(text, len) <= left) {
		add(sheet, style, text, len);
		return;
	}
	add(sheet, style, text, cells_fit(text, len, left - 1));
	add(sheet, style, "…", strlen("…"));
	sheet->used = sheet->width;
}

void sheet_put(struct sheet *sheet, enum style style, const char *format, ...)
{
	va_list args;
	char *text;
	int len;

	va_start(args, format);
	len = vasprintf(&text, format, args);
	va_end(args);
	if (len < 0) {
		sheet->no_memory = true;
		return;
	}
	put(sheet, style, text, (size_t)len);
	free(text);
}

void sheet_end_line(struct sheet *sheet)
{
	sheet->line++;
	sheet->used = 0;
}

size_t sheet_left(const struct sheet *sheet)
{
	return sheet->height > sheet->line ? sheet->height - sheet->line : 0;
}
