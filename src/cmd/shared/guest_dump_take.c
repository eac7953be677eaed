/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/guest_dump_take.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/owned.h"
#include "capture/capture.h"
#include "capture/sampler.h"

/*
 * Instruction boundaries are known only from a function's start on; in a longer
 * function, the code behind the pc must do.
 */
#define FUNCTION_MOST 1024u
#define BEHIND	      48u /* bytes */
#define LINES_BEFORE  6u
#define LINES_BEHIND  8u
/* An instruction has at least a byte. */
#define ALL_LINES (FUNCTION_MOST + BEHIND)

/* Lines of bytes, for code that cannot be disassembled; one of them begins at pc. */
#define PLAIN_BYTES 8u
#define PLAIN_LINES 4u

static size_t plain_lines(struct target *target, const struct regs *regs, struct code_line *lines)
{
	uint64_t va = regs->pc - PLAIN_LINES / 2 * PLAIN_BYTES;
	size_t n = 0;

	for (unsigned i = 0; i < PLAIN_LINES; i++, va += PLAIN_BYTES) {
		struct code_line *line = &lines[n];

		*line = (struct code_line){.va = va, .here = va == regs->pc};
		line->len = (uint8_t)target_read(target, regs, va, line->bytes, PLAIN_BYTES);
		n += line->len != 0;
	}
	return n;
}

/* Keeps those around pc; none if no line begins there, for then all may be misread. */
static size_t choose_lines(const struct code_line *all, size_t n, uint64_t pc,
			   struct code_line *lines)
{
	size_t here = 0, first, last;

	while (here < n && all[here].va != pc)
		here++;
	if (here == n)
		return 0;
	first = here > LINES_BEFORE ? here - LINES_BEFORE : 0;
	last = here + LINES_BEHIND < n ? here + LINES_BEHIND : n;
	memcpy(lines, all + first, (last - first) * sizeof(*lines));
	lines[here - first].here = true;
	return last - first;
}

static size_t lines_from(struct target *target, const struct regs *regs, uint64_t start,
			 struct disassembler *disassembler, struct code_line *lines)
{
	FREED struct code_line *all = calloc(ALL_LINES, sizeof(*all));
	uint8_t bytes[ALL_LINES];
	struct window code = {.va = start, .bytes = bytes};
	size_t n;

	if (!all)
		return 0;
	code.len = (uint32_t)target_read(target, regs, start, bytes,
					 (size_t)(regs->pc - start) + BEHIND);
	n = disassemble(disassembler, regs, &code, all, ALL_LINES);
	return choose_lines(all, n, regs->pc, lines);
}

void guest_dump_read_code(struct target *target, const struct images *images,
			  const struct regs *regs, struct disassembler *disassembler,
			  struct guest_dump_vcpu *out)
{
	struct symbol symbol;

	out->n_code = 0;
	if (images_find(images, regs->pc, false, &symbol) &&
	    regs->pc - symbol.start <= FUNCTION_MOST)
		out->n_code = lines_from(target, regs, symbol.start, disassembler, out->code);
	if (!out->n_code)
		out->n_code = lines_from(target, regs, regs->pc, disassembler, out->code);
	if (!out->n_code)
		out->n_code = plain_lines(target, regs, out->code);
}

/*
 * Views of memory that are tried, each with a sample of its own: it may be that
 * of a process that ends meanwhile, or lack the kernel. A vCPU in the kernel
 * hardly ever has such a view: it counts for several.
 */
#define VIEWS_MOST  100u
#define KERNEL_VIEW 12u
#define VIEW_NAP_NS (10 * 1000000ull)
/* Steps for all that is read: some seconds. */
#define STEPS (1ull << 31)

/* Systems whose threads are known, for messages. */
#define SYSTEMS "Linux of 64 bits with kallsyms; by -s FILE, Unikraft, Mini-OS, FreeRTOS"

static struct error *take_view(struct thread_listing *listing, unsigned turn)
{
	TRY(listing->target->ops->sample(listing->target, listing->sample));
	/* The kernel's page tables are by turns those of user mode, and beside them. */
	if (!waiting_choose_view(listing->target, listing->sample, turn % 2, &listing->regs))
		return error_new(ERR_GUEST, "no vCPU of the guest runs a system whose threads are "
					    "known: " SYSTEMS);
	return NULL;
}

static struct error *open_system(struct thread_listing *listing)
{
	TRY(guest_threads_open(&listing->memory, &listing->regs, listing->images,
			       &listing->threads));
	if (!listing->threads)
		return error_new(
			ERR_GUEST,
			!regs_show_kernel(&listing->regs)
				? "no vCPU was ever seen in the guest's kernel: try again"
				: "the guest runs no system whose threads are known: " SYSTEMS);
	return NULL;
}

static struct error *list_running(struct thread_listing *listing)
{
	listing->cpus = guest_threads_cpus(listing->threads, &listing->memory);
	listing->running = calloc(listing->cpus + 1ull, sizeof(*listing->running));
	listing->is_running = calloc(listing->cpus + 1ull, sizeof(*listing->is_running));
	if (!listing->running || !listing->is_running)
		return error_no_memory();
	for (uint32_t i = 0; i < listing->cpus; i++)
		listing->is_running[i] = guest_threads_running(listing->threads, &listing->memory,
							       i, &listing->running[i]);
	return NULL;
}

static struct error *list_from_view(struct thread_listing *listing, unsigned turn)
{
	TRY(take_view(listing, turn));
	if (!listing->threads)
		TRY(open_system(listing));
	return guest_threads_list(listing->threads, &listing->memory, &listing->list);
}

static struct error *list_threads(struct thread_listing *listing)
{
	struct error *err = list_from_view(listing, 0);
	unsigned used = 0;

	for (unsigned turn = 1; err || listing->list.trouble; turn++) {
		used += regs_show_kernel(&listing->regs) ? KERNEL_VIEW : 1;
		if (listing->target->still || used >= VIEWS_MOST || budget_over(&listing->budget) ||
		    (err && err->kind == ERR_ENDED))
			break;
		target_wait(listing->target, clock_now_ns() + VIEW_NAP_NS);
		error_free(err);
		guest_thread_list_free(&listing->list);
		err = list_from_view(listing, turn);
	}
	return err;
}

/*
 * Samples an open target until a vCPU shows the kernel, and lists what it has.
 * Must not be moved afterwards. ERR_GUEST: no system that is known runs there.
 */
static struct error *take_listing(struct target *target, const struct images *images,
				  struct thread_listing *out)
{
	enum target_life life;

	*out = (struct thread_listing){.target = target,
				       .images = images,
				       .budget = {.left = STEPS}};
	out->view = (struct memory_view){target, &out->regs};
	out->memory = (struct guest_memory){&out->view, memory_view_read, &out->budget};
	TRY(target_check_life(target, &life));
	if (!target_can_read(target))
		return error_new(ERR_GUEST, "the memory of this guest cannot be read");
	TRY(sample_new(target->info.vcpus, FRAME_SIZE, &out->sample));
	TRY(list_threads(out));
	return list_running(out);
}

static void free_listing(struct thread_listing *listing)
{
	free(listing->running);
	free(listing->is_running);
	guest_thread_list_free(&listing->list);
	guest_threads_free(listing->threads);
	sample_free(listing->sample);
}

struct guest_dump_taken {
	struct guest_dump dump;
	struct images *images;
	struct image_locator *locator;
	struct stacks *stacks;
	struct stand_ins *stand_ins; /* NULL: not wanted */
	struct capture *capture;
	struct thread_listing listing;
	struct guest_mapping_list *mappings; /* [n_processes]: of each that was listed */
	size_t n_processes, n_mappings;
	struct budget mappings_budget;
};

const struct guest_dump *guest_dump_of(const struct guest_dump_taken *taken)
{
	return &taken->dump;
}

const struct thread_listing *guest_dump_listing(const struct guest_dump_taken *taken)
{
	return &taken->listing;
}

void guest_dump_free(struct guest_dump_taken *taken)
{
	struct guest_dump *dump = &taken->dump;

	for (size_t i = 0; i < dump->n_vcpus; i++)
		free(dump->vcpus[i].trace.frames);
	for (size_t i = 0; i < dump->n_threads; i++)
		free(dump->threads[i].trace.frames);
	for (size_t i = 0; i < dump->n_memory; i++)
		free(dump->memory[i].bytes);
	for (size_t i = 0; i < taken->n_processes; i++)
		guest_mapping_list_free(&taken->mappings[i]);
	free(taken->mappings);
	free(dump->vcpus);
	free(dump->threads);
	free_listing(&taken->listing);
	short_names_free(dump->names);
	symbolizer_free(dump->symbolizer);
	stand_ins_free(taken->stand_ins);
	capture_free(taken->capture);
	stacks_free(taken->stacks);
	image_locator_free(taken->locator);
	images_free(taken->images);
	free(taken);
}

static struct error *prepare(struct guest_dump_taken *taken, struct target *target,
			     const struct session_options *options)
{
	const struct image_locator_notes notes = {.ctx = (void *)options, .note = session_note};
	struct sampler_options sampler = options->sampler;

	TRY(session_load_images(target, options, &taken->images));
	TRY(image_locator_new(target, taken->images, &notes, &taken->locator));
	image_locator_programs(taken->locator)->unmoved = true;
	TRY(stacks_new(&taken->stacks));
	if (!options->no_python)
		TRY(stand_ins_new(&taken->stand_ins));
	sampler.threads = true;
	sampler.stand_ins = taken->stand_ins;
	sampler.images = taken->images;
	sampler.locator = taken->locator;
	TRY(capture_new(target, taken->stacks, &sampler, &taken->capture));
	TRY(symbolizer_new(taken->images, NULL, &taken->dump.symbolizer));
	symbolizer_set(taken->dump.symbolizer,
		       &(struct symbolizer_options){.stand_ins = taken->stand_ins});
	return NULL;
}

/* A thread that waits for a CPU cannot always be stopped at once. */
#define TRIES_MOST 50
#define NAP_NS	   (20 * 1000000ull)

static struct error *take_tick(struct guest_dump_taken *taken, struct tick *tick)
{
	struct priority priority;
	struct error *err;

	priority_raise(&priority);
	err = capture_tick(taken->capture, 0, tick);
	for (unsigned tries = 1; !err && !tick->n && tries < TRIES_MOST; tries++) {
		clock_sleep_until(clock_now_ns() + NAP_NS);
		err = capture_tick(taken->capture, 0, tick);
	}
	taken->dump.paused_ns = tick->paused_ns;
	/* The first tick has shown the guest's system: the next one tells which threads it runs. */
	if (!err && image_locator_threads(taken->locator) && tick->n && !tick->entries->thread) {
		err = capture_tick(taken->capture, 0, tick);
		taken->dump.paused_ns += tick->paused_ns;
	}
	priority_restore(&priority);
	taken->dump.unix_ns = clock_unix_ns();
	return err;
}

static struct error *take_frames(const struct stacks *stacks, uint32_t stack, enum unwind_end end,
				 struct guest_dump_trace *out)
{
	size_t n = stacks_depth(stacks, stack);

	TRY(ARRAY_NEW(&out->frames, n ? n : 1));
	for (uint32_t id = stack; id != STACK_ROOT; out->n_frames++) {
		const struct stack_node *node = stacks_node(stacks, id);

		out->frames[out->n_frames] = (struct frame){.addr = node->addr,
							    .kind = node->kind,
							    .trust = node->trust};
		id = node->parent;
	}
	out->end = end;
	return NULL;
}

static struct error *take_vcpu(struct guest_dump_taken *taken, struct target *target,
			       const struct tick_entry *entry, struct disassembler *disassembler,
			       struct guest_dump_vcpu *out)
{
	const struct vcpu_sample *vcpu = &capture_sample(taken->capture)->vcpu[entry->vcpu];

	out->online = true;
	out->state = (enum vcpu_state)entry->state;
	if (entry->thread)
		out->thread = thread_numbers_get(capture_threads(taken->capture), entry->thread);
	out->regs = &vcpu->regs;
	out->stack = &vcpu->stack;
	if (target->ops->registers)
		target->ops->registers(target, entry->vcpu, &out->registers);
	else
		target->info.arch->show(&vcpu->regs, &out->registers);
	guest_dump_read_code(target, taken->images, &vcpu->regs, disassembler, out);
	return take_frames(taken->stacks, entry->stack, (enum unwind_end)entry->end, &out->trace);
}

static const struct tick_entry *entry_of(const struct tick *tick, uint32_t vcpu)
{
	for (uint32_t i = 0; i < tick->n; i++)
		if (tick->entries[i].vcpu == vcpu)
			return &tick->entries[i];
	return NULL;
}

static struct error *take_vcpus(struct guest_dump_taken *taken, struct target *target,
				const struct tick *tick, const struct guest_dump_wanted *wanted,
				struct disassembler *disassembler)
{
	struct guest_dump *dump = &taken->dump;

	TRY(ARRAY_NEW(&dump->vcpus, target->info.vcpus));
	for (uint32_t i = 0; i < target->info.vcpus; i++) {
		const struct tick_entry *entry = entry_of(tick, i);
		struct guest_dump_vcpu *vcpu = &dump->vcpus[dump->n_vcpus];

		if (wanted->vcpu >= 0 && wanted->vcpu != i)
			continue;
		dump->n_vcpus++;
		vcpu->id = i;
		if (entry)
			TRY(take_vcpu(taken, target, entry, disassembler, vcpu));
	}
	return NULL;
}

static struct error *take_thread(struct guest_dump_taken *taken, const struct waiting *waiting,
				 struct guest_dump_thread *out)
{
	const uint64_t listed = out->thread.run;
	struct waiting_stack stack;

	TRY(waiting_unwind(waiting, &out->thread, true, &stack));
	out->read = stack.read;
	if (!stack.read)
		return NULL;
	out->program = stack.program ? 0 : stack.called;
	/* A thread that ran meanwhile may have executed another program. */
	if (out->thread.run == listed)
		out->trace.mappings = out->mappings;
	return take_frames(taken->stacks, stack.stack, stack.end, &out->trace);
}

/* Mappings of all processes, at most. */
#define DUMP_MAPPINGS_MAX (1u << 20)

/* Reads those of the process whose threads stand from `at` on: of one that has not ended. */
static struct error *take_mappings(struct guest_dump_taken *taken, const struct guest_thread *at,
				   const struct guest_mapping_list **out)
{
	struct thread_listing *listing = &taken->listing;
	const struct guest_memory memory = {&listing->view, memory_view_read,
					    &taken->mappings_budget};
	struct guest_mapping_list *to = &taken->mappings[taken->n_processes];
	const struct guest_thread *end = listing->list.at + listing->list.n, *living = at;

	while (living + 1 < end && living[1].pid == at->pid &&
	       (living->state == THREAD_ZOMBIE || living->state == THREAD_DEAD))
		living++;
	TRY(guest_threads_mappings(listing->threads, &memory, living, to));
	*out = to;
	taken->n_processes++;
	taken->n_mappings += to->n;
	return NULL;
}

/* Fills in what is known of a thread without its stack, but for the first one that of the one before. */
static struct error *take_process(struct guest_dump_taken *taken, size_t i, bool with_mappings)
{
	const struct guest_thread *at = &taken->listing.list.at[i];
	struct guest_dump_thread *thread = &taken->dump.threads[i];

	thread->thread = *at;
	thread->process = at->pid == RECORDED_ID_UNKNOWN
				  ? guest_threads_system_name(taken->listing.threads)
				  : at->name;
	if (i && at->pid == at[-1].pid) {
		thread->process = thread[-1].process;
		thread->mappings = thread[-1].mappings;
		return NULL;
	}
	if (!with_mappings || at->kernel)
		return NULL;
	if (taken->n_mappings < DUMP_MAPPINGS_MAX)
		return take_mappings(taken, at, &thread->mappings);
	taken->dump.trouble = "the guest's processes have too many mappings: not all are shown";
	return NULL;
}

/* Frames of all threads, at most: a guest may have many threads with deep stacks. */
#define THREAD_FRAMES_MAX (1u << 21)

static struct error *take_threads(struct guest_dump_taken *taken, bool with_mappings)
{
	struct guest_dump *dump = &taken->dump;
	struct thread_listing *listing = &taken->listing;
	const struct waiting waiting = {.target = listing->target,
					.capture = taken->capture,
					.memory = &listing->memory,
					.regs = &listing->regs,
					.threads = listing->threads,
					.locator = taken->locator};
	size_t frames = 0;

	dump->trouble = listing->list.trouble;
	dump->threads = calloc(listing->list.n + 1, sizeof(*dump->threads));
	taken->mappings = calloc(listing->list.n + 1, sizeof(*taken->mappings));
	taken->mappings_budget = (struct budget){.left = STEPS};
	if (!dump->threads || !taken->mappings)
		return error_no_memory();
	for (size_t i = 0; i < listing->list.n; i++) {
		struct guest_dump_thread *thread = &dump->threads[i];

		TRY(take_process(taken, i, with_mappings));
		dump->n_threads++;
		if (frames < THREAD_FRAMES_MAX)
			TRY(take_thread(taken, &waiting, thread));
		else
			dump->trouble =
				"the guest's threads have too many frames: not all are shown";
		frames += thread->trace.n_frames;
	}
	return NULL;
}

/* Reads memory through the page tables of the first vCPU that was asked for. */
static struct error *take_memory(struct guest_dump *dump, struct target *target,
				 const struct guest_dump_wanted *wanted)
{
	const struct regs *regs = NULL;

	for (size_t i = 0; i < dump->n_vcpus && !regs; i++)
		regs = dump->vcpus[i].regs;
	for (; dump->n_memory < wanted->n_memory; dump->n_memory++) {
		struct guest_dump_memory *memory = &dump->memory[dump->n_memory];

		*memory = wanted->memory[dump->n_memory];
		memory->bytes = malloc(memory->asked);
		if (!memory->bytes)
			return error_no_memory();
		if (regs)
			memory->len =
				target_read(target, regs, memory->va, memory->bytes, memory->asked);
	}
	return NULL;
}

static struct error *take(struct guest_dump_taken *taken, struct target *target,
			  const struct session_options *options,
			  const struct guest_dump_wanted *wanted, struct disassembler *disassembler)
{
	struct tick tick = {0};

	TRY(target_check_life(target, &taken->dump.life));
	TRY(prepare(taken, target, options));
	TRY(take_tick(taken, &tick));
	TRY(take_vcpus(taken, target, &tick, wanted, disassembler));
	if (wanted->threads)
		TRY(take_listing(target, taken->images, &taken->listing));
	if (wanted->threads)
		TRY(take_threads(taken, wanted->mappings));
	TRY(image_locator_end(taken->locator));
	/* Not before stacks are unwound: V8 enters functions in their middle, and the unwinder would follow them from their start. */
	TRY(session_load_jit_names(target, options, taken->images, taken->locator));
	return take_memory(&taken->dump, target, wanted);
}

static struct error *add_names(struct guest_dump *dump, const struct guest_dump_trace *trace)
{
	for (size_t i = 0; i < trace->n_frames; i++) {
		const struct frame *frame = &trace->frames[i];
		const struct location *at;
		size_t n;

		TRY(symbolizer_locate(dump->symbolizer, frame->addr, frame->kind, &at, &n));
		for (size_t k = 0; k < n; k++)
			TRY(short_names_add(dump->names, at[k].function, strlen(at[k].function)));
	}
	return NULL;
}

/* Short names of the functions in all traces: those that are equal stay apart. */
static struct error *take_names(struct guest_dump *dump)
{
	TRY(short_names_new(&dump->names));
	for (size_t v = 0; v < dump->n_vcpus; v++)
		TRY(add_names(dump, &dump->vcpus[v].trace));
	for (size_t t = 0; t < dump->n_threads; t++)
		TRY(add_names(dump, &dump->threads[t].trace));
	return NULL;
}

struct error *guest_dump_take(struct target *target, const struct session_options *options,
			      const struct guest_dump_wanted *wanted,
			      struct disassembler *disassembler, struct guest_dump_taken **out)
{
	struct guest_dump_taken *taken;
	struct error *err;

	TRY(ARRAY_NEW(&taken, 1));
	taken->dump.scheme = target->ops->scheme;
	taken->dump.info = &target->info;
	target->always_pause = options->always_pause;
	err = take(taken, target, options, wanted, disassembler);
	if (!err && !wanted->full_names)
		err = take_names(&taken->dump);
	if (err)
		guest_dump_free(taken);
	else
		*out = taken;
	return err;
}
