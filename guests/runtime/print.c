/* SPDX-License-Identifier: BSD-3-Clause */
/* Formatting: print -> put_argument -> put_... -> put_char -> flush_line -> console_write. */
#include <stdarg.h>

#include "console.h"
#include "guest.h"

#define LINE_BYTES 128

struct line {
	char text[LINE_BYTES];
	size_t used;
};

static VISIBLE void flush_line(struct line *line)
{
	console_write(line->text, line->used);
	line->used = 0;
}

static VISIBLE void put_char(struct line *line, char c)
{
	line->text[line->used++] = c;
	if (c == '\n' || line->used == LINE_BYTES)
		flush_line(line);
}

static VISIBLE void put_string(struct line *line, const char *text)
{
	while (*text)
		put_char(line, *text++);
}

static VISIBLE void put_number(struct line *line, uint64_t value, unsigned int width)
{
	char digits[20];
	unsigned int used = 0;

	do {
		digits[used++] = (char)('0' + divide(&value, 10));
	} while (value);
	while (width > used) {
		put_char(line, '0');
		width--;
	}
	while (used)
		put_char(line, digits[--used]);
}

/* Puts the argument of the conversion behind a '%'; returns the conversion's last character. */
static VISIBLE const char *put_argument(struct line *line, const char *format, va_list *arguments)
{
	unsigned int width = 0;

	while (*format >= '0' && *format <= '9')
		width = width * 10 + (unsigned int)(*format++ - '0');
	if (format[0] == 's') {
		put_string(line, va_arg(*arguments, const char *));
		return format;
	}
	if (format[0] == 'l' && format[1] == 'l') {
		put_number(line, va_arg(*arguments, unsigned long long), width);
		return format + 2;
	}
	if (format[0] == 'l') {
		put_number(line, va_arg(*arguments, unsigned long), width);
		return format + 1;
	}
	put_char(line, *format);
	return format;
}

VISIBLE void print(const char *format, ...)
{
	struct line line;
	va_list arguments;

	line.used = 0;
	va_start(arguments, format);
	for (; *format; format++) {
		if (*format == '%')
			format = put_argument(&line, format + 1, &arguments);
		else
			put_char(&line, *format);
	}
	va_end(arguments);
	if (line.used)
		flush_line(&line);
}
