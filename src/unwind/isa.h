/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The interface to processors, with a checklist to add one.
 *
 * The walk (walk.c), the rules' application (rule_*.c) and the caches are
 * the same for all processors. A processor's directory has one
 * `struct unwind_isa` and its decoder; isa.c lists them. To add one:
 *
 *  1. arch/: registers by DWARF number, page tables, a value of enum isa.
 *  2. A decoder: what an instruction does to the stack pointer, the frame
 *     pointer, the link register and the flow of control. Test it with
 *     encodings from the manual, and against an assembler's output.
 *  3. follow(): from a function's first instruction to one in it, along every
 *     branch, each instruction once (paths_follow); fills `struct
 *     rule`. In tests it must give the same rules as the compiler's CFI at every
 *     instruction (x86/flow_cfi_test.c). Where there is a link register, link.h
 *     does that by operations that the decoder tells, and handlers as well.
 *  4. call_before(): does a call end at this address, and where does it lead?
 *  5. handler() and interrupted(), or those of link.h: from an interrupt handler to
 *     what it has interrupted. NULL: handlers are outermost.
 *  6. strip(): the address in a signed or tagged pointer. NULL: none are.
 *  7. A row in isa.c and in tables/cfa_program.c, and a directory in meson.build.
 *
 * The proof is a single-step test (singlestep_test.c, riscv/step_test.c): at
 * every instruction of a program the chain must be that of its calls. Frame
 * records, tables, caches, search, other stacks and ends need no code.
 */

#include "arch/arch.h"
#include "unwind/tables/unwind_table.h"
#include "unwind/unwind.h"

/* In place of an offset. */
#define RULE_SAME	 INT32_MIN	 /* still in its register */
#define RULE_NOT	 (INT32_MIN + 1) /* not known; offsets are above that */
#define RULE_NO_REGISTER 0xff

/*
 * The way from a frame to its caller, at one instruction. The canonical frame address (CFA) is the
 * stack pointer before the call; all offsets are in bytes.
 */
struct rule {
	int32_t cfa_sp; /* CFA = sp + cfa_sp; RULE_NOT: sp does not tell */
	int32_t cfa_fp; /* CFA = fp + cfa_fp, if the code has set up fp; else RULE_NOT */
	int32_t ra_at; /* return address: the word at CFA + ra_at; RULE_SAME: in the link register; RULE_NOT: nowhere */
	int32_t fp_at; /* the caller's fp: the word at CFA + fp_at; RULE_SAME; RULE_NOT */
	/*
	 * A realigned stack: this CFA is that of a copy of the return address; the
	 * true one is in the word at CFA + origin_at, if that is not 0.
	 */
	int32_t origin_at;
	uint8_t origin; /* DWARF number of a register that has the true CFA, or RULE_NO_REGISTER */
	bool copied;	/* the stack is realigned */
	bool chained;	/* fp, where set up, points to a frame record */
	bool entry;    /* took over a stack or frame pointer and kept no old one: nobody's callee */
	bool discards; /* took over a stack, and has popped its return address */
	/* 32-bit Arm, where any register may be the frame pointer: the one that cfa_fp counts from, */
	uint8_t fp;
	struct row_kept kept; /* and, in place of fp_at, where the caller's registers are */
};

enum flow_result {
	FLOW_FOUND,
	FLOW_GUESSED, /* found behind a jump table or code that is only reached from elsewhere */
	FLOW_NOT,     /* no path leads there */
	FLOW_AWAY,    /* no path leads there, but some go on at an unknown address */
	FLOW_UNKNOWN, /* the search was cut short: code not readable, not understood, too much */
};

/* Reads code through a small buffer, and follows it. */
struct code_reader {
	const struct code *code;
	struct paths_scratch *scratch;
	unsigned *steps; /* reduced by the instructions that were followed, each worth some 10 ns */
	uint64_t va;
	size_t n;
	uint8_t bytes[256];
};

/* Bytes of code at `va`; *n says how many: CODE_AT_LEAST, if so many are readable. */
#define CODE_AT_LEAST 32
const uint8_t *code_at(struct code_reader *reader, uint64_t va, size_t *n);

/* Code to follow, from a function's start to an instruction in it. */
struct flow_query {
	const struct unwind_isa *isa;
	uint64_t start, end; /* the function; end 0: not known */
	uint64_t addr;	     /* where to */
	uint64_t pointer;    /* the same, with what is not the address (unwind_isa.address) */
	uint8_t kind;	     /* enum frame_kind: FRAME_RETURN stands behind a call */
};

/* A call that ends at some address. Where the bytes can be read in two ways, both are set. */
struct call {
	bool direct; /* to `target` */
	bool indirect;
	uint64_t target;
};

/* Offsets of a frame record from fp. */
struct record_layout {
	int8_t fp_at, ra_at; /* words with the caller's fp and the return address */
	int8_t size;	     /* from fp to the caller's sp, at least */
};

#define MARKING_MAX 80

struct walk;
struct link_code;
enum found {
	FOUND_CALLER, /* walk->at is there, *trust is set */
	FOUND_NONE,   /* nothing has changed */
	FOUND_END     /* out->end says which */
};

/* Where the paths from an instruction on lead. */
enum paths_end {
	PATHS_UNKNOWN,
	PATHS_RETURN, /* at least one returns to the caller */
	PATHS_NEVER, /* none does, nor leaves the function: they end in calls that do not come back, or in loops */
};

struct unwind_isa {
	uint8_t isa, word;  /* enum isa and bytes: the struct regs of this processor */
	uint8_t sp, fp, ra; /* DWARF numbers; ra: the link register, or the column for the pc */
	/*
	 * Bits of a pointer to code that are the address. The others are the processor's mode, as T32, and
	 * flags on which a condition depends where a walk begins.
	 */
	uint64_t address;
	bool kept; /* any register may be a frame pointer: rules have kept registers, not fp */
	bool ends_untold; /* tables of compilers leave out how functions end, or begin */
	bool link;	  /* calls leave the return address in register ra, not on the stack */
	bool fp_reserved; /* the ABI keeps register fp for frame records, in all code */
	uint8_t call_max; /* the longest call, bytes */
	struct record_layout record;

	/*
	 * `n` bytes end right before `ret`, a pointer to code; false if no call ends there.
	 */
	bool (*call_before)(const struct unwind_isa *isa, const uint8_t *bytes, size_t n,
			    uint64_t ret, struct call *out);

	/*
	 * True if these `n` bytes end in a call and have dropped the way back: they clear fp and push
	 * 0 in place of a return address; or they clear the link register, or take over a stack.
	 * NULL: not supported.
	 */
	bool (*begins_stack)(const struct unwind_isa *isa, const uint8_t *bytes, size_t n);
	unsigned marking; /* bytes to be looked at for that, at most MARKING_MAX */

	/* Does code begin here that sets up fp for a frame record? NULL: not supported. */
	bool (*sets_up_frame)(const struct unwind_isa *isa, const uint8_t *bytes, size_t n);
	/* Does this instruction make a frame, as a function's first ones do, or take a stack of its own? NULL: not supported. */
	bool (*makes_frame)(const struct unwind_isa *isa, const uint8_t *bytes, size_t n);
	/* May a function begin at `va`, behind these `n` bytes? NULL: anywhere. */
	bool (*may_begin)(const uint8_t *bytes, size_t n, uint64_t va);

	/* Follows the code from a function's start, and fills in the rule. */
	enum flow_result (*follow)(const struct flow_query *query, struct code_reader *reader,
				   struct rule *out);

	/* Other bounds than symbols have it, as of a stub. NULL: none. */
	bool (*bounds)(const struct unwind_isa *isa, struct code_reader *reader, uint64_t va,
		       uint64_t *start, uint64_t *end);

	/*
	 * The rule by which the code from query->addr on returns to its caller, without the
	 * function's start; set for PATHS_RETURN alone. NULL: not supported.
	 */
	enum paths_end (*find_return)(const struct flow_query *query, struct code_reader *reader,
				      struct rule *out);

	/*
	 * True if the code from `va` on leads to a return from an interrupt, not to one to a
	 * caller. `end` is the function's, 0: not known. May note in *trap how. NULL: not supported.
	 */
	bool (*handler)(const struct unwind_isa *isa, struct code_reader *reader, uint64_t va,
			uint64_t end, struct row *trap);
	const struct link_code *link_code; /* for the functions of link.h */

	/* Goes to the code that such a handler has interrupted. */
	enum found (*interrupted)(struct walk *walk, const struct row *trap, uint8_t *trust);

	/* Can this be a frame that the processor pushed? For rows of tables that say so; NULL: yes. */
	bool (*pushed)(struct walk *walk, const struct row *row, const struct row_caller *caller);

	/* Takes the first registers, and keeps those of a caller. NULL: there is nothing to do. */
	void (*begin)(struct walk *walk);
	void (*arrive)(struct walk *walk);
	/* In place of the frame records of `record`; always a guess. */
	enum found (*find_record)(struct walk *walk);

	uint64_t (*strip)(const struct mmu *mmu, uint64_t va);
};

const struct unwind_isa *unwind_isa_of(const struct regs *regs);

extern const struct unwind_isa unwind_x86_64, unwind_x86_32, unwind_arm64, unwind_arm32,
	unwind_riscv64;

/*
 * Follows the paths through a function, from its first instruction to one in
 * it. Each instruction is applied once, in the state of the first path that leads there.
 */

/* Instructions of a function that are followed at most; of one without known bounds, */
#define PATHS_STEPS_WITHIN 12000
#define PATHS_STEPS	   2000
/* and slots to note them, so many that a free one is found soon. */
#define PATHS_SEEN 16384

/* The largest state, bytes. */
#define PATHS_STATE_MAX 320

enum path {
	PATH_ON,	   /* goes on to the next instruction */
	PATH_CALL,	   /* ... when it comes back */
	PATH_BRANCH,	   /* may go to `target`, or on */
	PATH_BRANCH_TABLE, /* may go to one of several addresses that are not known, or on */
	PATH_JUMP,	   /* goes to `target` */
	PATH_TABLE,	   /* goes to one of several addresses that are not known */
	PATH_AWAY,	   /* leaves the function for another, a last call through a register */
	PATH_RETURN,	   /* leaves it for its caller */
	PATH_TRAP,	   /* goes on nowhere, as does a call that never returns */
	PATH_END,	   /* goes on where is not known: a return from a handler, above all */
	PATH_LAST,	   /* may go on: to be followed when nothing else is left */
	PATH_NOT,	   /* is no path: the instruction belongs to another function */
};

struct paths {
	unsigned unit; /* instructions are multiples of it, bytes */
	size_t state_size;
	/* Functions have parts elsewhere: paths out of their bounds are followed, the last. */
	bool parts;
	/*
	 * Applies one instruction to the state; `n` bytes of code can be read.
	 * Returns the instruction's length, 0 if it cannot be followed.
	 */
	unsigned (*apply)(const uint8_t *bytes, size_t n, uint64_t pc, void *state, enum path *path,
			  uint64_t *target);
	void (*taken)(void *state); /* makes it the state at the target of a branch; NULL: it is */
	/*
	 * Does another function begin here, behind a call that may never return? *called becomes
	 * false where the call has returned, and stays where padding does not tell. NULL, without `parts`: no
	 * functions without known bounds are followed.
	 */
	bool (*begins)(const void *state, const uint8_t *bytes, size_t n, bool *called);
	/* At the end of a loop, if its beginning had another first word of the state. NULL: it does not matter. */
	void (*turns)(void *state);
	/* Before a return or a last call: does this state tell where the caller is? For paths_return, */
	bool (*leaves)(const void *state);
	unsigned ahead; /* which follows so many instructions at most */
	/* Is this rather the state of the function's body? For code that only an unknown jump leads to. */
	bool (*deeper)(const void *state, const void *than);
};

/* Paths that are still to be followed; of a function with more branches open, some are not. */
#define PATHS_OPEN_MAX 288
/* Places where control stops, behind which code may be reached by a jump table. */
#define PATHS_GAPS 256

/* Memory to work with. */
struct open_path {
	uint64_t va;
	bool called; /* right behind a call */
	_Alignas(uint64_t) uint8_t state[PATHS_STATE_MAX];
};

struct paths_scratch {
	struct open_path open[PATHS_OPEN_MAX]; /* those for the last from the end on */
	unsigned n_open, n_last, n_gaps;
	uint64_t gap[PATHS_GAPS];
	_Alignas(uint64_t) uint8_t left[PATHS_STATE_MAX];
	uint32_t generation; /* of the search: addresses of others count for nothing */
	struct {
		uint64_t va;
		uint32_t generation;
		uint32_t mark; /* the first word of the state */
	} seen[PATHS_SEEN];
};

/*
 * *state: in, that at the function's start; out, that before the instruction
 * at query->addr, or of a return address, behind the call before it.
 * FLOW_GUESSED: code that no branch leads to was taken for a case of a jump by
 * table.
 */
enum flow_result paths_follow(const struct paths *paths, const struct flow_query *query,
			      struct code_reader *reader, void *state);

/*
 * Follows the code from query->addr on to a return, or else to a last call. *state: in, that at the
 * beginning; out, that before the return. PATHS_NEVER only where query->end is known.
 */
enum paths_end paths_return(const struct paths *paths, const struct flow_query *query,
			    struct code_reader *reader, void *state);

/* Fields of instructions, for decoders. */

static inline unsigned field(uint32_t insn, unsigned low, unsigned bits)
{
	return insn >> low & ((1u << bits) - 1);
}

static inline int64_t sign_extend(uint64_t value, unsigned bits)
{
	return (int64_t)(value << (64 - bits)) >> (64 - bits);
}
