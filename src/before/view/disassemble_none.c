/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/disassemble.h"

const char disassembler_feature[] = "without a disassembler";

struct disassembler *disassembler_open(void)
{
	return NULL;
}

void disassembler_close(struct disassembler *disassembler)
{
}

size_t disassemble(struct disassembler *disassembler, unsigned word, uint64_t va,
		   const uint8_t *bytes, size_t len, struct code_line *lines, size_t room)
{
	return 0;
}
