/* SPDX-License-Identifier: BSD-3-Clause */
#include "processor.h"

#include <stdbool.h>
#include <string.h>

/* Legacy prefixes and REX (Intel SDM 2A, 2.1.1 and 2.2.1). */
static bool is_prefix(uint8_t byte)
{
	return byte == 0xf2 || byte == 0xf3 || byte == 0x66 || byte == 0x2e || byte == 0x3e ||
	       (byte & 0xf0) == 0x40;
}

static enum insn_kind classify_x86(uint64_t address, const uint8_t *bytes, size_t size,
				   uint64_t *target)
{
	int32_t distance;
	size_t i = 0;

	while (i + 1 < size && is_prefix(bytes[i]))
		i++;
	switch (bytes[i]) {
	case 0xe8:
		if (i + 5 > size)
			return INSN_OTHER;
		memcpy(&distance, bytes + i + 1, sizeof(distance));
		*target = address + size + (uint64_t)(int64_t)distance;
		return INSN_CALL;
	case 0xff:
		return i + 1 < size && (bytes[i + 1] & 0x38) == 0x10 ? INSN_CALL_INDIRECT
								     : INSN_OTHER;
	case 0xc2:
	case 0xc3:
		return INSN_RETURN;
	case 0xcf:
		return INSN_RETURN_INTERRUPT;
	default:
		return INSN_OTHER;
	}
}

/* DDI 0487, C6.2: BL, BLR, RET and ERET; those with pointer authentication are in no guest here. */
static enum insn_kind classify_arm64(uint64_t address, const uint8_t *bytes, size_t size,
				     uint64_t *target)
{
	uint32_t word;

	if (size != sizeof(word))
		return INSN_OTHER;
	memcpy(&word, bytes, sizeof(word));
	if ((word & 0xfc000000) == 0x94000000) {
		/* 26 bits, with a sign, of words. */
		*target = address + (uint64_t)((int64_t)((uint64_t)word << 38) >> 36);
		return INSN_CALL;
	}
	if ((word & 0xfffffc1f) == 0xd63f0000)
		return INSN_CALL_INDIRECT;
	if ((word & 0xfffffc1f) == 0xd65f0000)
		return INSN_RETURN;
	return word == 0xd69f03e0 ? INSN_RETURN_INTERRUPT : INSN_OTHER;
}

/* Xen's part: xen/arch-x86/xen-x86_64.h; asm/config.h of Xen 4.17 (XEN_VIRT_START, 2 MiB). */
static const struct processor processors[] = {
	{"x86_64", 0xffff800000000000, 0xffff880000000000, classify_x86},
	{"aarch64", 0x200000, 0x400000, classify_arm64},
};

const struct processor *processor_find(const char *qemu_name)
{
	for (size_t i = 0; i < sizeof(processors) / sizeof(processors[0]); i++)
		if (!strcmp(processors[i].qemu_name, qemu_name))
			return &processors[i];
	return NULL;
}
