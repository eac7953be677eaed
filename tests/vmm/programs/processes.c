/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest of tests/vmm/programs/monitor.c, in its kernel mode, of x86-64: a kernel in the upper half and,
 * on each vCPU, two processes in user mode. It does all that Linux does between two processes, and never
 * leaves the guest: a system call changes GS, the page tables (as page table isolation does) and the
 * stack; the scheduler changes page tables and the kernel's stack. Both processes have their stack at the
 * same address. Process a calls sys_read, process b sys_write; then each yields. A stack with letters of
 * both, or with the other's system call, is wrong. Each round, both stacks move to the memory that was
 * the other's, as where Linux migrates pages: meanwhile neither is mapped.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline, used))
#else
#define NOINLINE __attribute__((noinline, noclone, used))
#endif
#define USER  __attribute__((section(".user")))
#define STEPS 10000
#define CALLS 3 /* in a row, of a process */

/* The kernel's addresses of memory; in it, the monitor's counters of work, then ours. */
#define KERNEL	      0xffffffffc0000000ul
#define DONE	      (KERNEL + 0x9000)
#define TABLES	      (KERNEL + (8ul << 20))
#define KERNEL_STACKS (KERNEL + (18ul << 20))
#define KERNEL_STACK  0x4000ul
#define USER_STACKS   (KERNEL + (16ul << 20))
#define PAGE	      0x1000ul
#define WORDS	      512

/* A process's code, where its section is linked, and the end of its stack. */
#define USER_CODE (6ul << 20)
#define USER_TOP  0x7f8000200000ul

/* Entries of page tables (Intel SDM vol. 3, 4.5). */
#define TABLE 7ul
#define LARGE 0x80ul
#define FIRST 0x4000ul /* memory of the monitor's table of the first GiB */

/* SYSCALL and SYSRET (Intel SDM vol. 3, 5.8.8; vol. 4, 2.1). */
#define MSR_EFER  0xc0000080u
#define MSR_STAR  0xc0000081u
#define MSR_LSTAR 0xc0000082u
#define MSR_FMASK 0xc0000084u
#define MSR_GS	  0xc0000101u
#define EFER	  0x501u
#define SEGMENTS  (0x18ul << 32 | 0x2bul << 48)
#define CLEARED	  0x40700u
#define FLAGS	  2u

enum { CALL_READ, CALL_WRITE, CALL_YIELD };

/* What entry_syscall pushes. */
struct registers {
	uint64_t r15, r14, r13, r12, rbp, rbx, r10, r9, r8, rdx, rsi, rdi, rip, flags, sp;
};

struct tables {
	uint64_t root[WORDS], user_root[WORDS]; /* entry_syscall changes bit 12 of CR3 */
	uint64_t upper[WORDS], upper_part[WORDS], code[2][WORDS], stack[3][WORDS];
};

struct process {
	uint64_t kernel_sp, kernel_top;
	struct tables *tables;
};

/* entry_syscall and this_cpu() know the first three. */
struct cpu {
	uint64_t kernel_top, user_sp;
	struct cpu *self;
	struct process *current, *other;
	unsigned id;
};

static struct cpu cpus[8];
static struct process processes[16];

void start(void);
void entry_syscall(void);
void ret_from_fork(void);
void context_switch(uint64_t *old_sp, uint64_t new_sp, uint64_t new_root);
__attribute__((noreturn)) void first_process(uint64_t sp, uint64_t root);
__attribute__((noreturn)) void start_kernel(unsigned id);

/* The first instructions, which run where memory is at its own address: map the kernel, and go there. */
__asm__(".pushsection .boot, \"ax\"\n"
	".globl start\n"
	".type start, @function\n"
	"start:\n"
	"	movl	$upper_half + 0x40000000, %eax\n"
	"	movq	$0x4007, 0xff8(%rax)\n"
	"	orl	$7, %eax\n"
	"	movq	%rax, 0x2ff8\n"
	"	leal	1(%rdi), %esp\n"
	"	shll	$15, %esp\n"
	"	addq	$-0x40000000 + (20 << 20), %rsp\n"
	"	movq	$start_kernel, %rax\n"
	"	xorl	%ebp, %ebp\n"
	"	pushq	%rbp\n"
	"	jmpq	*%rax\n"
	".size start, . - start\n"
	".popsection\n");

static __attribute__((aligned(4096), used)) uint64_t upper_half[WORDS];

/*
 * The registers of a process are at rsp while its system call is served; what is said of them is what
 * Linux said, when it had such tables.
 */
__asm__(".pushsection .text\n"
	".globl entry_syscall\n"
	".type entry_syscall, @function\n"
	"entry_syscall:\n"
	"	.cfi_startproc\n"
	"	.cfi_signal_frame\n"
	"	.cfi_def_cfa %rsp, 0\n"
	"	.cfi_register %rip, %rcx\n"
	"	swapgs\n"
	"	movq	%rsp, %gs:8\n"
	"	.cfi_undefined %rip\n"
	"	movq	%cr3, %rsp\n"
	"	andq	$~0x1000, %rsp\n"
	"	movq	%rsp, %cr3\n"
	"	movq	%gs:0, %rsp\n"
	"	pushq	%gs:8\n"
	"	pushq	%r11\n"
	"	pushq	%rcx\n"
	"	pushq	%rdi\n"
	"	pushq	%rsi\n"
	"	pushq	%rdx\n"
	"	pushq	%r8\n"
	"	pushq	%r9\n"
	"	pushq	%r10\n"
	"	pushq	%rbx\n"
	"	pushq	%rbp\n"
	"	pushq	%r12\n"
	"	pushq	%r13\n"
	"	pushq	%r14\n"
	"	pushq	%r15\n"
	"	.cfi_def_cfa %rsp, 120\n"
	"	.cfi_offset %rsp, -8\n"
	"	.cfi_offset %rip, -24\n"
	"	.cfi_offset %rbx, -80\n"
	"	.cfi_offset %rbp, -88\n"
	"	.cfi_offset %r12, -96\n"
	"	.cfi_offset %r13, -104\n"
	"	.cfi_offset %r14, -112\n"
	"	.cfi_offset %r15, -120\n"
	"	movq	%rax, %rdi\n"
	"	call	do_syscall\n"
	".globl ret_from_fork\n"
	"ret_from_fork:\n"
	"	movq	112(%rsp), %rax\n"
	"	popq	%r15\n"
	"	popq	%r14\n"
	"	popq	%r13\n"
	"	popq	%r12\n"
	"	popq	%rbp\n"
	"	popq	%rbx\n"
	"	.cfi_undefined %rip\n"
	"	popq	%r10\n"
	"	popq	%r9\n"
	"	popq	%r8\n"
	"	popq	%rdx\n"
	"	popq	%rsi\n"
	"	popq	%rdi\n"
	"	popq	%rcx\n"
	"	popq	%r11\n"
	"	movq	%rax, %rsp\n"
	"	movq	%cr3, %rax\n"
	"	orq	$0x1000, %rax\n"
	"	movq	%rax, %cr3\n"
	"	swapgs\n"
	"	sysretq\n"
	"	.cfi_endproc\n"
	".size entry_syscall, . - entry_syscall\n"
	".globl context_switch\n"
	".type context_switch, @function\n"
	"context_switch:\n"
	"	.cfi_startproc\n"
	"	pushq	%rbp\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset %rbp, -16\n"
	"	pushq	%rbx\n"
	"	.cfi_def_cfa_offset 24\n"
	"	.cfi_offset %rbx, -24\n"
	"	pushq	%r12\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset %r12, -32\n"
	"	pushq	%r13\n"
	"	.cfi_def_cfa_offset 40\n"
	"	.cfi_offset %r13, -40\n"
	"	pushq	%r14\n"
	"	.cfi_def_cfa_offset 48\n"
	"	.cfi_offset %r14, -48\n"
	"	pushq	%r15\n"
	"	.cfi_def_cfa_offset 56\n"
	"	.cfi_offset %r15, -56\n"
	"	movq	%rsp, (%rdi)\n"
	"	movq	%rdx, %cr3\n"
	"	movq	%rsi, %rsp\n"
	"	popq	%r15\n"
	"	.cfi_def_cfa_offset 48\n"
	"	.cfi_restore %r15\n"
	"	popq	%r14\n"
	"	.cfi_def_cfa_offset 40\n"
	"	.cfi_restore %r14\n"
	"	popq	%r13\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_restore %r13\n"
	"	popq	%r12\n"
	"	.cfi_def_cfa_offset 24\n"
	"	.cfi_restore %r12\n"
	"	popq	%rbx\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_restore %rbx\n"
	"	popq	%rbp\n"
	"	.cfi_def_cfa_offset 8\n"
	"	.cfi_restore %rbp\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size context_switch, . - context_switch\n"
	".globl first_process\n"
	".type first_process, @function\n"
	"first_process:\n"
	"	movq	%rsi, %cr3\n"
	"	movq	%rdi, %rsp\n"
	"	jmp	ret_from_fork\n"
	".size first_process, . - first_process\n"
	".popsection\n");

static struct cpu *this_cpu(void)
{
	struct cpu *cpu;

	__asm__ volatile("movq %%gs:16, %0" : "=r"(cpu));
	return cpu;
}

static uint64_t *memory_of_stack(const struct process *process)
{
	return (uint64_t *)(KERNEL + (process->tables->stack[2][WORDS - 1] & ~(PAGE - 1)));
}

static void set_stack(const struct process *process, uint64_t entry)
{
	process->tables->stack[2][WORDS - 1] = entry;
}

/* The page that is left has what the other process's has: nobody may find it there. */
static NOINLINE void migrate_stacks(const struct process *a, const struct process *b)
{
	uint64_t *from = memory_of_stack(a), *to = memory_of_stack(b);
	const uint64_t entry = a->tables->stack[2][WORDS - 1],
		       other = b->tables->stack[2][WORDS - 1];

	set_stack(a, 0);
	set_stack(b, 0);
	__asm__ volatile("invlpg (%0)" ::"r"(USER_TOP - PAGE) : "memory");
	for (unsigned i = 0; i < WORDS; i++) {
		const uint64_t word = from[i];

		from[i] = to[i];
		to[i] = word;
	}
	set_stack(a, other);
	set_stack(b, entry);
	__asm__ volatile("" ::: "memory");
}

static NOINLINE void schedule(void)
{
	struct cpu *cpu = this_cpu();
	struct process *last = cpu->current, *next = cpu->other;

	migrate_stacks(last, next);
	((volatile uint64_t *)DONE)[cpu->id]++;
	cpu->current = next;
	cpu->other = last;
	cpu->kernel_top = next->kernel_top;
	context_switch(&last->kernel_sp, next->kernel_sp, (uintptr_t)next->tables - KERNEL);
	__asm__ volatile("");
}

static void spin(void)
{
	for (unsigned i = 0; i < STEPS; i++)
		__asm__ volatile("" ::: "memory");
}

#define SERVICE(name)                         \
	static NOINLINE void vfs_##name(void) \
	{                                     \
		spin();                       \
	}                                     \
                                              \
	static NOINLINE void sys_##name(void) \
	{                                     \
		vfs_##name();                 \
		__asm__ volatile("");         \
	}

SERVICE(read)
SERVICE(write)

NOINLINE void do_syscall(uint64_t number);

NOINLINE void do_syscall(uint64_t number)
{
	if (number == CALL_READ)
		sys_read();
	else if (number == CALL_WRITE)
		sys_write();
	else
		schedule();
	__asm__ volatile("");
}

static USER NOINLINE void system_call(uint64_t number)
{
	__asm__ volatile("syscall" : "+a"(number)::"rcx", "r11", "memory");
}

#define PROGRAM(x, call)                                                   \
	static USER NOINLINE void spin_##x(void)                           \
	{                                                                  \
		for (unsigned i = 0; i < STEPS; i++)                       \
			__asm__ volatile("" ::: "memory");                 \
	}                                                                  \
                                                                           \
	static USER NOINLINE void function_##x(void)                       \
	{                                                                  \
		spin_##x();                                                \
		system_call(call);                                         \
		__asm__ volatile("");                                      \
	}                                                                  \
                                                                           \
	static USER NOINLINE void work_##x(void)                           \
	{                                                                  \
		for (unsigned i = 0; i < CALLS; i++)                       \
			function_##x();                                    \
		__asm__ volatile("");                                      \
	}                                                                  \
                                                                           \
	static USER NOINLINE __attribute__((noreturn)) void main_##x(void) \
	{                                                                  \
		for (;;) {                                                 \
			work_##x();                                        \
			system_call(CALL_YIELD);                           \
		}                                                          \
	}

PROGRAM(a, CALL_READ)
PROGRAM(b, CALL_WRITE)

static uint64_t entry_of(const void *table)
{
	return ((uintptr_t)table - KERNEL) | TABLE;
}

/* In the part of the kernel that a process has are its code and data: no stacks. */
static void make_tables(struct tables *tables, uint64_t stack)
{
	tables->root[0] = tables->user_root[0] = entry_of(tables->code[0]);
	tables->code[0][0] = entry_of(tables->code[1]);
	tables->code[1][USER_CODE >> 21] = USER_CODE | LARGE | TABLE;
	tables->root[255] = tables->user_root[255] = entry_of(tables->stack[0]);
	tables->stack[0][(USER_TOP - PAGE) >> 30 & (WORDS - 1)] = entry_of(tables->stack[1]);
	tables->stack[1][(USER_TOP - PAGE) >> 21 & (WORDS - 1)] = entry_of(tables->stack[2]);
	tables->stack[2][WORDS - 1] = entry_of((const void *)stack);
	tables->root[WORDS - 1] = entry_of(upper_half) & ~4ul;
	tables->user_root[WORDS - 1] = entry_of(tables->upper) & ~4ul;
	tables->upper[WORDS - 1] = entry_of(tables->upper_part);
	tables->upper_part[0] = LARGE | TABLE;
}

static void make_process(unsigned number, void (*program)(void))
{
	struct process *process = &processes[number];
	const uint64_t top = KERNEL_STACKS + (number + 1) * KERNEL_STACK;
	struct registers *registers = (struct registers *)top - 1;
	uint64_t *saved = (uint64_t *)registers;

	process->tables = (struct tables *)(TABLES + number * 0x10000);
	make_tables(process->tables, USER_STACKS + number * PAGE);
	process->kernel_top = top;
	*registers = (struct registers){.rip = (uintptr_t)program,
					.flags = FLAGS,
					.sp = USER_TOP - 2 * sizeof(*saved) - 8};
	*--saved = (uintptr_t)ret_from_fork;
	for (unsigned i = 0; i < 6; i++)
		*--saved = 0;
	process->kernel_sp = (uintptr_t)saved;
}

static void write_msr(uint32_t msr, uint64_t value)
{
	__asm__ volatile("wrmsr" ::"c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32)));
}

/* The first process has no stack in the kernel yet: this is it. */
void start_kernel(unsigned id)
{
	struct cpu *cpu = &cpus[id];

	make_process(2 * id, main_a);
	make_process(2 * id + 1, main_b);
	*cpu = (struct cpu){.kernel_top = processes[2 * id].kernel_top,
			    .self = cpu,
			    .current = &processes[2 * id],
			    .other = &processes[2 * id + 1],
			    .id = id};
	write_msr(MSR_GS, (uintptr_t)cpu);
	write_msr(MSR_EFER, EFER);
	write_msr(MSR_STAR, SEGMENTS);
	write_msr(MSR_LSTAR, (uintptr_t)entry_syscall);
	write_msr(MSR_FMASK, CLEARED);
	first_process(cpu->kernel_top - sizeof(struct registers),
		      (uintptr_t)cpu->current->tables - KERNEL);
}
