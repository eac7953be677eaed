/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arch.h"

#include <elf.h>

#include "arch/arm64_mmu.h"
#include "arch/arm_mmu.h"
#include "arch/arm_registers.h"

/* Programs of 32 bits run on kernels of 64 and are translated as these say. */
static enum xlate_status translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				   struct xlate *out)
{
	if (mmu->mode == MMU_ARM_LPAE || mmu->mode == MMU_ARM_SHORT)
		return arm_translate(mmu, va, mem, out);
	return arm64_translate(mmu, va, mem, out);
}

const struct arch arch_arm64 = {
	.name = "arm64",
	.word = 8,
	.machine = EM_AARCH64,
	.translate = translate,
	.show = arm_registers_show,
};

const struct arch arch_arm32 = {
	.name = "arm32",
	.word = 4,
	.machine = EM_ARM,
	.translate = translate,
	.show = arm_registers_show,
};
