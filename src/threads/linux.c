/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Linux: all processes are in a list from init_task on, the threads of each in
 * a list of its signal_struct. Kernels differ in where all that is in their
 * structures; BTF tells.
 */

#include "threads/linux.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "symbol/kernel/kernel.h"

/* A thread that is switched, a link that is changed: read so often until it stands still. */
#define READ_TRIES 8
#define LINK_TRIES 8
/* Walks until one comes back to where it began. */
#define WALK_TRIES 8

#define COMM_LEN 16u

/* include/linux/sched.h */
#define PF_KTHREAD  0x00200000u
#define TASK_IDLE   0x402u
#define TASK_REPORT 0x7fu
/* include/linux/threads.h: PID_MAX_LIMIT */
#define PID_MAX (4u << 20)

/* Members of task_struct, by the names that they have had. */
static const struct {
	const char *name, *former;
	uint32_t size; /* bytes that are read of it */
} members[TASK_MEMBERS] = {
	[TASK_PID] = {"pid", NULL, 4},
	[TASK_TGID] = {"tgid", NULL, 4},
	[TASK_COMM] = {"comm", NULL, COMM_LEN},
	[TASK_FLAGS] = {"flags", NULL, 4},
	[TASK_STATE] = {"__state", "state", 4},
	[TASK_EXIT_STATE] = {"exit_state", NULL, 4},
	[TASK_ON_CPU] = {"on_cpu", NULL, 1}, /* all of it in Linux 7.2 */
	[TASK_CPU] = {"thread_info.cpu", "cpu", 4},
	[TASK_START] = {"start_boottime", "real_start_time", 8},
	[TASK_CPU_TIME] = {"se.sum_exec_runtime", NULL, 8},
	[TASK_SWITCHES] = {"nvcsw", NULL, 8},
	[TASK_SWITCHES_FORCED] = {"nivcsw", NULL, 8},
	[TASK_TASKS] = {"tasks", NULL, 16},
	[TASK_SIGNAL] = {"signal", NULL, 8},
	[TASK_THREAD_NODE] = {"thread_node", NULL, 16},
	[TASK_LEADER] = {"group_leader", NULL, 8},
	[TASK_STACK] = {"stack", NULL, 8},
	[TASK_GROUPS] = {"cgroups", NULL, 8},
	[TASK_CREDENTIALS] = {"cred", NULL, 8},
};

/* A member, up to 8 bytes of it. */
static uint64_t number(const struct linux_threads *own, const uint8_t *task,
		       enum task_member member)
{
	uint64_t value = 0;

	memcpy(&value, task + own->at[member],
	       members[member].size < sizeof(value) ? members[member].size : sizeof(value));
	return value;
}

static enum guest_thread_state state_of(const struct linux_threads *own, const uint8_t *task)
{
	/* The highest bit that is set decides, as in fs/proc/array.c. */
	static const enum guest_thread_state states[] = {THREAD_SLEEPING, THREAD_DISK,
							 THREAD_STOPPED,  THREAD_TRACED,
							 THREAD_DEAD,	  THREAD_ZOMBIE,
							 THREAD_PARKED};
	const uint32_t state = (uint32_t)number(own, task, TASK_STATE);
	const uint32_t ended = (uint32_t)number(own, task, TASK_EXIT_STATE);
	const uint32_t told = (state | ended) & TASK_REPORT;

	if (!ended && number(own, task, TASK_ON_CPU))
		return THREAD_RUNNING;
	if (!ended && (state & TASK_IDLE) == TASK_IDLE)
		return THREAD_IDLE;
	if (told)
		return states[31 - __builtin_clz(told)];
	return state ? THREAD_OTHER : THREAD_RUNNABLE;
}

static void fill(const struct linux_threads *own, uint64_t at, const uint8_t *task,
		 struct guest_thread *out)
{
	*out = (struct guest_thread){
		.at = at,
		.pid = (uint32_t)number(own, task, TASK_TGID),
		.tid = (uint32_t)number(own, task, TASK_PID),
		.state = state_of(own, task),
		.cpu = (int64_t)number(own, task, TASK_CPU),
		.kernel = number(own, task, TASK_FLAGS) & PF_KTHREAD,
		.start_ns = number(own, task, TASK_START),
		.cpu_ns = number(own, task, TASK_CPU_TIME),
		.switches =
			number(own, task, TASK_SWITCHES) + number(own, task, TASK_SWITCHES_FORCED),
	};
	if (own->at[TASK_GROUPS])
		out->group = number(own, task, TASK_GROUPS);
	out->run = out->switches;
	out->idle = !out->tid;
	memcpy(out->name, task + own->at[TASK_COMM], COMM_LEN);
}

static bool is_same(const struct guest_thread *a, const struct guest_thread *b)
{
	return a->tid == b->tid && a->pid == b->pid && a->start_ns == b->start_ns;
}

/* Reads a thread, twice; one that is switched all the time is taken as it is. */
static bool read_task(const struct linux_threads *own, const struct guest_memory *memory,
		      uint64_t at, struct guest_thread *out)
{
	uint8_t task[LINUX_TASK_MAX];
	struct guest_thread before;
	bool same = false, still = false;

	if (!guest_memory_get(memory, at, task, own->span))
		return false;
	fill(own, at, task, out);
	for (unsigned i = 0; i < READ_TRIES && !still; i++) {
		before = *out;
		if (!guest_memory_get(memory, at, task, own->span))
			return false;
		fill(own, at, task, out);
		same = is_same(&before, out);
		still = same && before.switches == out->switches;
	}
	return same;
}

bool linux_read_again(const struct linux_threads *own, const struct guest_memory *memory,
		      const struct guest_thread *thread, struct guest_thread *now)
{
	return read_task(own, memory, thread->at, now) && is_same(thread, now);
}

/* Goes to the next node, which must lead back: no list without its head is a loop then. */
static bool follow(const struct guest_memory *memory, uint64_t node, uint64_t *next)
{
	uint64_t back;

	for (unsigned i = 0; i < LINK_TRIES; i++)
		if (linux_get_pointer(memory, node, next) &&
		    linux_get_pointer(memory, *next + 8, &back) && back == node)
			return true;
	return false;
}

/* Numbers of a task. */
static bool read_ids(const struct linux_threads *own, const struct guest_memory *memory,
		     uint64_t task, struct guest_thread *out)
{
	return guest_memory_get(memory, task + own->at[TASK_PID], &out->tid, 4) &&
	       guest_memory_get(memory, task + own->at[TASK_TGID], &out->pid, 4) &&
	       guest_memory_get(memory, task + own->at[TASK_START], &out->start_ns, 8);
}

/* Goes to the first thread of the process behind this one. */
static enum guest_thread_turn next_process(const struct linux_threads *own,
					   const struct guest_memory *memory, uint64_t leader,
					   struct guest_thread *next)
{
	struct guest_thread ids;
	uint64_t node, task, signal;

	if (!follow(memory, leader + own->at[TASK_TASKS], &node))
		return TURN_LOST;
	task = node - own->at[TASK_TASKS];
	if (task == own->init_task)
		return TURN_END;
	if (!read_ids(own, memory, task, &ids) || ids.tid != ids.pid ||
	    !linux_get_pointer(memory, task + own->at[TASK_SIGNAL], &signal) ||
	    !follow(memory, signal + own->thread_head, &node) || node == signal + own->thread_head)
		return TURN_LOST;
	next->at = node - own->at[TASK_THREAD_NODE];
	next->pid = ids.pid;
	return TURN_THREAD;
}

/* ... behind a thread, if it still is one. All of it is read at once: less is not cheaper. */
static enum guest_thread_turn next_thread(const struct linux_threads *own,
					  const struct guest_memory *memory,
					  const struct guest_thread *last,
					  struct guest_thread *next)
{
	const uint64_t link = last->at + own->at[TASK_THREAD_NODE];
	uint8_t task[LINUX_TASK_MAX];
	struct guest_thread now;
	uint64_t node = 0, back = 0;

	for (unsigned i = 0; i < LINK_TRIES && back != link; i++) {
		if (!guest_memory_get(memory, last->at, task, own->span))
			return TURN_LOST;
		fill(own, last->at, task, &now);
		node = number(own, task, TASK_THREAD_NODE);
		if (!is_same(last, &now) || !linux_is_pointer(node) ||
		    !guest_memory_get(memory, node + 8, &back, 8))
			return TURN_LOST;
	}
	if (back != link)
		return TURN_LOST;
	if (node == number(own, task, TASK_SIGNAL) + own->thread_head)
		return next_process(own, memory, number(own, task, TASK_LEADER), next);
	next->at = node - own->at[TASK_THREAD_NODE];
	next->pid = last->pid;
	return TURN_THREAD;
}

static enum guest_thread_turn next(const void *state, const struct guest_memory *memory,
				   struct guest_thread *thread)
{
	const struct linux_threads *own = state;
	struct guest_thread to;
	enum guest_thread_turn turn = thread->at ? next_thread(own, memory, thread, &to)
						 : next_process(own, memory, own->init_task, &to);

	if (turn == TURN_THREAD &&
	    (!read_task(own, memory, to.at, thread) || thread->pid != to.pid))
		return TURN_LOST;
	return turn;
}

static struct error *list(const void *state, const struct guest_memory *memory,
			  struct guest_thread_list *out)
{
	enum guest_thread_turn turn = TURN_LOST;
	struct error *err = NULL;

	for (unsigned i = 0; i < WALK_TRIES && turn == TURN_LOST && !budget_over(memory->budget);
	     i++) {
		struct guest_thread thread = {0};

		out->n = 0;
		do
			turn = next(state, memory, &thread);
		while (turn == TURN_THREAD && guest_thread_list_add(out, &thread, &err));
	}
	if (turn == TURN_THREAD || budget_over(memory->budget))
		out->trouble = "the guest has more threads than are listed, or its lists never end";
	else if (turn == TURN_LOST)
		out->trouble = "a list of the guest's threads leads nowhere: some may be missing";
	return err;
}

static uint32_t cpus(const void *state, const struct guest_memory *memory)
{
	const struct linux_threads *own = state;
	uint32_t n;

	if (!own->current || !guest_memory_get(memory, own->cpus, &n, 4))
		return 0;
	return n < GUEST_THREADS_CPUS_MAX ? n : GUEST_THREADS_CPUS_MAX;
}

static bool is_online(const struct linux_threads *own, const struct guest_memory *memory,
		      uint32_t cpu)
{
	uint64_t bits;

	return cpu < GUEST_THREADS_CPUS_MAX &&
	       guest_memory_get(memory, own->online + cpu / 64 * 8, &bits, 8) &&
	       bits >> cpu % 64 & 1;
}

static bool running(const void *state, const struct guest_memory *memory, uint32_t cpu,
		    struct guest_thread *out)
{
	const struct linux_threads *own = state;
	uint64_t base, task, after;

	if (!own->current || !is_online(own, memory, cpu) ||
	    !guest_memory_get(memory, own->offsets + 8ull * cpu, &base, 8))
		return false;
	for (unsigned i = 0; i < READ_TRIES; i++) {
		if (!linux_get_pointer(memory, base + own->current, &task) ||
		    !read_task(own, memory, task, out) ||
		    !linux_get_pointer(memory, base + own->current, &after) || after != task)
			continue;
		out->state = THREAD_RUNNING;
		out->cpu = cpu;
		return true;
	}
	return false;
}

/* Members that pieces begin with, in their order in task_struct: those in one page cost next to nothing. */
static const enum task_member copied[THREAD_PIECES] = {TASK_PID, TASK_START, TASK_COMM,
						       TASK_GROUPS};
/* ... and the one that always stands behind the first. */
#define TGID_BEHIND_PID 4u

static bool request(const void *state, struct thread_request *out)
{
	const struct linux_threads *own = state;

	*out = (struct thread_request){.cpus = own->offsets,
				       .ids = own->ids,
				       .pointer = own->current};
	for (size_t i = 0; i < THREAD_PIECES; i++)
		out->at[i] = own->at[copied[i]] ?: own->at[TASK_COMM];
	return own->current && own->at[TASK_TGID] == own->at[TASK_PID] + TGID_BEHIND_PID;
}

/* The bytes of a member in a copy. */
static const uint8_t *find_copied(const struct thread_copy *copy, enum task_member member)
{
	size_t i = 0;

	if (member == TASK_TGID)
		return find_copied(copy, TASK_PID) + TGID_BEHIND_PID;
	while (copied[i] != member) {
		i++;
		assert(i < THREAD_PIECES);
	}
	return copy->piece[i];
}

static uint64_t copied_number(const struct thread_copy *copy, enum task_member member)
{
	uint64_t value = 0;

	memcpy(&value, find_copied(copy, member), members[member].size);
	return value;
}

static bool decode(const struct thread_copy *copy, struct guest_thread *out)
{
	*out = (struct guest_thread){
		.at = copy->at,
		.pid = (uint32_t)copied_number(copy, TASK_TGID),
		.tid = (uint32_t)copied_number(copy, TASK_PID),
		.state = THREAD_RUNNING,
		.cpu = -1,
		.start_ns = copied_number(copy, TASK_START),
		.group = copied_number(copy, TASK_GROUPS),
	};
	out->idle = !out->tid;
	memcpy(out->name, find_copied(copy, TASK_COMM), COMM_LEN);
	return copy->at >> 63 && copy->at % 8 == 0 && out->pid <= PID_MAX && out->tid <= PID_MAX;
}

static bool switches(const void *state, uint64_t va)
{
	const struct linux_threads *own = state;

	for (size_t i = 0; i < sizeof(own->switches) / sizeof(*own->switches); i++)
		if (va >= own->switches[i].start && va < own->switches[i].end)
			return true;
	return false;
}

static bool is_cpu(const void *state, const struct guest_memory *memory, uint64_t at)
{
	const struct linux_threads *own = state;
	const uint32_t n = cpus(own, memory);
	uint64_t base;

	for (uint32_t i = 0; i < n && guest_memory_get(memory, own->offsets + 8ull * i, &base, 8);
	     i++)
		if (base == at)
			return is_online(own, memory, i);
	return false;
}

/* Reads the leader of a task's process; its number tells whether it is still there. */
static bool read_leader(const struct linux_threads *own, const struct guest_memory *memory,
			uint64_t task, uint32_t pid, struct guest_thread *out)
{
	uint64_t leader;

	return linux_get_pointer(memory, task + own->at[TASK_LEADER], &leader) &&
	       read_task(own, memory, leader, out) && out->tid == pid && out->pid == pid;
}

/* A task that is the same one after its stack was read had it before. */
static bool details(const void *state, const struct guest_memory *memory,
		    const struct guest_thread *of, struct thread_details *out)
{
	const struct linux_threads *own = state;
	struct guest_thread thread;
	uint64_t stack;

	if (!linux_get_pointer(memory, of->at + own->at[TASK_STACK], &stack) ||
	    !read_task(own, memory, of->at, &thread) || thread.tid != of->tid ||
	    thread.start_ns != of->start_ns)
		return false;
	out->stack = stack;
	out->stack_size = LINUX_THREAD_SIZE;
	out->kernel = thread.kernel;
	if (read_leader(own, memory, of->at, thread.pid, &thread))
		memcpy(out->process, thread.name, sizeof(thread.name));
	return true;
}

/* A task that is the same one, with the same credentials, after these were read had them before. */
static bool owner(const void *state, const struct guest_memory *memory,
		  const struct guest_thread *thread, uint32_t *user)
{
	const struct linux_threads *own = state;
	const uint64_t at = thread->at + own->at[TASK_CREDENTIALS];
	struct guest_thread now;
	uint64_t credentials, after;

	return own->user && linux_get_pointer(memory, at, &credentials) &&
	       guest_memory_get(memory, credentials + own->user, user, sizeof(*user)) &&
	       linux_read_again(own, memory, thread, &now) &&
	       linux_get_pointer(memory, at, &after) && after == credentials;
}

static struct error *find_members(const struct btf *btf, struct linux_threads *own)
{
	for (size_t i = 0; i < TASK_MEMBERS; i++) {
		const char *former = members[i].former;

		if (!btf_offset(btf, "task_struct", members[i].name, &own->at[i]) &&
		    !(former && btf_offset(btf, "task_struct", former, &own->at[i])) &&
		    i != TASK_GROUPS && i != TASK_CREDENTIALS)
			return error_new(ERR_GUEST,
					 "the BTF of the guest's Linux has no member %s of "
					 "task_struct",
					 members[i].name);
		if (own->at[i] > LINUX_TASK_MAX - members[i].size)
			return error_new(ERR_GUEST, "the BTF of the guest's Linux is damaged");
		if (own->at[i] + members[i].size > own->span)
			own->span = own->at[i] + members[i].size;
	}
	if (!own->at[TASK_CREDENTIALS] || !btf_offset(btf, "cred", "fsuid", &own->user))
		own->user = 0;
	if (!btf_offset(btf, "signal_struct", "thread_head", &own->thread_head))
		return error_new(ERR_GUEST,
				 "the BTF of the guest's Linux has no member thread_head "
				 "of signal_struct");
	return NULL;
}

/* Where each CPU has the address of its current task; a kernel for one CPU has no such place. */
static void find_current(const struct kallsyms *names, const struct btf *btf,
			 struct linux_threads *own)
{
	uint64_t va = 0;
	uint32_t within = 0;

	/* Linux 6.2 to 6.14 on x86; else on x86; on arm64. */
	if (kallsyms_address(names, "pcpu_hot", &va))
		va = btf_offset(btf, "pcpu_hot", "current_task", &within) ? va + within : 0;
	else if (!kallsyms_address(names, "current_task", &va) &&
		 kallsyms_address(names, "__entry_task", &va))
		(void)kallsyms_address(names, "__cpu_logical_map", &own->ids);
	if (kallsyms_address(names, "__per_cpu_offset", &own->offsets) &&
	    kallsyms_address(names, "__cpu_online_mask", &own->online) &&
	    kallsyms_address(names, "nr_cpu_ids", &own->cpus))
		own->current = va;
}

/*
 * Linux has two of these, the last one on arm64 (arch/x86/entry/entry_64.S, arch/x86/kernel/process_64.c,
 * arch/arm64/kernel/process.c and entry.S); no code is in a range that is empty.
 */
static void find_switches(const struct kallsyms *names, struct linux_threads *own)
{
	static const char *const name[] = {"__switch_to", "__switch_to_asm", "cpu_switch_to"};
	const size_t most = sizeof(own->switches) / sizeof(*own->switches);
	uint64_t start, end;

	for (size_t i = 0, n = 0; i < sizeof(name) / sizeof(*name) && n < most; i++) {
		if (!kallsyms_range(names, name[i], &start, &end))
			continue;
		own->switches[n].start = start;
		own->switches[n++].end = end;
	}
}

static struct error *find_all(const struct guest_memory *memory, const struct kallsyms *names,
			      struct linux_threads *own)
{
	ENDED_BY(btf_end) struct btf *btf = NULL;

	if (!kallsyms_address(names, "init_task", &own->init_task))
		return error_new(ERR_GUEST, "the guest's Linux has no names of its data "
					    "(CONFIG_KALLSYMS_ALL): its threads cannot be found");
	TRY(btf_read(memory, names, &btf));
	if (!btf)
		return error_new(ERR_GUEST, "the guest's Linux has no BTF (CONFIG_DEBUG_INFO_BTF): "
					    "its threads cannot be found");
	TRY(find_members(btf, own));
	linux_saved_find(btf, &own->saved);
	linux_maps_find(btf, &own->maps);
	find_current(names, btf, own);
	find_switches(names, own);
	return NULL;
}

struct error *linux_threads_find(const struct guest_memory *memory, const struct kallsyms *names,
				 void **state)
{
	struct linux_threads *own = calloc(1, sizeof(*own));
	struct error *err = own ? find_all(memory, names, own) : error_no_memory();

	if (err)
		free(own);
	else
		*state = own;
	return err;
}

static struct error *find_kernel(const struct guest_memory *memory, const struct regs *regs,
				 void **state)
{
	const struct kernel_space *space = kernel_space(regs);
	ENDED_BY(kallsyms_end) struct kallsyms *names = NULL;

	if (space)
		TRY(kernel_names_find(memory, space, regs->pc, &names));
	return names ? linux_threads_find(memory, names, state) : NULL;
}

const struct threads_system threads_linux = {
	.name = "Linux",
	.open = find_kernel,
	.close = free,
	.list = list,
	.next = next,
	.cpus = cpus,
	.running = running,
	.request = request,
	.decode = decode,
	.switches = switches,
	.is_cpu = is_cpu,
	.details = details,
	.saved = linux_saved_read,
	.stands = linux_saved_stands,
	.mappings = linux_maps_read,
	.place = linux_maps_place,
	.container = linux_maps_container,
	.owner = owner,
};
