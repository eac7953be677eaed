/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/cfi.h"

#include <gelf.h>
#include <string.h>

#include "base/debug_file.h"

/* Registers that a rule names (arch/x86/include/asm/orc_types.h). */
enum { ORC_UNDEFINED, ORC_PREV_SP, ORC_DX, ORC_DI, ORC_BP, ORC_SP, ORC_R10, ORC_R13 };
enum { ORC_BP_INDIRECT = ORC_R13 + 1, ORC_SP_INDIRECT, ORC_UNKNOWN };

/* Their numbers in Linux 7.2, as its tables and its code tell; 1 and 5 are in no rule. */
static const uint8_t since_7_2[16] = {ORC_UNDEFINED, ORC_UNKNOWN,     ORC_DX,	       ORC_SP,
				      ORC_BP,	     ORC_UNKNOWN,     ORC_R10,	       ORC_R13,
				      ORC_PREV_SP,   ORC_SP_INDIRECT, ORC_BP_INDIRECT, ORC_UNKNOWN,
				      ORC_UNKNOWN,   ORC_UNKNOWN,     ORC_UNKNOWN,     ORC_UNKNOWN};
#define SP_SINCE_7_2 3

/* DWARF's numbers (System V ABI x86-64, figure 3.36). */
enum { DWARF_RDX = 1, DWARF_RDI = 5, DWARF_RBP = 6, DWARF_RSP = 7, DWARF_R10 = 10, DWARF_R13 = 13 };

/* Bytes from the beginning of struct pt_regs (arch/x86/include/asm/ptrace.h). */
enum { REGS_BP = 32, REGS_IP = 128, REGS_SP = 152 };
/* Offsets of the registers that the processor pushes: ip, cs, flags, sp. */
enum { IRET_IP = 0, IRET_SP = REGS_SP - REGS_IP };

/* TYPE_NONE: an unknown one, too. */
enum orc_type { TYPE_NONE, TYPE_END, TYPE_CALL, TYPE_REGS, TYPE_REGS_PARTIAL };

struct orc_rule {
	int16_t sp_offset, bp_offset;
	uint8_t sp_reg, bp_reg;
	enum orc_type type;
};

static struct orc_rule parse_rule(const uint8_t *bytes, enum orc_layout layout)
{
	static const enum orc_type since_6_4[8] = {TYPE_NONE, TYPE_END, TYPE_CALL, TYPE_REGS,
						   TYPE_REGS_PARTIAL};
	static const enum orc_type since_4_14[4] = {TYPE_CALL, TYPE_REGS, TYPE_REGS_PARTIAL};
	struct orc_rule rule;
	uint16_t bits;

	memcpy(&rule.sp_offset, bytes, 2);
	memcpy(&rule.bp_offset, bytes + 2, 2);
	memcpy(&bits, bytes + 4, 2);
	rule.sp_reg = bits & 15;
	rule.bp_reg = bits >> 4 & 15;
	if (layout == ORC_LINUX_7_2) {
		rule.sp_reg = since_7_2[rule.sp_reg];
		rule.bp_reg = since_7_2[rule.bp_reg];
	}
	if (layout != ORC_LINUX_4_14) {
		rule.type = since_6_4[bits >> 8 & 7];
		return rule;
	}
	rule.type = since_4_14[bits >> 8 & 3];
	if (rule.sp_reg == ORC_UNDEFINED)
		rule.type = bits >> 10 & 1 ? TYPE_END : TYPE_NONE;
	return rule;
}

static bool set_cfa(const struct orc_rule *rule, struct row *row)
{
	static const struct {
		uint8_t reg, base;
		bool known;
	} bases[16] = {
		[ORC_DX] = {DWARF_RDX, ROW_PLUS, true},
		[ORC_DI] = {DWARF_RDI, ROW_PLUS, true},
		[ORC_BP] = {DWARF_RBP, ROW_PLUS, true},
		[ORC_SP] = {DWARF_RSP, ROW_PLUS, true},
		[ORC_R10] = {DWARF_R10, ROW_PLUS, true},
		[ORC_R13] = {DWARF_R13, ROW_PLUS, true},
		[ORC_BP_INDIRECT] = {DWARF_RBP, ROW_PLUS_DEREF, true},
		[ORC_SP_INDIRECT] = {DWARF_RSP, ROW_DEREF_PLUS, true},
	};

	row->cfa_reg = bases[rule->sp_reg].reg;
	row->base = bases[rule->sp_reg].base;
	row->cfa_offset = rule->sp_offset;
	return bases[rule->sp_reg].known;
}

/* Fills in a row from a rule; false if the frame pointer is where no row can say it is. */
static bool set_caller(const struct orc_rule *rule, struct row *row)
{
	row->kind = ROW_TRAP;
	row->fp_at = ROW_SAME;
	switch (rule->type) {
	case TYPE_REGS:
		row->ra_at = REGS_IP;
		row->sp_at = REGS_SP;
		/* A slot below sp was popped: the frame pointer is in its register again. */
		if (rule->sp_reg != ORC_SP || rule->sp_offset + REGS_BP >= 0)
			row->fp_at = REGS_BP;
		return true;
	case TYPE_REGS_PARTIAL:
		row->ra_at = IRET_IP;
		row->sp_at = IRET_SP;
		return true;
	default:
		row->kind = ROW_CALL;
		row->ra_at = -8;
		row->sp_at = ROW_SAME;
	}
	if (rule->bp_reg == ORC_PREV_SP && rule->bp_offset > ROW_LOST)
		row->fp_at = rule->bp_offset;
	else if (rule->bp_reg != ORC_UNDEFINED && rule->bp_reg != ORC_BP)
		row->fp_at = ROW_LOST;
	return rule->bp_reg != ORC_BP;
}

/* The caller's frame pointer is in the word at frame pointer + offset: of realigned stacks. */
static struct error *put_rare(struct table_builder *builder, uint64_t at,
			      const struct orc_rule *rule, const struct row *row)
{
	static const uint8_t *const bytes[4];
	static const struct row none = {.kind = ROW_NONE};
	const struct row_rare rare = {
		.cfa = {.how = row->base == ROW_PLUS ? RULE_IS_CFA : RULE_AT_REG,
			.reg = row->cfa_reg,
			.value = row->cfa_offset},
		.ra = {.how = RULE_AT_CFA, .value = row->ra_at},
		.fp = {.how = RULE_AT_REG, .reg = DWARF_RBP, .value = rule->bp_offset},
		.sp = {.how = RULE_SAME},
	};

	if (row->base == ROW_DEREF_PLUS)
		return table_builder_put(builder, at, &none);
	return table_builder_put_rare(builder, at, &rare, bytes);
}

static struct error *put_rule(struct table_builder *builder, uint64_t at,
			      const struct orc_rule *rule)
{
	struct row row = {.kind = ROW_NONE};

	if (rule->type == TYPE_END)
		row.kind = ROW_END;
	else if (rule->type == TYPE_NONE || !set_cfa(rule, &row))
		row = (struct row){.kind = ROW_NONE};
	else if (!set_caller(rule, &row))
		return put_rare(builder, at, rule, &row);
	return table_builder_put(builder, at, &row);
}

static uint64_t address_at(const struct orc_tables *tables, size_t i)
{
	int32_t offset;

	memcpy(&offset, tables->addresses + ORC_ADDRESS_SIZE * i, sizeof(offset));
	return tables->va + ORC_ADDRESS_SIZE * i + (uint64_t)(int64_t)offset;
}

/* In order, and close enough to each other for the offsets of rows? */
static bool is_table(const struct orc_tables *tables)
{
	if (!tables->n || tables->n > ORC_RULES_MAX)
		return false;
	for (size_t i = 1; i < tables->n; i++)
		if (address_at(tables, i) < address_at(tables, i - 1))
			return false;
	return address_at(tables, tables->n - 1) - address_at(tables, 0) < UINT32_MAX;
}

/* Every function begins with a rule by the stack pointer; hardly any is by what had its number, or has it now. */
static enum orc_layout layout_of(const struct orc_tables *tables)
{
	size_t earlier = 0, later = 0;

	if (tables->layout == ORC_LINUX_4_14)
		return ORC_LINUX_4_14;
	for (size_t i = 0; i < tables->n; i++) {
		const uint8_t reg = tables->rules[ORC_RULE_SIZE * i + 4] & 15;

		earlier += reg == ORC_SP;
		later += reg == SP_SINCE_7_2;
	}
	return later > earlier ? ORC_LINUX_7_2 : ORC_LINUX_6_4;
}

struct error *orc_table(const struct orc_tables *tables, struct unwind_table **out)
{
	const enum orc_layout layout = layout_of(tables);
	struct table_builder *builder;
	struct error *err;

	*out = NULL;
	if (!is_table(tables))
		return NULL;
	TRY(table_builder_new(&builder));
	err = table_builder_begin(builder, address_at(tables, 0),
				  address_at(tables, tables->n - 1) + 1, 0);
	/* The kernel takes the later of two rules for one address, as table_builder_put does. */
	for (size_t i = 0; i < tables->n && !err; i++) {
		struct orc_rule rule = parse_rule(tables->rules + ORC_RULE_SIZE * i, layout);

		err = put_rule(builder, address_at(tables, i), &rule);
	}
	if (!err)
		err = table_builder_finish(builder, out);
	table_builder_free(builder);
	return err;
}

static Elf_Data *section(Elf *elf, const char *wanted, uint64_t *va)
{
	GElf_Shdr shdr;
	Elf_Scn *scn = elf_find_section(elf, wanted, &shdr);

	if (!scn || shdr.sh_type != SHT_PROGBITS || shdr.sh_flags & SHF_COMPRESSED)
		return NULL;
	*va = shdr.sh_addr;
	return elf_rawdata(scn, NULL);
}

struct error *orc_table_elf(Elf *elf, struct unwind_table **out)
{
	struct orc_tables tables = {0};
	Elf_Data *addresses, *rules;
	uint64_t va;
	GElf_Ehdr head;

	*out = NULL;
	/* The addresses of a module's tables are only known where it is loaded. */
	if (!gelf_getehdr(elf, &head) || head.e_machine != EM_X86_64 || head.e_type == ET_REL)
		return NULL;
	addresses = section(elf, ".orc_unwind_ip", &tables.va);
	rules = section(elf, ".orc_unwind", &va);
	if (!addresses || !rules || !addresses->d_buf || !rules->d_buf ||
	    addresses->d_size / ORC_ADDRESS_SIZE != rules->d_size / ORC_RULE_SIZE)
		return NULL;
	tables.addresses = addresses->d_buf;
	tables.rules = rules->d_buf;
	tables.n = addresses->d_size / ORC_ADDRESS_SIZE;
	tables.layout = section(elf, ".orc_header", &va) ? ORC_LINUX_6_4 : ORC_LINUX_4_14;
	return orc_table(&tables, out);
}
