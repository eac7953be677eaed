/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <capstone.h>

/*
 * One uniprof runs with each library of these, whichever it was built with: of
 * a cs_insn, later ones have more room for bytes, and all that follows lies behind.
 */
static const struct release {
	const char *library;
	size_t room;
} releases[] = {{"libcapstone.so.5", 24}, {"libcapstone.so.4", 16}};

#define OPERANDS_BYTES 160 /* of cs_insn.op_str */

/* The headers of release 4 have no RISC-V; its library refuses to open it. */
#define ARCH_RISCV	   15
#define MODE_RISCV64_SHORT (1u << 1 | 1u << 2)

const char disassembler_feature[] = "with libcapstone if it is there";

struct disassembler {
	void *library;
	size_t room; /* of the release */
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
	{ISA_X86, 2, false, CS_ARCH_X86, CS_MODE_16},
	{ISA_ARM, 8, false, CS_ARCH_ARM64, CS_MODE_ARM},
	{ISA_ARM, 4, false, CS_ARCH_ARM, CS_MODE_ARM},
	{ISA_ARM, 4, true, CS_ARCH_ARM, CS_MODE_THUMB},
	{ISA_RISCV, 8, false, (cs_arch)ARCH_RISCV, MODE_RISCV64_SHORT},
};

static const struct language *language_of(const struct regs *regs)
{
	const bool thumb = regs->isa == ISA_ARM && regs->word == 4 && regs->flags & ARM_PSTATE_T;
	const uint8_t word = regs->segmented == 16 ? 2 : regs->word;

	for (size_t i = 0; i < sizeof(languages) / sizeof(*languages); i++)
		if (languages[i].isa == regs->isa && languages[i].word == word &&
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
	for (size_t i = 0; i < sizeof(releases) / sizeof(*releases) && !d->library; i++) {
		d->library = dlopen(releases[i].library, RTLD_NOW | RTLD_LOCAL);
		d->room = releases[i].room;
	}
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
static uint64_t target_of(const char *mnemonic, const char *operands)
{
	if (mnemonic[0] != 'j' && strncmp(mnemonic, "call", 4) != 0)
		return 0;
	return strncmp(operands, "0x", 2) ? 0 : strtoull(operands, NULL, 16);
}

/* Takes what is used of a cs_insn of either release. */
static void fill(const struct disassembler *d, bool x86, const cs_insn *insns, size_t i,
		 struct code_line *line)
{
	const size_t mnemonic_at = offsetof(cs_insn, bytes) + d->room;
	const size_t operands_at = mnemonic_at + CS_MNEMONIC_SIZE;
	const size_t detail_at =
		(operands_at + OPERANDS_BYTES + sizeof(void *) - 1) & -sizeof(void *);
	const char *insn = (const char *)insns + i * (detail_at + sizeof(void *));
	const char *mnemonic = insn + mnemonic_at, *operands = insn + operands_at;
	uint16_t size;

	memcpy(&size, insn + offsetof(cs_insn, size), sizeof(size));
	*line = (struct code_line){.len = (uint8_t)size,
				   .target = x86 ? target_of(mnemonic, operands) : 0};
	memcpy(&line->va, insn + offsetof(cs_insn, address), sizeof(line->va));
	memcpy(line->bytes, insn + offsetof(cs_insn, bytes),
	       size < CODE_LINE_BYTES ? size : CODE_LINE_BYTES);
	snprintf(line->text, sizeof(line->text), "%.31s%s%.80s", mnemonic, *operands ? " " : "",
		 operands);
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
		fill(disassembler, language->isa == ISA_X86, insns, i, &lines[i]);
	disassembler->free(insns, n);
	disassembler->close(&handle);
	return n;
}
