/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/cfa_program.h"

#include <dwarf.h>

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

/* Of machines with kept registers: in short, or not at all. */
static struct error *put_with_kept(const struct cfa_state *state, struct row row, uint64_t start,
				   uint64_t at, struct rows_builder *builder)
{
	struct error *err = NULL;

	if (!shorten_cfa(&state->cfa, &row) || !shorten(&state->ra.rule, &row.ra_at) ||
	    !shorten(&state->sp.rule, &row.sp_at) || row.sp_at != ROW_SAME)
		row = (struct row){.kind = ROW_NONE};
	else
		err = rows_keep(builder, &state->kept, &row);
	row.begins = at == start && row.kind != ROW_NONE;
	return err ? err : rows_put(builder, at, &row);
}

static struct error *put_rare(const struct cfa_program *program, const struct cfa_state *state,
			      uint64_t at, struct rows_builder *builder)
{
	const struct row_rare rare = {.cfa = state->cfa.rule,
				      .ra = state->ra.rule,
				      .fp = state->fp.rule,
				      .sp = state->sp.rule,
				      .trap = program->trap};
	const uint8_t *const bytes[4] = {state->cfa.expression, state->ra.expression,
					 state->fp.expression, state->sp.expression};
	struct row row = {.kind = ROW_RARE};
	struct error *err;
	uint32_t index;
	bool kept;

	err = rows_put_rare(builder, &rare, bytes, &index, &kept);
	if (err)
		return err;
	row.cfa_offset = (int32_t)index;
	if (!kept)
		row = (struct row){.kind = ROW_NONE};
	return rows_put(builder, at, &row);
}

struct error *cfa_put_row(const struct cfa_program *program, const struct cfa_state *state,
			  uint64_t at, struct rows_builder *builder)
{
	struct row row = {.kind = program->trap ? ROW_TRAP : ROW_CALL};

	if (state->ra.rule.how == RULE_LOST)
		row = (struct row){.kind = ROW_END};
	else if (state->cfa.rule.how == RULE_LOST ||
		 (state->ra.rule.how == RULE_SAME && !program->machine->link))
		row = (struct row){.kind = ROW_NONE};
	else if (program->machine->kept)
		return put_with_kept(state, row, program->start, at, builder);
	else if (!shorten_cfa(&state->cfa, &row) || !shorten(&state->ra.rule, &row.ra_at) ||
		 !shorten(&state->fp.rule, &row.fp_at) || !shorten(&state->sp.rule, &row.sp_at) ||
		 row.sp_at == ROW_LOST)
		return put_rare(program, state, at, builder);
	return rows_put(builder, at, &row);
}
