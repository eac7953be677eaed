/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/disassemble.h"

const char disassembler_feature[] = "without a disassembler";

struct disassembler *disassembler_open(void)
{
	return NULL;
}

void disassembler_close(struct disassembler *disassembler)
{
}

size_t disassemble(struct disassembler *disassembler, const struct regs *regs,
		   const struct window *code, struct code_line *lines, size_t room)
{
	return 0;
}
