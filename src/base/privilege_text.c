/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/privilege.h"

#include <stdio.h>
#include <string.h>

void privilege_describe(const struct privilege *got, char *text, size_t size)
{
	if (got->kept)
		snprintf(text, size, "all rights are kept");
	else
		snprintf(text, size, "goes on as user %u, %s, %s", (unsigned)got->uid,
			 got->caps_error ? "with capabilities" : "without capabilities",
			 got->filter_error ? "system calls are not filtered"
					   : "system calls are filtered");
}

/* Appends a clause. */
static void add(char *text, size_t size, const char *what, int error)
{
	size_t len = strlen(text);

	snprintf(text + len, size - len, "%s%s: %s", len ? "; " : "", what, strerror(error));
}

void privilege_lacks(const struct privilege *got, char *text, size_t size)
{
	*text = '\0';
	if (got->kept)
		return;
	if (got->user_error)
		add(text, size, "root's rights could not be given up", got->user_error);
	if (got->caps_error)
		add(text, size, "capabilities could not be given up", got->caps_error);
	if (got->filter_error)
		add(text, size, "system calls could not be filtered", got->filter_error);
}
