/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The unwinder's A64 part. Exception handlers run on the stack of the code that
 * they have interrupted, or on their own; return addresses may be signed.
 */
#include "unwind/arm64/insn.h"
#include "unwind/handler.h"

#include <string.h>

#include "arch/arm/arm.h"

#define INSN 4 /* bytes */

static bool call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word,
			struct call *out)
{
	uint32_t insn;

	*out = (struct call){0};
	if (n < INSN || ret % INSN)
		return false;
	memcpy(&insn, bytes + n - INSN, INSN);
	if (!arm64_is_call(insn, ret - INSN, &out->target))
		return false;
	out->direct = arm64_is_direct(insn);
	out->indirect = !out->direct;
	return true;
}

static struct rule rule_of(const struct arm64_state *state)
{
	struct rule rule = {
		.cfa_sp = state->sp_lost ? RULE_NOT : state->depth,
		.cfa_fp = state->fp_set ? state->fp_depth : RULE_NOT,
		.ra_at = state->lr_saved ? -state->lr_at : RULE_SAME,
		.fp_at = state->fp_saved		   ? -state->fp_at
			 : state->fp_lost || state->fp_set ? RULE_NOT
							   : RULE_SAME,
		.origin = RULE_NO_REGISTER,
		.chained = state->fp_set,
	};

	if (state->lr_lost)
		rule.cfa_sp = rule.cfa_fp = rule.ra_at = RULE_NOT;
	return rule;
}

static unsigned apply(const uint8_t *bytes, size_t n, uint64_t pc, void *ctx, enum path *path,
		      uint64_t *target)
{
	struct arm64_state *state = ctx;
	uint32_t insn;

	memcpy(&insn, bytes, INSN);
	if (!arm64_apply(insn, pc, state, path, target))
		return 0;
	/* A tail call has given back its frame. */
	if (*path == PATH_AWAY && (state->depth || state->lr_saved))
		*path = PATH_TABLE;
	return INSN;
}

/* Registers that a function keeps for its caller, where it may keep its own stack pointer. */
#define KEPT 0x3ff80000u

/* mov sp, or and, add or sub of another register: it takes over a stack. */
static bool takes_stack(uint32_t insn)
{
	const bool moves = (insn & 0xbf80001f) == 0x9100001f || (insn & 0xff80001f) == 0x9200001f ||
			   (insn & 0xbfe0001f) == 0x8b20001f;
	const unsigned from = field(insn, 5, 5);

	return moves && from != ARM64_SP && !(KEPT >> from & 1);
}

/* mov x30 of a number */
static bool clears_link(uint32_t insn)
{
	return (insn & 0xff80001f) == 0xd280001e || (insn & 0xffffffff) == 0xaa1f03fe;
}

static bool begins_stack(const uint8_t *bytes, size_t n, unsigned word)
{
	bool begins = false;

	for (size_t at = n % INSN; at < n; at += INSN) {
		enum path path;
		uint64_t target;
		uint32_t insn;

		memcpy(&insn, bytes + at, INSN);
		arm64_flow(insn, 0, &path, &target);
		if (path >= PATH_JUMP)
			begins = false;
		else if (takes_stack(insn) || clears_link(insn))
			begins = true;
	}
	return begins;
}

/* mov x29, sp; or add of a number to it */
static bool sets_up_frame(const uint8_t *bytes, size_t n)
{
	uint32_t insn;

	if (n < INSN)
		return false;
	memcpy(&insn, bytes, INSN);
	return (insn & 0xffc003ff) == 0x910003fd;
}

enum flow_result arm64_follow(const struct flow_query *query, struct code_reader *reader,
			      void *scratch, unsigned *steps, struct arm64_state *state)
{
	static const struct paths paths = {.unit = INSN,
					   .state_size = sizeof(*state),
					   .apply = apply,
					   .begins = arm64_begins};
	struct flow_query to = *query;

	/* A call does not change the state, so that of a return address is its call's. */
	if (to.kind == FRAME_RETURN)
		to.addr -= INSN;
	to.kind = FRAME_PC;
	*state = (struct arm64_state){0};
	return paths_follow(&paths, &to, reader, scratch, steps, state);
}

static enum flow_result follow(const struct flow_query *query, struct code_reader *reader,
			       void *scratch, unsigned *steps, struct rule *out)
{
	struct arm64_state state;
	const enum flow_result result = arm64_follow(query, reader, scratch, steps, &state);

	if (result == FLOW_FOUND || result == FLOW_GUESSED)
		*out = rule_of(&state);
	return result;
}

/*
 * The ends of exception handlers (handler.h). FOUND_END if what they restore is
 * not known: frame records would leave out the interrupted function.
 */

/* Instructions (DDI 0487, C6.2). Those that move a register have it in the lowest bits. */
#define ERET   0xd69f03e0u
#define ERETAA 0xd69f0bffu
#define ERETAB 0xd69f0fffu

/* System registers that matter, as above, from their encodings (DDI 0487, C5.2). */
enum { ELR = 0x4020, SPSR = 0x4000, SP_EL0 = 0x4100 };

/* SPSR_EL1 (DDI 0487, C5.2.20): the interrupted mode, and its stack. */
#define SPSR_MODE 0x1fu
enum { MODE_EL0 = 0, MODE_EL1_SP0 = 4, MODE_EL1 = 5 };

/* Registers that a call may change (AAPCS64, 6.1.1), and x30. */
#define CALL_CHANGES 0x4007ffffu

static bool is_eret(uint32_t insn)
{
	return insn == ERET || insn == ERETAA || insn == ERETAB;
}

static bool decode(struct code_reader *reader, uint64_t pc, struct handler_insn *out)
{
	const uint8_t *bytes;
	uint64_t target;
	enum path path;
	size_t n;

	bytes = code_at(reader, pc, &n);
	if (pc & 3 || n < 4)
		return false;
	memcpy(out->code, bytes, 4);
	arm64_flow(out->code[0], pc, &path, &target);
	out->returns = is_eret(out->code[0]);
	out->next = path < PATH_JUMP ? pc + INSN : path == PATH_JUMP ? target : 0;
	out->calls = path == PATH_CALL;
	return true;
}

static void apply_access(struct handler_run *run, const struct arm64_access *access)
{
	const struct handler_value base = run->x[access->base];
	const uint64_t va = base.is + (access->post ? 0 : (uint64_t)access->offset);

	for (unsigned i = 0; i < access->n; i++) {
		const unsigned reg = access->reg[i];
		struct handler_value value = {.known = reg == ARM64_SP}; /* here that is xzr */

		if (!access->load) {
			if (base.known && access->whole)
				handler_store(run, va + 8 * i,
					      reg == ARM64_SP ? value : run->x[reg]);
			continue;
		}
		if (reg == ARM64_SP)
			continue;
		run->x[reg].known = false;
		if (base.known && access->whole)
			run->x[reg] = handler_load(run, va + 8 * i);
	}
	if (access->writes_back)
		run->x[access->base].is = base.is + (uint64_t)access->offset;
}

/* add and sub with an immediate; mov of a register. */
static bool arithmetic(struct handler_run *run, uint32_t insn)
{
	static const struct arm64_number none;
	const unsigned to = field(insn, 0, 5), by = field(insn, 16, 5);
	struct arm64_sum sum;

	if ((insn & 0xffe0ffe0) == 0xaa0003e0) {
		if (to != ARM64_SP)
			run->x[to] =
				by == ARM64_SP ? (struct handler_value){.known = true} : run->x[by];
		return true;
	}
	if (!arm64_sum(insn, &none, &sum))
		return false;
	run->x[to] = (struct handler_value){run->x[sum.from].is + (uint64_t)sum.by,
					    run->x[sum.from].known};
	return true;
}

static struct handler_value *special_of(struct handler_run *run, uint32_t insn)
{
	switch ((insn & 0xfffe0) ^ 0x80000u) {
	case ELR:
		return &run->pc;
	case SPSR:
		return &run->status;
	case SP_EL0:
		return &run->other_sp;
	}
	return NULL;
}

static bool special(struct handler_run *run, uint32_t insn)
{
	const bool read = (insn & 0xfff00000) == 0xd5300000;
	const unsigned reg = field(insn, 0, 5);
	const struct handler_value zero = {.known = true}, unknown = {0};
	struct handler_value *special = special_of(run, insn);

	if (!read && (insn & 0xfff00000) != 0xd5100000)
		return false;
	if (read && reg != ARM64_SP)
		run->x[reg] = special ? *special : unknown;
	else if (!read && special)
		*special = reg == ARM64_SP ? zero : run->x[reg];
	return true;
}

/* An instruction that is not emulated leaves its results unknown. */
static void lose(struct handler_run *run, uint32_t insn)
{
	const unsigned kind = field(insn, 25, 4), to = field(insn, 0, 5);
	const bool access = (kind & 5) == 4;

	/* Data processing with immediates and registers; loads and stores. */
	if (!access && (kind & 14) != 8 && (kind & 5) != 5)
		return;
	if (to != ARM64_SP || arm64_moves_sp(insn))
		run->x[to].known = false;
	if (access && field(insn, 10, 5) != ARM64_SP)
		run->x[field(insn, 10, 5)].known = false;
}

static void emulate(struct handler_run *run, const struct handler_insn *from)
{
	const uint32_t insn = from->code[0];
	struct arm64_access access;

	if (from->calls)
		handler_called(run, CALL_CHANGES);
	else if (arm64_access(insn, &access))
		apply_access(run, &access);
	else if (!arithmetic(run, insn) && !special(run, insn))
		lose(run, insn);
}

static const struct handler_code handler_code = {.decode = decode, .apply = emulate};

static enum found interrupted(struct walk *walk, const struct row *trap, uint8_t *trust)
{
	const struct code *code = walk->in->code;
	struct handler_run run;
	uint64_t mode;
	uint32_t insn;

	if (!handler_run(&run, &handler_code, walk) || !run.pc.known || !run.status.known)
		return handler_end(walk, UNWIND_BROKEN);
	mode = run.status.is >> 36 ? SPSR_MODE : run.status.is & SPSR_MODE;
	/* Returns to a program: the kernel's stack is whole. */
	if (mode == MODE_EL0)
		return handler_end(walk, UNWIND_OUTERMOST);
	/* A thread of Linux's kernel could become a program, and is none yet. */
	if (!run.pc.is && code->read(code->ctx, 0, &insn, 4) != 4)
		return handler_end(walk, UNWIND_OUTERMOST);
	if (mode != MODE_EL1 && mode != MODE_EL1_SP0)
		return handler_end(walk, UNWIND_BROKEN);
	return handler_leave(&run, mode == MODE_EL1 ? run.x[ARM64_SP] : run.other_sp, 4, trust);
}

const struct unwind_isa unwind_arm64 = {
	.isa = ISA_ARM,
	.word = 8,
	.sp = ARM64_SP,
	.fp = ARM64_FP,
	.ra = ARM64_LR,
	.link = true,
	.fp_reserved = true,
	.searches = true,
	.call_max = INSN,
	.flow_steps = PATHS_SIZE_MAX / 16,
	.record = {.fp_at = 0, .ra_at = 8, .size = 16},
	.scratch_new = paths_scratch_new,
	.call_before = call_before,
	.begins_stack = begins_stack,
	.marking = 64,
	.sets_up_frame = sets_up_frame,
	.makes_frame = arm64_makes_frame,
	.follow = follow,
	.find_return = arm64_find_return,
	.handler_code = &handler_code,
	.interrupted = interrupted,
	.strip = arm64_strip,
};
