/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Runtimes: interpreters whose functions have no code of their own. A C stack
 * shows the interpreter's loop, once for each time that it was entered; which
 * functions it runs stands in frames of the interpreter's own, in a list that
 * begins at the thread's state. A sample copies that list with registers and
 * stack, while the thread stands still. After that, in place of each frame of
 * the loop stand the functions that this entry of it runs: C code that they call,
 * and functions that C code calls, keep their places between them.
 *
 * The list and the C stack prove each other, for the interpreter keeps a
 * *marker* in each C frame of its loop, which the list leads to: the return
 * address of the frame lies at one distance from the marker, in all frames. A
 * stack that is not proved so stays the C stack that it is.
 *
 * Functions and lines become stand-ins (symbol/names/symbolizer.h). Names are
 * read while the thread runs on, and kept by the function's object. By then the
 * object may be freed, and its memory another function's: a name is believed
 * only of a function that has the identity which was read while the thread stood
 * still, or, of one that has been met before, which it had then and has now. A
 * stack with a frame of which that is not so stays the C stack that it is.
 *
 * All memory is a guest's: whatever it holds, each walk and text has a bound.
 *
 * Checklist for a runtime:
 * 1. Code: a file runtime/<name>.c with a `struct runtime_system`, and a row in
 *    runtime.c. Offsets by version are rows of one table; a version that no
 *    test has run is none of them.
 * 2. Markers: something that the loop keeps on the C stack, in each of its frames.
 * 3. Tests: a unit test with bytes of a process that was laid out by the real
 *    headers, hostile ones too; a program with counters of its own in
 *    tests/vmm/python_test.py.
 * 4. Docs: docs/processes.md, CHANGELOG.md.
 */

#include "symbol/kernel/guest_memory.h"
#include "symbol/names/symbolizer.h"
#include "unwind/unwind.h"

/* Of a sample: frames that are copied, the innermost ones; pages and functions that are read meanwhile at most, where a thread has no bounds of its own. */
#define RUNTIME_FRAMES_MAX     2048u
#define RUNTIME_PAGES_MAX      96u
#define RUNTIME_IDENTITIES_MAX 64u

/* Threads of one process that are known; others have C stacks. */
#define RUNTIME_THREADS_MAX 1024u

/* One of the interpreter's frames: its function, where in it, and for the outermost of an entry the marker. */
struct runtime_frame {
	uint64_t function;    /* address of its object; 0: the entry runs none yet */
	uint64_t instruction; /* address of the one that it was at */
	uint64_t marker;      /* 0: frames of the same entry follow */
	uint64_t identity;    /* of the function, read with the frame; 0: not read */
};

struct runtime_copy {
	bool there; /* false: the rest says nothing */
	bool more;  /* the list goes on */
	bool lacks; /* the target's own: memory was not at hand */
	uint32_t n; /* innermost first */
	struct runtime_frame at[RUNTIME_FRAMES_MAX];
};

struct runtime;

/*
 * Recognizes an interpreter in a process: by the names in the files whose code
 * is at these addresses, as they are mapped. *out is NULL if there is none that is
 * known. `stand_ins` gets the names, and must outlive it. The search has a budget of its own if the
 * memory has none.
 */
struct error *runtime_new(const struct guest_memory *memory, const uint64_t *code, size_t n,
			  struct stand_ins *stand_ins, struct runtime **out);
void runtime_free(struct runtime *runtime);

/* "CPython 3.11.2" */
const char *runtime_name(const struct runtime *runtime);

/* Looks up the threads' states now and then. To be called before each sample. */
void runtime_refresh(struct runtime *runtime, const struct guest_memory *memory, uint64_t now_ns);

/* A thread that stands still. */
struct runtime_view {
	uint32_t tid;
	unsigned pages, identities; /* to read at most; 0: the bounds above */
	const struct window *stack; /* as it was copied; read first */
	void *ctx;
	/* Reads the process's memory; returns how many bytes. */
	size_t (*read)(void *ctx, uint64_t va, void *buf, size_t len);
};

/*
 * For targets, while the thread stands still: copies its frames. Allocates
 * nothing; reads the thread's state, and RUNTIME_PAGES_MAX pages at most.
 */
void runtime_copy_frames(struct runtime *runtime, const struct runtime_view *view,
			 struct runtime_copy *out);

/* A C stack, innermost frame first, with room for more. */
struct runtime_stack {
	const struct window *
		window; /* from the stack pointer, or from that of a program that called the kernel */
	const struct window *others; /* pieces that were copied apart */
	unsigned n_others;
	struct frame *frames;
	size_t n, max;
	enum unwind_end end;
};

/*
 * Puts functions in place of the loop's frames, of a copy that was taken with the stack, and
 * leaves out C functions of the interpreter that do nothing but call. The stack stays as it is where
 * that cannot be proved. Errors are those of a lack of memory.
 */
struct error *runtime_merge(struct runtime *runtime, const struct guest_memory *memory,
			    const struct runtime_copy *copy, struct runtime_stack *stack);

struct runtime_counts {
	uint64_t merged;   /* stacks that got functions, since the beginning */
	uint64_t unproven; /* stacks that went through the loop, and stayed as they were */
};
struct runtime_counts runtime_count(const struct runtime *runtime);

/* The parts below are for systems alone. */

/* A name of a mapped file's dynamic symbol table. */
struct mapped_symbol {
	uint64_t va, size; /* 0: it has none of this name */
};

/*
 * Looks up names in the file whose code is at `code`, by the tables that its
 * dynamic linker uses. False: it does not have the first of them.
 */
bool mapped_symbols(const struct guest_memory *memory, uint64_t code, const char *const *names,
		    struct mapped_symbol *out, size_t n);

/* A thread's state, by the thread's number. */
struct runtime_thread {
	uint32_t tid;
	uint64_t state;
};

/* Memory of a thread that stands still, by pages, each of them read once. */
struct runtime_pages;
bool runtime_load(struct runtime_pages *pages, uint64_t va, void *buf, size_t len);

/* True once there was no room for another page. */
bool runtime_pages_spent(const struct runtime_pages *pages);

/* C code that has a name, in the process. */
struct runtime_code {
	uint64_t start, end;
};

#define RUNTIME_CALLS_MAX 24

/* What a system finds of the interpreter in a process. */
struct runtime_place {
	char name[48];				      /* "CPython 3.11.2" */
	struct runtime_code loop;		      /* its loop, the function */
	struct runtime_code calls[RUNTIME_CALLS_MAX]; /* functions that do nothing but call */
	unsigned n_calls;
};

struct runtime_system {
	/* *state is NULL if it is none, or of a version that is not known. */
	struct error *(*open)(const struct guest_memory *memory, uint64_t code,
			      struct stand_ins *stand_ins, struct runtime_place *place,
			      void **state);
	void (*close)(void *state);
	/* The states of all threads, at most `max`; returns how many. */
	size_t (*threads)(void *state, const struct guest_memory *memory,
			  struct runtime_thread *out, size_t max);
	/* Fills in the frames of one; false: it cannot be its state. */
	bool (*frames)(const void *state, struct runtime_pages *pages,
		       const struct runtime_thread *thread, struct runtime_copy *out);
	/*
	 * While the thread stands still: the identity of a function, a hash of all that `name` tells
	 * of it; 0 if it cannot be read. False: `name` will do without, and nothing was read.
	 */
	bool (*identify)(const void *state, const struct guest_memory *memory, uint64_t function,
			 uint64_t *identity);
	/*
	 * The frame as a stand-in, if its function's identity proves it; `round` differs from
	 * sample to sample. *addr is 0 if it cannot be told.
	 */
	struct error *(*name)(void *state, const struct guest_memory *memory, uint64_t round,
			      const struct runtime_frame *frame, uint64_t *addr);
};

extern const struct runtime_system runtime_python;
