/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Shared by monitor.c and what it has for each processor. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/kvm.h>

#define MEMORY	   (64ul << 20)
#define VCPUS_MAX  8
#define ROOT	   0x2000u
#define FRESH	   (32ul << 20)
#define FRESH_SIZE (16ul << 20)
#define STACKS	   0x400000u
#define STACK	   0x10000u

/* Guest-physical address of the memory. Guests that have no page tables of their own find it at 0. */
#ifdef __aarch64__
#define MEMORY_AT 0x40000000ul
#else
#define MEMORY_AT 0ul
#endif

struct machine {
	uint8_t *memory;
	uint64_t entry;
	int kvm, vm;
	bool in_kernel, is_image;
};

/* Where an address of a program's file is in the memory. */
static inline size_t address_in_memory(uint64_t va)
{
	return (size_t)((va + (1ul << 30) - MEMORY_AT) % (1ul << 30));
}

/* Page tables that map the first GiB of addresses to the memory. */
void make_tables(const struct machine *machine);

/* A vCPU at the program's entry. */
void vcpu_prepare(const struct machine *machine, int vcpu, unsigned id);

/* Does what the guest has asked for; false: it is nothing that there is. */
bool vcpu_serve(const struct machine *machine, struct kvm_run *page);
