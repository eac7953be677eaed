/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The types of a sample, which targets, unwinders and recordings share. */

#include <stdbool.h>
#include <stdint.h>

/* A vCPU at the moment of its sample. */
enum vcpu_state {
	VCPU_RUNNING,  /* on a CPU */
	VCPU_RUNNABLE, /* wanted a CPU and had none (steal) */
	VCPU_BLOCKED,  /* idle, waiting for an event */
	VCPU_STATES
};

/* A stretch of guest stack as it was at the moment of the sample. */
struct window {
	uint64_t va;  /* guest virtual address of bytes[0]: the stack pointer, word-aligned down */
	uint32_t len; /* bytes that were copied */
	const uint8_t *bytes;
	uint32_t below; /* bytes copied in front of bytes[0]: the red zone, or none */
	bool cut; /* more stack follows that was not asked for; else the guest has no page there */
};

/* The origin of a frame's address; recorded with it. */
enum frame_kind {
	FRAME_PC = 0,	  /* where the vCPU was stopped: looked up as it is */
	FRAME_RETURN = 1, /* a return address: look up the address minus one */
	/*
	 * Added to either: a file has code at this address in other address spaces of the guest,
	 * and in this one something else is there, or nothing was compared yet, or the guest's
	 * system did not tell. Files say nothing of it.
	 */
	FRAME_FOREIGN = 2,
	FRAME_KINDS = 4,
};

/*
 * Addresses from here on are those of files that programs of a guest have mapped, each elsewhere in
 * each program: such a file has an address of its own, which no processor has, and code of
 * it is told by that. The address follows from its path: it is the same in other recordings,
 * unless two files want the same.
 */
#define MAPPED_FILES_ADDR UINT64_C(0x6000000000000000)
#define MAPPED_FILES_END  UINT64_C(0x7000000000000000)
#define MAPPED_FILE_SIZE  (UINT64_C(1) << 32)

static inline bool is_mapped_file(uint64_t addr)
{
	return addr >= MAPPED_FILES_ADDR && addr < MAPPED_FILES_END;
}

/* The address of the code that a frame is in: of its call, if it is a return address. */
static inline uint64_t frame_code(uint64_t addr, uint8_t kind)
{
	return addr - ((kind & FRAME_RETURN) && addr);
}

/* The reliability of a frame; recorded with it. */
enum frame_trust {
	TRUST_SURE = 0,	 /* read from a register, a checked frame record or unwind tables */
	TRUST_GUESS = 1, /* found by a rule that can be wrong */
};

struct frame {
	uint64_t addr;
	uint8_t kind;  /* enum frame_kind */
	uint8_t trust; /* enum frame_trust */
};

/* The reason for the end of a walk. All but the first mean a truncated stack. */
enum unwind_end {
	UNWIND_OUTERMOST, /* the chain ended as chains do: next record or return address is 0 */
	UNWIND_FRAMES,	  /* max_frames reached */
	UNWIND_BYTES,	  /* the chain goes on outside of the windows: see `want` and `elsewhere` */
	UNWIND_BROKEN,	  /* the frame pointer or return address cannot be one */
	UNWIND_LOOP,	  /* the chain turned back */
	UNWIND_NO_STACK, /* the guest has no memory at its stack pointer, or its program's, or was never started */
	UNWIND_NO_ROOM, /* the walk is good, but its innermost frames found no room where stacks are kept */
	UNWIND_SEGMENTED, /* x86: addresses on the stack are offsets in segments (regs.segmented) */
	UNWIND_ENDS	  /* number of values */
};

/*
 * A stack leads to one of a lower level: from the one for NMIs to the interrupt
 * stack, to a task's, to a program's.
 */
#define UNWIND_OTHERS 3

/*
 * One of the functions that are at an address, as the file has them, innermost
 * first: all but the last were inlined into the next one.
 */
struct source_frame {
	const char *function; /* NULL: not known; of the last one the symbol says it */
	const char *file;     /* NULL: not known */
	uint32_t line;	      /* 0: not known */
};

/* Functions inlined into one another that are kept; if there are more, the innermost. */
#define SOURCE_DEPTH 64
