/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64_access.h"

static bool pair(uint32_t insn, struct arm64_access *access)
{
	const unsigned opc = arm64_field(insn, 30, 2), mode = arm64_field(insn, 23, 2);
	const bool vector = insn >> 26 & 1;
	const unsigned size = vector ? 4u << opc : opc & 2 ? 8 : 4;

	/* Not where tags are stored as well, whose offset is scaled otherwise. */
	if ((insn & 0x3a000000) != 0x28000000 || opc == 3 || (insn & 0xfe400000) == 0x68000000)
		return false;
	*access = (struct arm64_access){.load = insn >> 22 & 1,
					.whole = !vector && opc == 2,
					.writes_back = mode & 1,
					.post = mode == 1,
					.offset = arm64_sign_extend(arm64_field(insn, 15, 7), 7) *
						  (int64_t)size,
					.n = vector ? 0 : 2,
					.base = arm64_field(insn, 5, 5),
					.reg = {arm64_field(insn, 0, 5), arm64_field(insn, 10, 5)}};
	return true;
}

static bool single(uint32_t insn, struct arm64_access *access)
{
	const unsigned opc = arm64_field(insn, 22, 2), mode = arm64_field(insn, 10, 2);
	const bool vector = insn >> 26 & 1, scaled = insn >> 24 & 1;
	const unsigned shift = vector && opc & 2 ? 4 : arm64_field(insn, 30, 2);

	if ((insn & 0x3a000000) != 0x38000000 || (!scaled && insn >> 21 & 1))
		return false;
	*access =
		(struct arm64_access){.load = vector ? opc & 1 : opc,
				      .whole = !vector && shift == 3 && opc < 2,
				      .writes_back = !scaled && mode & 1,
				      .post = !scaled && mode == 1,
				      .offset = scaled ? (int64_t)arm64_field(insn, 10, 12) << shift
						       : arm64_sign_extend(arm64_field(insn, 12, 9),
									   9),
				      .n = !vector,
				      .base = arm64_field(insn, 5, 5),
				      .reg = {arm64_field(insn, 0, 5)}};
	return true;
}

bool arm64_access(uint32_t insn, struct arm64_access *access)
{
	return pair(insn, access) || single(insn, access);
}
