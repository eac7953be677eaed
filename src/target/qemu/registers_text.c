/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/registers_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a segment's flags, as the upper word of its descriptor has them (SDM vol. 3, 3.4.5). */
#define SEGMENT_LONG (1u << 21)

/* "RAX=0123" or "R8 =0123" at the beginning of a word; NULL: it is not there. */
static const char *after(const char *text, const char *name)
{
	const size_t len = strlen(name);

	for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
		const char *end = at + len;

		if (at != text && at[-1] != ' ' && at[-1] != '\n')
			continue;
		end += *end == ' ';
		if (*end == '=')
			return end + 1;
	}
	return NULL;
}

static bool number(const char *text, const char *name, uint64_t *out)
{
	const char *at = after(text, name);
	char *end = NULL;

	if (at)
		*out = strtoull(at, &end, 16);
	return at && end != at;
}

/* "CS =0008 0000000000000000 ffffffff 00af9b00 DPL=0 CS64 [-R-]": selector, base, limit, flags */
static bool segment(const char *text, const char *name, uint64_t *base, uint32_t *flags)
{
	const char *at = after(text, name);

	return at && sscanf(at, "%*x %" SCNx64 " %*x %" SCNx32, base, flags) == 2;
}

static bool general(const char *text, struct x86_regs *out)
{
	static const char wide[][4] = {"RAX", "RCX", "RDX", "RBX", "RSP", "RBP", "RSI", "RDI",
				       "R8",  "R9",  "R10", "R11", "R12", "R13", "R14", "R15"};
	static const char narrow[][4] = {"EAX", "ECX", "EDX", "EBX", "ESP", "EBP", "ESI", "EDI"};
	const bool is_wide = after(text, "RIP");
	bool whole = true;

	for (size_t i = 0; i < (is_wide ? 16 : 8); i++)
		whole = number(text, is_wide ? wide[i] : narrow[i], &out->gp[i]) && whole;
	return number(text, is_wide ? "RIP" : "EIP", &out->rip) &&
	       number(text, is_wide ? "RFL" : "EFL", &out->rflags) && whole;
}

bool qemu_registers_text(const char *text, struct x86_regs *out)
{
	uint32_t cs = 0, ss = 0;
	uint64_t cpl = 0;
	bool whole;

	memset(out, 0, sizeof(*out));
	whole = general(text, out) && number(text, "CR0", &out->cr0) &&
		number(text, "CR3", &out->cr3) && number(text, "CR4", &out->cr4) &&
		number(text, "EFER", &out->efer) && number(text, "CPL", &cpl) &&
		segment(text, "CS", &out->cs_base, &cs) && segment(text, "SS", &out->ss_base, &ss);
	out->cs_long = cs & SEGMENT_LONG;
	out->cpl = cpl & 3;
	return whole;
}
