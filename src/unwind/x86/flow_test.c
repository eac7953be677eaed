/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/x86.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define START 0x400000ull

static uint8_t text[65536];
static size_t text_len;
static void *scratch;
static struct x86_state found;
static unsigned steps;

static size_t read_text(void *ctx, uint64_t va, void *buf, size_t len)
{
	if (va < START || va - START >= text_len)
		return 0;
	if (len > text_len - (va - START))
		len = text_len - (va - START);
	memcpy(buf, text + (va - START), len);
	return len;
}

static enum flow_result flow(unsigned word, uint64_t offset, uint64_t end, uint8_t kind)
{
	struct code code = {.read = read_text};
	struct code_reader reader = {.code = &code, .scratch = scratch, .steps = &steps};
	struct flow_query query = {.isa = word == 8 ? &unwind_x86_64 : &unwind_x86_32,
				   .start = START,
				   .end = end ? START + end : 0,
				   .addr = START + offset,
				   .kind = kind};

	steps = 100000;
	memset(&found, 0xee, sizeof(found));
	return x86_flow(&query, &reader, &found);
}

static void set_text(const char *bytes, size_t len)
{
	memcpy(text, bytes, len);
	text_len = len;
}

#define TEXT(bytes) set_text(bytes, sizeof(bytes) - 1)

/* The state before the instruction at `offset`, in 64-bit code. */
#define assert_state(offset, d, f, s)                                              \
	do {                                                                       \
		assert_int_equal(flow(8, offset, text_len, FRAME_PC), FLOW_FOUND); \
		assert_int_equal(found.depth, d);                                  \
		assert_int_equal(found.fp_at, f);                                  \
		assert_int_equal(found.saved_at, s);                               \
	} while (0)

static void a_frame_is_set_up_and_torn_down(void **state)
{
	TEXT("\x55"		/*  0 push rbp */
	     "\x48\x89\xe5"	/*  1 mov rbp, rsp */
	     "\x53"		/*  4 push rbx */
	     "\x48\x83\xec\x18" /*  5 sub rsp, 24 */
	     "\x31\xc0"		/*  9 xor eax, eax */
	     "\x48\x8b\x5d\xf8" /* 11 mov rbx, [rbp-8] */
	     "\xc9"		/* 15 leave */
	     "\xc3");		/* 16 ret */
	assert_state(0, 0, 0, 0);
	assert_state(1, 8, 0, 8);
	assert_state(4, 8, 8, 8);
	assert_state(5, 16, 8, 8);
	assert_state(9, 40, 8, 8);
	assert_state(15, 40, 8, 8);
	assert_state(16, 0, 0, 0);
	assert_false(found.fp_lost || found.entry || found.copied);
}

static void code_without_a_frame_pointer_is_counted(void **state)
{
	TEXT("\x41\x54"		    /*  0 push r12 */
	     "\x55"		    /*  2 push rbp */
	     "\x48\x83\xec\x08"	    /*  3 sub rsp, 8 */
	     "\x89\xfd"		    /*  7 mov ebp, edi */
	     "\xe8\x00\x01\x00\x00" /*  9 call */
	     "\x48\x83\xc4\x08"	    /* 14 add rsp, 8 */
	     "\x5d"		    /* 18 pop rbp */
	     "\x41\x5c"		    /* 19 pop r12 */
	     "\xc3");		    /* 21 ret */
	assert_state(2, 8, 0, 0);
	assert_state(3, 16, 0, 16);
	assert_state(9, 24, 0, 16);
	assert_state(18, 16, 0, 16);
	assert_state(19, 8, 0, 0);
	assert_state(21, 0, 0, 0);
	assert_int_equal(flow(8, 14, text_len, FRAME_RETURN), FLOW_FOUND);
	assert_int_equal(found.depth, 24);
	/* Not behind a call. */
	assert_int_equal(flow(8, 18, text_len, FRAME_RETURN), FLOW_NOT);
}

static void each_path_has_its_own_state(void **state)
{
	TEXT("\x85\xff" /*  0 test edi, edi */
	     "\x74\x07" /*  2 je 11 */
	     "\x53"	/*  4 push rbx */
	     "\xeb\x01" /*  5 jmp 8 */
	     "\x90"	/*  7 never reached */
	     "\x5b"	/*  8 pop rbx */
	     "\xc3"	/*  9 ret */
	     "\x90"	/* 10 padding */
	     "\x31\xc0" /* 11 xor eax, eax */
	     "\xc3");	/* 13 ret */
	assert_state(8, 8, 0, 0);
	assert_state(9, 0, 0, 0);
	assert_state(11, 0, 0, 0);
	assert_state(13, 0, 0, 0);
	assert_int_equal(flow(8, 7, text_len, FRAME_PC), FLOW_GUESSED);
	assert_int_equal(flow(8, 1, text_len, FRAME_PC), FLOW_NOT);
}

static void a_realigned_stack_keeps_its_origin(void **state)
{
	TEXT("\x4c\x8d\x54\x24\x08" /*  0 lea r10, [rsp+8] */
	     "\x48\x83\xe4\xe0"	    /*  5 and rsp, -32 */
	     "\x41\xff\x72\xf8"	    /*  9 push [r10-8] */
	     "\x55"		    /* 13 push rbp */
	     "\x48\x89\xe5"	    /* 14 mov rbp, rsp */
	     "\x41\x52"		    /* 17 push r10 */
	     "\x48\x83\xec\x28"	    /* 19 sub rsp, 40 */
	     "\x4c\x8b\x55\xf8"	    /* 23 mov r10, [rbp-8] */
	     "\xc9"		    /* 27 leave */
	     "\x49\x8d\x62\xf8"	    /* 28 lea rsp, [r10-8] */
	     "\xc3");		    /* 32 ret */
	assert_state(9, X86_LOST, 0, 0);
	assert_int_equal(found.origin_reg, 10);
	assert_false(found.copied);
	assert_state(13, 0, 0, 0);
	assert_true(found.copied);
	assert_state(19, 16, 8, 8);
	assert_true(found.copied);
	assert_int_equal(found.origin_at, 16);
	assert_state(28, 0, 0, 0);
	assert_true(found.copied);
	assert_state(32, 0, 0, 0);
	assert_false(found.copied);
}

static void entry_code_has_no_caller(void **state)
{
	TEXT("\x48\x8b\x25\x00\x00\x00\x00" /*  0 mov rsp, [rip] */
	     "\xe8\x00\x01\x00\x00");	    /*  7 call */
	assert_int_equal(flow(8, 12, text_len, FRAME_RETURN), FLOW_FOUND);
	assert_true(found.entry);
	TEXT("\x58"	  /*  0 pop rax */
	     "\x6a\x00"	  /*  1 push 0 */
	     "\xff\xd0"); /*  3 call rax */
	assert_int_equal(flow(8, 5, text_len, FRAME_RETURN), FLOW_FOUND);
	assert_true(found.entry);
	TEXT("\x31\xed"		      /*  0 xor ebp, ebp */
	     "\xe8\x00\x01\x00\x00"); /*  2 call */
	assert_int_equal(flow(8, 7, text_len, FRAME_RETURN), FLOW_FOUND);
	assert_true(found.entry);
	assert_true(found.fp_lost);
}

static void asking_for_the_program_counter_is_no_call(void **state)
{
	TEXT("\xe8\x00\x00\x00\x00" /* 0 call 5 */
	     "\x5b"		    /* 5 pop ebx */
	     "\xc3");		    /* 6 ret */
	assert_int_equal(flow(4, 5, text_len, FRAME_PC), FLOW_FOUND);
	assert_int_equal(found.depth, 4);
	assert_int_equal(flow(4, 6, text_len, FRAME_PC), FLOW_FOUND);
	assert_int_equal(found.depth, 0);
}

static void jump_tables_are_guessed_to_be_part_of_the_body(void **state)
{
	TEXT("\x55"			    /*  0 push rbp */
	     "\x48\x89\xe5"		    /*  1 mov rbp, rsp */
	     "\xff\x24\xfd\x00\x00\x50\x00" /* 4 jmp [rdi*8 + table] */
	     "\x31\xc0"			    /* 11 xor eax, eax */
	     "\x5d"			    /* 13 pop rbp */
	     "\xc3");			    /* 14 ret */
	assert_int_equal(flow(8, 11, text_len, FRAME_PC), FLOW_GUESSED);
	assert_int_equal(found.fp_at, 8);
	assert_int_equal(flow(8, 11, 0, FRAME_PC), FLOW_GUESSED);
}

static void what_follows_a_function_is_another(void **state)
{
	TEXT("\x48\x83\xec\x08"	    /*  0 sub rsp, 8 */
	     "\xe8\x00\x01\x00\x00" /*  4 call, does not return */
	     "\x53"		    /*  9 the next function: push rbx */
	     "\x31\xc0"		    /* 10 xor eax, eax */
	     "\xc3");		    /* 12 ret */
	assert_int_equal(flow(8, 9, 9, FRAME_RETURN), FLOW_FOUND);
	assert_int_equal(flow(8, 10, 9, FRAME_PC), FLOW_NOT);
	/* Without symbols too, if the code begins like a function. */
	assert_int_equal(flow(8, 10, 0, FRAME_PC), FLOW_NOT);
	TEXT("\x55\x48\x89\xe5"	    /*  0 push rbp; mov rbp, rsp */
	     "\xe8\x00\x01\x00\x00" /*  4 call, does not return */
	     "\x0f\x1f\x40\x00"	    /*  9 padding */
	     "\x55\x48\x89\xe5"	    /* 13 the next function: push rbp; mov rbp, rsp */
	     "\xc3");
	assert_int_equal(flow(8, 17, 0, FRAME_PC), FLOW_NOT);
	/* And nothing follows a return. */
	TEXT("\xc3\x90\x31\xc0\xc3");
	assert_int_equal(flow(8, 2, 0, FRAME_PC), FLOW_NOT);
}

static void a_stack_probing_loop_ends_where_it_says(void **state)
{
	TEXT("\x4c\x8d\x9c\x24\x00\x80\xff\xff" /*  0 lea r11, [rsp-0x8000] */
	     "\x48\x81\xec\x00\x10\x00\x00"	/*  8 sub rsp, 0x1000 */
	     "\x48\x83\x0c\x24\x00"		/* 15 or qword [rsp], 0 */
	     "\x4c\x39\xdc"			/* 20 cmp rsp, r11 */
	     "\x75\xef"				/* 23 jne 8 */
	     "\x31\xc0"				/* 25 xor eax, eax */
	     "\xc3");
	assert_state(25, 0x8000, 0, 0);
}

static void a_thunk_leads_where_its_register_says(void **state)
{
	TEXT("\x0f\xae\xe8\xff\xe0"); /* lfence; jmp rax */
	assert_int_equal(flow(8, 4096, text_len, FRAME_RETURN), FLOW_AWAY);
	TEXT("\xe8\x07\x00\x00\x00" /*  0 call 12 */
	     "\xf3\x90"		    /*  5 pause */
	     "\x0f\xae\xe8"	    /*  7 lfence */
	     "\xeb\xf9"		    /* 10 jmp 5 */
	     "\x4c\x89\x24\x24"	    /* 12 mov [rsp], r12 */
	     "\xc3");		    /* 16 ret */
	assert_int_equal(flow(8, 4096, text_len, FRAME_RETURN), FLOW_AWAY);
	/* Not if it stores below: the call returns, and waits without end. */
	text[15] = 0x25;
	assert_int_not_equal(flow(8, 4096, text_len, FRAME_RETURN), FLOW_AWAY);
}

static void searches_are_bounded(void **state)
{
	/* A long row of branches, each to the next but one. */
	text_len = sizeof(text);
	for (size_t i = 0; i + 1 < text_len; i += 2)
		memcpy(text + i, "\x74\x02", 2);
	assert_int_equal(flow(8, 65001, text_len, FRAME_PC), FLOW_UNKNOWN);
	assert_in_range(steps, 100000 - PATHS_STEPS_WITHIN, 100000);
	/* An endless loop. */
	TEXT("\xeb\xfe");
	assert_int_equal(flow(8, 1, 0, FRAME_PC), FLOW_NOT);
	assert_true(steps > 99990);
	/* Code that cannot be read, and code that is none. */
	text_len = 0;
	assert_int_equal(flow(8, 1, 0, FRAME_PC), FLOW_UNKNOWN);
	TEXT("\x06\x06");
	assert_int_equal(flow(8, 1, 0, FRAME_PC), FLOW_UNKNOWN);
}

static int new_scratch(void **state)
{
	scratch = calloc(1, sizeof(struct paths_scratch));
	return scratch ? 0 : -1;
}

static int free_scratch(void **state)
{
	free(scratch);
	return 0;
}

static void all_registers_may_be_pushed_and_popped_at_once(void **state)
{
	/* 0 pusha; 1 xor ebp, ebp; 3 popa; 4 ret */
	TEXT("\x60\x31\xed\x61\xc3");
	assert_int_equal(flow(4, 3, text_len, FRAME_PC), FLOW_FOUND);
	assert_int_equal(found.depth, 8 * 4);
	assert_int_equal(found.saved_at, 6 * 4);
	assert_int_equal(flow(4, 4, text_len, FRAME_PC), FLOW_FOUND);
	assert_int_equal(found.depth, 0);
	assert_int_equal(found.saved_at, 0);
	assert_false(found.fp_lost);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_is_set_up_and_torn_down),
		cmocka_unit_test(code_without_a_frame_pointer_is_counted),
		cmocka_unit_test(each_path_has_its_own_state),
		cmocka_unit_test(a_realigned_stack_keeps_its_origin),
		cmocka_unit_test(entry_code_has_no_caller),
		cmocka_unit_test(asking_for_the_program_counter_is_no_call),
		cmocka_unit_test(jump_tables_are_guessed_to_be_part_of_the_body),
		cmocka_unit_test(what_follows_a_function_is_another),
		cmocka_unit_test(a_stack_probing_loop_ends_where_it_says),
		cmocka_unit_test(a_thunk_leads_where_its_register_says),
		cmocka_unit_test(searches_are_bounded),
		cmocka_unit_test(all_registers_may_be_pushed_and_popped_at_once),
	};

	return cmocka_run_group_tests(tests, new_scratch, free_scratch);
}
