/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "unwind/x86/x86.h"

/* The stack pointer as the code ahead moves it, from a frame's pc to its return. */
struct x86_exit {
	int word;
	int64_t sp;	     /* bytes that sp has moved since the beginning */
	uint8_t by;	     /* from the value of this register; 0 (rax): its own */
	bool by_fp;	     /* sp counts from where fp pointed at the beginning */
	bool loaded;	     /* sp counts from its value when it was loaded from the stack */
	bool moved;	     /* sp may count from the end of another stack, */
	int64_t left;	     /* and was there before, where a pop takes it back to */
	int64_t loaded_from; /* place of the word that it was loaded from, counted from the first sp */
	enum { FP_KEPT, FP_POPPED, FP_LOST } fp;
	int64_t fp_at;	  /* FP_POPPED: from where, counted as sp is */
	bool saved;	  /* fp as it was at the beginning is stored since, */
	int64_t saved_at; /* there */
	int64_t eax;	  /* the number that was loaded last, as for a hypercall; 0: none */
	bool called;	  /* right behind a call, which perhaps never returns */
	bool floored;	  /* another function may have begun since: */
	int64_t floor; /* a function that began meanwhile gives back no more stack than up to here */
};

/* Instructions that are followed at most. */
#define RETURN_STEPS 600

/* Is it a mov between fp and the stack, by this opcode? */
static bool moves_fp(const struct x86_insn *insn, uint8_t opcode)
{
	return insn->map == X86_MAP_ONE && insn->opcode == opcode && !insn->vector && insn->modrm &&
	       insn->mod != 3 && insn->reg == X86_BP && insn->base == X86_SP && !insn->index;
}

/* At the beginning, what is stored later is in the register still. */
static void save_fp(struct x86_exit *exit, int64_t at)
{
	if (exit->fp != FP_KEPT)
		return;
	exit->saved = true;
	exit->saved_at = at;
}

static void pop_fp(struct x86_exit *exit, int64_t at)
{
	const bool kept = exit->saved && at == exit->saved_at;

	exit->fp = kept ? FP_KEPT : FP_POPPED;
	exit->fp_at = kept ? 0 : at;
}

/* sp = base + value */
static bool set_sp(struct x86_exit *exit, uint8_t base, int64_t value)
{
	if (base == X86_SP) {
		exit->sp += value;
		return true;
	}
	if (base != X86_BP || exit->fp != FP_KEPT || exit->loaded)
		return false;
	exit->by_fp = true;
	exit->saved = false;
	exit->sp = value;
	return true;
}

/*
 * A handler's cmov takes the stack for handlers, unless it is there already (Mini-OS, Unikraft): it
 * pushes the stack pointer then, and pops it in the end.
 */
static bool take_sp(struct x86_exit *exit, const struct x86_insn *insn)
{
	const bool moves = insn->map == X86_MAP_0F && insn->opcode >> 4 == 4;

	if (exit->by_fp || (!moves && (insn->map != X86_MAP_ONE || insn->opcode != 0x5c)))
		return false;
	if (moves)
		exit->left = exit->sp;
	else if (exit->moved)
		exit->sp = exit->left;
	else
		*exit = (struct x86_exit){.word = exit->word,
					  .by = exit->by,
					  .loaded = true,
					  .loaded_from = exit->sp};
	exit->moved = moves;
	return true;
}

/* Applies one instruction that goes on to the next; false if sp is lost. */
static bool x86_exit_pass(struct x86_exit *exit, const struct x86_insn *insn,
			  const struct x86_effect *effect)
{
	const int word = exit->word;

	if (moves_fp(insn, X86_MOV_FROM)) {
		pop_fp(exit, exit->sp + insn->disp);
		return true;
	}
	if (moves_fp(insn, X86_MOV_TO)) {
		save_fp(exit, exit->sp + insn->disp);
		return true;
	}
	switch (effect->op) {
	case X86_PUSH:
		exit->sp -= word;
		exit->saved = exit->saved && exit->sp != exit->saved_at;
		if (effect->reg == X86_BP)
			save_fp(exit, exit->sp);
		return true;
	case X86_POP:
		if (effect->reg == X86_BP)
			pop_fp(exit, exit->sp);
		exit->sp += word;
		return true;
	case X86_PUSH_ALL:
		exit->sp -= 8 * word;
		exit->saved = exit->saved && exit->saved_at >= exit->sp + 8 * word;
		save_fp(exit, exit->sp + 2 * word);
		return true;
	case X86_POP_ALL:
		pop_fp(exit, exit->sp + 2 * word);
		exit->sp += 8 * word;
		return true;
	case X86_SET_SP:
		return set_sp(exit, effect->base, effect->value);
	case X86_COPY_SP:
	case X86_LOSE:
		if (effect->reg == X86_BP)
			exit->fp = FP_LOST;
		return effect->reg != X86_SP || take_sp(exit, insn);
	case X86_LEAVE:
		if (!set_sp(exit, X86_BP, word))
			return false;
		pop_fp(exit, 0);
		return true;
	case X86_ENTER:
		return false;
	default:
		return true;
	}
}

/*
 * A `sub` or push that begins a function may as well make room for the arguments of the next call, as
 * in all code of UEFI. A later return that gives back more belongs to the same function.
 */
static void note_beginning(struct x86_exit *exit, const struct x86_insn *insn,
			   const struct x86_effect *effect)
{
	if (!x86_begins_function(insn, effect, false, (unsigned)exit->word))
		return;
	if (!exit->floored || exit->sp > exit->floor)
		exit->floor = exit->sp;
	exit->floored = true;
}

static unsigned apply(const uint8_t *bytes, size_t n, uint64_t pc, void *ctx, enum path *path,
		      uint64_t *target)
{
	struct x86_exit *exit = ctx;
	struct x86_effect effect;
	struct x86_insn insn;

	if (!x86_decode(bytes, n, exit->word, &insn))
		return 0;
	effect = x86_effect(&insn, pc, exit->word);
	*target = (uint64_t)effect.value;
	*path = x86_path(&insn, &effect);
	if (exit->called)
		note_beginning(exit, &insn, &effect);
	/* The code behind padding is jumped to from elsewhere. */
	if (exit->called && x86_is_padding(&insn))
		*path = PATH_END;
	else if (x86_asks_where_it_is(&effect, pc + insn.len, exit->word))
		exit->sp -= exit->word;
	else if (*path == PATH_ON && !x86_exit_pass(exit, &insn, &effect))
		*path = PATH_END;
	exit->called = *path == PATH_CALL;
	return insn.len;
}

/* Before a return: the return address is in the word that sp points to. */
static bool leaves(const void *ctx)
{
	const struct x86_exit *exit = ctx;
	const int64_t cfa = exit->sp + exit->word;

	return !exit->loaded && !exit->moved && cfa > 0 && cfa <= INT16_MAX &&
	       (exit->by_fp || !exit->floored || exit->sp > exit->floor);
}

enum paths_end x86_find_return(const struct flow_query *query, struct code_reader *reader,
			       struct rule *out)
{
	static const struct paths paths = {.unit = 1,
					   .state_size = sizeof(struct x86_exit),
					   .apply = apply,
					   .leaves = leaves,
					   .ahead = RETURN_STEPS};
	const int word = query->isa->word;
	struct x86_exit exit = {.word = word, .called = query->kind == FRAME_RETURN};
	const enum paths_end end = paths_return(&paths, query, reader, &exit);
	const int32_t cfa = (int32_t)exit.sp + word;

	*out = (struct rule){.cfa_sp = exit.by_fp ? RULE_NOT : cfa,
			     .cfa_fp = exit.by_fp ? cfa : RULE_NOT,
			     .ra_at = -word,
			     .fp_at = exit.fp == FP_KEPT     ? RULE_SAME
				      : exit.fp == FP_POPPED ? (int32_t)(exit.fp_at - cfa)
							     : RULE_NOT,
			     .origin = RULE_NO_REGISTER,
			     .chained = exit.by_fp && exit.fp == FP_POPPED && !exit.fp_at &&
					cfa == 2 * word};
	return end;
}

/* Instructions to follow ahead at most; handlers end sooner, other functions return. */
#define AHEAD_STEPS 200

#define IRET	0xcf
#define SYSCALL 0x05 /* of the second map */
#define MOV_EAX 0xb8

/* Xen's hypercall in place of iret (xen/include/public/xen.h). */
#define HYPERCALL_IRET 23

static bool is_code(struct code_reader *reader, uint64_t va, const char *code, size_t len)
{
	size_t n;
	const uint8_t *bytes = code_at(reader, va, &n);

	return n >= len && !memcmp(bytes, code, len);
}

/* The stub for the hypercall iret pushes registers, and Xen takes the frame from above them. */
static bool is_iret_stub(struct code_reader *reader, uint64_t va, unsigned word)
{
	/* push rcx; push r11; push rax; mov eax, 23; syscall - push eax; mov eax, 23; int 0x82 */
	return !(va % X86_STUB_SLOT) &&
	       (word == 8 ? is_code(reader, va, "\x51\x41\x53\x50\xb8\x17\0\0\0\x0f\x05", 11)
			  : is_code(reader, va, "\x50\xb8\x17\0\0\0\xcd\x82", 8));
}

/* Is this where Xen enters a PV kernel on x86-64? It has pushed rcx and r11 above the frame, and they are popped first. */
static bool is_pv_entry(struct code_reader *reader, uint64_t va, unsigned word)
{
	return word == 8 && is_code(reader, va, "\x59\x41\x5b", 3);
}

/*
 * The frame stands at `frame`, counted as sp is: fills in the row; false: none can say it. 32-bit code
 * that interrupts its like has no stack pointer pushed, its stack goes on
 * behind the three words.
 */
static bool found(const struct x86_exit *exit, int64_t frame, unsigned word, struct row *row)
{
	const int64_t ra_at = exit->loaded ? frame : word == 4 ? -3 * 4 : 0;
	const int64_t cfa = exit->loaded ? exit->loaded_from : frame - ra_at;
	const uint8_t from = exit->by_fp ? X86_BP : exit->by ? exit->by : X86_SP;

	if (exit->moved || cfa < 0 || frame < 0 || frame > INT16_MAX / 2 || cfa > INT16_MAX / 2 ||
	    exit->fp_at < 0 || exit->fp_at > INT16_MAX / 2 || (exit->loaded && word == 4))
		return false;
	*row = (struct row){.kind = ROW_TRAP,
			    .base = exit->loaded ? ROW_PLUS_DEREF : ROW_PLUS,
			    .cfa_reg = x86_dwarf_number(from, word),
			    .cfa_offset = (int32_t)cfa,
			    .ra_at = (int16_t)ra_at,
			    .fp_at = (int16_t)(exit->fp_at - frame + ra_at),
			    .sp_at = word == 4 ? ROW_SAME : (int16_t)(ra_at + 3 * 8)};
	if (exit->fp != FP_POPPED)
		row->fp_at = exit->fp == FP_KEPT && !exit->loaded ? ROW_SAME : ROW_LOST;
	return true;
}

/* Branches whose other side is tried, too, where the way straight on does not end a handler. */
#define FORKS 8

/* Where a way to a handler's end begins, with the stack as it is there. */
struct fork {
	struct x86_exit exit;
	uint64_t va;
	bool taken; /* a branch leads there */
};

struct trap_search {
	const struct unwind_isa *isa;
	struct code_reader *reader;
	uint64_t end; /* of the function */
	struct fork fork[FORKS];
	unsigned n;
};

/* How a way ends: in iret; in ret, so that this is no handler; or unknown, and another is tried. */
enum way { WAY_TRAP, WAY_RETURN, WAY_NOT };

static enum way way_ends(const struct x86_exit *exit, const struct x86_insn *insn, struct row *row)
{
	if (insn->map != X86_MAP_ONE)
		return WAY_NOT;
	if (insn->opcode == IRET && !insn->narrow &&
	    found(exit, exit->sp, (unsigned)exit->word, row))
		return WAY_TRAP;
	return insn->opcode == X86_RET ? WAY_RETURN : WAY_NOT;
}

/* Notes where a branch leads, once. */
static void note_fork(struct trap_search *search, const struct x86_exit *exit, uint64_t va)
{
	for (unsigned i = 0; i < search->n; i++)
		if (search->fork[i].va == va)
			return;
	if (search->n < FORKS)
		search->fork[search->n++] = (struct fork){*exit, va, true};
}

/* Follows the code from `from` on, branches not taken. */
static enum way follow_way(struct trap_search *search, const struct fork *from, struct row *row)
{
	struct code_reader *reader = search->reader;
	const unsigned word = search->isa->word;
	struct x86_exit exit = from->exit;
	uint64_t va = from->va, been = UINT64_MAX;

	for (unsigned i = 0; i < AHEAD_STEPS && *reader->steps; i++, --*reader->steps) {
		struct x86_insn insn;
		struct x86_effect effect;
		size_t n;
		const uint8_t *bytes = code_at(reader, va, &n);

		/* Branches that are not taken lead out of a loop; it comes back to any of its addresses. */
		if (va == been || !x86_decode(bytes, n, word, &insn))
			return WAY_NOT;
		if (!(i & (i - 1)))
			been = va;
		effect = x86_effect(&insn, va, word);
		va += insn.len;
		/* A call at the end of a function never returns; other code goes on behind the label. */
		if (va == search->end && x86_is_call(&effect))
			return WAY_NOT;
		if (effect.op == X86_STOP)
			return way_ends(&exit, &insn, row);
		/* The stub's code, inlined as in Linux: rax, r11, rcx and flags. */
		if (word == 8 && insn.map == X86_MAP_0F && insn.opcode == SYSCALL &&
		    exit.eax == HYPERCALL_IRET)
			return found(&exit, exit.sp + 32, word, row) ? WAY_TRAP : WAY_NOT;
		if (insn.map == X86_MAP_ONE && insn.opcode == MOV_EAX && !insn.extra)
			exit.eax = insn.imm;
		if (effect.op == X86_JUMP_INDIRECT)
			return WAY_NOT;
		/* The first instruction of a handler's second part may take the stack pointer that it is given. */
		if (!i && !from->taken && effect.op == X86_SET_SP && effect.base &&
		    effect.base < X86_NO_REG && effect.base != X86_SP && effect.base != X86_BP) {
			exit.by = effect.base;
			exit.sp = effect.value;
			continue;
		}
		if (effect.op == X86_BRANCH)
			note_fork(search, &exit, (uint64_t)effect.value);
		if (effect.op != X86_JUMP) {
			if (!x86_exit_pass(&exit, &insn, &effect))
				return WAY_NOT;
			continue;
		}
		va = (uint64_t)effect.value;
		/* x86-64: flags of the hypercall; x86-32: eax, which the stub pushes. */
		if (is_iret_stub(reader, va, word))
			return found(&exit, exit.sp + (word == 8 ? 8 : 0), word, row) ? WAY_TRAP
										      : WAY_NOT;
	}
	return WAY_NOT;
}

bool x86_find_trap(const struct unwind_isa *isa, struct code_reader *reader, uint64_t va,
		   uint64_t end, struct row *row)
{
	struct trap_search search = {.isa = isa, .reader = reader, .end = end};
	struct fork from = {.exit = {.word = (int)isa->word}, .va = va};
	enum way way;

	*row = (struct row){.kind = ROW_NONE};
	if (is_pv_entry(reader, va, isa->word))
		return found(&from.exit, 16, isa->word, row);
	way = follow_way(&search, &from, row);
	for (unsigned i = 0; i < FORKS && way == WAY_NOT && i < search.n; i++)
		way = follow_way(&search, &search.fork[i], row);
	return way == WAY_TRAP;
}
