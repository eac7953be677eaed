/* SPDX-License-Identifier: BSD-3-Clause */
#include "figures.h"

#include <stdlib.h>

struct error *figures_new(uint32_t room, struct figures *out)
{
	*out = (struct figures){.ns = calloc(room ? room : 1, sizeof(*out->ns)), .room = room};
	return out->ns ? NULL : error_no_memory();
}

void figures_free(struct figures *figures)
{
	free(figures->ns);
	figures->ns = NULL;
}

void figures_add(struct figures *figures, uint64_t ns)
{
	if (figures->n < figures->room)
		figures->ns[figures->n++] = ns;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* In µs. */
static double quantile(const struct figures *figures, unsigned percent)
{
	return figures->n ? (double)figures->ns[(figures->n - 1) * percent / 100] / 1e3 : 0;
}

void figures_print(struct figures *figures, FILE *file)
{
	double sum = 0;

	qsort(figures->ns, figures->n, sizeof(*figures->ns), compare);
	for (uint32_t i = 0; i < figures->n; i++)
		sum += (double)figures->ns[i] / 1e3;
	fprintf(file,
		"{\"min\":%.3f,\"p10\":%.3f,\"median\":%.3f,\"p90\":%.3f,\"p99\":%.3f,"
		"\"max\":%.3f,\"mean\":%.3f}",
		quantile(figures, 0), quantile(figures, 10), quantile(figures, 50),
		quantile(figures, 90), quantile(figures, 99), quantile(figures, 100),
		figures->n ? sum / figures->n : 0);
}
