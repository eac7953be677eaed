/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM_RECORD_H
#define UNIPROF_UNWIND_ARM_RECORD_H

#include "unwind/arm32/insn.h"
#include "unwind/walk.h"

/* A walk, with all registers as far as they are known where it stands. */
struct arm_walk {
	struct walk walk;
	uint32_t r[ARM_REGISTERS];
	uint16_t known; /* bit n: r[n] */
	bool thumb;	/* the code there is T32 */
};

/* A word that may be a return address. */
struct arm_return {
	uint64_t addr;	 /* without the T32 bit */
	uint64_t target; /* what the call before it called; 0: not known */
	uint8_t len;	 /* of that call, bytes */
	bool thumb;
	bool readable;
};

/* Does a call stand before this return address? Unreadable code is believed, as a guess. */
bool arm_believe(const struct arm_walk *walk, uint64_t ret, struct arm_return *out);

/* Goes to the caller, whose stack pointer is `sp`. */
void arm_go(struct arm_walk *walk, const struct arm_return *ret, uint64_t sp);

/* By frame record; always a guess. */
enum found arm_by_record(struct arm_walk *walk);

#endif
