/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * FreeRTOS (V10 and V11) on AArch64: a task stands in the list of its state, ready ones in one for each
 * priority. The list that its item names tells its state; tasks.c says which list is what. A task that
 * does not run has its registers on its stack, as portable/GCC/ARM_AARCH64 (in V10 ARM_CA53_64_BIT) leaves them.
 */

#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "base/owned.h"
#include "threads/threads.h"

/* A task that changes is read so often until it stands still. */
#define READ_TRIES 8

#define WORD 8u

/* Bytes of a stack that are looked at, and of one whose end is not known that are compared. */
#define STACK_MOST     16384u
#define STACK_COMPARED 512u

/*
 * The port leaves at pxTopOfStack, in words: whether registers of floating point follow, how deep
 * critical sections are nested, those registers, and the others: pc and PSTATE, x30 and nothing, x28
 * and x29, down to x0 and x1.
 */
#define SAVED_HEAD   2u
#define SAVED_FLOATS 64u
#define SAVED_OTHERS 34u
/* PSTATE.nRW and M (DDI 0487, C5.2.20) of code on the stack of tasks: 64 bits, SP_EL0. */
#define PSTATE_MODE 0x13u
enum { X29 = 29, X30 = 30, SP64 = 31 };

/* x29 and x30 with which the port lets a task begin: the frame record of its function. */
static const uint64_t first_record[2] = {0x2929292929292929u, 0};

/* What is read of a task; what its configuration lacks is 0. */
struct raw {
	uint64_t top, stack, stack_end, priority, number, run_time;
	uint64_t woken_at;	/* ticks: when it was to be woken */
	uint64_t list, waiting; /* that of its state, and of what it waits for */
	uint64_t notification;	/* it waits for one */
};

static bool get(const struct guest_memory *memory, uint64_t va, uint64_t *value)
{
	return guest_memory_get(memory, va, value, WORD);
}

/* Address of a list beside those of ready tasks; 0: there is none. */
static uint64_t find_list(const struct filed_threads *own, const struct guest_memory *memory,
			  enum task_variable which)
{
	const uint64_t at = own->layout.variables[which];
	uint64_t list;

	if (which != TASKS_DELAYED && which != TASKS_OVERFLOW)
		return at;
	return get(memory, at, &list) ? list : 0;
}

/* A place in all lists. */
struct cursor {
	const struct filed_threads *own;
	const struct guest_memory *memory;
	uint32_t index;	   /* of the list */
	uint64_t list;	   /* its address */
	uint32_t item;	   /* of the two of a task, the one that stands there */
	uint64_t node, to; /* addresses of items: of the last, and of the next */
	unsigned tasks;
};

/* Goes to a list, or to the first behind it that is there. */
static enum guest_thread_turn enter(struct cursor *cursor, uint32_t index)
{
	const struct thread_layout *layout = &cursor->own->layout;
	const uint32_t ready = layout->priorities;

	for (cursor->list = 0; !cursor->list; index++) {
		if (index == ready + TASKS_COUNT)
			return TURN_END;
		cursor->index = index;
		cursor->list = index < ready
				       ? layout->head + index * layout->list_size
				       : find_list(cursor->own, cursor->memory, index - ready);
	}
	cursor->item =
		layout->at[cursor->index == ready + TASKS_PENDING ? MEMBER_EVENT : MEMBER_LINK];
	cursor->node = cursor->list + layout->at[LIST_END];
	if (cursor->list % WORD ||
	    !get(cursor->memory, cursor->node + layout->at[ITEM_NEXT], &cursor->to))
		return TURN_LOST;
	/* Before the first task is made, lists are all zero. */
	cursor->to = cursor->to ? cursor->to : cursor->node;
	return TURN_THREAD;
}

static enum guest_thread_turn begin(struct cursor *cursor, const struct filed_threads *own,
				    const struct guest_memory *memory)
{
	*cursor = (struct cursor){.own = own, .memory = memory};
	return enter(cursor, 0);
}

/* What is read of an item. */
struct item {
	uint64_t value, next, previous, owner, list;
};

static uint64_t word_at(const uint8_t *bytes, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, bytes + offset, WORD);
	return value;
}

static struct item item_of(const struct thread_layout *layout, const uint8_t *bytes)
{
	const uint32_t next = layout->at[ITEM_NEXT], owner = layout->at[ITEM_OWNER];

	return (struct item){.value = word_at(bytes, next - WORD),
			     .next = word_at(bytes, next),
			     .previous = word_at(bytes, next + WORD),
			     .owner = word_at(bytes, owner),
			     .list = word_at(bytes, owner + WORD)};
}

/* Goes to the next task, whose item must lead back and name its list: no list without its end is a loop then. */
static enum guest_thread_turn go_on(struct cursor *cursor, uint64_t *task)
{
	const struct thread_layout *layout = &cursor->own->layout;
	uint8_t bytes[THREAD_LAYOUT_LIST];
	struct item item;

	while (cursor->to == cursor->list + layout->at[LIST_END]) {
		const enum guest_thread_turn turn = enter(cursor, cursor->index + 1);

		if (turn != TURN_THREAD)
			return turn;
	}
	if (cursor->to % WORD || ++cursor->tasks > THREADS_WALKED_MOST ||
	    !guest_memory_get(cursor->memory, cursor->to, bytes, cursor->own->item_bytes))
		return TURN_LOST;
	item = item_of(layout, bytes);
	if (item.previous != cursor->node || item.list != cursor->list ||
	    item.owner + cursor->item != cursor->to)
		return TURN_LOST;
	cursor->node = cursor->to;
	cursor->to = item.next;
	*task = item.owner;
	return TURN_THREAD;
}

/* A member that not every configuration has. */
static uint64_t member(const struct thread_layout *layout, const uint8_t *bytes,
		       enum thread_member which)
{
	return layout->at[which] ? word_at(bytes, layout->at[which]) : 0;
}

/* taskWAITING_NOTIFICATION of tasks.c */
#define NOTIFICATION_AWAITED 1u
/* Notifications of a task, at most. */
#define NOTIFICATIONS_MOST WORD

static bool awaits_notification(const struct thread_layout *layout, const uint8_t *bytes)
{
	const uint32_t from = layout->at[MEMBER_NOTIFICATION];
	uint32_t n = (from - layout->at[MEMBER_NOTIFIED]) / sizeof(uint32_t);

	if (!from || !layout->at[MEMBER_NOTIFIED])
		return false;
	n = n < NOTIFICATIONS_MOST ? n : NOTIFICATIONS_MOST;
	return memchr(bytes + from, NOTIFICATION_AWAITED, n);
}

/* False: what is there cannot be a task. */
static bool read_raw(const struct filed_threads *own, const struct guest_memory *memory,
		     uint64_t at, struct raw *out)
{
	const struct thread_layout *layout = &own->layout;
	uint8_t bytes[THREAD_LAYOUT_SPAN + THREAD_LAYOUT_LIST];
	struct item state, event;

	if (at % WORD || !guest_memory_get(memory, at, bytes, own->thread_bytes))
		return false;
	state = item_of(layout, bytes + layout->at[MEMBER_LINK]);
	event = item_of(layout, bytes + layout->at[MEMBER_EVENT]);
	*out = (struct raw){.top = word_at(bytes, layout->at[MEMBER_SP]),
			    .stack = word_at(bytes, layout->at[MEMBER_STACK]),
			    .stack_end = member(layout, bytes, MEMBER_STACK_END),
			    .priority = word_at(bytes, layout->at[MEMBER_PRIORITY]),
			    .number = (uint32_t)member(layout, bytes, MEMBER_NUMBER),
			    .run_time = member(layout, bytes, MEMBER_CPU_TIME),
			    .woken_at = state.value,
			    .list = state.list,
			    .waiting = event.list,
			    .notification = awaits_notification(layout, bytes)};
	return state.owner == at && event.owner == at && out->priority < layout->priorities &&
	       out->stack && out->top >= out->stack && out->top % (2 * WORD) == 0;
}

/*
 * False: it is in no list that tells, as while it is moved. Without types, a task that is suspended is
 * not told from one that waits for a notification.
 */
static bool state_of(const struct filed_threads *own, const struct guest_memory *memory,
		     const struct raw *raw, enum guest_thread_state *out)
{
	const struct thread_layout *layout = &own->layout;
	const uint64_t ready = raw->list - layout->head;

	if (raw->waiting && raw->waiting == layout->variables[TASKS_PENDING])
		*out = THREAD_RUNNABLE;
	else if (ready < (uint64_t)layout->priorities * layout->list_size)
		*out = THREAD_RUNNABLE;
	else if (raw->list && raw->list == layout->variables[TASKS_SUSPENDED])
		*out = raw->waiting || raw->notification ? THREAD_SLEEPING
		       : layout->typed			 ? THREAD_STOPPED
							 : THREAD_OTHER;
	else if (raw->list && raw->list == layout->variables[TASKS_ENDED])
		*out = THREAD_DEAD;
	else if (raw->list && (raw->list == find_list(own, memory, TASKS_DELAYED) ||
			       raw->list == find_list(own, memory, TASKS_OVERFLOW)))
		*out = THREAD_SLEEPING;
	else
		return false;
	return true;
}

/* The CPU that has this task in a list of pointers; -1: none. */
static int64_t cpu_in(const struct filed_threads *own, const struct guest_memory *memory,
		      uint64_t pointers, uint64_t at)
{
	uint64_t task;

	for (uint64_t i = 0; i < own->layout.cpus; i++)
		if (get(memory, pointers + i * WORD, &task) && task == at)
			return (int64_t)i;
	return -1;
}

/* configIDLE_TASK_NAME, to which versions for several CPUs add a number. */
#define IDLE_NAME "IDLE"

static bool is_idle(const struct filed_threads *own, const struct guest_memory *memory,
		    const struct raw *raw, const struct guest_thread *task)
{
	const uint64_t known = own->layout.variables[TASKS_IDLE];

	if (known)
		return cpu_in(own, memory, known, task->at) >= 0;
	return !raw->priority && !strncmp(task->name, IDLE_NAME, strlen(IDLE_NAME));
}

/* Reads the words that the port has saved; `others`: pc, and those behind it. False: they cannot be such. */
static bool read_saved(const struct filed_threads *own, const struct guest_memory *memory,
		       const struct raw *raw, uint64_t words[SAVED_OTHERS], uint64_t *sp)
{
	uint64_t head[SAVED_HEAD], at = raw->top + sizeof(head);

	if (!guest_memory_get(memory, raw->top, head, sizeof(head)) || head[0] > 1)
		return false;
	at += head[0] * SAVED_FLOATS * WORD;
	*sp = at + SAVED_OTHERS * WORD;
	return *sp > at && guest_memory_get(memory, at, words, SAVED_OTHERS * WORD) &&
	       words[0] - own->start < own->end - own->start && !(words[1] & PSTATE_MODE);
}

/* End of a task's stack, or as far as it is looked at. A task that was made after its stack lies behind it. */
static uint64_t stack_end(uint64_t at, const struct raw *raw, uint64_t sp, bool *known)
{
	const uint64_t told = raw->stack_end ? raw->stack_end + 2 * WORD : at;

	*known = told >= sp && told - sp <= STACK_MOST;
	return *known ? told : sp + STACK_MOST < sp ? sp : sp + STACK_MOST;
}

/* Bytes of a stack that tell one run from another: up to the function that the task began with. */
static size_t compared(const uint8_t *stack, size_t len, bool whole)
{
	for (size_t i = 0; i + sizeof(first_record) <= len; i += sizeof(first_record))
		if (!memcmp(stack + i, first_record, sizeof(first_record)))
			return i;
	return whole || len < STACK_COMPARED ? len : STACK_COMPARED;
}

/* Tasks count no switches: what they have saved, and their stacks, tell whether they have run. */
static uint64_t run_of(const struct filed_threads *own, const struct guest_memory *memory,
		       uint64_t at, const struct raw *raw)
{
	const uint64_t told[] = {raw->top, raw->woken_at, raw->run_time};
	uint64_t run = hash_bytes(HASH_BEGIN, told, sizeof(told)), words[SAVED_OTHERS], sp;
	uint8_t stack[STACK_MOST];
	bool whole;
	size_t len;

	if (!read_saved(own, memory, raw, words, &sp))
		return run;
	run = hash_bytes(run, words, sizeof(words));
	len = guest_memory_read(memory, sp, stack, stack_end(at, raw, sp, &whole) - sp);
	return hash_bytes(run, stack, compared(stack, len, whole));
}

/* Reads a task, twice. *raw: as it was. False: there is none, or it changes all the time. */
static bool read_thread(const struct filed_threads *own, const struct guest_memory *memory,
			uint64_t at, struct raw *raw, struct guest_thread *out)
{
	const uint64_t current = own->layout.current;
	struct raw before;
	bool same = false;

	if (!read_raw(own, memory, at, raw))
		return false;
	for (unsigned i = 0; i < READ_TRIES && !same; i++) {
		before = *raw;
		*out = thread_by_address(at);
		out->cpu = cpu_in(own, memory, current, at);
		out->run = out->cpu < 0 ? run_of(own, memory, at, raw) : 0;
		same = out->cpu >= 0 || state_of(own, memory, raw, &out->state);
		if (!read_raw(own, memory, at, raw))
			return false;
		same = same && !memcmp(&before, raw, sizeof(before)) &&
		       cpu_in(own, memory, current, at) == out->cpu;
	}
	if (out->cpu >= 0)
		out->state = THREAD_RUNNING;
	out->tid = raw->number ? (uint32_t)raw->number : out->tid;
	if (!same || !thread_name_read(memory, at, at + own->layout.at[MEMBER_NAME], out->name))
		return false;
	out->idle = is_idle(own, memory, raw, out);
	return true;
}

static size_t count_told(const struct filed_threads *own, const struct guest_memory *memory)
{
	const uint64_t at = own->layout.variables[TASKS_COUNT];
	uint32_t n;

	return guest_memory_get(memory, at, &n, sizeof(n)) ? n : SIZE_MAX;
}

/* Whole once it has met as many tasks as there are: tasks move from list to list meanwhile. */
static enum guest_thread_turn walk(const void *state, const struct guest_memory *memory,
				   struct thread_walk *out)
{
	struct cursor cursor;
	enum guest_thread_turn turn = begin(&cursor, state, memory);
	uint64_t at;

	while (turn == TURN_THREAD && (turn = go_on(&cursor, &at)) == TURN_THREAD)
		thread_walk_meet(out, at);
	out->whole = turn == TURN_END && cursor.tasks >= count_told(state, memory);
	return turn;
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
	FREED uint64_t *at = calloc(THREADS_WALKED_MOST, sizeof(*at));
	struct thread_walk tasks = {.at = at};
	struct error *err;
	bool whole = false;

	if (!at)
		return error_no_memory();
	for (unsigned i = 0; i < THREAD_WALK_TRIES && !whole && !budget_over(memory->budget); i++) {
		tasks.n = 0;
		whole = walk(state, memory, &tasks) == TURN_END;
		thread_walk_sort(&tasks);
		whole = whole && tasks.n == count_told(state, memory);
	}
	err = thread_walk_list(&tasks, state, memory, out);
	if (!whole)
		out->trouble = THREADS_LOST;
	return err;
}

static bool running(const void *state, const struct guest_memory *memory, uint32_t cpu,
		    struct guest_thread *out)
{
	const struct filed_threads *own = state;
	uint64_t at;

	for (unsigned i = 0; i < READ_TRIES; i++)
		if (!get(memory, own->layout.current + cpu * (uint64_t)WORD, &at) || !at)
			return false;
		else if (read_listed(own, memory, at, out) && out->cpu == cpu)
			return true;
	return false;
}

/* The pointers of several CPUs are told apart by a register that no copy has. */
static bool request(const void *state, struct thread_request *out)
{
	const struct filed_threads *own = state;

	*out = (struct thread_request){.address = own->layout.current};
	for (size_t i = 0; i < THREAD_PIECES; i++)
		out->at[i] = own->layout.at[MEMBER_LINK] + own->layout.at[ITEM_OWNER];
	return own->layout.cpus == 1;
}

/* A task is the owner of its item. */
static bool decode(const struct thread_copy *copy, struct guest_thread *out)
{
	*out = thread_by_address(copy->at);
	out->state = THREAD_RUNNING;
	return copy->at && copy->at % WORD == 0 && !memcmp(copy->piece[0], &copy->at, WORD);
}

/* x0 to x29 stand in pairs, the first pair last. */
static void take_registers(const uint64_t words[SAVED_OTHERS], uint64_t sp,
			   struct thread_saved *out)
{
	for (size_t n = 0; n < X30; n++)
		out->gp[n] = words[SAVED_OTHERS - 2 - n / 2 * 2 + n % 2];
	out->gp[X30] = words[2];
	out->sp = out->gp[SP64] = sp;
	out->gp_valid = UINT32_MAX;
	out->pc = words[0];
	out->fp = out->gp[X29];
}

static bool saved(const void *state, const struct guest_memory *memory, struct guest_thread *thread,
		  struct thread_saved *out)
{
	const struct filed_threads *own = state;
	const struct guest_thread before = *thread;
	uint64_t words[SAVED_OTHERS], sp;
	struct raw raw;
	bool known;

	*out = (struct thread_saved){0};
	if (!read_thread(own, memory, before.at, &raw, thread) ||
	    !thread_is_same(&before, thread) || thread->cpu >= 0 || thread->state == THREAD_DEAD ||
	    !read_saved(own, memory, &raw, words, &sp))
		return false;
	take_registers(words, sp, out);
	out->stack_end = stack_end(thread->at, &raw, sp, &known);
	return out->stack_end > sp;
}

static void measure(struct filed_threads *own)
{
	const uint32_t *at = own->layout.at;

	own->item_bytes =
		(at[ITEM_NEXT] > at[ITEM_OWNER] ? at[ITEM_NEXT] : at[ITEM_OWNER]) + 2 * WORD;
	for (size_t i = 0; i < ITEM_NEXT; i++) {
		const bool item = i == MEMBER_LINK || i == MEMBER_EVENT;
		const uint32_t end = at[i] + (item ? own->item_bytes : WORD);

		if (i != MEMBER_NAME && end > own->thread_bytes)
			own->thread_bytes = end;
	}
}

/* Offsets of a known version are believed where the task that runs makes sense by them, and the lists of all. */
static bool is_proven(const struct filed_threads *own, const struct guest_memory *memory)
{
	struct guest_thread task;
	struct cursor cursor;
	uint64_t at;

	return own->layout.typed ||
	       (running(own, memory, 0, &task) && begin(&cursor, own, memory) == TURN_THREAD &&
		go_on(&cursor, &at) == TURN_THREAD);
}

struct error *freertos_threads_find(const struct guest_memory *memory,
				    const struct image_file *file, uint64_t slide, void **state)
{
	struct filed_threads *own = filed_threads_new(file, slide);

	if (!own)
		return error_no_memory();
	own->read = read_listed;
	own->walk = walk;
	measure(own);
	*state = is_proven(own, memory) ? own : NULL;
	if (!*state)
		free(own);
	return NULL;
}

const struct threads_system threads_freertos = {.name = "FreeRTOS",
						.close = free,
						.list = list,
						.next = filed_threads_next,
						.cpus = filed_threads_cpus,
						.running = running,
						.request = request,
						.decode = decode,
						.complete = filed_threads_complete,
						.switches = filed_threads_switches,
						.saved = saved,
						.stands = filed_threads_stands};
