/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/gdb/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arm/arm.h"
#include "arch/riscv/riscv.h"
#include "arch/x86/x86.h"
#include "base/owned.h"

/* CS and SS tell their descriptors' privilege in their low bits (SDM vol. 3, 3.4.2). */
#define X86_RPL 3u

/* CR0.ET is always set (SDM vol. 3, 2.5), which shows that the layout is right. */
#define CR0_ET (1ull << 4)
#define CR0_PE (1ull << 0)

enum {
	X86_RIP,
	X86_EFLAGS,
	X86_CS,
	X86_CR0,
	X86_CR3,
	X86_CR4,
	X86_GP,
	X86_GP_32 = 8,
	X86_GP_64 = 16
};
enum { X86_EFER_64 = X86_GP + X86_GP_64, X86_GS, X86_KERNEL_GS, X86_EFER_32 = X86_GP + X86_GP_32 };

static const char *const x86_64[] = {"rip", "eflags", "cs",	 "cr0",	      "cr3", "cr4", "rax",
				     "rcx", "rdx",    "rbx",	 "rsp",	      "rbp", "rsi", "rdi",
				     "r8",  "r9",     "r10",	 "r11",	      "r12", "r13", "r14",
				     "r15", "efer",   "gs_base", "k_gs_base", NULL};
static const char *const i386[] = {"eip", "eflags", "cs",  "cr0", "cr3", "cr4", "eax",	"ecx",
				   "edx", "ebx",    "esp", "ebp", "esi", "edi", "efer", NULL};

#define X86_SYSTEM (1u << X86_CR0 | 1u << X86_CR3 | 1u << X86_CR4)

/*
 * Without system registers (`plain`): of a program, or of a guest whose monitor
 * tells no others, in protected mode.
 */
static bool take_x86(const uint64_t *value, size_t gp, bool plain, struct x86_regs *regs,
		     struct regs *to)
{
	regs->rip = value[X86_RIP];
	regs->rflags = value[X86_EFLAGS];
	regs->cpl = value[X86_CS] & X86_RPL;
	regs->cr0 = plain ? CR0_ET | CR0_PE : value[X86_CR0];
	if (!plain) {
		regs->cr3 = value[X86_CR3];
		regs->cr4 = value[X86_CR4];
	}
	memcpy(regs->gp, value + X86_GP, gp * sizeof(*value));
	x86_regs_convert(regs, to);
	return regs->cr0 & CR0_ET;
}

/*
 * The stub does not tell descriptors. In long mode it gives registers of 32
 * bits to code of 32 bits; flat segments are taken for granted there.
 */
static bool take_x86_64(const uint64_t *value, bool plain, struct regs *to)
{
	struct x86_regs regs = {.efer = plain ? EFER_LMA : value[X86_EFER_64],
				.gs_base = value[X86_GS],
				.kernel_gs_base = value[X86_KERNEL_GS]};

	regs.cs_long = regs.efer & EFER_LMA;
	return take_x86(value, X86_GP_64, plain, &regs, to);
}

static bool take_i386(const uint64_t *value, bool plain, struct regs *to)
{
	struct x86_regs regs = {.efer = plain ? 0 : value[X86_EFER_32]};

	return take_x86(value, X86_GP_32, plain, &regs, to);
}

/* Named as in QEMU's target/arm/helper.c. */
enum {
	ARM_SCTLR,
	ARM_TTBR0,
	ARM_TTBR1,
	ARM_CONTROL,
	ARM_PSTATE,
	ARM_PC,
	ARM_SP,
	ARM_GP,
	ARM_GP_64 = 31
};
enum { ARM_TPIDR = ARM_GP + ARM_GP_64, ARM_ELR, ARM_SPSR };

#define ARM_SYSTEM (1u << ARM_SCTLR | 1u << ARM_TTBR0 | 1u << ARM_TTBR1 | 1u << ARM_CONTROL)

/* AArch32: r0 to r12 and lr; TTBR0 and TTBR1 of 64 bits, where there are tables with such entries. */
enum { ARM_LOW = 13, ARM_LR = 14, ARM_TTBR0_64 = ARM_GP + ARM_LOW + 1, ARM_TTBR1_64 };

#define SCTLR_NAMES "SCTLR|SCTLR_EL1"

static const char *const arm64[] = {
	SCTLR_NAMES, "TTBR0_EL1", "TTBR1_EL1", "TCR_EL1", "cpsr",     "pc",  "sp",  "x0",  "x1",
	"x2",	     "x3",	  "x4",	       "x5",	  "x6",	      "x7",  "x8",  "x9",  "x10",
	"x11",	     "x12",	  "x13",       "x14",	  "x15",      "x16", "x17", "x18", "x19",
	"x20",	     "x21",	  "x22",       "x23",	  "x24",      "x25", "x26", "x27", "x28",
	"x29",	     "x30",	  "TPIDR_EL1", "ELR_EL1", "SPSR_EL1", NULL};
static const char *const arm32[] = {"SCTLR", "TTBR0_EL1", "TTBR1_EL1", "TTBCR", "cpsr",	 "pc",
				    "sp",    "r0",	  "r1",	       "r2",	"r3",	 "r4",
				    "r5",    "r6",	  "r7",	       "r8",	"r9",	 "r10",
				    "r11",   "r12",	  "lr",	       "TTBR0", "TTBR1", NULL};

static struct arm_regs arm_common(const uint64_t *value)
{
	return (struct arm_regs){.sp = value[ARM_SP],
				 .pc = value[ARM_PC],
				 .pstate = (uint32_t)value[ARM_PSTATE],
				 .sctlr = value[ARM_SCTLR],
				 .ttbr0 = value[ARM_TTBR0],
				 .ttbr1 = value[ARM_TTBR1],
				 .control = value[ARM_CONTROL]};
}

/* False in 32-bit code: its registers are kept elsewhere, and this stub does not give them. */
static bool take_arm64(const uint64_t *value, bool plain, struct regs *to)
{
	struct arm_regs regs = arm_common(value);

	regs.wide = true;
	memcpy(regs.r, value + ARM_GP, sizeof(regs.r));
	arm_regs_convert(&regs, to);
	to->own[0] = to->own[1] = value[ARM_TPIDR];
	return !(regs.pstate & ARM_PSTATE_WIDTH32);
}

/* A handler begins with interrupts masked. */
static bool arm64_may_handle(const struct regs *regs)
{
	return !regs->user && regs->flags & ARM_PSTATE_I;
}

static void take_arm64_trap(const uint64_t *value, struct regs *to)
{
	to->elr = value[ARM_ELR];
	to->spsr = value[ARM_SPSR];
	to->has_elr = true;
}

static bool take_arm32(const uint64_t *value, bool plain, struct regs *to)
{
	struct arm_regs regs = arm_common(value);

	memcpy(regs.r, value + ARM_GP, ARM_LOW * sizeof(*value));
	regs.r[ARM_LR] = value[ARM_GP + ARM_LOW];
	if (value[ARM_TTBR0_64])
		regs.ttbr0 = value[ARM_TTBR0_64];
	if (value[ARM_TTBR1_64])
		regs.ttbr1 = value[ARM_TTBR1_64];
	arm_regs_convert(&regs, to);
	return regs.pstate & ARM_PSTATE_WIDTH32;
}

/* QEMU's number for a privilege has a bit more where the processor has a hypervisor. */
#define RISCV_PRIVILEGE 3u

/* Named as in QEMU's gdb-xml/riscv-64bit-*.xml and target/riscv/csr.c. */
enum {
	RISCV_SATP,
	RISCV_PRIV,
	RISCV_PC,
	RISCV_X,
	RISCV_SEPC = RISCV_X + RISCV_REGISTERS,
	RISCV_SSTATUS,
	RISCV_MEPC,
	RISCV_MSTATUS
};

static const char *const riscv64[] = {"satp", "priv",	 "pc",	 "zero",    "ra",    "sp", "gp",
				      "tp",   "t0",	 "t1",	 "t2",	    "fp|s0", "s1", "a0",
				      "a1",   "a2",	 "a3",	 "a4",	    "a5",    "a6", "a7",
				      "s2",   "s3",	 "s4",	 "s5",	    "s6",    "s7", "s8",
				      "s9",   "s10",	 "s11",	 "t3",	    "t4",    "t5", "t6",
				      "sepc", "sstatus", "mepc", "mstatus", NULL};

static bool take_riscv64(const uint64_t *value, bool plain, struct regs *to)
{
	struct riscv_regs regs = {.pc = value[RISCV_PC],
				  .satp = value[RISCV_SATP],
				  .sepc = value[RISCV_SEPC],
				  .sstatus = value[RISCV_SSTATUS],
				  .mepc = value[RISCV_MEPC],
				  .mstatus = value[RISCV_MSTATUS],
				  .has_sepc = !plain,
				  /* It is never all zeros on 64 bits: UXL. */
				  .has_mepc = value[RISCV_MSTATUS] != 0,
				  .privilege = value[RISCV_PRIV] & RISCV_PRIVILEGE};

	/* Kernels have the upper half of addresses. */
	if (plain)
		regs.privilege = value[RISCV_PC] >> 63 ? RISCV_SUPERVISOR : RISCV_USER;
	memcpy(regs.x, value + RISCV_X, sizeof(regs.x));
	riscv_regs_convert(&regs, to);
	/* That register is always 0: it shows that the layout is right. */
	return !regs.x[RISCV_ZERO];
}

#define NAME_MAX_LEN 15

#define ARCHITECTURE "<architecture>"

static const struct gdb_machine machines[] = {
	{
		.name = "i386:x86-64",
		.arch = &arch_x86_64,
		.registers = x86_64,
		.needed = X86_GP + X86_GP_64,
		.system = X86_SYSTEM,
		.take = take_x86_64,
	},
	/* Its recordings are those of a processor that could do more. */
	{
		.name = "i386",
		.arch = &arch_x86_64,
		.registers = i386,
		.needed = X86_GP + X86_GP_32,
		.system = X86_SYSTEM,
		.take = take_i386,
	},
	{
		.name = "aarch64",
		.arch = &arch_arm64,
		.registers = arm64,
		.needed = ARM_GP + ARM_GP_64,
		.system = ARM_SYSTEM,
		.threads = 1ull << ARM_TPIDR,
		.trap = 1ull << ARM_ELR | 1ull << ARM_SPSR,
		.take = take_arm64,
		.may_handle = arm64_may_handle,
		.take_trap = take_arm64_trap,
	},
	{
		.name = "arm",
		.arch = &arch_arm32,
		.registers = arm32,
		.needed = ARM_GP + ARM_LOW + 1,
		.system = ARM_SYSTEM,
		.take = take_arm32,
	},
	{
		.name = "riscv:rv64",
		.arch = &arch_riscv64,
		.registers = riscv64,
		.needed = RISCV_SSTATUS + 1,
		.system = 1ull << RISCV_SATP | 1ull << RISCV_PRIV | 1ull << RISCV_SEPC |
			  1ull << RISCV_SSTATUS,
		.take = take_riscv64,
	},
};

/* The value of an attribute within a tag that ends at `end`; "" if it is not there. */
static void attribute(const char *tag, const char *end, const char *key, char *value, size_t size)
{
	const size_t len = strlen(key);

	*value = '\0';
	for (const char *at = tag; at + len + 2 < end; at++) {
		if (at[0] != ' ' || strncmp(at + 1, key, len) || strncmp(at + 1 + len, "=\"", 2))
			continue;
		at += len + 3;
		snprintf(value, size, "%.*s", (int)strcspn(at, "\""), at);
		return;
	}
}

/* True if `name` is one of "a|b". */
static bool is_called(const char *names, const char *name)
{
	const size_t len = strlen(name);

	for (; *names; names += strcspn(names, "|"), names += *names == '|')
		if (strcspn(names, "|") == len && !strncmp(names, name, len))
			return true;
	return false;
}

static struct gdb_register *find_register(struct gdb_layout *layout, const char *name)
{
	for (unsigned i = 0; layout->machine && layout->machine->registers[i]; i++)
		if (is_called(layout->machine->registers[i], name))
			return &layout->at[i];
	return NULL;
}

static void add_tag(struct gdb_layout *layout, const char *tag, const char *end)
{
	char name[NAME_MAX_LEN + 1], bits[8], number[8];
	struct gdb_register *reg;
	size_t size;

	attribute(tag, end, "name", name, sizeof(name));
	attribute(tag, end, "bitsize", bits, sizeof(bits));
	attribute(tag, end, "regnum", number, sizeof(number));
	if (*number)
		layout->next_number = strtoul(number, NULL, 10);
	size = strtoul(bits, NULL, 10) / 8;
	if (size >= GDB_PACKET_MAX || layout->next_byte + size >= GDB_PACKET_MAX ||
	    layout->next_number > UINT16_MAX)
		return;
	reg = find_register(layout, name);
	if (reg && size <= 8)
		*reg = (struct gdb_register){(uint16_t)layout->next_byte, (uint16_t)size,
					     (uint16_t)layout->next_number};
	layout->next_byte += size;
	layout->next_number++;
}

static void find_machine(struct gdb_layout *layout, const char *xml)
{
	const char *name = strstr(xml, ARCHITECTURE);
	size_t len;

	if (!name || layout->machine)
		return;
	name += strlen(ARCHITECTURE);
	len = strcspn(name, "<");
	for (size_t i = 0; i < sizeof(machines) / sizeof(*machines); i++)
		if (strlen(machines[i].name) == len && !strncmp(machines[i].name, name, len))
			layout->machine = &machines[i];
}

void gdb_layout_add(struct gdb_layout *layout, const char *xml)
{
	const char *tag = xml, *end;

	find_machine(layout, xml);
	while ((tag = strchr(tag, '<'))) {
		/* QEMU has registers in comments. */
		const bool comment = !strncmp(tag, "<!--", 4);

		end = comment ? strstr(tag, "-->") : strchr(tag, '>');
		if (!end)
			break;
		if (!comment && !strncmp(tag, "<reg ", 5))
			add_tag(layout, tag, end);
		tag = end;
	}
}

/* *plain: system registers are missing. */
static bool is_whole(const struct gdb_layout *layout, bool *plain)
{
	if (!layout->machine)
		return false;
	for (unsigned i = 0; i < layout->machine->needed; i++) {
		if (layout->at[i].size)
			continue;
		if (!(layout->machine->system >> i & 1))
			return false;
		*plain = true;
	}
	return true;
}

struct error *gdb_layout_ask(struct gdb *gdb, struct gdb_layout *layout)
{
	FREED char *top = gdb_features(gdb, "target.xml");
	char *at = top, annex[101];

	memset(layout, 0, sizeof(*layout));
	if (top)
		gdb_layout_add(layout, top);
	while (at && (at = strstr(at, "<xi:include href=\""))) {
		FREED char *xml = NULL;

		at += strlen("<xi:include href=\"");
		snprintf(annex, sizeof(annex), "%.*s", (int)strcspn(at, "\""), at);
		xml = gdb_features(gdb, annex);
		if (xml)
			gdb_layout_add(layout, xml);
	}
	if (!is_whole(layout, &layout->plain))
		return error_new(ERR_GUEST,
				 "%s tells no registers of an x86, Arm or 64-bit RISC-V guest "
				 "(other instruction sets cannot be profiled)",
				 gdb->stub);
	layout->together = gdb_ask(gdb, "g") ? gdb->len / 2 : 0;
	return NULL;
}

static bool is_together(const struct gdb_layout *layout, unsigned i)
{
	return (size_t)layout->at[i].at + layout->at[i].size <= layout->together;
}

/* Each that is asked for alone makes the stop longer. */
static bool is_alone(const struct gdb_layout *layout, unsigned i)
{
	return layout->at[i].size && !is_together(layout, i) && !(layout->machine->trap >> i & 1) &&
	       (layout->threads || !(layout->machine->threads >> i & 1));
}

static void ask_alone(const struct gdb_layout *layout, struct gdb *gdb, unsigned i)
{
	char request[16];

	snprintf(request, sizeof(request), "p%x", layout->at[i].number);
	gdb_batch_add(gdb, request);
}

void gdb_layout_request(const struct gdb_layout *layout, struct gdb *gdb)
{
	gdb_batch_add(gdb, "g");
	for (unsigned i = 0; layout->machine->registers[i]; i++)
		if (is_alone(layout, i))
			ask_alone(layout, gdb, i);
}

bool gdb_layout_take(const struct gdb_layout *layout, struct gdb *gdb, struct regs *regs)
{
	uint64_t value[GDB_REGISTERS_MAX] = {0};
	bool whole = gdb_batch_next(gdb);

	/* Little-endian, as all guests of these machines are. */
	for (unsigned i = 0; layout->machine->registers[i]; i++)
		if (is_together(layout, i))
			whole = gdb_bytes(gdb, layout->at[i].at, &value[i], layout->at[i].size) &&
				whole;
	for (unsigned i = 0; layout->machine->registers[i]; i++)
		if (is_alone(layout, i))
			whole = gdb_batch_next(gdb) &&
				gdb_bytes(gdb, 0, &value[i], layout->at[i].size) && whole;
	return whole && layout->machine->take(value, layout->plain, regs);
}

bool gdb_layout_wants_trap(const struct gdb_layout *layout, const struct regs *regs)
{
	for (unsigned i = 0; i < GDB_REGISTERS_MAX; i++)
		if (layout->machine->trap >> i & 1 && !layout->at[i].size)
			return false;
	return layout->machine->trap && layout->machine->may_handle(regs);
}

void gdb_layout_request_trap(const struct gdb_layout *layout, struct gdb *gdb)
{
	for (unsigned i = 0; layout->machine->registers[i]; i++)
		if (layout->machine->trap >> i & 1)
			ask_alone(layout, gdb, i);
}

bool gdb_layout_take_trap(const struct gdb_layout *layout, struct gdb *gdb, struct regs *regs)
{
	uint64_t value[GDB_REGISTERS_MAX] = {0};
	bool whole = true;

	for (unsigned i = 0; layout->machine->registers[i]; i++)
		if (layout->machine->trap >> i & 1)
			whole = gdb_batch_next(gdb) &&
				gdb_bytes(gdb, 0, &value[i], layout->at[i].size) && whole;
	if (whole)
		layout->machine->take_trap(value, regs);
	return whole;
}
