/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Times of many samples, and their statistics. */

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct figures {
	uint64_t *ns;
	uint32_t n, room;
};

struct error *figures_new(uint32_t room, struct figures *out);
void figures_free(struct figures *figures);

/* Ignores times beyond the array's size. */
void figures_add(struct figures *figures, uint64_t ns);

/* Prints a JSON object of minimum, tenth, median, ninetieth, maximum and mean in µs; sorts the figures. */
void figures_print(struct figures *figures, FILE *file);
