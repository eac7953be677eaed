/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Registers and page tables of each instruction set.
 *
 * Everything here is pure: no allocation, no system call, no state. The page
 * walk runs while a guest is paused.
 *
 * Checklist for a new instruction set. Capabilities are independent but for
 * the order; what the last column names proves each.
 *
 * 1. Names, page tables, registers: arch/<isa>/ with a constant `struct
 *    arch`; a row in arch.c; its values in `enum isa`, and in `enum
 *    mmu_mode` behind all others.		arch/<isa>/mmu_test, regs_test
 * 2. QEMU guests: a `struct gdb_machine` in target/gdb/layout.c.
 *						target/gdb/layout_test
 * 3. Callers: unwind/<isa>/, as unwind/isa.h says; CFI: a row in
 *    unwind/tables/cfa_program.c.		single-step test of its programs
 * 4. Instructions in `uniprof stack`: a row in arch/disassemble_capstone.c.
 * 5. Guests with known answers: guests/runtime/<isa>/, a row of `processors`
 *    and of `platform_sources` in guests/meson.build, branches in
 *    guests/edges.py.				guests/edges_test.py, tests/vmm/qemu_test.py
 * 6. Packages: a line in tools/packages. Text: README.md, docs/man/uniprof.1,
 *    docs/snapshot.md (numbers of modes).
 *
 * Nothing else may ask for an instruction set by name: ask struct arch.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sample_types.h"
#include <string.h>

/* Frames are always 4 KiB here, whatever the size of the guest's own pages. */
#define FRAME_SHIFT 12
#define FRAME_SIZE  (1u << FRAME_SHIFT)

/* Address translation mode of the vCPU at the moment of the sample. */
enum mmu_mode {
	MMU_OFF,       /* virtual addresses are physical ones */
	MMU_X86_32,    /* two levels of 4-byte entries, 4 MiB pages (SDM vol. 3, 4.3) */
	MMU_X86_PAE,   /* three levels of 8-byte entries, 2 MiB pages (SDM vol. 3, 4.4) */
	MMU_X86_4,     /* four levels, 2 MiB and 1 GiB pages (SDM vol. 3, 4.5) */
	MMU_X86_5,     /* five levels (SDM vol. 3, 4.5) */
	MMU_ARM64,     /* as TCR_EL1 says (DDI 0487, D8) */
	MMU_ARM_LPAE,  /* three levels of 8-byte entries, as TTBCR says (DDI 0487, G5.5) */
	MMU_ARM_SHORT, /* two levels of 4-byte entries, as TTBCR says (DDI 0487, G5.4) */
	MMU_RISCV_39,  /* three levels, 2 MiB and 1 GiB pages (Privileged ISA, Sv39) */
	MMU_RISCV_48,  /* four levels (Sv48) */
	MMU_RISCV_57,  /* five levels (Sv57) */
	MMU_MODES      /* number of values; they are written to snapshots */
};

struct mmu {
	enum mmu_mode mode;
	uint64_t root; /* physical address of the top table, bytes, flag bits already removed */
	bool pse;      /* MMU_X86_32 only: CR4.PSE allows 4 MiB pages */
	/* Arm only; there root is TTBR0 and nothing is removed from these: */
	uint64_t root_high; /* TTBR1 */
	uint64_t control;   /* TCR_EL1, TTBCR */
};

/* Physical address of the top table, bytes, without what else is in the register; of Arm's two that of the lower half. */
uint64_t mmu_table(const struct mmu *mmu);

/* Numbers are written to snapshots. */
enum isa {
	ISA_X86,   /* and x86-64, by word */
	ISA_ARM,   /* A64, A32 and T32, by word and flags */
	ISA_RISCV, /* RV64 */
	ISAS	   /* number of values */
};

/*
 * Registers as the unwinders need them. gp[] is indexed by DWARF register
 * number of the architecture (System V ABI x86-64, figure 3.36; i386 psABI,
 * table 2.14; AADWARF64; AADWARF32; RISC-V ELF psABI); registers that a target cannot read are 0 and not in gp_valid.
 */
struct regs {
	uint64_t pc, sp, fp;
	uint64_t flags; /* RFLAGS, PSTATE, sstatus; 0 of a target that cannot tell */
	uint64_t gp[32];
	uint32_t gp_valid; /* bit n: gp[n] was read */
	uint8_t word;	   /* bytes in a word of the interrupted code: 8 or 4 */
	bool user;	   /* interrupted in user mode (CPL 3, EL0, U) */
	uint8_t isa;	   /* enum isa: whose code runs there */
	bool has_elr;	   /* elr and spsr were read */
	/*
	 * x86: bits of code whose addresses are offsets in a segment, 16, or 32 where the segment has a
	 * base; 0: addresses are linear. pc, sp and fp always are.
	 */
	uint8_t segmented;
	uint64_t elr;  /* ELR_EL1, sepc, mepc: where the last exception to the kernel was taken */
	uint64_t spsr; /* SPSR_EL1, sstatus, mstatus: in what state */
	/*
	 * Addresses that may be of the CPU's own data in the kernel: on x86 the base
	 * of GS, and the one that SWAPGS would make it. 0: none.
	 */
	uint64_t own[2];
	struct mmu mmu;
	/*
	 * Root of the tables that have the kernel if those of `mmu` lack it, or of the same; 0: none. On
	 * arm64 as in TTBR1_EL1.
	 */
	uint64_t kernel_root;
};

/* False in user mode and, on arm64 with KPTI, in the kernel's trampoline: these tables lack the rest. */
static inline bool regs_show_kernel(const struct regs *regs)
{
	return !regs->user && !(regs->isa == ISA_ARM && regs->kernel_root);
}

/* Lets it translate the kernel's addresses by these tables (regs.kernel_root). */
static inline void mmu_use_kernel(struct mmu *mmu, uint64_t kernel_root)
{
	if (mmu->mode == MMU_ARM64)
		mmu->root_high = kernel_root;
	else
		mmu->root = kernel_root;
}

/*
 * Guest-physical memory as far as the target has it at hand. For Xen PV
 * guests "physical" is machine memory, as in the guest's own page tables.
 */
struct physmem {
	/*
	 * The FRAME_SIZE bytes of frame `gfn`, or NULL if they are not at hand.
	 * Called while the guest is paused: must not map, allocate or block.
	 */
	const void *(*frame)(void *ctx, uint64_t gfn);
	void *ctx;
	/* `len` bytes that lie in one frame, or NULL likewise; NULL here: the target only brings whole frames. */
	const void *(*part)(void *ctx, uint64_t addr, size_t len);
};

/* `len` bytes from physical address `addr` to the end of its frame at most, or NULL. */
static inline const uint8_t *physmem_at(const struct physmem *mem, uint64_t addr, size_t len)
{
	const uint8_t *frame;

	if (mem->part)
		return mem->part(mem->ctx, addr, len);
	frame = mem->frame(mem->ctx, addr >> FRAME_SHIFT);
	return frame ? frame + (addr & (FRAME_SIZE - 1)) : NULL;
}

enum xlate_status {
	XLATE_OK,
	XLATE_ABSENT, /* the guest has no page there, or the address is not canonical */
	XLATE_MISSING /* frame `gfn` of the result would be needed and is not at hand */
};

/*
 * Table entries that translations have read, in their order. As long as all of
 * them read the same, and the mmu is the same, so do the translations.
 */
#define XLATE_LOG 24u
struct xlate_log {
	unsigned n;  /* more than XLATE_LOG: there was no room for all */
	size_t size; /* of each, bytes: 4 or 8 */
	struct xlate_read {
		const void *at; /* in the frame that physmem gave */
		uint64_t entry;
	} read[XLATE_LOG];
};

struct xlate {
	uint64_t addr; /* XLATE_OK: physical address, bytes */
	uint64_t left; /* XLATE_OK: bytes from there to the end of the guest's page, at least 1 */
	uint64_t gfn;  /* XLATE_MISSING: the frame to bring */
	/*
	 * The last table of the walk: the next translation by the same mmu and
	 * the same tables begins there, if it leads there. Zero both first.
	 */
	uint64_t table;	       /* physical address, 0: none */
	uint64_t table_va;     /* an address that leads there */
	struct xlate_log *log; /* NULL, or where entries are noted */
};

/*
 * The red zone: so many bytes below the stack pointer belong to the function
 * that runs, and no interrupt touches them (System V ABI, AMD64, 3.2.2). No
 * other ABI here has one.
 */
#define RED_ZONE_MAX 128u
static inline uint32_t red_zone(const struct regs *regs)
{
	return regs->isa == ISA_X86 && regs->word == 8 ? RED_ZONE_MAX : 0;
}

struct registers;

struct arch {
	const char *name; /* as in recordings: "x86_64" */
	uint8_t isa;	  /* enum isa */
	uint8_t word;	  /* bytes */
	uint16_t machine; /* e_machine of its ELF files */
	uint32_t modes;	  /* bit n: enum mmu_mode n is one of its */
	/*
	 * Translates one virtual address, at most five reads of page-table
	 * entries. Trusts nothing in them.
	 */
	enum xlate_status (*translate)(const struct mmu *mmu, uint64_t va,
				       const struct physmem *mem, struct xlate *out);
	/* Adds these registers by their names (below). */
	void (*show)(const struct regs *regs, struct registers *out);
	/* Says what a segment is, of its `attributes`; NULL: there are no segments. */
	void (*segment_text)(uint16_t attributes, char text[64]);
};

extern const struct arch arch_x86_64, arch_x86_32, arch_arm64, arch_arm32, arch_riscv64;

/* NULL if there is no such architecture. */
const struct arch *arch_by_name(const char *name);
const struct arch *arch_by_machine(uint16_t e_machine);
/* The architecture of the code that runs, whose word may differ from the guest's. */
const struct arch *arch_of_code(const struct regs *regs);

/*
 * All registers of a vCPU, for a person to read: each with its name, flags
 * spelled out. Sampling has `struct regs`; this is for `uniprof stack`.
 */

/*
 * A named bit, or field of bits, of a register. A table of them begins with the lowest; one without
 * a name is behind the last.
 */
struct register_bit {
	uint8_t at;
	uint8_t width; /* 1: named when set; more: "NAME=value", unless it is 0 */
	const char *name;
};

enum register_group {
	REGISTER_GENERAL,
	REGISTER_CONTROL,
	REGISTER_DEBUG,
	REGISTER_SYSTEM, /* needed to enter the kernel: MSRs, or their PV counterparts */
	REGISTER_GROUPS
};

struct register_value {
	const char *name;
	uint64_t value;
	const struct register_bit *bits; /* NULL: a mere number */
	uint8_t group;
	uint8_t bytes; /* 4 or 8 */
};

struct register_segment {
	const char *name;
	uint32_t selector;
	bool has_selector; /* gdtr and idtr have none */
	bool has_base, has_limit, has_attributes;
	uint64_t base;
	uint32_t limit;
	uint16_t attributes; /* in a VMCB's format (AMD APM vol. 2, 15.5.1) */
};

#define REGISTERS_MAX 64
#define SEGMENTS_MAX  12

/* In the order in which they are shown. */
struct registers {
	size_t n, n_segments;
	struct register_value at[REGISTERS_MAX];
	struct register_segment segment[SEGMENTS_MAX];
};

/* Does nothing when there is no room. */
void registers_add(struct registers *registers, enum register_group group, const char *name,
		   unsigned bytes, uint64_t value, const struct register_bit *bits);
void registers_segment(struct registers *registers, const struct register_segment *segment);

/* "ZF PF IF IOPL=3", from the highest bit down; "" if none is set. */
#define REGISTER_BITS_TEXT 192
void register_bits_text(const struct register_bit *bits, uint64_t value,
			char text[REGISTER_BITS_TEXT]);

/* Helpers that the page walks of all instruction sets share: check the address, read an entry, compute the page. */

static inline void xlate_note(struct xlate_log *log, const void *at, size_t size, uint64_t entry)
{
	if (log->n < XLATE_LOG) {
		log->size = size;
		log->read[log->n].at = at;
		log->read[log->n].entry = entry;
	}
	log->n++;
}

/* Reads an entry of `size` bytes, which never crosses a frame; false: XLATE_MISSING, out->gfn is set. */
static inline bool xlate_read_entry(const struct physmem *mem, uint64_t addr, size_t size,
				    uint64_t *entry, struct xlate *out)
{
	/* A table's address that is not aligned must not lead beyond its frame. */
	const uint8_t *at = physmem_at(mem, addr & ~(uint64_t)(size - 1), size);

	out->gfn = addr >> FRAME_SHIFT;
	if (!at)
		return false;
	*entry = 0;
	memcpy(entry, at, size);
	if (out->log)
		xlate_note(out->log, at, size, *entry);
	return true;
}

/* All bits above the translated ones must equal the highest translated one. */
static inline bool xlate_is_canonical(uint64_t va, unsigned bits)
{
	const uint64_t high = va >> (bits - 1);

	return high == 0 || high == UINT64_MAX >> (bits - 1);
}

/* `va` is in a page of 2^shift bytes, whose address is `base` but for the bits within the page. */
static inline enum xlate_status xlate_found(uint64_t base, unsigned shift, uint64_t va,
					    struct xlate *out)
{
	const uint64_t size = 1ull << shift, offset = va & (size - 1);

	out->addr = (base & ~(size - 1)) + offset;
	out->left = size - offset;
	return XLATE_OK;
}

/*
 * Code as text. The build chooses between libcapstone and none; the library is
 * loaded on first use, so that pure sampling does not carry it.
 */

/* The longest instruction of x86 (Intel SDM vol. 2, section 2.3.11). */
#define CODE_LINE_BYTES 15

struct code_line {
	uint64_t va;
	uint8_t len;
	uint8_t bytes[CODE_LINE_BYTES];
	bool here;	 /* the instruction that comes next */
	uint64_t target; /* x86: where it calls or jumps to; 0: nowhere, or not told */
	char text[120];	 /* "": no disassembler, or no instruction */
};

struct disassembler;

/* Loads the library: call it before rights are dropped. NULL: there is none. */
struct disassembler *disassembler_open(void);
void disassembler_close(struct disassembler *disassembler);

/*
 * Instructions as the code runs that has these registers, one after the other,
 * until something is none, the code ends or `room` lines are full; returns
 * how many. No disassembler, or none for that instruction set: no lines.
 */
size_t disassemble(struct disassembler *disassembler, const struct regs *regs,
		   const struct window *code, struct code_line *lines, size_t room);

/* For `uniprof -V`. */
extern const char disassembler_feature[];
