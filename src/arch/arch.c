/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arch.h"

#include <string.h>

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
