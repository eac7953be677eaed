/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/disassemble.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <capstone.h>

#define TEXT_OF(number) #number
#define LIBRARY(major)	"libcapstone.so." TEXT_OF(major)

const char disassembler_feature[] = "with libcapstone if it is there";

struct disassembler {
	void *library;
	typeof(cs_open) *open;
	typeof(cs_close) *close;
	typeof(cs_option) *option;
	typeof(cs_disasm) *disasm;
	typeof(cs_free) *free;
};

static bool find_functions(struct disassembler *d)
{
	d->open = (typeof(cs_open) *)dlsym(d->library, "cs_open");
	d->close = (typeof(cs_close) *)dlsym(d->library, "cs_close");
	d->option = (typeof(cs_option) *)dlsym(d->library, "cs_option");
	d->disasm = (typeof(cs_disasm) *)dlsym(d->library, "cs_disasm");
	d->free = (typeof(cs_free) *)dlsym(d->library, "cs_free");
	return d->open && d->close && d->option && d->disasm && d->free;
}

struct disassembler *disassembler_open(void)
{
	struct disassembler *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->library = dlopen(LIBRARY(CS_API_MAJOR), RTLD_NOW | RTLD_LOCAL);
	if (!d->library || !find_functions(d)) {
		disassembler_close(d);
		return NULL;
	}
	return d;
}

void disassembler_close(struct disassembler *disassembler)
{
	if (!disassembler)
		return;
	if (disassembler->library)
		dlclose(disassembler->library);
	free(disassembler);
}

/* "callq", "jne" and their like; what they lead to is all of their operand, if it is known at all. */
static uint64_t target_of(const cs_insn *insn)
{
	if (insn->mnemonic[0] != 'j' && strncmp(insn->mnemonic, "call", 4) != 0)
		return 0;
	return strncmp(insn->op_str, "0x", 2) ? 0 : strtoull(insn->op_str, NULL, 16);
}

static void fill(const cs_insn *insn, struct code_line *line)
{
	*line = (struct code_line){.va = insn->address,
				   .len = (uint8_t)insn->size,
				   .target = target_of(insn)};
	memcpy(line->bytes, insn->bytes,
	       insn->size < CODE_LINE_BYTES ? insn->size : CODE_LINE_BYTES);
	snprintf(line->text, sizeof(line->text), "%.31s%s%.80s", insn->mnemonic,
		 *insn->op_str ? " " : "", insn->op_str);
}

size_t disassemble(struct disassembler *disassembler, unsigned word, uint64_t va,
		   const uint8_t *bytes, size_t len, struct code_line *lines, size_t room)
{
	cs_insn *insns = NULL;
	size_t n;
	csh handle;

	if (!disassembler ||
	    disassembler->open(CS_ARCH_X86, word == 8 ? CS_MODE_64 : CS_MODE_32, &handle))
		return 0;
	/* As objdump, gdb and perf have it. */
	(void)disassembler->option(handle, CS_OPT_SYNTAX, CS_OPT_SYNTAX_ATT);
	n = disassembler->disasm(handle, bytes, len, va, room, &insns);
	for (size_t i = 0; i < n; i++)
		fill(&insns[i], &lines[i]);
	disassembler->free(insns, n);
	disassembler->close(&handle);
	return n;
}
