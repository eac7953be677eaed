/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Waits until a guest is on a CPU. Stopping a guest that runs on another CPU
 * takes far longer than one that waits for a CPU, or has not woken up from the
 * last sample yet; the shortest of many samples would be one of those.
 */

#include "way.h"

struct running;

struct error *running_open(const struct bench_guest *guest, struct running **out);
void running_close(struct running *running);

/* False if none of the guest's vCPUs gets a CPU for long. */
bool running_wait(struct running *running);
