/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/capture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "symbol/images/placement.h"
#include "symbol/kernel/kernel.h"

/* A thread that has run while its stack was read is read again so often. */
#define TRIES 4

/* Kernels' stacks are not larger, but for those with KASAN. */
#define STACK_MAX 16384u

bool waiting_choose_view(struct target *target, const struct sample *sample, bool beside,
			 struct regs *out)
{
	bool found = false;

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		const struct vcpu_sample *vcpu = &sample->vcpu[i];

		if (!vcpu->online || vcpu->given_up || !kernel_space(&vcpu->regs) ||
		    (found && vcpu->regs.user))
			continue;
		found = true;
		*out = vcpu->regs;
		if (!vcpu->regs.user)
			return true;
		if (target->ops->kernel_mmu)
			target->ops->kernel_mmu(target, i, &out->mmu);
		/* On arm64 nothing tells whether there are such tables, but that a thread was found by them. */
		if (out->kernel_root &&
		    (out->isa == ISA_ARM && sample->request.thread ? vcpu->thread.apart : beside))
			mmu_use_kernel(&out->mmu, out->kernel_root);
	}
	return found;
}

/* The view of memory, with the registers that the thread goes on with. */
static struct regs registers_of(const struct waiting *waiting, const struct thread_saved *saved)
{
	struct regs regs = *waiting->regs;

	regs.pc = saved->pc;
	regs.sp = saved->sp;
	regs.fp = saved->fp;
	regs.user = false;
	memcpy(regs.gp, saved->gp, sizeof(regs.gp));
	regs.gp_valid = saved->gp_valid;
	regs.has_elr = false;
	return regs;
}

/* Bytes of a thread's stack in its program that are read at most. */
#define PROGRAM_STACK_MAX 65536u

/* Stacks of one thread, as they were read. */
struct stacks_read {
	struct regs regs, program;
	bool has_program; /* false: `program` and its stack say nothing */
	struct window stack, program_stack;
	uint8_t bytes[STACK_MAX];
	uint8_t program_bytes[RED_ZONE_MAX + PROGRAM_STACK_MAX];
};

/* Reads the program's stack by the program's page tables; false: it has none, or they are not found. */
static bool read_program(const struct waiting *waiting, const struct thread_saved *saved,
			 struct stacks_read *out)
{
	struct regs *regs = &out->program;
	const uint64_t sp = saved->program.sp & ~(uint64_t)(saved->program.word - 1);
	struct window *stack = &out->program_stack;
	size_t len;

	if (!saved->tables)
		return false;
	*regs = saved->program;
	regs->mmu = waiting->regs->mmu;
	if (!target_translate(waiting->target, &waiting->regs->mmu, saved->tables, &regs->mmu.root))
		return false;
	*stack = (struct window){.va = sp, .bytes = out->program_bytes + RED_ZONE_MAX};
	len = target_read(waiting->target, regs, sp, out->program_bytes + RED_ZONE_MAX,
			  PROGRAM_STACK_MAX);
	stack->len = (uint32_t)len;
	stack->cut = len == PROGRAM_STACK_MAX;
	if (target_read(waiting->target, regs, sp - RED_ZONE_MAX, out->program_bytes,
			RED_ZONE_MAX) == RED_ZONE_MAX)
		stack->below = red_zone(regs);
	return true;
}

/* Steps to compare what one program has mapped. */
#define MAPPED_STEPS (1ull << 22)

/* A file of the user's that may be that of a program, or of its libraries. */
static bool is_wanted(const struct image_file *file)
{
	return file->given && file->code && file->code->start < LOWER_HALF;
}

/* Compares file `i` where a mapping of its name has all of its code. */
static struct error *compare_mapped(struct images *images, size_t i, const struct guest_mapping *at,
				    const struct guest_memory *memory, bool *added)
{
	const struct memory_view *view = memory->ctx;
	const struct image_file *file = images_file(images, i);
	struct placement_finding finding;
	uint64_t slide;

	if (!at->executable || !at->path || strcmp(basename(at->path), basename(file->path)) != 0)
		return NULL;
	slide = at->start - (file->code->start & ~(uint64_t)(FRAME_SIZE - 1));
	if (file->code->end + slide > at->end || image_locator_found(images, file, &slide) ||
	    placement_check(file->code, slide, memory, &view->regs->pc, 1, &finding) !=
		    PLACEMENT_SAME ||
	    budget_over(memory->budget))
		return NULL;
	*added = true;
	TRY(images_map(images, i, slide, true));
	images_compared(images, i, slide, view->regs->mmu.root, true);
	return NULL;
}

static struct error *search_mapped(const struct waiting *waiting, const struct guest_thread *thread,
				   const struct regs *program, bool *added)
{
	struct programs *programs =
		waiting->locator ? image_locator_programs(waiting->locator) : NULL;
	struct images *images = programs ? programs->images : NULL;
	struct memory_view view = {waiting->target, program};
	struct budget budget = {.left = MAPPED_STEPS};
	const struct guest_memory memory = {&view, memory_view_read, &budget};
	const struct program_of of = {waiting->target, waiting->threads, thread, program, NULL};
	const unsigned changes = images ? images_changes(images) : 0;
	ENDED_BY(guest_mapping_list_free) struct guest_mapping_list list = {0};
	size_t wanted = images && sysroot_is_given();

	for (size_t i = 0; images && i < images_files(images); i++)
		wanted += is_wanted(images_file(images, i));
	if (wanted)
		TRY(guest_threads_mappings(waiting->threads, waiting->memory, thread, &list));
	if (wanted && sysroot_is_given())
		TRY(programs_seek(programs, &of, &list));
	*added = images && images_changes(images) != changes;
	for (size_t i = 0; wanted && i < images_files(images); i++)
		for (size_t k = 0; k < list.n && is_wanted(images_file(images, i)); k++)
			TRY(compare_mapped(images, i, &list.at[k], &memory, added));
	return NULL;
}

/* Walks on in the program, behind the kernel's part. */
static struct error *walk_program(const struct waiting *waiting, const struct guest_thread *thread,
				  const struct stacks_read *read, bool search,
				  struct unwind_result *walked)
{
	const struct regs *regs = &read->program;
	struct unwind_result program;
	struct error *err = NULL;
	bool there = capture_walk(waiting->capture, regs, &read->program_stack, walked->n,
				  &program),
	     added = false;

	if (search && (!there || program.end != UNWIND_OUTERMOST))
		err = search_mapped(waiting, thread, regs, &added);
	if (!err && added)
		there = capture_walk(waiting->capture, regs, &read->program_stack, walked->n,
				     &program);
	if (there) {
		walked->n += program.n;
		walked->end = program.end;
		walked->program = 0;
	}
	return err;
}

/* Walks through the kernel, and on in the program if that is what this has come to. */
static struct error *walk(const struct waiting *waiting, const struct guest_thread *thread,
			  const struct stacks_read *read, bool search, struct waiting_stack *out)
{
	const struct program_of of = {waiting->target, waiting->threads, thread, &read->program,
				      NULL};
	struct unwind_result walked;
	struct tick_entry entry = {0};
	struct error *err = capture_locate(waiting->capture, &read->regs);

	if (err)
		return err;
	(void)capture_walk(waiting->capture, &read->regs, &read->stack, 0, &walked);
	/* Frame records of Linux on arm64 end where the kernel was entered (arch/arm64/kernel/entry.S). */
	if (read->has_program && read->program.isa == ISA_ARM && walked.end == UNWIND_OUTERMOST)
		walked.program = read->program.pc;
	out->called = walked.program;
	if (read->has_program && walked.program == read->program.pc)
		err = walk_program(waiting, thread, read, search, &walked);
	if (err)
		return err;
	out->program = out->called && !walked.program;
	if (out->program)
		err = capture_place(waiting->capture, &walked, &of);
	err = err ? err : capture_keep(waiting->capture, &walked, &entry);
	out->stack = entry.stack;
	out->end = (enum unwind_end)entry.end;
	return err;
}

/* *again: false if it does not stand now. out->read: it stood still meanwhile. */
static struct error *unwind_once(const struct waiting *waiting, struct guest_thread *thread,
				 bool search, struct waiting_stack *out, bool *again)
{
	struct stacks_read read;
	struct thread_saved saved;
	uint64_t len;

	*again = guest_threads_saved(waiting->threads, waiting->memory, thread, &saved);
	if (!*again)
		return NULL;
	read.regs = registers_of(waiting, &saved);
	len = saved.stack_end - saved.sp;
	read.stack = (struct window){.va = saved.sp, .bytes = read.bytes};
	read.stack.len = (uint32_t)target_read(waiting->target, &read.regs, saved.sp, read.bytes,
					       len < STACK_MAX ? len : STACK_MAX);
	read.has_program = read_program(waiting, &saved, &read);
	out->read =
		read.stack.len && guest_threads_stands(waiting->threads, waiting->memory, thread);
	return out->read ? walk(waiting, thread, &read, search, out) : NULL;
}

struct error *waiting_unwind(const struct waiting *waiting, struct guest_thread *thread,
			     bool search, struct waiting_stack *out)
{
	bool again = true;

	*out = (struct waiting_stack){0};
	for (unsigned i = 0; i < TRIES && again && !out->read; i++)
		TRY(unwind_once(waiting, thread, search, out, &again));
	return NULL;
}

/* Threads that were visited last, to go on behind the last that is still there. */
#define TRAIL 64u

/* Steps for what one tick reads. */
#define WAITS_STEPS (1ull << 24)

/* Stacks of one thread with which files are searched for in what its program has mapped. */
#define SEARCHES_MOST 4u

/* A thread as it was seen when it had its last turn. */
struct visit {
	uint64_t at_ns; /* 0: never */
	uint64_t run;	/* as guest_thread.run */
	uint32_t stack;
	uint8_t end;
	bool read;	  /* stack and end are those of that run */
	uint8_t searches; /* for files in what its program has mapped */
};

struct waits {
	struct target *target;
	struct capture *capture;
	struct image_locator *locator;	   /* may be NULL */
	const volatile sig_atomic_t *stop; /* may be NULL */
	uint32_t budget;
	struct guest_thread trail[TRAIL]; /* a ring: */
	uint32_t trail_end, trail_n;
	uint64_t
		lost_at; /* address of the thread behind which the turn led nowhere; 0: it goes on */
	uint64_t in_turn; /* threads since the turn began */
	/* Times below are on a clock of its own, which begins with the first tick: see advance(). */
	uint64_t time_ns, before_ns;  /* ... of this tick and the one before */
	uint64_t ticked_ns;	      /* CLOCK_MONOTONIC of the last tick; 0: there was none */
	uint64_t period_ns, usual_ns; /* from one tick to the next, as asked for and as it is */
	uint64_t turn_ns;	      /* when the turn began */
	bool again;		      /* the turn is not the first one */
	double cost;		      /* share of time that looks may take of a CPU */
	int64_t left_ns;	      /* CPU time for looks; less than 0: the last look took more */
	/* When the turns before were where the present one is: a thread that is met first counts from then on. */
	uint64_t passed_ns;
	struct visit *visits; /* by the thread's number, 1 first */
	size_t room;
	struct tick_entry *entries; /* [vCPUs + budget] */
	struct waits_counts counts;
};

struct error *waits_new(struct target *target, struct capture *capture,
			const struct sampler_options *options, struct waits **out)
{
	struct waits *waits;

	TRY(ARRAY_NEW(&waits, 1));
	waits->target = target;
	waits->capture = capture;
	waits->locator = options->locator;
	waits->stop = options->stop;
	waits->budget = options->waits < TICK_WAITS_MAX ? options->waits : TICK_WAITS_MAX;
	waits->period_ns = waits->usual_ns = (uint64_t)((double)NS_PER_S / options->rate_hz);
	waits->time_ns = waits->before_ns = waits->turn_ns = waits->passed_ns = 1;
	waits->cost = options->waits_cost;
	waits->left_ns = (int64_t)(waits->cost * (double)waits->period_ns);
	waits->entries = calloc(target->info.vcpus + waits->budget, sizeof(*waits->entries));
	if (!waits->entries) {
		waits_free(waits);
		return error_no_memory();
	}
	*out = waits;
	return NULL;
}

void waits_free(struct waits *waits)
{
	if (!waits)
		return;
	free(waits->visits);
	free(waits->entries);
	free(waits);
}

struct waits_counts waits_count(const struct waits *waits)
{
	return waits ? waits->counts : (struct waits_counts){0};
}

/* A stretch without ticks counts as no more than so many usual ones: nobody saw what was then. */
#define STRETCHES 4u
/* The usual stretch follows the last ones, of so many. */
#define STRETCHES_USUAL 16u

/* The time of this tick, in which stretches that nobody saw are left out, as they are of vCPUs' weights. */
static uint64_t advance(struct waits *waits)
{
	const uint64_t now_ns = clock_now_ns(), most_ns = STRETCHES * waits->usual_ns;
	uint64_t since_ns = waits->ticked_ns ? now_ns - waits->ticked_ns : 0;

	if (since_ns > most_ns)
		since_ns = most_ns;
	waits->usual_ns += since_ns / STRETCHES_USUAL - waits->usual_ns / STRETCHES_USUAL;
	if (waits->usual_ns < waits->period_ns)
		waits->usual_ns = waits->period_ns;
	waits->ticked_ns = now_ns;
	waits->left_ns += (int64_t)(waits->cost * (double)since_ns);
	/* CPU time that earlier ticks did not need is not for one tick to take. */
	if (waits->left_ns > (int64_t)(waits->cost * (double)most_ns))
		waits->left_ns = (int64_t)(waits->cost * (double)most_ns);
	waits->before_ns = waits->time_ns;
	return waits->time_ns += since_ns;
}

static bool may_look(const struct waits *waits)
{
	return !(waits->stop && *waits->stop) && (waits->cost <= 0 || waits->left_ns > 0);
}

static uint8_t state_of(const struct guest_thread *thread)
{
	/* The others run, or have ended. */
	static const uint8_t states[THREAD_STATES] = {
		[THREAD_RUNNABLE] = WAIT_QUEUED, [THREAD_DISK] = WAIT_DISK,
		[THREAD_STOPPED] = WAIT_STOPPED, [THREAD_TRACED] = WAIT_STOPPED,
		[THREAD_PARKED] = WAIT_STOPPED,	 [THREAD_SLEEPING] = WAIT_SLEEPING,
		[THREAD_IDLE] = WAIT_SLEEPING,	 [THREAD_OTHER] = WAIT_SLEEPING};

	static_assert(VCPU_RUNNING == 0, "what is not in the table");
	return states[thread->state];
}

/* Reads the stack, unless it is still the one that was read; false: the thread does not stand still. */
static struct error *read_stack(const struct waiting *waiting, struct visit *visit,
				struct guest_thread *thread)
{
	struct waiting_stack stack;
	struct error *err;

	if (visit->read && visit->run == thread->run)
		return NULL;
	err = waiting_unwind(waiting, thread, visit->searches < SEARCHES_MOST, &stack);
	visit->searches += !err && stack.called && visit->searches < SEARCHES_MOST &&
			   (!stack.program || stack.end != UNWIND_OUTERMOST);
	visit->read = !err && stack.read;
	visit->run = thread->run;
	visit->stack = stack.stack;
	visit->end = (uint8_t)stack.end;
	return err;
}

/*
 * The time since this thread had its last turn; it has one now. In the first turn all
 * threads are new, which takes long: no one look is to stand for that time.
 */
static uint64_t visit_again(struct waits *waits, struct visit *visit, uint64_t now_ns)
{
	const uint64_t met_ns = waits->again ? waits->passed_ns : waits->before_ns,
		       before_ns = visit->at_ns ? visit->at_ns : met_ns;

	waits->passed_ns = before_ns;
	visit->at_ns = now_ns;
	return now_ns > before_ns ? now_ns - before_ns : 0;
}

/*
 * A vCPU without work may wait on the stack of a thread that waits itself, whether it has a CPU for
 * that at this moment or not: then the thread has that stack. NULL: none does.
 */
static const struct tick_entry *find_host(const struct waiting *waiting, const struct tick *tick,
					  uint32_t thread)
{
	const struct stacks *stacks = capture_stacks(waiting->capture);

	for (uint32_t i = 0; i < tick->n; i++)
		if (tick->entries[i].thread == thread &&
		    is_idling(waiting->threads, stacks, tick->entries[i].stack))
			return &tick->entries[i];
	return NULL;
}

/* Looks at a thread; one that runs is sampled with its vCPU. */
static struct error *visit_thread(struct waits *waits, const struct waiting *waiting,
				  struct guest_thread thread, uint64_t now_ns, struct tick *tick)
{
	struct visit *visit;
	struct tick_entry *entry = &waits->entries[tick->n + tick->waits];
	const struct tick_entry *host;
	uint32_t number;
	uint64_t since_ns;

	TRY(thread_numbers_add(capture_threads(waits->capture), waiting->threads, waiting->memory,
			       &thread, &number));
	if (!number)
		return NULL;
	TRY(ARRAY_RESERVE_ZERO(&waits->visits, &waits->room, number));
	visit = &waits->visits[number - 1];
	since_ns = visit_again(waits, visit, now_ns);
	if (state_of(&thread) != VCPU_RUNNING)
		TRY(read_stack(waiting, visit, &thread));
	if (state_of(&thread) == VCPU_RUNNING)
		return NULL;
	host = visit->read ? NULL : find_host(waiting, tick, number);
	if (!visit->read && !host) {
		waits->counts.unproven++;
		return NULL;
	}
	*entry = (struct tick_entry){.vcpu = NO_VCPU,
				     .stack = host ? host->stack : visit->stack,
				     .state = state_of(&thread),
				     .end = host ? host->end : visit->end,
				     .thread = number,
				     .weight_ns = since_ns};
	tick->waits++;
	waits->counts.samples++;
	return NULL;
}

static void begin_turn(struct waits *waits, uint64_t now_ns)
{
	waits->passed_ns = waits->turn_ns;
	waits->turn_ns = now_ns;
	waits->again = true;
	waits->in_turn = 0;
	waits->trail_n = 0;
	waits->lost_at = 0;
}

/*
 * Goes to the next thread. TURN_LOST: the one before was no way on, and the next call
 * tries from the one before that; if it leads there again, the list is broken.
 */
static enum guest_thread_turn go_on(struct waits *waits, const struct waiting *waiting,
				    struct guest_thread *thread)
{
	enum guest_thread_turn turn;

	*thread = (struct guest_thread){0};
	if (waits->trail_n)
		*thread = waits->trail[(waits->trail_end + TRAIL - 1) % TRAIL];
	turn = guest_threads_next(waiting->threads, waiting->memory, thread);
	if (turn == TURN_THREAD && thread->at == waits->lost_at) {
		waits->trail_n = 0;
		return TURN_LOST;
	}
	if (turn == TURN_THREAD) {
		waits->lost_at = 0;
		waits->trail[waits->trail_end] = *thread;
		waits->trail_end = (waits->trail_end + 1) % TRAIL;
		waits->trail_n += waits->trail_n < TRAIL;
		waits->in_turn++;
	} else if (turn == TURN_LOST && waits->trail_n) {
		waits->trail_end = (waits->trail_end + TRAIL - 1) % TRAIL;
		waits->trail_n--;
		waits->lost_at = waits->trail[waits->trail_end].at;
	}
	return turn;
}

/* Takes what a look cost, since *cpu_ns, from what is left. */
static void pay(struct waits *waits, uint64_t *cpu_ns)
{
	const uint64_t now_ns = clock_cpu_ns();

	waits->left_ns -= (int64_t)(now_ns - *cpu_ns);
	*cpu_ns = now_ns;
}

/* A tick ends where a turn does: so no thread has two samples in it. */
static struct error *take_turns(struct waits *waits, const struct waiting *waiting,
				struct tick *tick)
{
	const uint64_t now_ns = advance(waits);
	uint64_t cpu_ns = clock_cpu_ns();
	struct guest_thread thread;
	struct error *err = NULL;

	for (uint32_t i = 0; i < waits->budget && !err && may_look(waits); i++) {
		const enum guest_thread_turn turn = go_on(waits, waiting, &thread);

		if (turn == TURN_THREAD)
			err = visit_thread(waits, waiting, thread, now_ns, tick);
		pay(waits, &cpu_ns);
		if (turn == TURN_END || (turn == TURN_LOST && !waits->trail_n) ||
		    waits->in_turn > GUEST_THREADS_MAX) {
			waits->counts.lost += turn != TURN_END;
			begin_turn(waits, now_ns);
			break;
		}
	}
	return err;
}

struct error *waits_tick(struct waits *waits, const struct guest_threads *threads,
			 struct tick *tick)
{
	struct regs regs = {0}; /* of the vCPU whose view of the kernel's memory is read */
	struct memory_view view = {waits->target, &regs};
	struct budget budget = {.left = WAITS_STEPS};
	const struct guest_memory memory = {&view, memory_view_read, &budget};
	const struct waiting waiting = {.target = waits->target,
					.capture = waits->capture,
					.threads = threads,
					.memory = &memory,
					.regs = &regs,
					.locator = waits->locator};

	if (!threads ||
	    !waiting_choose_view(waits->target, capture_sample(waits->capture), true, &regs))
		return NULL;
	memcpy(waits->entries, tick->entries, tick->n * sizeof(*tick->entries));
	tick->entries = waits->entries;
	return take_turns(waits, &waiting, tick);
}
