/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_SHARED_H
#define UNIPROF_TARGET_QEMU_SHARED_H

/*
 * Registers of a guest of KVM's from the pages that QEMU shares with KVM
 * (kvm/run_page.h). Asked for them by its gdb stub, QEMU reads all that a vCPU
 * has, by a dozen calls of KVM in the vCPU's thread, and puts it all back
 * before the vCPU runs again: most of the time that a sample takes. What KVM
 * has left in the page when the vCPU was stopped is there already.
 *
 * It is believed of a vCPU once it was the same as what the stub tells.
 */

#include "arch/arch.h"

#include <sys/types.h>

struct shared;

/*
 * For QEMU's process, `memory` of which (host/memory.h) must outlive it. NULL:
 * there are no such pages, or none that we may write to; then there is the stub.
 */
struct shared *shared_new(pid_t pid, int memory, uint32_t vcpus);
void shared_free(struct shared *shared);

/* Of all that is below, `shared` may be NULL: nothing is believed then. */
bool shared_is_believed(const struct shared *shared, uint32_t vcpu);

/* The stub tells this of a vCPU that is stopped. */
void shared_compare(struct shared *shared, uint32_t vcpu, const struct regs *told);

/* Registers of a vCPU that is stopped; false if there are none, and it is not believed any more. */
bool shared_take(struct shared *shared, uint32_t vcpu, struct regs *out);

#endif
