/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/riscv/riscv.h"

#include <elf.h>
#include <string.h>

/*
 * Page walks as the processor does them (RISC-V Instruction Set Manual, volume
 * II, chapter "Supervisor-Level ISA": Sv39, Sv48 and Sv57 differ in their
 * number of levels). Access rights are of no interest here: a page that is
 * there can be read. Entries that would fault because of reserved bits count as
 * absent.
 */

#define PHYS_MAX 0x00ffffffffffffffull

/* Entries: 44 bits of page number; leaves are those that may be read or executed. */
#define VALID	   0x001ull
#define READ	   0x002ull
#define WRITE	   0x004ull
#define EXECUTE	   0x008ull
#define FRAME_MASK 0x00000fffffffffffull
#define FRAME_AT   10
#define RESERVED   0x1fc0000000000000ull
/*
 * Bits that are reserved in an entry for a table: user, accessed, dirty, and
 * all above the page number.
 */
#define NO_TABLE 0xffc00000000000d0ull

/* Svnapot: an entry of the last level for a page of 64 KiB, whose number ends in 8. */
#define NAPOT	    (1ull << 63)
#define NAPOT_SHIFT 16
#define NAPOT_MASK  0xfull
#define NAPOT_64K   0x8ull

#define INDEX_BITS 9
#define INDEX_MASK ((1ull << INDEX_BITS) - 1)

/* Bytes that one last-level table covers, as a shift: neighbouring addresses mostly share it. */
#define TABLE_SHIFT (FRAME_SHIFT + INDEX_BITS)

static uint64_t address_of(uint64_t entry)
{
	return (entry >> FRAME_AT & FRAME_MASK) << FRAME_SHIFT;
}

static enum xlate_status leaf(uint64_t entry, unsigned shift, uint64_t va, struct xlate *out)
{
	const uint64_t base = address_of(entry);

	if (entry & RESERVED)
		return XLATE_ABSENT;
	if (entry & NAPOT) {
		if (shift != FRAME_SHIFT || (entry >> FRAME_AT & NAPOT_MASK) != NAPOT_64K)
			return XLATE_ABSENT;
		return xlate_found(base, NAPOT_SHIFT, va, out);
	}
	if (base & ((1ull << shift) - 1))
		return XLATE_ABSENT;
	return xlate_found(base, shift, va, out);
}

static enum xlate_status walk(uint64_t table, unsigned levels, uint64_t va,
			      const struct physmem *mem, struct xlate *out)
{
	unsigned shift = FRAME_SHIFT + INDEX_BITS * (levels - 1);
	uint64_t entry;

	if (out->table && !((va ^ out->table_va) >> TABLE_SHIFT)) {
		table = out->table;
		shift = FRAME_SHIFT;
	}
	for (;; shift -= INDEX_BITS) {
		if (shift == FRAME_SHIFT) {
			out->table = table;
			out->table_va = va;
		}
		if (!xlate_read_entry(mem, table + (va >> shift & INDEX_MASK) * 8, 8, &entry, out))
			return XLATE_MISSING;
		if (!(entry & VALID) || (entry & (READ | WRITE)) == WRITE)
			return XLATE_ABSENT;
		if (entry & (READ | EXECUTE))
			return leaf(entry, shift, va, out);
		if (shift == FRAME_SHIFT || entry & NO_TABLE)
			return XLATE_ABSENT;
		table = address_of(entry);
	}
}

/* Translates as the supervisor's page tables do: MMU_OFF, MMU_RISCV_39, _48 and _57. */
static enum xlate_status riscv_translate(const struct mmu *mmu, uint64_t va,
					 const struct physmem *mem, struct xlate *out)
{
	unsigned levels;

	switch (mmu->mode) {
	case MMU_OFF:
		return va > PHYS_MAX ? XLATE_ABSENT : xlate_found(va, FRAME_SHIFT, va, out);
	case MMU_RISCV_39:
		levels = 3;
		break;
	case MMU_RISCV_48:
		levels = 4;
		break;
	case MMU_RISCV_57:
		levels = 5;
		break;
	default:
		return XLATE_ABSENT;
	}
	if (!xlate_is_canonical(va, FRAME_SHIFT + INDEX_BITS * levels))
		return XLATE_ABSENT;
	return walk(mmu->root, levels, va, mem, out);
}

/* satp.MODE (RISC-V Instruction Set Manual, volume II, "Supervisor Address Translation"). */
static enum mmu_mode mode_of(uint64_t satp)
{
	switch (satp >> RISCV_SATP_MODE) {
	case 8:
		return MMU_RISCV_39;
	case 9:
		return MMU_RISCV_48;
	case 10:
		return MMU_RISCV_57;
	default:
		return MMU_OFF;
	}
}

void riscv_regs_convert(const struct riscv_regs *from, struct regs *to)
{
	memset(to, 0, sizeof(*to));
	to->isa = ISA_RISCV;
	to->word = 8;
	to->pc = from->pc;
	to->sp = from->x[RISCV_SP];
	to->fp = from->x[RISCV_S0];
	memcpy(to->gp, from->x, sizeof(to->gp));
	to->gp_valid = UINT32_MAX;
	to->user = from->privilege == RISCV_USER;
	to->flags = from->sstatus;
	if (from->privilege == RISCV_SUPERVISOR && from->has_sepc) {
		to->has_elr = true;
		to->elr = from->sepc;
		to->spsr = from->sstatus;
	} else if (from->privilege == RISCV_MACHINE && from->has_mepc) {
		to->has_elr = true;
		to->elr = from->mepc;
		to->spsr = from->mstatus;
	}
	/* Firmware is not translated, whatever the supervisor has set. */
	if (from->privilege == RISCV_MACHINE) {
		to->flags |= RISCV_IN_MACHINE;
		return;
	}
	to->mmu.mode = mode_of(from->satp);
	if (to->mmu.mode != MMU_OFF)
		to->mmu.root = (from->satp & RISCV_SATP_FRAME) << FRAME_SHIFT;
}

static const struct register_bit sstatus[] = {
	{1, 1, "SIE"},	{5, 1, "SPIE"}, {8, 1, "SPP"}, {13, 2, "FS"},
	{18, 1, "SUM"}, {19, 1, "MXR"}, {0},
};

/* Indexed by register number; x0 is always 0 and not shown. */
static const char *const names[RISCV_REGISTERS] = {NULL, "ra", "sp", "gp", "tp", "t0",	"t1",
						   "t2", "s0", "s1", "a0", "a1", "a2",	"a3",
						   "a4", "a5", "a6", "a7", "s2", "s3",	"s4",
						   "s5", "s6", "s7", "s8", "s9", "s10", "s11",
						   "t3", "t4", "t5", "t6"};

/* Adds the registers by their names in the ABI. */
static void riscv_registers_show(const struct regs *regs, struct registers *out)
{
	const bool machine = regs->flags & RISCV_IN_MACHINE;

	registers_add(out, REGISTER_GENERAL, "pc", regs->word, regs->pc, NULL);
	for (unsigned i = RISCV_RA; i < RISCV_REGISTERS; i++)
		if (regs->gp_valid >> i & 1)
			registers_add(out, REGISTER_GENERAL, names[i], regs->word, regs->gp[i],
				      NULL);
	if (!regs->has_elr)
		return;
	registers_add(out, REGISTER_SYSTEM, machine ? "mstatus" : "sstatus", regs->word, regs->spsr,
		      machine ? NULL : sstatus);
	registers_add(out, REGISTER_SYSTEM, machine ? "mepc" : "sepc", regs->word, regs->elr, NULL);
}

const struct arch arch_riscv64 = {
	.name = "riscv64",
	.isa = ISA_RISCV,
	.word = 8,
	.machine = EM_RISCV,
	.modes = 1u << MMU_OFF | 1u << MMU_RISCV_39 | 1u << MMU_RISCV_48 | 1u << MMU_RISCV_57,
	.translate = riscv_translate,
	.show = riscv_registers_show,
};
