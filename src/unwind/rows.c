/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/unwind_table.h"

#include <stdlib.h>

#include "unwind/expression.h"

const struct row *rows_find(const struct rows *rows, uint64_t addr)
{
	uint64_t offset = addr - rows->base;
	const struct row *row = rows->row;
	uint32_t n = rows->n;

	if (!n || addr < rows->base || offset > UINT32_MAX || offset < row->start)
		return NULL;
	/* The row that is looked for is always among row[0] to row[n - 1]. */
	while (n > 1) {
		uint32_t half = n / 2;

		row += row[half].start <= offset ? half : 0;
		n -= half;
	}
	return row->kind == ROW_NONE ? NULL : row;
}

struct rows *rows_share(struct rows *rows)
{
	rows->shared++;
	return rows;
}

void rows_free(struct rows *rows)
{
	if (!rows)
		return;
	if (rows->shared) {
		rows->shared--;
		return;
	}
	free(rows->row);
	free(rows->rare);
	free(rows->expressions);
	free(rows->kept);
	free(rows);
}

static uint64_t narrowed(const struct row_env *env, uint64_t value)
{
	return env->word == 4 ? value & UINT32_MAX : value;
}

static bool load(const struct row_env *env, uint64_t va, uint64_t *value, struct row_caller *out)
{
	va = narrowed(env, va);
	if (env->load(env->ctx, va, value))
		return true;
	out->slot = va;
	return false;
}

static bool find_cfa(const struct row *row, const struct row_env *env, uint64_t *cfa,
		     struct row_caller *out)
{
	uint64_t offset = (uint64_t)(int64_t)row->cfa_offset, value;

	if (!env->reg(env->ctx, row->cfa_reg, &value))
		return false;
	switch (row->base) {
	case ROW_PLUS:
		*cfa = narrowed(env, value + offset);
		return true;
	case ROW_PLUS_DEREF:
		return load(env, value + offset, cfa, out);
	case ROW_DEREF_PLUS:
		if (!load(env, value, &value, out))
			return false;
		*cfa = narrowed(env, value + offset);
		return true;
	}
	return false;
}

/* A rule of one of the short kinds, as a row has them. */
static struct row_rule short_rule(int16_t at)
{
	struct row_rule rule = {.how = RULE_AT_CFA, .value = at};

	if (at == ROW_SAME)
		rule.how = RULE_SAME;
	else if (at == ROW_LOST)
		rule.how = RULE_LOST;
	return rule;
}

/* The value of the caller's register `same`, by its rule. */
static bool by_rule(const struct rows *rows, const struct row_rule *rule, unsigned same,
		    uint64_t cfa, const struct row_env *env, struct row_caller *out,
		    uint64_t *value)
{
	uint64_t at = cfa + (uint64_t)rule->value;

	out->slot = 0;
	switch (rule->how) {
	case RULE_SAME:
		return env->reg(env->ctx, same, value);
	case RULE_IN_REG:
		return env->reg(env->ctx, (unsigned)rule->value, value);
	case RULE_IS_CFA:
		*value = narrowed(env, at);
		return true;
	case RULE_AT_CFA:
		break;
	case RULE_AT_EXPRESSION:
	case RULE_IS_EXPRESSION:
		if (!expression_value(rows->expressions + rule->offset, rule->len, env, &cfa, &at))
			return false;
		if (rule->how == RULE_AT_EXPRESSION)
			break;
		*value = at;
		return true;
	default:
		return false;
	}
	if (!load(env, at, value, out))
		return false;
	out->slot = narrowed(env, at);
	return true;
}

static bool rare_cfa(const struct rows *rows, const struct row_rule *rule,
		     const struct row_env *env, uint64_t *cfa)
{
	if (rule->how == RULE_IS_EXPRESSION)
		return expression_value(rows->expressions + rule->offset, rule->len, env, NULL,
					cfa);
	if (!env->reg(env->ctx, rule->reg, cfa))
		return false;
	*cfa = narrowed(env, *cfa + (uint64_t)rule->value);
	return true;
}

bool rows_step(const struct rows *rows, const struct row *row, const struct row_env *env,
	       struct row_caller *out)
{
	struct row_rare rule = {.trap = row->kind == ROW_TRAP};
	struct row_caller aside;
	uint64_t cfa;

	*out = (struct row_caller){0};
	if (row->kind == ROW_RARE) {
		rule = rows->rare[row->cfa_offset];
		if (!rare_cfa(rows, &rule.cfa, env, &cfa))
			return false;
	} else {
		if (!find_cfa(row, env, &cfa, out))
			return false;
		rule.ra = short_rule(row->ra_at);
		rule.fp = short_rule(rows && rows->n_kept ? ROW_LOST : row->fp_at);
		rule.sp = short_rule(row->sp_at);
	}
	out->trap = rule.trap;
	if (rule.sp.how == RULE_SAME)
		out->sp = cfa;
	else if (!by_rule(rows, &rule.sp, env->sp, cfa, env, out, &out->sp))
		return false;
	aside = *out;
	out->fp_known = by_rule(rows, &rule.fp, env->fp, cfa, env, &aside, &out->fp);
	return by_rule(rows, &rule.ra, env->ra, cfa, env, out, &out->pc);
}
