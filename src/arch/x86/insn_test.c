/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86/x86.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct encoding {
	const char *bytes;
	size_t len;
	const char *text;
};

#define INSN(bytes, text)                      \
	{                                      \
		bytes, sizeof(bytes) - 1, text \
	}

static const struct encoding wide[] = {
	INSN("\xc3", "ret"),
	INSN("\x55", "push rbp"),
	INSN("\x41\x57", "push r15"),
	INSN("\x48\x89\xe5", "mov rbp, rsp"),
	INSN("\xf3\x0f\x1e\xfa", "endbr64"),
	INSN("\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", "nop word cs:[rax+rax+0]"),
	INSN("\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", "the same with one more prefix"),
	INSN("\x0f\x1f\x40\x00", "nop dword [rax]"),
	INSN("\xe8\x00\x00\x00\x00", "call"),
	INSN("\x67\xe8\x00\x00\x00\x00", "addr32 call"),
	INSN("\xff\x15\x00\x00\x00\x00", "call [rip]"),
	INSN("\x41\xff\x94\x24\x00\x01\x00\x00", "call [r12+0x100]"),
	INSN("\x3e\xff\xe0", "notrack jmp rax"),
	INSN("\xc2\x08\x00", "ret 8"),
	INSN("\xc8\x10\x00\x00", "enter 16, 0"),
	INSN("\x48\xb8\x01\x02\x03\x04\x05\x06\x07\x08", "movabs rax"),
	INSN("\xb8\x01\x02\x03\x04", "mov eax"),
	INSN("\x66\xb8\x01\x02", "mov ax"),
	INSN("\x48\xc7\xc0\x01\x02\x03\x04", "mov rax, imm32"),
	INSN("\x66\xc7\x04\x24\x01\x02", "mov word [rsp], imm16"),
	INSN("\xa1\x01\x02\x03\x04\x05\x06\x07\x08", "movabs eax, [moffs64]"),
	INSN("\x67\xa1\x01\x02\x03\x04", "mov eax, [moffs32]"),
	INSN("\xf6\x45\xfc\x01", "test byte [rbp-4], 1"),
	INSN("\xf6\x5d\xfc", "neg byte [rbp-4]"),
	INSN("\xf7\xc7\x01\x02\x03\x04", "test edi, imm32"),
	INSN("\x66\xf7\xc7\x01\x02", "test di, imm16"),
	INSN("\xf7\xf9", "idiv ecx"),
	INSN("\x69\xc0\x01\x02\x03\x04", "imul eax, eax, imm32"),
	INSN("\x6b\xc0\x07", "imul eax, eax, 7"),
	INSN("\x0f\x84\x01\x02\x03\x04", "je rel32"),
	INSN("\x74\x01", "je rel8"),
	INSN("\x0f\xba\xe0\x03", "bt eax, 3"),
	INSN("\x0f\xc7\x0f", "cmpxchg8b [rdi]"),
	INSN("\x0f\xa4\xd0\x05", "shld eax, edx, 5"),
	INSN("\x66\x0f\x70\xc0\xb1", "pshufd"),
	INSN("\x66\x0f\x38\x00\xc1", "pshufb"),
	INSN("\x66\x0f\x3a\x0f\xc1\x08", "palignr"),
	INSN("\xc5\xf8\x77", "vzeroupper"),
	INSN("\xc5\xf9\x70\xc0\xb1", "vpshufd"),
	INSN("\xc4\xe2\x79\x18\x05\x00\x00\x00\x00", "vbroadcastss xmm0, [rip]"),
	INSN("\xc4\xe3\x79\x0f\xc1\x08", "vpalignr"),
	INSN("\x62\xf1\x7c\x48\x10\x47\x01", "vmovups zmm0, [rdi+0x40]"),
	INSN("\x62\xf3\x7d\x48\x25\xc1\xff", "vpternlogd"),
	INSN("\x0f\x05", "syscall"),
	INSN("\x0f\x01\xc1", "vmcall"),
	INSN("\x0f\x01\xd9", "vmmcall"),
	INSN("\x0f\x0b", "ud2"),
	INSN("\xd9\x7c\x24\x02", "fnstcw [rsp+2]"),
	INSN("\xf0\x48\x0f\xb1\x0f", "lock cmpxchg [rdi], rcx"),
	INSN("\xf3\x48\xab", "rep stosq"),
	INSN("\x64\x48\x8b\x04\x25\x28\x00\x00\x00", "mov rax, fs:[0x28]"),
};

static const struct encoding narrow[] = {
	INSN("\x40", "inc eax"),
	INSN("\x48", "dec eax"),
	INSN("\x89\xe5", "mov ebp, esp"),
	INSN("\x60", "pusha"),
	INSN("\xa1\x01\x02\x03\x04", "mov eax, [moffs32]"),
	INSN("\xcd\x82", "int 0x82"),
	INSN("\x9a\x01\x02\x03\x04\x05\x06", "call far"),
	INSN("\x62\x07", "bound eax, [edi]"),
	INSN("\xc5\xf8\x77", "vzeroupper"),
	INSN("\xc5\x07", "lds eax, [edi]"),
	INSN("\x67\x8b\x46\x04", "mov eax, [bp+4]"),
	INSN("\x67\x8b\x0e\x04\x00", "mov ecx, [4]"),
	INSN("\x66\xe8\x01\x02", "call rel16"),
	INSN("\xd5\x0a", "aad"),
};

static void check(const struct encoding *known, size_t n, unsigned word)
{
	struct x86_insn insn;

	for (size_t i = 0; i < n; i++) {
		uint8_t bytes[24];

		memset(bytes, 0x90, sizeof(bytes));
		memcpy(bytes, known[i].bytes, known[i].len);
		if (x86_decode(bytes, sizeof(bytes), word, &insn) != known[i].len)
			fail_msg("%s: %u bytes instead of %zu", known[i].text, insn.len,
				 known[i].len);
		for (size_t cut = 0; cut < known[i].len; cut++)
			if (x86_decode(bytes, cut, word, &insn))
				fail_msg("%s: decoded from %zu bytes", known[i].text, cut);
	}
}

static void instructions_have_their_lengths(void **state)
{
	check(wide, sizeof(wide) / sizeof(wide[0]), 8);
	check(narrow, sizeof(narrow) / sizeof(narrow[0]), 4);
}

static void what_is_no_instruction_has_no_length(void **state)
{
	struct x86_insn insn;

	assert_int_equal(x86_decode((const uint8_t *)"\x06\x90\x90", 3, 8, &insn), 0);
	assert_int_equal(x86_decode((const uint8_t *)"\x0f\xff", 2, 8, &insn), 0);
	assert_int_equal(x86_decode((const uint8_t *)"\xd6\x90", 2, 8, &insn), 0);
	assert_int_equal(x86_decode((const uint8_t *)"", 0, 8, &insn), 0);
	/* Prefixes without end. */
	assert_int_equal(x86_decode((const uint8_t *)"\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66"
						     "\x66\x66\x66\x66\x66\x90",
				    17, 8, &insn),
			 0);
}

/* The disassembler's opinion of its own code, this test and the C library in it. */
static void lengths_agree_with_objdump(void **state)
{
	FILE *listing;
	char line[512];
	unsigned long n = 0;

	if (system("objdump --version >/dev/null 2>&1")) {
		print_message("# objdump is not installed\n");
		skip();
	}
	listing = popen("objdump -d -w /proc/$PPID/exe", "r");
	assert_non_null(listing);
	while (fgets(line, sizeof(line), listing)) {
		char *at = strchr(line, '\t'), *text = at ? strchr(at + 1, '\t') : NULL, *end;
		struct x86_insn insn;
		uint8_t bytes[32];
		size_t len = 0;

		if (!text || strstr(text, "(bad)") || strstr(text, "rex."))
			continue;
		while (len < 16) {
			unsigned long byte = strtoul(at, &end, 16);

			if (end > text || end == at)
				break;
			bytes[len++] = (uint8_t)byte;
			at = end;
		}
		/* fwait is an instruction of its own that objdump joins with the next. */
		if (bytes[0] == 0x9b)
			continue;
		if (x86_decode(bytes, len, 8, &insn) != len)
			fail_msg("%u bytes: %s", insn.len, line);
		n++;
	}
	pclose(listing);
	assert_true(n > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(instructions_have_their_lengths),
		cmocka_unit_test(what_is_no_instruction_has_no_length),
		cmocka_unit_test(lengths_agree_with_objdump),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
