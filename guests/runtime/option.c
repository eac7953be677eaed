/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line: words between blanks. */
#include "guest.h"
#include "platform.h"

/* Finds the first word that begins with `start`, and returns its remainder; NULL: no such word. */
static const char *find(const char *start)
{
	const char *word = platform.command_line;

	while (*word) {
		size_t i = 0;

		while (start[i] && word[i] == start[i])
			i++;
		if (!start[i])
			return word + i;
		while (*word && *word != ' ')
			word++;
		while (*word == ' ')
			word++;
	}
	return NULL;
}

bool option_given(const char *word)
{
	const char *rest = find(word);

	return rest && (*rest == '\0' || *rest == ' ');
}

unsigned long option_number(const char *name, unsigned long otherwise)
{
	const char *rest = find(name);
	unsigned long value = 0;

	if (!rest || *rest++ != '=' || *rest < '0' || *rest > '9')
		return otherwise;
	while (*rest >= '0' && *rest <= '9')
		value = value * 10 + (unsigned long)(*rest++ - '0');
	return value;
}
