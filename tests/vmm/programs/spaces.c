/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest of tests/vmm/programs/monitor.c, in its kernel mode: each vCPU goes
 * back and forth between two address spaces without leaving the guest, as a
 * kernel does between two processes. Both have their stack at the same address.
 * In one of them spin_a is below function_a, in the other spin_b below
 * function_b: a stack with letters of both was read through the wrong page tables. Each round swaps
 * the memory of the two stacks, too, so that what was the right place in one round is the wrong one
 * in the next.
 */

#include <stdint.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline, used))
#else
#define NOINLINE __attribute__((noinline, noclone, used))
#endif
#define STEPS 20000

/* The monitor's memory: the counter of work, and page tables that map the first GiB to itself. */
static volatile uint64_t *const done = (volatile uint64_t *)0x9000;
static const uint64_t *const identity = (const uint64_t *)0x2000;

#define MIB_2  (2ul << 20)
#define ROOTS  (4ul << 20) /* of all spaces, three pages each */
#define STACKS (16ul << 20)

#define PROGRAM(x)                                        \
	static NOINLINE void spin_##x(unsigned vcpu)      \
	{                                                 \
		for (unsigned long i = 0; i < STEPS; i++) \
			done[8 + vcpu]++;                 \
	}                                                 \
                                                          \
	static NOINLINE void function_##x(unsigned vcpu)  \
	{                                                 \
		spin_##x(vcpu);                           \
		__asm__ volatile("");                     \
	}                                                 \
                                                          \
	static NOINLINE void work_##x(unsigned vcpu)      \
	{                                                 \
		function_##x(vcpu);                       \
		done[vcpu]++;                             \
		__asm__ volatile("");                     \
	}

PROGRAM(a)
PROGRAM(b)

/*
 * The stack of each space ends with its first 2 MiB behind the first GiB; values that outlive a switch are in
 * registers that functions preserve. What maps the stack is 0x2000 bytes behind a root on x86, 0x1000 on arm64.
 */
__attribute__((noreturn)) void go_round(unsigned vcpu, uint64_t a, uint64_t b);

/* Makes the page tables of a space. Returns what selects it. */
static uint64_t make_space(unsigned number);

#ifdef __aarch64__

/* Descriptors (DDI 0487, D8.3): cached and shared; one address space's alone. */
#define MEMORY	 (1ul << 30)
#define TABLE	 3u
#define BLOCK	 0x701u
#define OWN	 0x800u
#define NUMBERED 48

static uint64_t make_space(unsigned number)
{
	const uint64_t root = ROOTS + number * 0x3000ul;
	uint64_t *table = (uint64_t *)root;

	table[0] = identity[0];
	table[1] = (MEMORY + root + 0x1000) | TABLE;
	table[512] = (MEMORY + STACKS + number * MIB_2) | BLOCK | OWN;
	__asm__ volatile("dsb ish\n\tisb" ::: "memory");
	return (MEMORY + root) | (number + 1ul) << NUMBERED;
}

__asm__(".pushsection .text\n"
	".globl go_round\n"
	".type go_round, @function\n"
	"go_round:\n"
	"	mov	w19, w0\n"
	"	mov	x20, x1\n"
	"	mov	x21, x2\n"
	"	mov	x22, #(1 << 30) + (2 << 20)\n"
	"	mov	x25, #(1 << 30)\n"
	"	and	x23, x20, #0xffffffffffff\n"
	"	sub	x23, x23, x25\n"
	"	add	x23, x23, #0x1000\n"
	"	and	x24, x21, #0xffffffffffff\n"
	"	sub	x24, x24, x25\n"
	"	add	x24, x24, #0x1000\n"
	"1:	ldr	x9, [x23]\n"
	"	ldr	x10, [x24]\n"
	"	str	x10, [x23]\n"
	"	str	x9, [x24]\n"
	"	dsb	ish\n"
	"	tlbi	vmalle1\n"
	"	dsb	ish\n"
	"	msr	ttbr0_el1, x20\n"
	"	isb\n"
	"	mov	sp, x22\n"
	"	mov	x29, xzr\n"
	"	mov	w0, w19\n"
	"	bl	work_a\n"
	"	msr	ttbr0_el1, x21\n"
	"	isb\n"
	"	mov	sp, x22\n"
	"	mov	x29, xzr\n"
	"	mov	w0, w19\n"
	"	bl	work_b\n"
	"	b	1b\n"
	".size go_round, . - go_round\n"
	".popsection\n");

#else

/* Page tables: Intel SDM vol. 3, 4.5. Present, writable; and a large page. */
#define TABLE 3u
#define LARGE 0x83u

static uint64_t make_space(unsigned number)
{
	const uint64_t root = ROOTS + number * 0x3000ul;
	uint64_t *table = (uint64_t *)root;
	const uint64_t *first = (const uint64_t *)(identity[0] & ~0xffful);

	table[0] = (root + 0x1000) | TABLE;
	table[512] = first[0];
	table[513] = (root + 0x2000) | TABLE;
	table[1024] = (STACKS + number * MIB_2) | LARGE;
	return root;
}

__asm__(".pushsection .text\n"
	".globl go_round\n"
	".type go_round, @function\n"
	"go_round:\n"
	"	movl	%edi, %r12d\n"
	"	movq	%rsi, %r13\n"
	"	movq	%rdx, %r14\n"
	"	movq	$(1 << 30) + (2 << 20) - 16, %r15\n"
	"1:	movq	0x2000(%r13), %rax\n"
	"	xchgq	%rax, 0x2000(%r14)\n"
	"	movq	%rax, 0x2000(%r13)\n"
	"	movq	%r13, %cr3\n"
	"	movq	%r15, %rsp\n"
	"	xorl	%ebp, %ebp\n"
	"	movl	%r12d, %edi\n"
	"	call	work_a\n"
	"	movq	%r14, %cr3\n"
	"	movq	%r15, %rsp\n"
	"	xorl	%ebp, %ebp\n"
	"	movl	%r12d, %edi\n"
	"	call	work_b\n"
	"	jmp	1b\n"
	".size go_round, . - go_round\n"
	".popsection\n");

#endif

void start(unsigned vcpu);

void start(unsigned vcpu)
{
	const uint64_t a = make_space(2 * vcpu), b = make_space(2 * vcpu + 1);

	go_round(vcpu, a, b);
}
