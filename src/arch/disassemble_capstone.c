/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/disassemble.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <capstone.h>

#include "arch/arm/arm.h"

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

/* One instruction set, in the words of the library. */
struct language {
	uint8_t isa, word;
	bool thumb;
	cs_arch arch;
	unsigned mode;
};

static const struct language languages[] = {
	{ISA_X86, 8, false, CS_ARCH_X86, CS_MODE_64},
	{ISA_X86, 4, false, CS_ARCH_X86, CS_MODE_32},
	{ISA_ARM, 8, false, CS_ARCH_ARM64, CS_MODE_ARM},
	{ISA_ARM, 4, false, CS_ARCH_ARM, CS_MODE_ARM},
	{ISA_ARM, 4, true, CS_ARCH_ARM, CS_MODE_THUMB},
#if CS_API_MAJOR >= 5
	{ISA_RISCV, 8, false, CS_ARCH_RISCV, CS_MODE_RISCV64 | CS_MODE_RISCVC},
#endif
};

static const struct language *language_of(const struct regs *regs)
{
	const bool thumb = regs->isa == ISA_ARM && regs->word == 4 && regs->flags & ARM_PSTATE_T;

	for (size_t i = 0; i < sizeof(languages) / sizeof(*languages); i++)
		if (languages[i].isa == regs->isa && languages[i].word == regs->word &&
		    languages[i].thumb == thumb)
			return &languages[i];
	return NULL;
}

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

/* "callq", "jne" and their like: the target is their only operand, if it is known at all. */
static uint64_t target_of(const cs_insn *insn)
{
	if (insn->mnemonic[0] != 'j' && strncmp(insn->mnemonic, "call", 4) != 0)
		return 0;
	return strncmp(insn->op_str, "0x", 2) ? 0 : strtoull(insn->op_str, NULL, 16);
}

static void fill(const struct language *language, const cs_insn *insn, struct code_line *line)
{
	*line = (struct code_line){.va = insn->address,
				   .len = (uint8_t)insn->size,
				   .target = language->isa == ISA_X86 ? target_of(insn) : 0};
	memcpy(line->bytes, insn->bytes,
	       insn->size < CODE_LINE_BYTES ? insn->size : CODE_LINE_BYTES);
	snprintf(line->text, sizeof(line->text), "%.31s%s%.80s", insn->mnemonic,
		 *insn->op_str ? " " : "", insn->op_str);
}

size_t disassemble(struct disassembler *disassembler, const struct regs *regs,
		   const struct window *code, struct code_line *lines, size_t room)
{
	const struct language *language = language_of(regs);
	cs_insn *insns = NULL;
	size_t n;
	csh handle;

	if (!disassembler || !language ||
	    disassembler->open(language->arch, (cs_mode)language->mode, &handle))
		return 0;
	/* AT&T syntax, as of objdump, gdb and perf. */
	if (language->isa == ISA_X86)
		(void)disassembler->option(handle, CS_OPT_SYNTAX, CS_OPT_SYNTAX_ATT);
	n = disassembler->disasm(handle, code->bytes, code->len, code->va, room, &insns);
	for (size_t i = 0; i < n; i++)
		fill(language, &insns[i], &lines[i]);
	disassembler->free(insns, n);
	disassembler->close(&handle);
	return n;
}
