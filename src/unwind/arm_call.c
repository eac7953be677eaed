/* SPDX-License-Identifier: BSD-3-Clause */
/* Return addresses, and going to where they lead. */
#include "unwind/arm_record.h"

/* Does a call end at this address? Then *len is its length, *target as arm_is_call says. */
static bool call_before(const struct code *code, uint64_t ret, bool thumb, uint8_t *len,
			uint64_t *target, bool *readable)
{
	uint8_t bytes[4];
	uint32_t insn;

	*len = 4;
	*target = 0;
	*readable = code->read && code->read(code->ctx, ret - 4, bytes, 4) == 4;
	if (!*readable)
		return true;
	insn = (uint32_t)(bytes[0] | bytes[1] << 8) | (uint32_t)(bytes[2] | bytes[3] << 8) << 16;
	if (!thumb)
		return arm_is_call(insn, ret - 4, target);
	if (thumb_is_call(insn << 16 | insn >> 16, 4, ret - 4, target))
		return true;
	*len = 2;
	return thumb_is_call(insn >> 16, 2, ret - 2, target);
}

bool arm_believe(const struct arm_walk *walk, uint64_t ret, struct arm_return *out)
{
	const struct code *code = walk->walk.in->code;

	out->thumb = ret & 1;
	out->addr = ret & ~1ull;
	if (!out->thumb && ret & 2)
		return false;
	return call_before(code, out->addr, out->thumb, &out->len, &out->target, &out->readable);
}

void arm_go(struct arm_walk *walk, const struct arm_return *ret, uint64_t sp)
{
	walk->thumb = ret->thumb;
	walk->r[ARM_SP] = (uint32_t)sp;
	walk->known = (uint16_t)((walk->known & ARM_KEPT & ~(1u << ARM_LR)) | 1u << ARM_SP);
	walk->walk.at = (struct place){.addr = ret->addr, .kind = FRAME_RETURN, .sp = sp};
}
