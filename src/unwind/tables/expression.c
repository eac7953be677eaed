/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/expression.h"

#include <dwarf.h>
#include <string.h>

#define DEPTH 32

struct machine {
	const struct row_env *env;
	struct dwarf_bytes in;
	const uint8_t *begin;
	uint64_t value[DEPTH];
	unsigned n;
};

static bool push(struct machine *m, uint64_t value)
{
	if (m->n == DEPTH)
		return false;
	m->value[m->n++] = m->env->word == 4 ? value & UINT32_MAX : value;
	return true;
}

static bool pop(struct machine *m, uint64_t *value)
{
	if (!m->n)
		return false;
	*value = m->value[--m->n];
	return true;
}

/* Comparisons and division are signed. */
static int64_t with_sign(const struct machine *m, uint64_t value)
{
	return m->env->word == 4 ? (int32_t)value : (int64_t)value;
}

static bool push_register(struct machine *m, uint64_t reg)
{
	uint64_t value;
	int64_t offset;

	return dwarf_sleb(&m->in, &offset) && reg < 256 &&
	       m->env->reg(m->env->ctx, (unsigned)reg, &value) && push(m, value + (uint64_t)offset);
}

static bool push_constant(struct machine *m, uint8_t op)
{
	static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 8, 8}; /* const1u, const1s, ... */
	uint64_t value;
	bool good;

	if (op == DW_OP_constu)
		good = dwarf_uleb(&m->in, &value);
	else if (op == DW_OP_consts)
		good = dwarf_sleb(&m->in, (int64_t *)&value);
	else if ((op - DW_OP_const1u) & 1)
		good = dwarf_signed(&m->in, size[op - DW_OP_const1u], (int64_t *)&value);
	else
		good = dwarf_unsigned(&m->in, size[op - DW_OP_const1u], &value);
	return good && push(m, value);
}

/* The first `size` bytes of the word at an address. */
static bool dereference(struct machine *m, uint64_t size)
{
	uint64_t at, value;

	if (!size || size > m->env->word || !pop(m, &at) || !m->env->load(m->env->ctx, at, &value))
		return false;
	return push(m, size < 8 ? value & ((UINT64_C(1) << 8 * size) - 1) : value);
}

static bool pick(struct machine *m, uint64_t depth)
{
	return depth < m->n && push(m, m->value[m->n - 1 - depth]);
}

/* Puts the topmost value below so many others. */
static bool turn(struct machine *m, unsigned others)
{
	uint64_t *top = m->value + m->n, value;

	if (m->n <= others)
		return false;
	value = top[-1];
	memmove(top - others, top - 1 - others, others * sizeof(*top));
	top[-1 - (int)others] = value;
	return true;
}

/* Quotients have a sign, and remainders none. */
static bool divide(struct machine *m, uint8_t op, uint64_t a, uint64_t b)
{
	if (!b)
		return false;
	if (op == DW_OP_mod)
		return push(m, a % b);
	/* The least number has no opposite. */
	return push(m,
		    with_sign(m, b) == -1 ? 0 - a : (uint64_t)(with_sign(m, a) / with_sign(m, b)));
}

static bool two_operands(struct machine *m, uint8_t op)
{
	uint64_t a, b;
	int64_t left, right;

	if (!pop(m, &b) || !pop(m, &a))
		return false;
	left = with_sign(m, a);
	right = with_sign(m, b);
	switch (op) {
	case DW_OP_and:
		return push(m, a & b);
	case DW_OP_or:
		return push(m, a | b);
	case DW_OP_xor:
		return push(m, a ^ b);
	case DW_OP_plus:
		return push(m, a + b);
	case DW_OP_minus:
		return push(m, a - b);
	case DW_OP_mul:
		return push(m, a * b);
	case DW_OP_div:
	case DW_OP_mod:
		return divide(m, op, a, b);
	case DW_OP_shl:
		return push(m, b < 64 ? a << b : 0);
	case DW_OP_shr:
		return push(m, b < 64 ? a >> b : 0);
	case DW_OP_shra:
		return push(m, (uint64_t)(left >> (b < 63 ? b : 63)));
	case DW_OP_eq:
		return push(m, left == right);
	case DW_OP_ge:
		return push(m, left >= right);
	case DW_OP_gt:
		return push(m, left > right);
	case DW_OP_le:
		return push(m, left <= right);
	case DW_OP_lt:
		return push(m, left < right);
	case DW_OP_ne:
		return push(m, left != right);
	}
	return false;
}

static bool jump(struct machine *m, uint8_t op)
{
	uint64_t condition = 1;
	int64_t offset, left;

	if (!dwarf_signed(&m->in, 2, &offset) || (op == DW_OP_bra && !pop(m, &condition)))
		return false;
	if (!condition)
		return true;
	left = m->in.at - m->begin + offset;
	if (left < 0 || left > m->in.end - m->begin)
		return false;
	m->in.at = m->begin + left;
	return true;
}

static bool operate(struct machine *m)
{
	uint8_t op = *m->in.at++;
	uint64_t number, more;

	if (op >= DW_OP_breg0 && op <= DW_OP_breg31)
		return push_register(m, op - DW_OP_breg0);
	if (op >= DW_OP_lit0 && op <= DW_OP_lit31)
		return push(m, op - DW_OP_lit0);
	if (op >= DW_OP_const1u && op <= DW_OP_consts)
		return push_constant(m, op);
	switch (op) {
	case DW_OP_nop:
		return true;
	case DW_OP_bregx:
		return dwarf_uleb(&m->in, &number) && push_register(m, number);
	case DW_OP_deref:
		return dereference(m, m->env->word);
	case DW_OP_deref_size:
		return dwarf_unsigned(&m->in, 1, &number) && dereference(m, number);
	case DW_OP_skip:
	case DW_OP_bra:
		return jump(m, op);
	case DW_OP_dup:
		return pick(m, 0);
	case DW_OP_over:
		return pick(m, 1);
	case DW_OP_pick:
		return dwarf_unsigned(&m->in, 1, &number) && pick(m, number);
	case DW_OP_drop:
		return pop(m, &number);
	case DW_OP_swap:
		return turn(m, 1);
	case DW_OP_rot:
		return turn(m, 2);
	case DW_OP_neg:
		return pop(m, &number) && push(m, 0 - number);
	case DW_OP_not:
		return pop(m, &number) && push(m, ~number);
	case DW_OP_abs:
		return pop(m, &number) && push(m, with_sign(m, number) < 0 ? 0 - number : number);
	case DW_OP_plus_uconst:
		return pop(m, &number) && dwarf_uleb(&m->in, &more) && push(m, number + more);
	}
	return two_operands(m, op);
}

bool expression_value(const uint8_t *bytes, size_t len, const struct row_env *env,
		      const uint64_t *first, uint64_t *value)
{
	struct machine m = {.env = env, .begin = bytes};

	if (!len)
		return false;
	m.in = (struct dwarf_bytes){bytes, bytes + len};
	if (first)
		push(&m, *first);
	for (unsigned steps = 0; m.in.at < m.in.end; steps++)
		if (steps == EXPRESSION_STEPS || !operate(&m))
			return false;
	return pop(&m, value);
}
