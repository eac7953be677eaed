/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Unikraft and Mini-OS: all threads are in one list for each scheduler, linked forwards and by the
 * addresses of the pointers that lead to each (TAILQ). A thread that does not run has its pc and its
 * stack pointer in its structure. Numbers of threads there are none: theirs come from their addresses.
 *
 * Mini-OS does not tell which thread runs. It takes turns: the scheduler puts the thread that it
 * chooses at the end of the list, where only new threads come, too. Without work it waits on the stack
 * of the thread that ran last.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "base/owned.h"
#include "threads/threads.h"

/* A thread that changes is read so often until it stands still. */
#define READ_TRIES 8
/* Schedulers of a guest: more are taken for a lie. */
#define SCHEDULERS_MOST 64u

/* Bytes of a stack that are looked at. */
#define STACK_MOST 16384u
/* mini-os, include/x86/arch_limits.h: each stack is so large, and begins at a multiple of that with the thread's address. */
#define MINIOS_STACK 65536u
/* The frame with which a thread of Mini-OS begins: its argument, its function; the latter becomes 0 when it starts. */
#define MINIOS_FUNCTION 8u

#define WORD 8u

/* lib/uksched/include/uk/thread.h */
#define UK_RUNNABLE 0x8u
#define UK_EXITED   0x10u
/* include/sched.h */
#define MINIOS_RUNNABLE 0x1u

/* What is read of a thread; what the system has not is 0. */
struct raw {
	uint64_t ip, sp, name, stack, scheduler, cpu_ns, flags;
};

/* What FreeRTOS has in common with them, too. */

struct filed_threads *filed_threads_new(const struct image_file *file, uint64_t slide)
{
	struct filed_threads *own = calloc(1, sizeof(*own));
	struct symbol symbol;

	if (!own)
		return NULL;
	own->layout = file->threads;
	own->layout.head += slide;
	own->layout.current += slide;
	own->layout.starter += slide;
	for (size_t i = 0; i < TASK_VARIABLES; i++)
		own->layout.variables[i] += own->layout.variables[i] ? slide : 0;
	own->start = file->code->start + slide;
	own->end = file->code->end + slide;
	for (size_t i = 0; i < THREAD_SWITCHES && file->symbols; i++)
		if (file->threads.switches[i] &&
		    symbols_find(file->symbols, file->threads.switches[i], &symbol)) {
			own->switches[i].start = symbol.start + slide;
			own->switches[i].end = symbol.end + slide;
		}
	return own;
}

bool filed_threads_switches(const void *state, uint64_t va)
{
	const struct filed_threads *own = state;

	for (size_t i = 0; i < THREAD_SWITCHES; i++)
		if (va - own->switches[i].start < own->switches[i].end - own->switches[i].start)
			return true;
	return false;
}

void thread_walk_meet(struct thread_walk *walk, uint64_t at)
{
	if (walk->at) {
		assert(walk->n < THREADS_WALKED_MOST);
		walk->at[walk->n++] = at;
	}
	if (at > walk->last && at < walk->next)
		walk->next = at;
}

enum guest_thread_turn filed_threads_next(const void *state, const struct guest_memory *memory,
					  struct guest_thread *thread)
{
	const struct filed_threads *own = state;
	struct thread_walk walk = {.next = thread->at};

	do {
		enum guest_thread_turn turn = TURN_LOST;

		walk.last = walk.next;
		walk.whole = false;
		for (unsigned i = 0; i < THREAD_WALK_TRIES && !walk.whole; i++) {
			if (budget_over(memory->budget))
				break;
			walk.next = UINT64_MAX;
			turn = own->walk(own, memory, &walk);
		}
		if (turn == TURN_LOST || walk.next == UINT64_MAX)
			return turn;
		/* A thread that is left out has its turn later. */
	} while ((!own->read(own, memory, walk.next, thread) || thread->idle) &&
		 !budget_over(memory->budget));
	return budget_over(memory->budget) ? TURN_LOST : TURN_THREAD;
}

uint32_t filed_threads_cpus(const void *state, const struct guest_memory *memory)
{
	const struct filed_threads *own = state;

	(void)memory;
	return (uint32_t)own->layout.cpus;
}

bool filed_threads_complete(const void *state, const struct guest_memory *memory,
			    struct guest_thread *thread)
{
	const struct filed_threads *own = state;

	return own->read(own, memory, thread->at, thread);
}

bool filed_threads_stands(const void *state, const struct guest_memory *memory,
			  const struct guest_thread *thread)
{
	const struct filed_threads *own = state;
	struct guest_thread now;

	return own->read(own, memory, thread->at, &now) && thread_is_same(thread, &now) &&
	       now.cpu < 0 && now.run == thread->run;
}

/* Unikraft and Mini-OS. */

static bool get(const struct guest_memory *memory, uint64_t va, uint64_t *value)
{
	return guest_memory_get(memory, va, value, WORD);
}

static bool is_minios(const struct filed_threads *own)
{
	return own->layout.system == UNIKERNEL_MINIOS;
}

static bool is_code(const struct filed_threads *own, uint64_t va)
{
	return va >= own->start && va < own->end;
}

/* A place in the lists of all schedulers. */
struct cursor {
	const struct filed_threads *own;
	const struct guest_memory *memory;
	uint64_t scheduler; /* 0: the list has none */
	uint64_t node;	    /* the link that leads on */
	unsigned threads, schedulers;
};

/* Goes to the list of a scheduler; 0: there is none left. */
static enum guest_thread_turn enter(struct cursor *cursor, uint64_t scheduler)
{
	cursor->scheduler = scheduler;
	cursor->node = scheduler + cursor->own->layout.at[SCHEDULER_LIST];
	if (!scheduler)
		return TURN_END;
	return scheduler % WORD || ++cursor->schedulers > SCHEDULERS_MOST ? TURN_LOST : TURN_THREAD;
}

static enum guest_thread_turn begin(struct cursor *cursor, const struct filed_threads *own,
				    const struct guest_memory *memory)
{
	uint64_t scheduler;

	*cursor = (struct cursor){.own = own, .memory = memory, .node = own->layout.head};
	if (is_minios(own))
		return TURN_THREAD;
	return get(memory, own->layout.head, &scheduler) ? enter(cursor, scheduler) : TURN_LOST;
}

/* Goes to the next thread, whose link must lead back: no list without its head is a loop then. */
static enum guest_thread_turn go_on(struct cursor *cursor, uint64_t *thread)
{
	const uint32_t *at = cursor->own->layout.at;
	enum guest_thread_turn turn = TURN_THREAD;
	uint64_t to, back;

	for (;;) {
		if (!get(cursor->memory, cursor->node, &to))
			return TURN_LOST;
		if (to)
			break;
		if (!cursor->scheduler)
			return TURN_END;
		if (!get(cursor->memory, cursor->scheduler + at[SCHEDULER_NEXT], &to))
			return TURN_LOST;
		turn = enter(cursor, to);
		if (turn != TURN_THREAD)
			return turn;
	}
	if (to % WORD || ++cursor->threads > THREADS_WALKED_MOST ||
	    !get(cursor->memory, to + at[MEMBER_LINK] + WORD, &back) || back != cursor->node)
		return TURN_LOST;
	cursor->node = to + at[MEMBER_LINK];
	*thread = to;
	return TURN_THREAD;
}

static uint64_t member(const struct filed_threads *own, const uint8_t *bytes,
		       enum thread_member which)
{
	uint64_t value;

	memcpy(&value, bytes + own->layout.at[which], WORD);
	return value;
}

static bool read_raw(const struct filed_threads *own, const struct guest_memory *memory,
		     uint64_t at, struct raw *out)
{
	uint8_t bytes[THREAD_LAYOUT_SPAN + WORD];

	if (!guest_memory_get(memory, at, bytes, own->thread_bytes))
		return false;
	*out = (struct raw){.ip = member(own, bytes, MEMBER_IP),
			    .sp = member(own, bytes, MEMBER_SP),
			    .name = member(own, bytes, MEMBER_NAME),
			    .stack = member(own, bytes, MEMBER_STACK),
			    .flags = (uint32_t)member(own, bytes, MEMBER_FLAGS)};
	if (!is_minios(own)) {
		out->scheduler = member(own, bytes, MEMBER_SCHEDULER);
		out->cpu_ns = member(own, bytes, MEMBER_CPU_TIME);
	}
	return true;
}

/* Could it be a thread? One of Mini-OS is told by its stack, one of Unikraft has a scheduler. */
static bool is_plausible(const struct filed_threads *own, const struct guest_memory *memory,
			 uint64_t at, const struct raw *raw)
{
	uint64_t owner, list;

	if (is_minios(own))
		return raw->stack && raw->stack % MINIOS_STACK == 0 && is_code(own, raw->ip) &&
		       get(memory, raw->stack, &owner) && owner == at;
	return raw->scheduler && raw->scheduler % WORD == 0 &&
	       (!raw->ip || is_code(own, raw->ip)) &&
	       get(memory, raw->scheduler + own->layout.at[SCHEDULER_LIST], &list) && list;
}

/* Has this thread of Mini-OS ever run? */
static bool has_started(const struct filed_threads *own, const struct guest_memory *memory,
			uint64_t at)
{
	uint64_t ip, sp, function;

	return get(memory, at + own->layout.at[MEMBER_IP], &ip) &&
	       (ip != own->layout.starter ||
		(get(memory, at + own->layout.at[MEMBER_SP], &sp) &&
		 get(memory, sp + MINIOS_FUNCTION, &function) && !function));
}

/* The last of Mini-OS's list that has run runs, or waits with all others; 0: none. */
static uint64_t find_last(const struct filed_threads *own, const struct guest_memory *memory)
{
	const uint64_t head = own->layout.head, link = own->layout.at[MEMBER_LINK];
	uint64_t node;

	if (!get(memory, head + WORD, &node))
		return 0;
	for (unsigned i = 0; i < THREADS_WALKED_MOST && node != head; i++)
		if (has_started(own, memory, node - link))
			return node - link;
		else if (!get(memory, node + WORD, &node))
			return 0;
	return 0;
}

/* The CPU that a thread runs on; -1: it runs on none. */
static int64_t cpu_of(const struct filed_threads *own, const struct guest_memory *memory,
		      uint64_t at)
{
	uint64_t now;

	if (is_minios(own))
		return find_last(own, memory) == at ? 0 : -1;
	for (uint64_t i = 0; i < own->layout.cpus; i++)
		if (get(memory, own->layout.current + i * WORD, &now) && now == at)
			return (int64_t)i;
	return -1;
}

static enum guest_thread_state state_of(const struct filed_threads *own, const struct raw *raw,
					int64_t cpu)
{
	const uint32_t runnable = is_minios(own) ? MINIOS_RUNNABLE : UK_RUNNABLE;

	if (!is_minios(own) && raw->flags & UK_EXITED)
		return THREAD_DEAD;
	if (!(raw->flags & runnable))
		return THREAD_SLEEPING;
	return cpu >= 0 ? THREAD_RUNNING : THREAD_RUNNABLE;
}

/* End of a thread's stack, or as far as it is looked at; 0: the stack pointer is in none. */
static uint64_t stack_end(const struct filed_threads *own, const struct raw *raw)
{
	const uint64_t most = raw->sp + STACK_MOST, end = raw->stack + MINIOS_STACK;

	if (raw->sp % WORD || most < raw->sp || raw->sp < raw->stack)
		return 0;
	if (!is_minios(own))
		return most;
	return raw->sp >= end ? 0 : most < end ? most : end;
}

/* Unikraft counts the time of each run. Of Mini-OS the stack itself tells. */
static uint64_t run_of(const struct filed_threads *own, const struct guest_memory *memory,
		       const struct raw *raw)
{
	uint64_t run = hash_bytes(HASH_BEGIN, &raw->ip, sizeof(raw->ip));
	const uint64_t end = is_minios(own) ? stack_end(own, raw) : 0;
	uint8_t stack[STACK_MOST];

	run = hash_bytes(run, &raw->sp, sizeof(raw->sp));
	run = hash_bytes(run, &raw->cpu_ns, sizeof(raw->cpu_ns));
	return end ? hash_bytes(run, stack,
				guest_memory_read(memory, raw->sp, stack, end - raw->sp))
		   : run;
}

/* Reads a thread, twice. *raw: as it was. False: there is none, or it changes all the time. */
static bool read_thread(const struct filed_threads *own, const struct guest_memory *memory,
			uint64_t at, struct raw *raw, struct guest_thread *out)
{
	struct raw before;
	bool same = false;

	if (!read_raw(own, memory, at, raw))
		return false;
	for (unsigned i = 0; i < READ_TRIES && !same; i++) {
		before = *raw;
		*out = thread_by_address(at);
		out->cpu = cpu_of(own, memory, at);
		if (!is_minios(own))
			out->cpu_ns = raw->cpu_ns;
		out->run = out->cpu < 0 ? run_of(own, memory, raw) : 0;
		if (!read_raw(own, memory, at, raw))
			return false;
		same = !memcmp(&before, raw, sizeof(before)) && cpu_of(own, memory, at) == out->cpu;
	}
	out->state = state_of(own, raw, out->cpu);
	out->idle = !is_minios(own) && at == raw->scheduler + own->layout.at[SCHEDULER_IDLE];
	return same && is_plausible(own, memory, at, raw) &&
	       thread_name_read(memory, at, raw->name, out->name);
}

static enum guest_thread_turn walk(const void *state, const struct guest_memory *memory,
				   struct thread_walk *out)
{
	struct cursor cursor;
	enum guest_thread_turn turn = begin(&cursor, state, memory);
	uint64_t at;

	while (turn == TURN_THREAD && (turn = go_on(&cursor, &at)) == TURN_THREAD)
		thread_walk_meet(out, at);
	out->whole = true;
	return turn;
}

/* True if no list led nowhere. */
static bool walk_all(const void *state, const struct guest_memory *memory, struct thread_walk *out)
{
	bool ended;

	out->n = 0;
	ended = walk(state, memory, out) == TURN_END;
	thread_walk_sort(out);
	return ended;
}

/* Walks until two walks have met the same threads: one that the scheduler moves meanwhile hides others. */
static bool walk_twice(const void *state, const struct guest_memory *memory,
		       struct thread_walk walks[2])
{
	bool ended = walk_all(state, memory, &walks[0]), same = false;

	for (unsigned i = 1; i < THREAD_WALK_TRIES && !same && !budget_over(memory->budget); i++) {
		const bool last = ended;

		ended = walk_all(state, memory, &walks[i % 2]);
		same = ended && last && walks[0].n == walks[1].n &&
		       !memcmp(walks[0].at, walks[1].at, walks[0].n * sizeof(*walks[0].at));
	}
	return same;
}

static bool read_listed(const void *state, const struct guest_memory *memory, uint64_t at,
			struct guest_thread *out)
{
	struct raw raw;

	return read_thread(state, memory, at, &raw, out);
}

static struct error *list(const void *state, const struct guest_memory *memory,
			  struct guest_thread_list *out)
{
	FREED uint64_t *at = calloc(2 * THREADS_WALKED_MOST, sizeof(*at));
	struct thread_walk walks[2] = {{.at = at}, {.at = at + THREADS_WALKED_MOST}};
	struct error *err;
	bool whole;

	if (!at)
		return error_no_memory();
	whole = walk_twice(state, memory, walks);
	err = thread_walk_list(&walks[0], state, memory, out);
	if (!whole)
		out->trouble = THREADS_LOST;
	return err;
}

static bool running(const void *state, const struct guest_memory *memory, uint32_t cpu,
		    struct guest_thread *out)
{
	const struct filed_threads *own = state;
	uint64_t at = 0;
	struct raw raw;

	for (unsigned i = 0; i < READ_TRIES; i++) {
		if (is_minios(own))
			at = find_last(own, memory);
		else if (!get(memory, own->layout.current + cpu * (uint64_t)WORD, &at))
			return false;
		if (!at || !read_thread(own, memory, at, &raw, out) || out->cpu != cpu)
			continue;
		out->idle |= out->state == THREAD_SLEEPING;
		out->state = THREAD_RUNNING;
		return true;
	}
	return false;
}

/* The pointers of several CPUs are told apart by a register that no copy has. */
static bool request(const void *state, struct thread_request *out)
{
	const struct filed_threads *own = state;

	*out = (struct thread_request){0};
	for (size_t i = 0; i < THREAD_PIECES; i++)
		out->at[i] = own->layout.at[MEMBER_STACK];
	if (is_minios(own))
		out->stack_size = MINIOS_STACK;
	else
		out->address = own->layout.current;
	return own->layout.cpus == 1;
}

static bool decode(const struct thread_copy *copy, struct guest_thread *out)
{
	*out = thread_by_address(copy->at);
	out->state = THREAD_RUNNING;
	return copy->at && copy->at % WORD == 0;
}

/* Memory that is no stack has no thread that says it was its stack. */
static bool decode_minios(const struct thread_copy *copy, struct guest_thread *out)
{
	return !memcmp(copy->piece[0], &copy->own, WORD) && decode(copy, out);
}

static bool details(const void *state, const struct guest_memory *memory,
		    const struct guest_thread *thread, struct thread_details *out)
{
	const struct filed_threads *own = state;
	uint64_t stack;

	snprintf(out->process, sizeof(out->process), "%s",
		 is_minios(own) ? threads_minios.name : threads_unikraft.name);
	if (is_minios(own) && get(memory, thread->at + own->layout.at[MEMBER_STACK], &stack)) {
		out->stack = stack;
		out->stack_size = MINIOS_STACK;
	}
	return true;
}

static bool saved(const void *state, const struct guest_memory *memory, struct guest_thread *thread,
		  struct thread_saved *out)
{
	const struct filed_threads *own = state;
	const struct guest_thread before = *thread;
	struct raw raw;

	*out = (struct thread_saved){0};
	if (!read_thread(own, memory, before.at, &raw, thread) ||
	    !thread_is_same(&before, thread) || thread->cpu >= 0 || thread->state == THREAD_DEAD)
		return false;
	out->pc = raw.ip;
	out->sp = raw.sp;
	out->stack_end = stack_end(own, &raw);
	return is_code(own, raw.ip) && out->stack_end;
}

/* Offsets of a known version are believed where threads make sense by them. */
static bool is_proven(const struct filed_threads *own, const struct guest_memory *memory)
{
	struct guest_thread thread;
	struct cursor cursor;
	struct raw raw;
	uint64_t at;

	return own->layout.typed ||
	       (begin(&cursor, own, memory) == TURN_THREAD && go_on(&cursor, &at) == TURN_THREAD &&
		read_thread(own, memory, at, &raw, &thread));
}

struct error *unikernel_threads_find(const struct guest_memory *memory,
				     const struct image_file *file, uint64_t slide, void **state)
{
	struct filed_threads *own = filed_threads_new(file, slide);

	if (!own)
		return error_no_memory();
	own->read = read_listed;
	own->walk = walk;
	for (size_t i = 0; i <= MEMBER_CPU_TIME; i++)
		if (own->layout.at[i] + WORD > own->thread_bytes)
			own->thread_bytes = own->layout.at[i] + WORD;
	*state = is_proven(own, memory) ? own : NULL;
	if (!*state)
		free(own);
	return NULL;
}

#define UNIKERNEL(system, decoding, idling)                                              \
	{                                                                                \
		.name = system, .close = free, .list = list, .next = filed_threads_next, \
		.cpus = filed_threads_cpus, .running = running, .request = request,      \
		.decode = decoding, .complete = filed_threads_complete,                  \
		.switches = filed_threads_switches, .idles = idling, .details = details, \
		.saved = saved, .stands = filed_threads_stands                           \
	}

const struct threads_system threads_unikraft = UNIKERNEL("Unikraft", decode, NULL);
const struct threads_system threads_minios =
	UNIKERNEL("Mini-OS", decode_minios, filed_threads_switches);
