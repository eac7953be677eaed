/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* x86: registers, as hypervisors and debuggers tell them and as people read them, page tables, and instructions. */

#include "arch/arch.h"

/* Control bits: Intel SDM vol. 3, sections 2.2.1 and 2.5. */
#define CR0_PG	 (1ull << 31)
#define CR4_PSE	 (1ull << 4)
#define CR4_PAE	 (1ull << 5)
#define CR4_LA57 (1ull << 12)
#define EFER_LMA (1ull << 10)

struct x86_regs {
	/* As processors number them: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15. */
	uint64_t gp[16];
	uint64_t rip, rflags;
	uint64_t cr0, cr3, cr4, efer;
	uint64_t cs_base, ss_base;
	uint64_t gs_base, kernel_gs_base; /* the second is what SWAPGS takes; 0: not known */
	uint64_t gdt_base;		  /* 0: not known */
	bool cs_long;			  /* CS.L: 64-bit code, if EFER.LMA */
	bool cs_short, ss_short; /* no CS.D: 16-bit code; no SS.B: the stack pointer has 16 bits */
	uint8_t cpl;
};

/* Linux's tables for user mode are next to those with the kernel (CONFIG_PAGE_TABLE_ISOLATION). */
#define X86_LINUX_USER_TABLE 0x1000ull

/*
 * Linux keeps the number of the CPU in the limit of this segment of the CPU's own GDT, for
 * programs (arch/x86/include/asm/segment.h, GDT_ENTRY_CPUNODE).
 */
#define X86_LINUX_CPU_SEGMENT (15ull * 8)

/* The number that this segment tells; false: it is none of Linux's. */
static inline bool x86_linux_cpu(uint64_t segment, uint32_t *cpu)
{
	*cpu = segment & 0xfff;
	/* Data for programs, not to be written, which a processor may have marked as used. */
	return (segment >> 40 & 0xfe) == 0xf4;
}

/* A stack address in a segment. */
static inline uint32_t x86_stack_address(uint64_t offset, uint64_t base, bool is_short)
{
	return (uint32_t)((is_short ? offset & 0xffff : offset) + base);
}

/* regs.segmented of code that is not 64-bit code. */
static inline uint8_t x86_segmented(uint64_t cs_base, bool cs_short)
{
	return cs_short ? 16 : cs_base ? 32 : 0;
}

/* Registers for unwinding. Addresses become linear: the bases of code and stack segments are added. */
void x86_regs_convert(const struct x86_regs *from, struct regs *to);

/* Flags by name (struct registers). */
extern const struct register_bit x86_rflags[], x86_cr0[], x86_cr4[], x86_efer[];

/*
 * Instruction pointer (`ip`, as the processor has it: not yet linear), flags
 * and general registers.
 */
void x86_registers_general(const struct regs *regs, uint64_t ip, struct registers *out);

/* "64-bit code, ring 0, accessed" or "not present". */
#define X86_SEGMENT_TEXT 64
void x86_segment_text(uint16_t attributes, char text[X86_SEGMENT_TEXT]);

/*
 * Decodes x86 instructions as far as following a stack pointer needs it:
 * length, opcode and operands. Knows all of the instruction set up to AVX-512
 * that compilers emit; unknown instructions have length 0.
 */

#define X86_INSN_MAX 15 /* bytes */

enum { X86_AX, X86_CX, X86_DX, X86_BX, X86_SP, X86_BP, X86_SI, X86_DI, X86_NO_REG = 0xff };

enum x86_map { X86_MAP_ONE, X86_MAP_0F, X86_MAP_0F38, X86_MAP_0F3A, X86_MAP_MORE };

struct x86_insn {
	uint8_t len;
	uint8_t map; /* enum x86_map */
	uint8_t opcode;
	bool vector;   /* VEX or EVEX encoded: works on vector registers */
	bool narrow;   /* prefix 66: 16-bit operands */
	bool modrm;    /* the fields below are set */
	uint8_t mod;   /* 3: the operand is register `rm` */
	uint8_t reg;   /* with the bit from REX */
	uint8_t rm;    /* with the bit from REX; mod 3 only */
	uint8_t base;  /* of the memory operand; X86_NO_REG: none */
	bool index;    /* the memory operand has an index register */
	int32_t disp;  /* of the memory operand */
	int64_t imm;   /* immediate or relative offset, sign-extended */
	uint8_t extra; /* REX.B for opcodes that hold a register in their low bits: 8 or 0 */
};

/*
 * Decodes the instruction at `bytes`, of which `n` can be read; `word` is 8 or
 * 4. Returns its length, 0 if it is unknown or cut off.
 */
size_t x86_decode(const uint8_t *bytes, size_t n, unsigned word, struct x86_insn *insn);
