/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A process that spends its time in a function whose caller is only to be
 * found by a word below the stack pointer, as in OpenSSL's SHA-256 for AVX2:
 * main calls outer, which calls block.
 */

/* The stack pointer of before goes into the red zone; CFA = *(rsp - 8) + 8. */
__asm__(".text\n"
	".type block, @function\n"
	"block:\n"
	"	.cfi_startproc\n"
	"	mov %rsp, %rax\n"
	"	sub $1024, %rsp\n"
	"	and $-1024, %rsp\n"
	"	mov %rax, -8(%rsp)\n"
	"	.cfi_escape 0x0f, 0x05, 0x77, 0x78, 0x06, 0x23, 0x08\n"
	"	mov $100000000, %eax\n"
	"1:	dec %eax\n"
	"	jnz 1b\n"
	"	mov -8(%rsp), %rsp\n"
	"	.cfi_def_cfa %rsp, 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size block, . - block\n");

void block(void);

/* Called by its address: searching the stack for a call of block finds none. */
static void (*volatile chosen)(void) = block;

static __attribute__((noinline)) void outer(void)
{
	chosen();
	__asm__ volatile("");
}

int main(void)
{
	for (;;)
		outer();
}
