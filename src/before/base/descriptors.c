/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/descriptors.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define BITS 64

static bool holds(const struct descriptors *set, int fd)
{
	return set->bits[fd / BITS] >> (fd % BITS) & 1;
}

void descriptors_add(struct descriptors *set, int fd)
{
	if (fd >= 0 && fd < DESCRIPTORS_MAX)
		set->bits[fd / BITS] |= UINT64_C(1) << (fd % BITS);
}

/* Mostly 1024. */
static int limit(void)
{
	long most = sysconf(_SC_OPEN_MAX);

	return most > 0 && most < DESCRIPTORS_MAX ? (int)most : DESCRIPTORS_MAX;
}

void descriptors_look(struct descriptors *set)
{
	int most = limit();

	memset(set, 0, sizeof(*set));
	for (int fd = 0; fd < most; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			descriptors_add(set, fd);
}

void descriptors_subtract(struct descriptors *set, const struct descriptors *others)
{
	for (int i = 0; i < DESCRIPTORS_MAX / BITS; i++)
		set->bits[i] &= ~others->bits[i];
}

void descriptors_close_others(const struct descriptors *keep)
{
	int most = limit();

	for (int fd = 0; fd < most; fd++)
		if (!holds(keep, fd))
			close(fd);
}
