/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "arch/arm/arm.h"

static const struct arch *const all[] = {&arch_x86_64, &arch_x86_32, &arch_arm64, &arch_arm32,
					 &arch_riscv64};

const struct arch *arch_by_name(const char *name)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i]->name, name))
			return all[i];
	return NULL;
}

const struct arch *arch_by_machine(uint16_t e_machine)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i]->machine == e_machine)
			return all[i];
	return NULL;
}

const struct arch *arch_of_code(const struct regs *regs)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i]->isa == regs->isa && all[i]->word == regs->word)
			return all[i];
	return NULL;
}

uint64_t mmu_table(const struct mmu *mmu)
{
	return mmu->mode == MMU_ARM64 ? arm64_table(mmu) : mmu->root;
}

void registers_add(struct registers *registers, enum register_group group, const char *name,
		   unsigned bytes, uint64_t value, const struct register_bit *bits)
{
	if (registers->n == REGISTERS_MAX)
		return;
	registers->at[registers->n++] = (struct register_value){
		.name = name,
		.value = bytes == 4 ? (uint32_t)value : value,
		.bits = bits,
		.group = (uint8_t)group,
		.bytes = (uint8_t)bytes,
	};
}

void registers_segment(struct registers *registers, const struct register_segment *segment)
{
	if (registers->n_segments < SEGMENTS_MAX)
		registers->segment[registers->n_segments++] = *segment;
}

void register_bits_text(const struct register_bit *bits, uint64_t value,
			char text[REGISTER_BITS_TEXT])
{
	const struct register_bit *end = bits;
	size_t len = 0;

	*text = '\0';
	while (end->name)
		end++;
	while (end > bits && len < REGISTER_BITS_TEXT) {
		const struct register_bit *bit = --end;
		uint64_t field = value >> bit->at & ((1ull << bit->width) - 1);
		const char *blank = len ? " " : "";
		char *to = text + len;
		size_t room = REGISTER_BITS_TEXT - len;

		if (!field)
			continue;
		if (bit->width == 1)
			len += (size_t)snprintf(to, room, "%s%s", blank, bit->name);
		else
			len += (size_t)snprintf(to, room, "%s%s=%" PRIu64, blank, bit->name, field);
	}
}
