/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86_call.h"

#include <string.h>

#include "unwind/x86_effect.h"

bool x86_call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word,
		     struct x86_call *out)
{
	const uint8_t *end = bytes + n;
	struct x86_insn insn;
	int32_t offset;

	*out = (struct x86_call){0};
	if (n >= 5 && end[-5] == 0xe8) {
		memcpy(&offset, end - 4, 4);
		out->direct = true;
		out->target = ret + (uint64_t)(int64_t)offset;
		if (word == 4)
			out->target &= 0xffffffff;
	}
	for (size_t len = 2; len <= X86_CALL_MAX && len <= n && !out->indirect; len++) {
		const uint8_t *from = end - len;

		if ((*from == 0xff || len > 2) && x86_decode(from, len, word, &insn) == len)
			out->indirect = x86_effect(&insn, 0, word).op == X86_CALL_INDIRECT;
	}
	return out->direct || out->indirect;
}

/* Matches bytes; the four of the hypercall's number are skipped. */
static bool starts_with(const uint8_t *slot, const char *head, size_t n_head, const char *tail,
			size_t n_tail)
{
	return !memcmp(slot, head, n_head) && !memcmp(slot + n_head + 4, tail, n_tail);
}

bool x86_is_hypercall_stub(const uint8_t *slot, unsigned word)
{
	if (word == 8) {
		/* PV: push rcx; push r11; mov eax, n; syscall; pop r11; pop rcx; ret */
		if (starts_with(slot, "\x51\x41\x53\xb8", 4, "\x0f\x05\x41\x5b\x59\xc3", 6))
			return true;
		/* and for iret: push rcx; push r11; push rax; mov eax, n; syscall */
		if (starts_with(slot, "\x51\x41\x53\x50\xb8", 5, "\x0f\x05", 2))
			return true;
	} else {
		/* PV: mov eax, n; int 0x82; ret */
		if (starts_with(slot, "\xb8", 1, "\xcd\x82\xc3", 3))
			return true;
		/* and for iret: push eax; mov eax, n; int 0x82 */
		if (starts_with(slot, "\x50\xb8", 2, "\xcd\x82", 2))
			return true;
	}
	/* HVM and PVH: mov eax, n; vmcall or vmmcall; ret */
	return starts_with(slot, "\xb8", 1, "\x0f\x01\xc1\xc3", 4) ||
	       starts_with(slot, "\xb8", 1, "\x0f\x01\xd9\xc3", 4);
}
