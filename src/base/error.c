/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A flexible array member cannot be initialised portably, so the static error has its own type. */
static const struct {
	enum error_kind kind;
	char text[24];
} no_memory = {ERR_FAILED, "not enough memory"};

struct error *error_no_memory(void)
{
	return (struct error *)&no_memory;
}

static struct error *build(enum error_kind kind, const char *tail, const char *format, va_list args)
{
	va_list again;
	struct error *err;
	int len;

	va_copy(again, args);
	len = vsnprintf(NULL, 0, format, again);
	va_end(again);
	if (len < 0)
		return error_no_memory();
	err = malloc(sizeof(*err) + (size_t)len + strlen(tail) + 1);
	if (!err)
		return error_no_memory();
	err->kind = kind;
	vsnprintf(err->text, (size_t)len + 1, format, args);
	strcpy(err->text + len, tail);
	return err;
}

struct error *error_new(enum error_kind kind, const char *format, ...)
{
	struct error *err;
	va_list args;

	va_start(args, format);
	err = build(kind, "", format, args);
	va_end(args);
	return err;
}

struct error *error_errno(enum error_kind kind, int errnum, const char *format, ...)
{
	char tail[128] = ": ", *text;
	struct error *err;
	va_list args;

	/* GNU's strerror_r may return a string of its own instead of filling the buffer. */
	text = strerror_r(errnum, tail + 2, sizeof(tail) - 2);
	if (text != tail + 2)
		snprintf(tail + 2, sizeof(tail) - 2, "%s", text);
	va_start(args, format);
	err = build(kind, tail, format, args);
	va_end(args);
	return err;
}

struct error *error_prefix(struct error *cause, const char *format, ...)
{
	struct error *err, *whole;
	va_list args;

	va_start(args, format);
	err = build(cause->kind, ": ", format, args);
	va_end(args);
	whole = error_new(cause->kind, "%s%s", err->text, cause->text);
	error_free(err);
	error_free(cause);
	return whole;
}

struct error *error_first(struct error *first, struct error *second)
{
	if (!first)
		return second;
	error_free(second);
	return first;
}

void error_free(struct error *err)
{
	if (err != error_no_memory())
		free(err);
}
