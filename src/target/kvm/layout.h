/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_KVM_LAYOUT_H
#define UNIPROF_TARGET_KVM_LAYOUT_H

/*
 * Where in a virtual machine monitor its guest's memory is, found without its
 * help: every mapping that could be it is tried, and taken only if the guest's
 * own page tables, read through it, lead from where a vCPU executes to code.
 */

#include <stdio.h>

#include "target/host/guest_ram.h"

struct layout;

/* Remembers the mappings of a process (host/proc.h) that may be memory of a guest. */
struct error *layout_new(FILE *maps, struct layout **out);
void layout_free(struct layout *layout);

/*
 * Tries them for vCPUs with these registers, and leaves the map of the guest's
 * memory in `ram`. False, with an empty map, when none proves right, or when
 * several do and tell different things. Takes milliseconds.
 */
bool layout_find(struct layout *layout, struct guest_ram *ram, const struct regs *regs, size_t n);

/* How much of such mappings there was, bytes. */
uint64_t layout_size(const struct layout *layout);

#endif
