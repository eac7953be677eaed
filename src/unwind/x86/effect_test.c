/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/x86.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct x86_effect effect_of(const char *bytes, size_t len, unsigned word)
{
	struct x86_insn insn;

	assert_int_equal(x86_decode((const uint8_t *)bytes, len, word, &insn), len);
	return x86_effect(&insn, 0x1000, word);
}

#define assert_effect(bytes, width, o, r, b, v)                                    \
	do {                                                                       \
		struct x86_effect e_ = effect_of(bytes, sizeof(bytes) - 1, width); \
		assert_int_equal(e_.op, o);                                        \
		assert_int_equal(e_.reg, r);                                       \
		assert_int_equal(e_.base, b);                                      \
		assert_int_equal(e_.value, v);                                     \
	} while (0)

#define NO X86_NO_REG

static void pushes_and_pops_are_told(void **state)
{
	assert_effect("\x55", 8, X86_PUSH, X86_BP, NO, 0);
	assert_effect("\x41\x55", 8, X86_PUSH, 13, NO, 0);
	assert_effect("\x68\x01\x02\x03\x04", 8, X86_PUSH, NO, NO, 0);
	assert_effect("\x41\xff\x72\xf8", 8, X86_PUSH, NO, 10, -8);
	assert_effect("\xff\x71\xfc", 4, X86_PUSH, NO, X86_CX, -4);
	assert_effect("\x9c", 8, X86_PUSH, NO, NO, 0);
	assert_effect("\x5d", 8, X86_POP, X86_BP, NO, 0);
	assert_effect("\x41\x5d", 8, X86_POP, 13, NO, 0);
	assert_effect("\x5c", 8, X86_LOSE, X86_SP, NO, 1);
	assert_effect("\x66\x50", 8, X86_LOSE, X86_SP, NO, 0);
	assert_effect("\x60", 4, X86_PUSH_ALL, NO, NO, 0);
	assert_effect("\x61", 4, X86_POP_ALL, NO, NO, 0);
	assert_effect("\x66\x61", 4, X86_LOSE, X86_SP, NO, 0);
}

static void stack_pointer_arithmetic_is_told(void **state)
{
	assert_effect("\x48\x83\xec\x10", 8, X86_SET_SP, NO, X86_SP, -16);
	assert_effect("\x48\x81\xc4\x00\x01\x00\x00", 8, X86_SET_SP, NO, X86_SP, 256);
	assert_effect("\x48\x83\xc4\x80", 8, X86_SET_SP, NO, X86_SP, -128);
	assert_effect("\x48\x8d\x64\x24\xf0", 8, X86_SET_SP, NO, X86_SP, -16);
	assert_effect("\x48\x8d\x65\xd8", 8, X86_SET_SP, NO, X86_BP, -40);
	assert_effect("\x49\x8d\x62\xf8", 8, X86_SET_SP, NO, 10, -8);
	assert_effect("\x48\x89\xec", 8, X86_SET_SP, NO, X86_BP, 0);
	assert_effect("\x48\x8b\xe5", 8, X86_SET_SP, NO, X86_BP, 0);
	assert_effect("\x48\x83\xe4\xf0", 8, X86_LOSE, X86_SP, NO, 0);
	assert_effect("\x48\x29\xc4", 8, X86_LOSE, X86_SP, NO, 0);
	assert_effect("\x48\x8b\x25\x00\x00\x00\x00", 8, X86_LOSE, X86_SP, NO, 1);
	assert_effect("\xbc\x00\x10\x00\x00", 4, X86_LOSE, X86_SP, NO, 1);
	assert_effect("\x48\x83\xfc\x10", 8, X86_OTHER, NO, NO, 0); /* cmp */
	assert_effect("\x48\x39\xc4", 8, X86_OTHER, NO, NO, 0);
	assert_effect("\x48\x94", 8, X86_LOSE, X86_SP, NO, 0); /* xchg */
}

static void frame_pointer_changes_are_told(void **state)
{
	assert_effect("\x48\x89\xe5", 8, X86_COPY_SP, X86_BP, NO, 0);
	assert_effect("\x48\x8b\xec", 8, X86_COPY_SP, X86_BP, NO, 0);
	assert_effect("\x48\x8d\x6c\x24\x20", 8, X86_COPY_SP, X86_BP, NO, 32);
	assert_effect("\x4c\x8d\x54\x24\x08", 8, X86_COPY_SP, 10, NO, 8);
	assert_effect("\x31\xed", 8, X86_LOSE, X86_BP, NO, 0);
	assert_effect("\x48\x89\xfd", 8, X86_LOSE, X86_BP, NO, 0);
	assert_effect("\x8b\x2f", 8, X86_LOSE, X86_BP, NO, 1);
	assert_effect("\x83\xc5\x01", 8, X86_LOSE, X86_BP, NO, 0);
	assert_effect("\x0f\xb6\xe8", 8, X86_LOSE, X86_BP, NO, 0);
	assert_effect("\x49\x89\xfd", 8, X86_OTHER, NO, NO, 0); /* r13, not bp */
	assert_effect("\x40\x88\xfd", 8, X86_OTHER, NO, NO, 0);
	assert_effect("\xc9", 8, X86_LEAVE, NO, NO, 0);
	assert_effect("\xc8\x10\x00\x00", 8, X86_ENTER, NO, NO, 16);
}

static void control_flow_is_told(void **state)
{
	assert_effect("\xe8\x10\x00\x00\x00", 8, X86_CALL, NO, NO, 0x1015);
	assert_effect("\xe8\x00\x00\x00\xff", 4, X86_CALL, NO, NO, 0xff001005);
	assert_effect("\xff\xd0", 8, X86_CALL_INDIRECT, NO, NO, 0);
	assert_effect("\xff\x15\x00\x00\x00\x00", 8, X86_CALL_INDIRECT, NO, NO, 0);
	assert_effect("\xeb\xfe", 8, X86_JUMP, NO, NO, 0x1000);
	assert_effect("\xe9\x00\x01\x00\x00", 8, X86_JUMP, NO, NO, 0x1105);
	assert_effect("\x75\x10", 8, X86_BRANCH, NO, NO, 0x1012);
	assert_effect("\x0f\x85\x00\x01\x00\x00", 8, X86_BRANCH, NO, NO, 0x1106);
	assert_effect("\xe3\x02", 8, X86_BRANCH, NO, NO, 0x1004);
	assert_effect("\xff\xe0", 8, X86_JUMP_INDIRECT, NO, NO, 0);
	assert_effect("\xc3", 8, X86_STOP, NO, NO, 0);
	assert_effect("\xc2\x08\x00", 8, X86_STOP, NO, NO, 0);
	assert_effect("\x0f\x0b", 8, X86_STOP, NO, NO, 0);
	assert_effect("\x48\xcf", 8, X86_STOP, NO, NO, 0);
	assert_effect("\x0f\x05", 8, X86_OTHER, NO, NO, 0);
	assert_effect("\xc5\xf8\x77", 8, X86_OTHER, NO, NO, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pushes_and_pops_are_told),
		cmocka_unit_test(stack_pointer_arithmetic_is_told),
		cmocka_unit_test(frame_pointer_changes_are_told),
		cmocka_unit_test(control_flow_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
