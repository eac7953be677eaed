/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Threads of the system that a guest runs, from the guest's memory alone: all
 * of them with their names and states, and the one that runs on each CPU. A
 * system is recognized by itself. The memory is read while the guest runs, so
 * that it changes meanwhile, and it is the guest's: whatever it says may be a lie.
 *
 * Invariants:
 * - a thread that is handed out was read at least twice: it was the same one
 *   both times, and was not switched in between unless it was each time; that of
 *   a sample was copied once, while its vCPU stood still (struct thread_copy);
 * - every walk is bounded, by GUEST_THREADS_MAX, a number of links and of tries,
 *   and the budget of the memory; guest_thread_list.trouble says what was left out;
 * - nothing is believed to be an address, a count or a text before it is checked.
 *   Names are any bytes: sanitize them before they are printed.
 *
 * Checklist for a new system:
 * 1. Code: threads/<system>.c with a constant `struct threads_system`, declared
 *    at the end of this header; a row in `systems` of threads.c. open() costs
 *    next to nothing where the system is another one, and says nothing. A unikernel
 *    is known by its file: a row in symbol/images/thread_layout.c, and in guest_threads_open_images(), instead.
 * 2. State: a value of `enum guest_thread_state` for each of the system's, none added
 *    where one of these will do.
 * 3. Samples: request() says what a target copies, and decode(), complete(), switches(),
 *    is_cpu() and details() what a copy means; none of these five is called if it
 *    returns false.
 * 4. Waiting: saved() and stands(), for threads that do not run; next(), to have all by turns.
 * 5. Programs: mappings() and place(), what lies where in the memory of a process; container() and owner(),
 *    where the system has such.
 * 6. Tests: threads/<system>_test.c walks lists that a test has built, loops
 *    and wild pointers among them; a test in tests/rig/ or tests/vmm/ compares
 *    with what the system itself says from inside.
 * 7. Docs: docs/man/uniprof-ps.1.in, docs/report.md, CHANGELOG.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "base/error.h"
#include "recording/recording.h"
#include "symbol/images/images.h"
#include "symbol/kernel/guest_memory.h"
#include "symbol/kernel/kernel.h"

/* Threads of one guest that are listed, at most. */
#define GUEST_THREADS_MAX (1u << 16)
/* CPUs of one guest, at most. */
#define GUEST_THREADS_CPUS_MAX 4096u

#define THREAD_NAME_MAX 31

/* Of a process's threads, the first of these states is the process's. */
enum guest_thread_state {
	THREAD_RUNNING,	 /* on a CPU */
	THREAD_RUNNABLE, /* waits for a CPU */
	THREAD_DISK,	 /* sleeps, and no signal wakes it */
	THREAD_SLEEPING,
	THREAD_IDLE, /* a kernel's thread without work */
	THREAD_STOPPED,
	THREAD_TRACED, /* stopped by a debugger */
	THREAD_PARKED,
	THREAD_ZOMBIE, /* has ended, but is waited for */
	THREAD_DEAD,
	THREAD_OTHER, /* known to the system alone */
	THREAD_STATES /* number of values */
};

/* "running", "sleeping", ... */
const char *guest_thread_state_name(enum guest_thread_state state);

/* What the system does not tell of a thread's times. */
#define THREAD_UNKNOWN UINT64_MAX

struct guest_thread {
	uint64_t at;	   /* of the system's structure; used again for other threads later */
	uint32_t pid, tid; /* pid: RECORDED_ID_UNKNOWN in a system without processes */
	enum guest_thread_state state;
	int64_t cpu; /* runs on it, or has last, as the system tells; -1: not known */
	bool kernel; /* belongs to the system itself */
	bool idle;   /* what a CPU without work runs; never in a list */
	/* With the tid, tells a thread from any other of the guest. */
	uint64_t start_ns; /* since the guest's boot; it, and the next two: or THREAD_UNKNOWN */
	uint64_t cpu_ns;   /* CPU time used */
	uint64_t switches; /* times that it left a CPU */
	uint64_t run;	   /* another one after each time that it left a CPU */
	uint64_t
		group; /* tells the container that it is in from others, while it is; 0: not known */
	char name[THREAD_NAME_MAX + 1];
};

/* Threads of one process stand behind each other, the leader first. */
struct guest_thread_list {
	struct guest_thread *at; /* freed by guest_thread_list_free */
	size_t n, room;
	const char *trouble; /* a sentence on what is missing; NULL: nothing */
};

/* Takes a copy. False if the list has GUEST_THREADS_MAX already, or memory is short (*err). */
bool guest_thread_list_add(struct guest_thread_list *list, const struct guest_thread *thread,
			   struct error **err);
void guest_thread_list_free(struct guest_thread_list *list);

/*
 * The thread of a sample: a target copies a pointer of the CPU's, and pieces of
 * the structure that it leads to, with the vCPU's registers, while it stands
 * still. So a thread that ends right afterwards is not taken for the next one
 * in the same memory.
 */
#define THREAD_PIECES 4
#define THREAD_PIECE  16u /* bytes */

struct thread_request {
	/*
	 * Where the pointer is counted from: an address, or where the stack begins that is so large and
	 * aligned to that; if neither is told (0), the CPU's own data.
	 */
	uint64_t address, stack_size;
	/*
	 * A table of the addresses of the CPUs' own data, by the CPU's number, for targets whose
	 * registers do not tell them; 0: there is none.
	 */
	uint64_t cpus;
	/*
	 * ... and of the ids by which the machine knows the CPUs, by the same number: on arm64 the
	 * affinity in MPIDR_EL1; 0: there is none.
	 */
	uint64_t ids;
	uint64_t pointer;	    /* its address, from there on */
	uint32_t at[THREAD_PIECES]; /* in the structure, in their order */
};

struct thread_copy {
	bool there;   /* false: the rest says nothing */
	bool apart;   /* the target's own: programs run on tables without the kernel */
	bool missing; /* the target's own: a frame was not at hand */
	uint64_t own; /* address of the CPU's own data, or of what the request tells instead */
	uint64_t at;  /* the pointer */
	uint8_t piece[THREAD_PIECES][THREAD_PIECE];
};

struct guest_threads;

/*
 * Recognizes the system in the memory that a vCPU with these registers sees, in
 * kernel mode preferably. *out is NULL if it is none that is known. ERR_GUEST:
 * it is, but lacks what is needed to find its threads. The budget bounds the search. What the
 * guest's files tell comes first; `images` may be NULL.
 */
struct error *guest_threads_open(const struct guest_memory *memory, const struct regs *regs,
				 const struct images *images, struct guest_threads **out);

/* ... by the names of a Linux kernel that were found already, in the same memory. */
struct error *guest_threads_open_linux(const struct guest_memory *memory,
				       const struct kallsyms *names, struct guest_threads **out);

/* ... only by the files that were found in the guest. */
struct error *guest_threads_open_images(const struct guest_memory *memory, const struct regs *regs,
					const struct images *images, struct guest_threads **out);

void guest_threads_free(struct guest_threads *threads);

/* "Linux" */
const char *guest_threads_system_name(const struct guest_threads *threads);

/*
 * Lists all threads but idle ones. Later calls may have other views of the
 * memory than guest_threads_open had, if the kernel's part is the same in them.
 */
struct error *guest_threads_list(const struct guest_threads *threads,
				 const struct guest_memory *memory, struct guest_thread_list *out);

/*
 * All threads by turns, one a call, with a bound to what a call reads: also a
 * guest with very many costs no more at a time than one with few.
 */
enum guest_thread_turn {
	TURN_THREAD, /* *thread is the next one */
	TURN_END,    /* there was none left: the first is next */
	TURN_LOST,   /* the one before has ended, or the guest's lists lead nowhere */
};

/* Goes on behind *thread, which an earlier call has filled; one whose `at` is 0 stands for the beginning. */
enum guest_thread_turn guest_threads_next(const struct guest_threads *threads,
					  const struct guest_memory *memory,
					  struct guest_thread *thread);

/* CPUs of the guest by its own numbers, which are mostly, but need not be, those of the vCPUs. */
uint32_t guest_threads_cpus(const struct guest_threads *threads, const struct guest_memory *memory);

/* The thread that runs on a CPU; false: the CPU is off-line, or the thread has changed all the time. */
bool guest_threads_running(const struct guest_threads *threads, const struct guest_memory *memory,
			   uint32_t cpu, struct guest_thread *out);

/* Registers with which a thread goes on that does not run. */
struct thread_saved {
	uint64_t pc, sp, fp;
	/* As in struct regs: those that are known of a thread that was interrupted. */
	uint64_t gp[32];
	uint32_t gp_valid;
	uint64_t stack_end; /* of its own stack in the kernel, where sp is */
	/*
	 * Address of its program's page tables, in the kernel's view; 0: it has no program, or what
	 * that goes on with is not known. `program` is without mmu.
	 */
	uint64_t tables;
	struct regs program;
};

/*
 * Reads them while the guest runs, and *thread anew. False: it runs, it has
 * ended, or the system does not tell. What is read of its stack afterwards is
 * the thread's only if it stands then.
 */
bool guest_threads_saved(const struct guest_threads *threads, const struct guest_memory *memory,
			 struct guest_thread *thread, struct thread_saved *out);

/* True if this is the thread that was read, and it has not run since. */
bool guest_threads_stands(const struct guest_threads *threads, const struct guest_memory *memory,
			  const struct guest_thread *thread);

/* Mappings of one process, and bytes of a path, at most. */
#define GUEST_MAPPINGS_MAX 65536u
#define GUEST_PATH_MAX	   511u

/* A stretch of a process's memory. */
struct guest_mapping {
	uint64_t start, end;
	uint64_t offset; /* in the file, of `start`; 0: no file is mapped */
	bool readable, writable, executable, shared;
	bool deleted; /* the file has no name any more */
	/*
	 * The file's, as the guest's first process sees it, its end if it is longer; or "[stack]"
	 * and its like. NULL: neither. Any bytes: sanitize them before they are printed.
	 */
	const char *path;
	uint64_t file; /* tells its file from others that have this path; 0: no file is mapped */
};

struct pool;

/* Mappings of one process, by their addresses. */
struct guest_mapping_list {
	struct guest_mapping *at; /* freed by guest_mapping_list_free */
	size_t n, room;
	struct pool *paths;
	const char *
		trouble; /* a sentence: they could not be read, and there are none; NULL: all well */
};

/*
 * Lists the mappings of a thread's process while the guest runs: those of one moment. There are none
 * of a kernel's thread, and of one that has ended.
 */
struct error *guest_threads_mappings(const struct guest_threads *threads,
				     const struct guest_memory *memory,
				     const struct guest_thread *thread,
				     struct guest_mapping_list *out);
void guest_mapping_list_free(struct guest_mapping_list *list);

/* One mapping, and the program that it is of. */
struct guest_place {
	struct guest_mapping mapping; /* its path is `path`, or NULL */
	uint64_t tables; /* address of the program's page tables, in the kernel's view */
	char path[GUEST_PATH_MAX + 1];
};

/*
 * Finds the mapping that holds an address of a thread's program, while the guest runs. False: there
 * is none, the thread has ended, or the system does not tell.
 */
bool guest_threads_place(const struct guest_threads *threads, const struct guest_memory *memory,
			 const struct guest_thread *thread, uint64_t va, struct guest_place *out);

/*
 * Path of the container (in Linux, the control group) that a thread is in, while the guest runs; "/" is
 * the whole system. One that is too long begins with "...". False: the thread has ended, or has moved to
 * another since; or the system does not tell.
 */
bool guest_threads_container(const struct guest_threads *threads, const struct guest_memory *memory,
			     const struct guest_thread *thread, char container[GUEST_PATH_MAX + 1]);

/*
 * The user whose the files are that a thread makes, by the number that they have on the guest's disks, while
 * the guest runs. False: the thread has ended, or the system does not tell.
 */
bool guest_threads_owner(const struct guest_threads *threads, const struct guest_memory *memory,
			 const struct guest_thread *thread, uint32_t *user);

/* The one that holds an address; NULL: none, or there is no list. */
const struct guest_mapping *guest_mapping_at(const struct guest_mapping_list *list, uint64_t va);

/* Place of an address in the file, or in what has no file. */
static inline uint64_t guest_mapping_offset(const struct guest_mapping *mapping, uint64_t va)
{
	return mapping->offset + (va - mapping->start);
}

/* What to copy to learn which thread runs; false: the system does not tell. */
bool guest_threads_request(const struct guest_threads *threads, struct thread_request *out);

/*
 * The thread of a copy, as far as it tells: without state, CPU time, switches
 * and `kernel`. False: it cannot be one.
 */
bool guest_threads_decode(const struct guest_threads *threads, const struct thread_copy *copy,
			  struct guest_thread *out);

/*
 * True if a CPU in a function with this address may have the stack of the next
 * thread, and a pointer to the one before.
 */
bool guest_threads_switches(const struct guest_threads *threads, uint64_t va);

/*
 * Address of the own data of the CPU that has this id in the machine, among so many CPUs, for a target
 * that knows its vCPUs' ids; 0: the system does not tell.
 */
uint64_t guest_cpu_own(const struct thread_request *request, const struct guest_memory *memory,
		       uint64_t id, uint32_t cpus);

/* True if a CPU in a function with this address may have no work, and the stack of a thread that waits. */
bool guest_threads_idles(const struct guest_threads *threads, uint64_t va);

/* Properties of a thread that never change, or whose change does not matter. */
struct thread_details {
	uint64_t stack; /* the thread's own in the kernel: its lowest address */
	uint64_t stack_size;
	bool kernel;			   /* belongs to the system itself */
	char process[THREAD_NAME_MAX + 1]; /* name of its process */
};

/* Threads of one recording's samples, by their numbers there: 1, 2, 3 ... in the order in which they are met. */
struct thread_numbers;

struct error *thread_numbers_new(uint32_t vcpus, struct thread_numbers **out);
void thread_numbers_free(struct thread_numbers *numbers);

/*
 * The number of the thread of a copy, 0: it cannot be told, or there are too
 * many. What the copy does not tell is read from the memory when a thread is met
 * first; one by another name, or in another container, is another.
 */
struct error *thread_numbers_find(struct thread_numbers *numbers,
				  const struct guest_threads *threads,
				  const struct guest_memory *memory, uint32_t vcpu,
				  const struct thread_copy *copy, uint32_t *number);

/* ... of a thread that was read, 0: there are too many. */
struct error *thread_numbers_add(struct thread_numbers *numbers,
				 const struct guest_threads *threads,
				 const struct guest_memory *memory,
				 const struct guest_thread *thread, uint32_t *number);

/* True if a stack pointer is in the own stack of the thread with this number, as far as that is known. */
bool thread_numbers_on_stack(const struct thread_numbers *numbers, uint32_t number, uint64_t sp);

/* How many there are, 0 for NULL; and one of them, valid until the next is found. */
uint32_t thread_numbers_count(const struct thread_numbers *numbers);
const struct recorded_thread *thread_numbers_get(const struct thread_numbers *numbers,
						 uint32_t number);

/* The parts below are for systems alone. */

struct threads_system {
	const char *name;
	/* *state is NULL if the guest runs another system. */
	struct error *(*open)(const struct guest_memory *memory, const struct regs *regs,
			      void **state);
	void (*close)(void *state);
	struct error *(*list)(const void *state, const struct guest_memory *memory,
			      struct guest_thread_list *out);
	enum guest_thread_turn (*next)(const void *state, const struct guest_memory *memory,
				       struct guest_thread *thread);
	uint32_t (*cpus)(const void *state, const struct guest_memory *memory);
	bool (*running)(const void *state, const struct guest_memory *memory, uint32_t cpu,
			struct guest_thread *out);
	bool (*request)(const void *state, struct thread_request *out);
	bool (*decode)(const struct thread_copy *copy, struct guest_thread *out);
	/* Reads what a copy does not tell, while the guest runs; NULL: it tells all. */
	bool (*complete)(const void *state, const struct guest_memory *memory,
			 struct guest_thread *thread);
	bool (*switches)(const void *state, uint64_t va);
	/* NULL: each CPU without work has a stack of its own. */
	bool (*idles)(const void *state, uint64_t va);
	/* True if some CPU's own data are there. NULL: the copy itself proves it. */
	bool (*is_cpu)(const void *state, const struct guest_memory *memory, uint64_t own);
	/* False: the thread has ended. What cannot be read is left as it is. NULL: no more is known than the system's name. */
	bool (*details)(const void *state, const struct guest_memory *memory,
			const struct guest_thread *thread, struct thread_details *out);
	bool (*saved)(const void *state, const struct guest_memory *memory,
		      struct guest_thread *thread, struct thread_saved *out);
	bool (*stands)(const void *state, const struct guest_memory *memory,
		       const struct guest_thread *thread);
	/*
	 * Fills an empty list with a pool; what it holds is freed by the caller, whatever is returned. NULL, as
	 * place: the system has no programs.
	 */
	struct error *(*mappings)(const void *state, const struct guest_memory *memory,
				  const struct guest_thread *thread,
				  struct guest_mapping_list *out);
	bool (*place)(const void *state, const struct guest_memory *memory,
		      const struct guest_thread *thread, uint64_t va, struct guest_place *out);
	/* NULL: the system has none. */
	bool (*container)(const void *state, const struct guest_memory *memory,
			  const struct guest_thread *thread, char container[GUEST_PATH_MAX + 1]);
	/* NULL: files are no user's. */
	bool (*owner)(const void *state, const struct guest_memory *memory,
		      const struct guest_thread *thread, uint32_t *user);
};

struct guest_threads {
	const struct threads_system *system;
	void *state;
};

extern const struct threads_system threads_linux, threads_unikraft, threads_minios,
	threads_freertos;

/*
 * Opens one of those but Linux for a file with a layout that is at `slide` in the guest. *state: as of
 * open().
 */
struct error *unikernel_threads_find(const struct guest_memory *memory,
				     const struct image_file *file, uint64_t slide, void **state);
struct error *freertos_threads_find(const struct guest_memory *memory,
				    const struct image_file *file, uint64_t slide, void **state);

/* For systems without numbers of threads: theirs come from their addresses. */

/* Structures are 16 bytes and more. */
#define THREAD_NUMBER_UNIT 16u

/* One of which nothing is known but its address. */
struct guest_thread thread_by_address(uint64_t at);

bool thread_is_same(const struct guest_thread *a, const struct guest_thread *b);

/* Its name, up to what can be read of it; one that has none is called by its address. False: nothing can be read. */
bool thread_name_read(const struct guest_memory *memory, uint64_t at, uint64_t name, char *out);

/* Threads of such a guest: more are taken for a lie. */
#define THREADS_WALKED_MOST 4096u

/* Addresses of threads that a walk has met. */
struct thread_walk {
	uint64_t *at; /* [THREADS_WALKED_MOST]; NULL: not all of them are wanted */
	size_t n;
	uint64_t last, next; /* the lowest behind `last`; UINT64_MAX: none */
	bool whole;	     /* another walk would find no more */
};

void thread_walk_meet(struct thread_walk *walk, uint64_t at);

/*
 * State of a system that is known by its file. Places in its lists change all the time: the next thread is
 * the one with the next higher address.
 */
struct filed_threads {
	struct thread_layout layout; /* by the guest's addresses */
	uint64_t start, end;	     /* of all code */
	struct {
		uint64_t start, end;
	} switches[THREAD_SWITCHES];
	/* That have all that is read of a thread, but its name, and of FreeRTOS's items. */
	uint32_t thread_bytes, item_bytes;
	/* Reads a thread, twice; false: there is none, or it changes all the time. */
	bool (*read)(const void *state, const struct guest_memory *memory, uint64_t at,
		     struct guest_thread *out);
	/* Meets all threads once, and tells whether it is whole. TURN_END: no list led nowhere. */
	enum guest_thread_turn (*walk)(const void *state, const struct guest_memory *memory,
				       struct thread_walk *walk);
};

/* All of it but bytes, for a file at `slide`, without read and walk; NULL: no memory. */
struct filed_threads *filed_threads_new(const struct image_file *file, uint64_t slide);

/* threads_system.next, .cpus, .switches, .complete and .stands of these. */
enum guest_thread_turn filed_threads_next(const void *state, const struct guest_memory *memory,
					  struct guest_thread *thread);
uint32_t filed_threads_cpus(const void *state, const struct guest_memory *memory);
bool filed_threads_switches(const void *state, uint64_t va);
bool filed_threads_complete(const void *state, const struct guest_memory *memory,
			    struct guest_thread *thread);
bool filed_threads_stands(const void *state, const struct guest_memory *memory,
			  const struct guest_thread *thread);

/* Walks until one is whole. */
#define THREAD_WALK_TRIES 16u

/* Brings them in their order, each once. */
void thread_walk_sort(struct thread_walk *walk);

/* What a list lacks: struct guest_thread_list. */
#define THREADS_LOST                                                                           \
	"a list of the guest's threads leads nowhere, never ends or is changed all the time: " \
	"some may be missing"

/* Lists those that can be read, but idle ones. */
struct error *thread_walk_list(const struct thread_walk *walk, const void *state,
			       const struct guest_memory *memory, struct guest_thread_list *out);
