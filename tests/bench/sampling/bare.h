/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The single hypercalls of a sample, each an ioctl of its own. They speak the
 * domctl interface of the headers they were built with, and no other.
 */

#include <xenctrl.h>
#include <xencall.h>

#include "way.h"

struct bare;

/* `record`: take the CPU record of the HVM context for bare_context's result, where there is one. */
struct error *bare_open(const struct bench_guest *guest, bool record, struct bare **out);
void bare_close(void *bare);

bool bare_pause(struct bare *bare);
bool bare_unpause(struct bare *bare);

/* The context of a vCPU, valid until the next call; NULL if there is none. */
const vcpu_guest_context_t *bare_context(struct bare *bare, uint32_t vcpu);
