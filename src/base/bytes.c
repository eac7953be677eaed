/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bytes.h"

#include <stdlib.h>

struct error *bytes_reserve(struct bytes *bytes, size_t more)
{
	size_t need, cap;
	uint8_t *data;

	if (more <= bytes->cap - bytes->len)
		return NULL;
	if (__builtin_add_overflow(bytes->len, more, &need))
		return error_no_memory();
	cap = bytes->cap > SIZE_MAX / 2 ? need : bytes->cap * 2;
	if (cap < need)
		cap = need;
	data = realloc(bytes->data, cap);
	if (!data)
		return error_no_memory();
	bytes->data = data;
	bytes->cap = cap;
	return NULL;
}

void bytes_free(struct bytes *bytes)
{
	free(bytes->data);
	*bytes = (struct bytes){0};
}
