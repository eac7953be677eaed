/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/cfa_program.h"

#include <dwarf.h>
#include <gelf.h>

/* Fits a rule into the short form of a row; false if it does not. */
static bool shorten(const struct row_rule *rule, int16_t *at)
{
	switch (rule->how) {
	case RULE_SAME:
		*at = ROW_SAME;
		return true;
	case RULE_LOST:
		*at = ROW_LOST;
		return true;
	case RULE_AT_CFA:
		*at = (int16_t)rule->value;
		return rule->value > ROW_LOST && rule->value <= INT16_MAX;
	}
	return false;
}

/* "The word at register + offset": how compilers say where a realigned stack was before. */
static bool is_dereference(const struct cfa_rule *cfa, struct row *row)
{
	struct dwarf_bytes in = {cfa->expression, cfa->expression + cfa->rule.len};
	int64_t offset;
	uint8_t op;

	if (cfa->rule.how != RULE_IS_EXPRESSION || !cfa->rule.len)
		return false;
	op = *in.at++;
	if (op < DW_OP_breg0 || op > DW_OP_breg31 || !dwarf_sleb(&in, &offset) ||
	    in.end - in.at != 1 || *in.at != DW_OP_deref || offset != (int32_t)offset)
		return false;
	row->base = ROW_PLUS_DEREF;
	row->cfa_reg = op - DW_OP_breg0;
	row->cfa_offset = (int32_t)offset;
	return true;
}

static bool shorten_cfa(const struct cfa_rule *cfa, struct row *row)
{
	if (cfa->rule.how != RULE_IS_CFA)
		return is_dereference(cfa, row);
	row->base = ROW_PLUS;
	row->cfa_reg = cfa->rule.reg;
	row->cfa_offset = (int32_t)cfa->rule.value;
	return row->cfa_offset == cfa->rule.value;
}

static struct error *put_rare(const struct cfa_program *program, const struct cfa_state *state,
			      uint64_t at, struct table_builder *builder)
{
	const struct row_rare rare = {.cfa = state->cfa.rule,
				      .ra = state->ra.rule,
				      .fp = state->fp.rule,
				      .sp = state->sp.rule,
				      .trap = program->trap};
	const uint8_t *const bytes[4] = {state->cfa.expression, state->ra.expression,
					 state->fp.expression, state->sp.expression};

	return table_builder_put_rare(builder, at, &rare, bytes);
}

/* Puts the row of one state, good from `at` on: in short if that can be, with kept registers always. */
static struct error *cfa_put_row(const struct cfa_program *program, const struct cfa_state *state,
				 uint64_t at, struct table_builder *builder)
{
	const bool kept = program->machine->kept;
	struct row row = {.kind = program->trap ? ROW_TRAP : ROW_CALL,
			  .begins = kept && at == program->start};

	if (state->ra.rule.how == RULE_LOST)
		row = (struct row){.kind = ROW_END};
	else if (state->cfa.rule.how == RULE_LOST ||
		 (state->ra.rule.how == RULE_SAME && !program->machine->link) ||
		 (kept && state->sp.rule.how != RULE_SAME))
		row = (struct row){.kind = ROW_NONE};
	else if (shorten_cfa(&state->cfa, &row) && shorten(&state->ra.rule, &row.ra_at) &&
		 shorten(&state->fp.rule, &row.fp_at) && shorten(&state->sp.rule, &row.sp_at) &&
		 row.sp_at != ROW_LOST)
		TRY(kept ? table_builder_keep(builder, &state->kept, &row) : NULL);
	else if (!kept)
		return put_rare(program, state, at, builder);
	else
		row = (struct row){.kind = ROW_NONE};
	return table_builder_put(builder, at, &row);
}

/* States that a program may remember; compilers nest them once. */
#define REMEMBERED 16

#define NO_FP 0xff

/* AADWARF64, 5.1; newer than <dwarf.h>. */
#define AARCH64_NEGATE_RA_STATE_WITH_PC 0x2c

struct running {
	const struct cfa_program *program;
	struct dwarf_bytes in;
	const struct cfa_state *initial; /* NULL: that is being made */
	struct cfa_state state;
	struct cfa_state kept[REMEMBERED];
	unsigned n_kept;
	uint64_t at; /* the address that the state is good from */
};

static const struct cfa_state at_first = {.cfa = {.rule = {.how = RULE_LOST}},
					  .kept = {{ROW_SAME, ROW_SAME, ROW_SAME, ROW_SAME,
						    ROW_SAME, ROW_SAME, ROW_SAME, ROW_SAME}}};

const struct cfa_machine *cfa_machine(uint16_t e_machine)
{
	static const struct cfa_machine machines[] = {
		{.machine = EM_X86_64, .word = 8, .fp = 6, .sp = 7},
		{.machine = EM_386, .word = 4, .fp = 5, .sp = 4},
		{.machine = EM_AARCH64, .word = 8, .fp = 29, .sp = 31, .link = true},
		{.machine = EM_RISCV, .word = 8, .fp = 8, .sp = 2, .link = true},
		{.machine = EM_ARM, .word = 4, .fp = NO_FP, .sp = 13, .link = true, .kept = true},
	};

	for (size_t i = 0; i < sizeof(machines) / sizeof(*machines); i++)
		if (machines[i].machine == e_machine)
			return &machines[i];
	return NULL;
}

/* Rule of a register; NULL: the register does not matter. */
static struct cfa_rule *rule_of(const struct cfa_program *program, struct cfa_state *state,
				uint64_t reg)
{
	if (reg == program->ra)
		return &state->ra;
	if (reg == program->machine->fp)
		return &state->fp;
	return reg == program->machine->sp ? &state->sp : NULL;
}

/* Entry of a kept register; NULL: `reg` is none. */
static int16_t *kept_of(const struct cfa_program *program, struct cfa_state *state, uint64_t reg)
{
	if (!program->machine->kept || reg < ROW_KEPT_FIRST || reg >= ROW_KEPT_FIRST + ROW_KEPT)
		return NULL;
	return &state->kept.at[reg - ROW_KEPT_FIRST];
}

static void set(struct running *run, uint64_t reg, enum rule_how how, int64_t value)
{
	const struct cfa_rule new = {.rule = {.how = (uint8_t)how, .value = value}};
	struct cfa_rule *rule = rule_of(run->program, &run->state, reg);
	int16_t *kept = kept_of(run->program, &run->state, reg);

	if (rule)
		*rule = new;
	if (kept && !shorten(&new.rule, kept))
		*kept = ROW_LOST;
}

static bool restore(struct running *run, uint64_t reg)
{
	struct cfa_rule *rule = rule_of(run->program, &run->state, reg);
	int16_t *kept = kept_of(run->program, &run->state, reg);
	struct cfa_state *initial = (struct cfa_state *)run->initial;

	if (!initial)
		return false;
	if (rule)
		*rule = *rule_of(run->program, initial, reg);
	if (kept)
		*kept = *kept_of(run->program, initial, reg);
	return true;
}

static int64_t factored(const struct running *run, int64_t value)
{
	return (int64_t)((uint64_t)value * (uint64_t)run->program->data_factor);
}

static bool read_number(struct running *run, bool with_sign, int64_t *value)
{
	return with_sign ? dwarf_sleb(&run->in, value) : dwarf_uleb(&run->in, (uint64_t *)value);
}

static bool expression(struct running *run, enum rule_how how, struct cfa_rule *rule)
{
	uint64_t len;

	if (!dwarf_uleb(&run->in, &len) || len > (uint64_t)(run->in.end - run->in.at) ||
	    len > UINT16_MAX)
		return false;
	if (rule)
		*rule = (struct cfa_rule){.rule = {.how = (uint8_t)how, .len = (uint16_t)len},
					  .expression = run->in.at};
	run->in.at += len;
	return true;
}

static bool cfa_by_number(struct running *run, uint8_t op)
{
	struct row_rule *cfa = &run->state.cfa.rule;
	bool with_reg =
		op == DW_CFA_def_cfa || op == DW_CFA_def_cfa_register || op == DW_CFA_def_cfa_sf;
	const bool factor = op == DW_CFA_def_cfa_sf || op == DW_CFA_def_cfa_offset_sf;
	uint64_t reg = cfa->reg;
	int64_t offset = cfa->value;

	/* GNU as begins RISC-V's CIEs with def_cfa_register alone: the offset is 0. */
	if (!with_reg || (op == DW_CFA_def_cfa_register && cfa->how != RULE_LOST))
		if (cfa->how != RULE_IS_CFA)
			return false;
	if (with_reg && !dwarf_uleb(&run->in, &reg))
		return false;
	if (op != DW_CFA_def_cfa_register && !read_number(run, factor, &offset))
		return false;
	if (reg > UINT8_MAX)
		return false;
	offset = factor ? factored(run, offset) : offset;
	run->state.cfa = (struct cfa_rule){
		.rule = {.how = RULE_IS_CFA, .reg = (uint8_t)reg, .value = offset}};
	return true;
}

/* The caller's register is at, or is, the CFA and a number of units. */
static bool register_by_number(struct running *run, uint8_t op)
{
	const bool is = op == DW_CFA_val_offset || op == DW_CFA_val_offset_sf;
	const bool with_sign = op == DW_CFA_offset_extended_sf || op == DW_CFA_val_offset_sf;
	uint64_t reg;
	int64_t offset;

	if (!dwarf_uleb(&run->in, &reg) || !read_number(run, with_sign, &offset))
		return false;
	if (op == DW_CFA_GNU_negative_offset_extended)
		offset = (int64_t)(0 - (uint64_t)offset);
	set(run, reg, is ? RULE_IS_CFA : RULE_AT_CFA, factored(run, offset));
	return true;
}

static bool one_register(struct running *run, uint8_t op)
{
	uint64_t reg, other;

	if (!dwarf_uleb(&run->in, &reg))
		return false;
	switch (op) {
	case DW_CFA_restore_extended:
		return restore(run, reg);
	case DW_CFA_undefined:
		set(run, reg, RULE_LOST, 0);
		return true;
	case DW_CFA_same_value:
		set(run, reg, RULE_SAME, 0);
		return true;
	case DW_CFA_register:
		if (!dwarf_uleb(&run->in, &other) || other > UINT8_MAX)
			return false;
		set(run, reg, RULE_IN_REG, (int64_t)other);
		return true;
	case DW_CFA_expression:
	case DW_CFA_val_expression:
		set(run, reg, RULE_LOST, 0);
		return expression(run,
				  op == DW_CFA_expression ? RULE_AT_EXPRESSION : RULE_IS_EXPRESSION,
				  rule_of(run->program, &run->state, reg));
	}
	return false;
}

/* All that do not move on. */
static bool change(struct running *run, uint8_t op)
{
	uint64_t unused;
	int64_t offset;

	switch (op & 0xc0) {
	case DW_CFA_offset:
		if (!read_number(run, false, &offset))
			return false;
		set(run, op & 0x3f, RULE_AT_CFA, factored(run, offset));
		return true;
	case DW_CFA_restore:
		return restore(run, op & 0x3f);
	}
	switch (op) {
	case DW_CFA_nop:
	/*
	 * AArch64: the return address is signed from here on, or no longer.
	 * Readers of a return address strip the bits that are no address
	 * (AADWARF64, 5.2).
	 */
	case DW_CFA_AARCH64_negate_ra_state:
	case AARCH64_NEGATE_RA_STATE_WITH_PC:
		return true;
	case DW_CFA_remember_state:
		if (run->n_kept == REMEMBERED)
			return false;
		run->kept[run->n_kept++] = run->state;
		return true;
	case DW_CFA_restore_state:
		if (!run->n_kept)
			return false;
		run->state = run->kept[--run->n_kept];
		return true;
	case DW_CFA_def_cfa_expression:
		return expression(run, RULE_IS_EXPRESSION, &run->state.cfa);
	case DW_CFA_GNU_args_size:
		return dwarf_uleb(&run->in, &unused);
	case DW_CFA_def_cfa:
	case DW_CFA_def_cfa_register:
	case DW_CFA_def_cfa_offset:
	case DW_CFA_def_cfa_sf:
	case DW_CFA_def_cfa_offset_sf:
		return cfa_by_number(run, op);
	case DW_CFA_offset_extended:
	case DW_CFA_offset_extended_sf:
	case DW_CFA_val_offset:
	case DW_CFA_val_offset_sf:
	case DW_CFA_GNU_negative_offset_extended:
		return register_by_number(run, op);
	}
	return one_register(run, op);
}

/* True if the operation advances the location; *to is the new one; *good is false for nonsense. */
static bool moves_on(struct running *run, uint8_t op, uint64_t *to, bool *good)
{
	static const uint8_t size[] = {1, 2, 4};
	const bool in_op = (op & 0xc0) == DW_CFA_advance_loc;
	uint64_t number = op & 0x3f;

	if (!in_op && (op < DW_CFA_set_loc || op > DW_CFA_advance_loc4))
		return false;
	/* No compiler for these machines uses set_loc. */
	*good = in_op || (op != DW_CFA_set_loc &&
			  dwarf_unsigned(&run->in, size[op - DW_CFA_advance_loc1], &number));
	*to = run->at + number * run->program->code_factor;
	*good = *good && *to >= run->at;
	return true;
}

bool cfa_run_initial(const struct cfa_program *program, struct dwarf_bytes in,
		     struct cfa_state *state)
{
	struct running run = {.program = program, .in = in, .state = at_first};

	while (run.in.at < run.in.end) {
		uint64_t to;
		bool good;
		uint8_t op = *run.in.at++;

		if (moves_on(&run, op, &to, &good) || !change(&run, op))
			return false;
	}
	*state = run.state;
	return true;
}

struct error *cfa_run(const struct cfa_program *program, struct dwarf_bytes in,
		      const struct cfa_state *initial, unsigned rank, struct table_builder *builder)
{
	struct running run = {.program = program,
			      .in = in,
			      .initial = initial,
			      .state = *initial,
			      .at = program->start};
	static const struct row none = {.kind = ROW_NONE};
	struct error *err;
	bool good = true;

	err = table_builder_begin(builder, program->start, program->end, rank);
	while (!err && good && run.in.at < run.in.end && run.at < program->end) {
		uint8_t op = *run.in.at++;
		uint64_t to = run.at;

		if (!moves_on(&run, op, &to, &good)) {
			good = change(&run, op);
		} else if (good && to > run.at) {
			err = cfa_put_row(program, &run.state, run.at, builder);
			run.at = to;
		}
	}
	if (err)
		return err;
	if (!good)
		return table_builder_put(builder, run.at, &none);
	return cfa_put_row(program, &run.state, run.at, builder);
}
