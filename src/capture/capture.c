/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/capture.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"

/* A sample is repeated so often at most because a stack was deeper than the copy. */
#define MAX_DEEPER 5

/* Steps to read what a thread's copy does not tell. */
#define IDENTIFY_STEPS (1ull << 22)

struct capture {
	struct target *target;
	struct stacks *stacks;
	struct sample *sample;
	struct code_cache *code_cache;
	struct image_locator *locator;	/* may be NULL */
	struct thread_numbers *threads; /* NULL: not wanted */
	struct thread_request request;
	struct unwinder *unwinder;
	/* Puts other frames in place of some, of an interpreter or of files; NULL: nothing does. */
	struct error *(*replace)(struct capture *capture, const struct vcpu_sample *vcpu,
				 struct unwind_result *out);
	bool anew; /* there is an interpreter: its functions may change where the C stack does not */
	struct frame *frames;
	uint32_t max_frames;
	enum unwind_method method;
	struct tick_entry *entries;
	struct stack_depth *depths; /* of each vCPU */
	struct tick_entry *last;    /* of each vCPU: what it had last, and CPU time that waits */
	uint64_t retakes;
	uint64_t given_up;
	uint64_t no_room;
	uint64_t locating_ns;
	const volatile sig_atomic_t *stop; /* may be NULL */
	struct interpreter *interpreter;   /* NULL: none is known, or wanted */
	struct interpreters
		*interpreters;	     /* of a guest's programs; NULL: none are wanted, or not yet */
	struct stand_ins *stand_ins; /* of these; NULL: none are wanted */
	struct host_view *host;	     /* NULL: not wanted */
};

/* Interns a stack; if the unwinder remembers it, only the frames that the one before had not. */
static struct error *intern(struct capture *capture, const struct unwind_result *out, uint32_t *id,
			    bool *whole)
{
	uint32_t *ids = out->ids, parent = STACK_ROOT;
	size_t i = out->n - out->common;

	code_cache_mark_foreign(capture->code_cache, capture->frames, i);
	if (!ids)
		return stacks_intern(capture->stacks, capture->frames, out->n, id, whole);
	if (out->common)
		parent = ids[i];
	for (*whole = true; *whole && i-- > 0; parent = ids[i]) {
		struct error *err =
			stacks_add(capture->stacks, parent, &capture->frames[i], &ids[i], whole);

		if (err)
			return err;
		if (!*whole) {
			unwinder_forget_stacks(capture->unwinder);
			break;
		}
	}
	*id = parent;
	return NULL;
}

struct error *capture_keep(struct capture *capture, const struct unwind_result *walked,
			   struct tick_entry *out)
{
	bool whole = true;
	struct error *err = intern(capture, walked, &out->stack, &whole);

	out->end = (uint8_t)(whole ? walked->end : UNWIND_NO_ROOM);
	capture->no_room += !whole;
	return err;
}

/* Frames of which the system did not tell this time are not remembered. */
struct error *capture_place(struct capture *capture, const struct unwind_result *walked,
			    const struct program_of *of)
{
	struct programs *programs =
		capture->locator ? image_locator_programs(capture->locator) : NULL;
	const uint64_t before_ns = programs ? programs->reading_ns : 0;
	const size_t n = walked->n - walked->common;
	struct error *err = NULL;
	bool missed = false;

	code_cache_mark_foreign(capture->code_cache, capture->frames, n);
	if (programs) {
		err = programs_place(programs, of, capture->frames, n, &missed);
		capture->locating_ns += programs->reading_ns - before_ns;
	}
	if (missed)
		unwinder_forget_stacks(capture->unwinder);
	return err;
}

/* Puts the functions of an interpreter into the stack of a program of the guest's; NULL: of the process that is sampled. */
static struct error *merge_program(struct capture *capture, const struct program_of *of,
				   const struct vcpu_sample *vcpu, struct unwind_result *out)
{
	struct runtime_stack stack = {.window = &vcpu->stack,
				      .frames = capture->frames,
				      .n = out->n,
				      .max = capture->max_frames,
				      .end = out->end};
	struct error *err = of ? interpreters_merge(capture->interpreters, of, vcpu, &stack)
			       : interpreter_merge(capture->interpreter, vcpu, &stack);

	out->n = stack.n;
	out->end = stack.end;
	return err;
}

/* capture.replace */
static struct error *merge(struct capture *capture, const struct vcpu_sample *vcpu,
			   struct unwind_result *out)
{
	return merge_program(capture, NULL, vcpu, out);
}

/* capture.replace: a thread was asked for. */
static struct error *put_to_files(struct capture *capture, const struct vcpu_sample *vcpu,
				  struct unwind_result *out)
{
	struct guest_thread thread;
	const struct program_of of = {capture->target, image_locator_threads(capture->locator),
				      &thread, &vcpu->regs, capture->interpreters};
	struct error *err = NULL;

	if (!vcpu->thread.there || !guest_threads_decode(of.threads, &vcpu->thread, &thread))
		return NULL;
	if (interpreters_find(capture->interpreters, &vcpu->regs))
		err = merge_program(capture, &of, vcpu, out);
	return err ?: capture_place(capture, out, &of);
}

/*
 * Keeps what a vCPU is seen at with the host's side, of which the frames of its guest are there, if
 * that runs. Stays by itself: other samples do not pay for it.
 */
static __attribute__((noinline)) struct error *
keep_host(struct capture *capture, uint32_t i, struct unwind_result *out, struct tick_entry *entry)
{
	const struct vcpu_sample *vcpu = &capture->sample->vcpu[i];
	struct error *err = NULL;
	bool whole = true;

	if (host_view_has_guest(vcpu))
		code_cache_mark_foreign(capture->code_cache, capture->frames, out->n);
	else
		err = host_view_frames(capture->host, vcpu, capture->frames, out);
	if (!err)
		err = host_view_enclose(capture->host, i, vcpu, capture->frames, out);
	if (!err)
		err = stacks_intern(capture->stacks, capture->frames, out->n, &entry->stack,
				    &whole);
	entry->end = (uint8_t)(whole ? out->end : UNWIND_NO_ROOM);
	capture->no_room += !whole;
	return err;
}

/* Unwinds one vCPU into *entry; *deeper is set when more of its stack should be copied. */
static struct error *unwind_vcpu(struct capture *capture, uint32_t i, struct tick_entry *entry,
				 bool *deeper)
{
	struct vcpu_sample *vcpu = &capture->sample->vcpu[i];
	struct unwind_input in = {.regs = &vcpu->regs,
				  .stack = &vcpu->stack,
				  .others = vcpu->others,
				  .n_others = vcpu_others(vcpu),
				  .code = code_cache_for(capture->code_cache, &vcpu->regs,
							 capture->sample->time_ns),
				  .unwinder = capture->unwinder,
				  .anew = capture->anew ||
					  interpreters_find(capture->interpreters, &vcpu->regs),
				  .max_frames = capture->max_frames,
				  .method = capture->method};
	struct unwind_result out;

	unwind_stack(&in, capture->frames, &out);
	stack_depth_adapt(&capture->depths[i], vcpu, capture->sample->stack_cap, &out);
	*deeper |= vcpu->request.again;
	TRY(capture->replace ? capture->replace(capture, vcpu, &out) : NULL);
	return capture->host ? keep_host(capture, i, &out, entry)
			     : capture_keep(capture, &out, entry);
}

/*
 * Finds out which thread's the stack of a vCPU is, of which a thread was
 * copied. Stays by itself: guests without threads do not pay for it.
 */
__attribute__((noinline)) static struct error *identify(struct capture *capture, uint32_t i,
							struct tick_entry *entry)
{
	const struct vcpu_sample *vcpu = &capture->sample->vcpu[i];
	struct memory_view view = {capture->target, &vcpu->regs};
	struct budget budget = {.left = IDENTIFY_STEPS};
	const struct guest_memory memory = {&view, kernel_view_read, &budget};
	struct error *err =
		thread_numbers_find(capture->threads, image_locator_threads(capture->locator),
				    &memory, i, &vcpu->thread, &entry->thread);

	/* The stack may be the next thread's already, the pointer still that to the one before. */
	if (entry->thread &&
	    !thread_numbers_on_stack(capture->threads, entry->thread, vcpu->regs.sp) &&
	    is_switching(image_locator_threads(capture->locator), capture->stacks, entry->stack))
		entry->thread = 0;
	return err;
}

/* Asks for threads with the next samples, once it is known where they are. */
static struct error *ask_for_threads(struct capture *capture)
{
	const struct guest_threads *threads =
		capture->target->copies_threads ? image_locator_threads(capture->locator) : NULL;

	if (!threads || !guest_threads_request(threads, &capture->request))
		return NULL;
	capture->sample->request.thread = &capture->request;
	capture->replace = put_to_files;
	if (!capture->stand_ins || !capture->target->copies_program_frames)
		return NULL;
	return interpreters_new(threads, capture->stand_ins, capture->sample,
				&capture->interpreters);
}

/* Unwinds what was read. The state is that of the first take: no vCPU need run before the next. */
static struct error *unwind_all(struct capture *capture, bool first, bool *deeper)
{
	struct error *err = NULL;

	for (uint32_t i = 0; i < capture->sample->vcpus && !err; i++) {
		const struct vcpu_sample *vcpu = &capture->sample->vcpu[i];
		struct tick_entry *last = &capture->last[i];

		if (!vcpu->online)
			continue;
		last->ran_ns += vcpu->ran_ns;
		if (first)
			last->state = (uint8_t)vcpu->state;
		if (vcpu->same || vcpu->given_up ||
		    (capture->host && !host_view_holds(capture->host, i, vcpu, first)))
			continue;
		err = capture->host && !host_view_has_guest(vcpu)
			      ? keep_host(capture, i, &(struct unwind_result){0}, last)
			      : unwind_vcpu(capture, i, last, deeper);
		last->thread = 0;
		if (!err && vcpu->thread.there)
			err = identify(capture, i, last);
	}
	return err;
}

/*
 * CPU time goes to the stacks that are found on a CPU: a vCPU that has run and
 * gone to sleep since keeps what it used until it is seen at work.
 */
static void fill_tick(struct capture *capture, struct tick *tick)
{
	tick->n = tick->waits = 0;
	for (uint32_t i = 0; i < capture->sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &capture->sample->vcpu[i];
		struct tick_entry *last = &capture->last[i], *entry = &capture->entries[tick->n];

		vcpu->request.again = false;
		capture->given_up += vcpu->online && (vcpu->given_up || vcpu->hurried);
		if (!vcpu->online || vcpu->given_up)
			continue;
		*entry = *last;
		entry->vcpu = i;
		if (last->state == VCPU_RUNNING)
			last->ran_ns = 0;
		else
			entry->ran_ns = 0;
		tick->n++;
	}
	tick->entries = capture->entries;
}

/* Finds out where the images are, which may take a while, when there is something to be found. */
static struct error *locate_images(struct capture *capture)
{
	struct error *err;
	uint64_t took_ns;

	if (!capture->locator)
		return NULL;
	err = image_locator_sample(capture->locator, capture->sample, capture->stop, &took_ns);
	capture->locating_ns += took_ns;
	return err;
}

struct error *capture_locate(struct capture *capture, const struct regs *regs)
{
	struct vcpu_sample vcpu = {.online = true, .regs = *regs};
	const struct sample sample = {.time_ns = clock_now_ns(), .vcpus = 1, .vcpu = &vcpu};
	struct image_locator *locator = capture->locator;
	uint64_t took_ns;

	return locator ? image_locator_sample(locator, &sample, capture->stop, &took_ns) : NULL;
}

bool capture_walk(struct capture *capture, const struct regs *regs, const struct window *stack,
		  size_t n, struct unwind_result *out)
{
	const uint64_t now_ns = clock_now_ns();
	const struct unwind_input in = {.regs = regs,
					.stack = stack,
					.code = code_cache_for(capture->code_cache, regs, now_ns),
					.unwinder = capture->unwinder,
					.kernel_only = !n && regs->pc >= LOWER_HALF,
					.anew = true,
					.max_frames = capture->max_frames - n,
					.method = capture->method};

	if (n && (!in.max_frames || !code_cache_knows(capture->code_cache, regs->pc))) {
		if (capture->locator)
			image_locator_offer(capture->locator, regs, stack);
		return false;
	}
	unwinder_ration(capture->unwinder, now_ns);
	unwind_stack(&in, capture->frames + n, out);
	return true;
}

/* Takes the sample again while stacks are deeper than expected. Out of line: inlined it takes 170 instructions more. */
__attribute__((noinline)) struct error *capture_tick(struct capture *capture, uint64_t now_ns,
						     struct tick *tick)
{
	uint64_t stolen = 0;

	capture->locating_ns = 0;
	for (unsigned deeper_takes = 0;; deeper_takes++) {
		struct error *err;
		bool deeper = false;

		capture->sample->request.now_ns = deeper_takes ? 0 : now_ns;
		if (capture->interpreter)
			interpreter_refresh(capture->interpreter);
		err = capture->target->ops->sample(capture->target, capture->sample);
		if (err)
			return err;
		unwinder_ration(capture->unwinder, capture->sample->time_ns);
		capture->retakes += capture->sample->retakes;
		stolen += capture->sample->stolen_ns;
		err = locate_images(capture);
		if (err)
			return err;
		if (capture->threads && !capture->sample->request.thread)
			err = ask_for_threads(capture);
		if (!err)
			err = unwind_all(capture, deeper_takes == 0, &deeper);
		if (err)
			return err;
		if (!deeper || deeper_takes == MAX_DEEPER)
			break;
		capture->retakes++;
		stolen += capture->sample->paused_ns;
	}
	tick->time_ns = capture->sample->time_ns;
	tick->paused_ns = capture->sample->paused_ns + stolen;
	fill_tick(capture, tick);
	return NULL;
}

static struct error *prepare(struct capture *capture, const struct sampler_options *options)
{
	const uint32_t vcpus = capture->target->info.vcpus,
		       cap = options->max_stack ?: STACK_DEFAULT;
	struct error *err;

	capture->max_frames = options->max_frames ? options->max_frames : FRAMES_DEFAULT;
	capture->method = options->method;
	capture->frames = calloc(capture->max_frames + HOST_VIEW_FRAMES, sizeof(*capture->frames));
	capture->entries = calloc(vcpus, sizeof(*capture->entries));
	capture->depths = calloc(vcpus, sizeof(*capture->depths));
	capture->last = calloc(vcpus, sizeof(*capture->last));
	if (!capture->frames || !capture->entries || !capture->depths || !capture->last)
		return error_no_memory();
	err = sample_new(vcpus, cap, &capture->sample);
	if (!err && ((options->threads && capture->target->copies_threads) || options->waits))
		err = thread_numbers_new(vcpus, &capture->threads);
	if (capture->threads && capture->locator)
		image_locator_want_threads(capture->locator);
	for (uint32_t i = 0; i < vcpus; i++)
		stack_depth_begin(&capture->depths[i], capture->target->copies_pieces);
	for (uint32_t i = 0; i < vcpus && !err && options->first_stack; i++)
		capture->sample->vcpu[i].request.want =
			options->first_stack < cap ? options->first_stack : cap;
	if (!err)
		capture->sample->request.max_pause_ns = options->max_pause_ns;
	stacks_limit(capture->stacks, options->max_memory ? options->max_memory : MEMORY_DEFAULT);
	if (!err)
		err = code_cache_new(capture->target, options->images, &capture->code_cache);
	if (!err)
		err = unwinder_new(&capture->unwinder);
	capture->stand_ins = options->stand_ins;
	if (!err && options->stand_ins && capture->target->copies_frames)
		err = interpreter_new(capture->target, options->stand_ins, capture->sample,
				      &capture->interpreter);
	if (capture->interpreter)
		capture->replace = merge;
	if (!err && options->host_images)
		err = host_view_new(options->host_images, options->stand_ins, capture->sample,
				    &capture->host);
	capture->anew = capture->interpreter || capture->host;
	return err;
}

struct error *capture_new(struct target *target, struct stacks *stacks,
			  const struct sampler_options *options, struct capture **out)
{
	struct capture *capture;
	struct error *err;

	TRY(ARRAY_NEW(&capture, 1));
	capture->target = target;
	capture->stacks = stacks;
	capture->locator = options->locator;
	capture->stop = options->stop;
	err = prepare(capture, options);
	if (err)
		capture_free(capture);
	else
		*out = capture;
	return err;
}

void capture_free(struct capture *capture)
{
	if (!capture)
		return;
	unwinder_free(capture->unwinder);
	interpreter_free(capture->interpreter);
	interpreters_free(capture->interpreters);
	host_view_free(capture->host);
	code_cache_free(capture->code_cache);
	sample_free(capture->sample);
	thread_numbers_free(capture->threads);
	free(capture->depths);
	free(capture->last);
	free(capture->entries);
	free(capture->frames);
	free(capture);
}

const struct sample *capture_sample(const struct capture *capture)
{
	return capture->sample;
}

const struct stacks *capture_stacks(const struct capture *capture)
{
	return capture->stacks;
}

struct thread_numbers *capture_threads(const struct capture *capture)
{
	return capture->threads;
}

uint64_t capture_locating_ns(const struct capture *capture)
{
	return capture->locating_ns;
}

void capture_tell(const struct capture *capture, struct sampler_result *out)
{
	if (!capture)
		return;
	out->retakes = capture->retakes;
	out->given_up = capture->given_up;
	out->no_room = capture->no_room;
	interpreter_tell(capture->interpreter, out);
	interpreters_tell(capture->interpreters, out);
}
