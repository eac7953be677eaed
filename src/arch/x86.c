/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arch.h"

#include <elf.h>

#include "arch/x86_mmu.h"
#include "arch/x86_registers.h"

/* How addresses are translated follows from the control registers alone, so both share the walk. */

const struct arch arch_x86_64 = {
	.name = "x86_64",
	.word = 8,
	.machine = EM_X86_64,
	.translate = x86_translate,
	.show = x86_registers_show,
	.segment_text = x86_segment_text,
};

const struct arch arch_x86_32 = {
	.name = "x86_32",
	.word = 4,
	.machine = EM_386,
	.translate = x86_translate,
	.show = x86_registers_show,
	.segment_text = x86_segment_text,
};
