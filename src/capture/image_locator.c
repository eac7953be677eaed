/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/image_locator.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/budget.h"
#include "base/clock.h"
#include "capture/capture.h"
#include "symbol/images/placement.h"

/* Tries at most; the pause before the first retry, which doubles each time. */
#define TRIES	     24
#define FIRST_NS     50000000ull
#define PATIENCE_MAX 60000000000ull

/* Time after which is_open is asked again, at the earliest. */
#define ASK_AGAIN_NS 10000000ull

/* vCPUs whose view of memory is searched in one try. */
#define VIEWS 8

/* ... and views of programs that wait. */
#define OFFERED 4

/* Steps of a search for files: their code is compared with the pages that vCPUs work in. */
#define FILES_STEPS (1ull << 27)

/* Length of a slice of a search, after which the caller decides whether it continues. */
#define SLICE_NS 1000000ull

/* Words of a stack that are taken for return addresses, until there are enough pages of them. */
#define STACK_WORDS 512
#define SIGHTS	    256

struct progress {
	bool other;	  /* something else was seen where the file should be */
	bool dropped;	  /* does not run in the guest, and was not given by the user */
	bool provisional; /* its place could not be checked, and is taken for granted */
	char build_id[2 * BUILD_ID_MAX + 1]; /* of the something else */
};

/* The guest as one vCPU shows it: registers, and addresses of code. */
struct vcpu_view {
	struct image_locator *locator;
	struct regs regs;
	uint64_t at[SIGHTS];
	size_t n;
};

struct image_locator {
	struct target *target;
	struct images *images;
	struct image_locator_notes notes;
	struct progress *progress; /* for each file: */
	size_t files;		   /* those that were there first; others are found elsewhere */
	char seen[2 * BUILD_ID_MAX + 1]; /* a build id in the guest, without a file */
	uint64_t seen_va;
	uint64_t next_ns, wait_ns, ask_ns;
	unsigned tries;
	bool complete;	      /* all files have been found, when the images were */
	unsigned complete_at; /* ... at this change */
	struct kernel_locator kernel;
	struct background *search;		/* NULL: none has begun */
	struct budget *budget;			/* of the search */
	struct vcpu_view view[VIEWS + OFFERED]; /* of the sample that it began with */
	unsigned views;
	struct vcpu_view offered[OFFERED]; /* for the next search, a ring */
	unsigned offers;		   /* since the last */
	bool given_up;			   /* a search was, and it was said */
	struct programs programs;
};

void image_locator_say(const struct image_locator_notes *notes, bool warning, const char *format,
		       ...)
{
	char *text = NULL;
	va_list args;

	if (!notes->note)
		return;
	va_start(args, format);
	if (vasprintf(&text, format, args) >= 0)
		notes->note(notes->ctx, warning, text);
	va_end(args);
	free(text);
}

struct error *image_locator_new(struct target *target, struct images *images,
				const struct image_locator_notes *notes, struct image_locator **out)
{
	struct image_locator *locator;

	TRY(ARRAY_NEW(&locator, 1));
	locator->target = target;
	locator->images = locator->programs.images = images;
	if (notes)
		locator->notes = locator->programs.notes = *notes;
	locator->files = images_files(images);
	locator->wait_ns = FIRST_NS;
	/* One more: the guest's own kernel, if it is found. */
	locator->progress = calloc(images_files(images) + 1, sizeof(*locator->progress));
	if (!locator->progress) {
		free(locator);
		return error_no_memory();
	}
	*out = locator;
	return NULL;
}

void image_locator_free(struct image_locator *locator)
{
	if (!locator)
		return;
	background_free(locator->search);
	guest_threads_free(locator->kernel.threads);
	free(locator->progress);
	free(locator);
}

/* Collects the pc, and words of the stack that may be return addresses. */
static void open_view(struct image_locator *locator, const struct vcpu_sample *vcpu,
		      struct vcpu_view *view)
{
	const struct window *stack = &vcpu->stack;
	size_t word = vcpu->regs.word;

	*view = (struct vcpu_view){.locator = locator, .regs = vcpu->regs};
	view->at[view->n++] = vcpu->regs.pc;
	for (size_t i = 0; i < STACK_WORDS && (i + 1) * word <= stack->len; i++) {
		uint64_t value = 0;

		memcpy(&value, stack->bytes + i * word, word);
		/* Skips small numbers, and pointers into the stack itself. */
		if (view->n == SIGHTS || value - stack->va < STACK_CAP_MAX)
			continue;
		view->at[view->n++] = value;
	}
}

static const char *id_or_none(const char *id)
{
	return *id ? id : "none";
}

static struct error *not_this_one(struct image_locator *locator, size_t i)
{
	const struct image_file *file = images_file(locator->images, i);
	const char *id = locator->progress[i].build_id;
	const char *there = *id ? "build id " : "other code is there, of an unknown build id";

	images_unmap(locator->images, i);
	if (file->given)
		return error_new(
			ERR_INPUT,
			"%s (build id %s) is not what runs in guest \"%s\" (%s%s): give the file "
			"that the guest was started from",
			file->path, id_or_none(file->build_id), locator->target->info.name, there,
			id);
	image_locator_say(
		&locator->notes, true,
		"%s (build id %s), from which the guest was started, is not what runs in it (%s%s) "
		"and is not used",
		file->path, id_or_none(file->build_id), there, id);
	locator->progress[i].dropped = true;
	return NULL;
}

bool image_locator_found(const struct images *images, const struct image_file *file,
			 const uint64_t *slide)
{
	for (size_t i = 0; i < images_count(images); i++) {
		const struct image *image = images_get(images, i);

		if (image->file == file && image->checked && (!slide || image->slide == *slide))
			return true;
	}
	return false;
}

static struct error *found(const struct vcpu_view *view, size_t i, uint64_t slide)
{
	struct image_locator *locator = view->locator;
	const struct image_file *file = images_file(locator->images, i);
	const struct elf_code *code = file->code;

	if (locator->progress[i].provisional)
		images_unmap(locator->images, i);
	locator->progress[i].provisional = false;
	if (!image_locator_found(locator->images, file, &slide))
		image_locator_say(&locator->notes, false,
				  "%s is at 0x%" PRIx64 " in the guest%s, as its code shows",
				  file->path, code->start + slide,
				  slide ? ", not where it was linked" : "");
	TRY(images_map(locator->images, i, slide, true));
	images_compared(locator->images, i, slide, view->regs.mmu.root,
			is_program_code(&view->regs, code->start + slide));
	return NULL;
}

/* An address that the user gave is only checked. */
static enum placement_verdict check_file(struct vcpu_view *view, size_t i,
					 struct placement_finding *finding)
{
	struct image_locator *locator = view->locator;
	const struct image_file *file = images_file(locator->images, i);
	struct memory_view seen = {locator->target, &view->regs};
	const struct guest_memory memory = {&seen, memory_view_read, locator->budget};

	for (size_t k = 0; k < images_count(locator->images); k++) {
		const struct image *image = images_get(locator->images, k);

		if (image->file == file && !image->checked && !locator->progress[i].provisional)
			return placement_check(file->code, image->slide, &memory, view->at, view->n,
					       finding);
	}
	return placement_find(file->code, &memory, view->at, view->n, finding);
}

/* Pages around the pc in which a build id is searched. */
#define SEEN_PAGES 64

/* Finds the build id of the running code if no file is given: it can at least be shown. */
static void find_running_id(struct vcpu_view *view)
{
	struct image_locator *locator = view->locator;
	struct memory_view seen = {locator->target, &view->regs};
	const struct guest_memory memory = {&seen, memory_view_read, locator->budget};

	for (size_t i = 0; i < locator->files; i++)
		if (images_file(locator->images, i)->code)
			return;
	if (!*locator->seen && !view->regs.user)
		placement_find_note(&memory, view->at[0], SEEN_PAGES, locator->seen,
				    &locator->seen_va);
}

const char *image_locator_seen(const struct image_locator *locator, uint64_t *note_va)
{
	*note_va = locator->seen_va;
	return *locator->seen ? locator->seen : NULL;
}

/* The guest's memory cannot be read where it executes: there is nothing to compare. */
static bool blind(struct vcpu_view *view)
{
	uint8_t byte;

	return !target_read(view->locator->target, &view->regs, view->at[0], &byte, 1);
}

/*
 * There is no doubt if the guest executes it. Else the file may still come: a
 * guest that starts is not yet where it will be. Another program in the place of
 * a program proves nothing: each has page tables of its own.
 */
static struct error *something_else(struct vcpu_view *view, size_t i,
				    const struct placement_finding *finding)
{
	struct image_locator *locator = view->locator;
	const struct elf_code *code = images_file(locator->images, i)->code;
	struct progress *progress = &locator->progress[i];

	if (is_program_code(&view->regs, code->start + finding->slide))
		return NULL;
	progress->other = true;
	memcpy(progress->build_id, finding->build_id, sizeof(progress->build_id));
	memcpy(locator->seen, finding->build_id, sizeof(locator->seen));
	locator->seen_va = finding->build_id_va;
	if (progress->provisional)
		images_unmap(locator->images, i);
	progress->provisional = false;
	if (view->at[0] - finding->slide - code->start < code->end - code->start &&
	    !view->regs.user)
		return not_this_one(locator, i);
	return NULL;
}

static struct error *locate_file(struct vcpu_view *view, size_t i)
{
	struct image_locator *locator = view->locator;
	struct image_file *file = images_file(locator->images, i);
	struct progress *progress = &locator->progress[i];
	struct placement_finding finding;
	enum placement_verdict there;

	if (!file->code || progress->dropped)
		return NULL;
	there = check_file(view, i, &finding);
	if (budget_over(locator->budget))
		return NULL;
	if (there == PLACEMENT_SAME)
		return found(view, i, finding.slide);
	if (image_locator_found(locator->images, file, NULL))
		return NULL;
	if (there == PLACEMENT_OTHER)
		return something_else(view, i, &finding);
	if (!file->mappings && blind(view)) {
		progress->provisional = true;
		return images_map(locator->images, i, 0, false);
	}
	return NULL;
}

/* True if the vCPU executes what may be a file at an unknown address. */
static bool is_astray(const struct image_locator *locator, const struct vcpu_sample *vcpu)
{
	if (!vcpu->online || images_at(locator->images, vcpu->regs.pc))
		return false;
	/* A Linux guest always runs programs of which nobody has given a file. */
	for (size_t i = 0; vcpu->regs.user && i < images_count(locator->images); i++)
		if (images_get(locator->images, i)->start < MAPPED_FILES_ADDR)
			return true;
	return !vcpu->regs.user;
}

/* True if a file has not been found. */
static bool is_missing(struct image_locator *locator)
{
	const unsigned changes = images_changes(locator->images);

	if (locator->complete && locator->complete_at == changes)
		return false;
	for (size_t i = 0; i < locator->files; i++) {
		const struct image_file *file = images_file(locator->images, i);

		if (file->code && !locator->progress[i].dropped &&
		    !image_locator_found(locator->images, file, NULL))
			return true;
	}
	locator->complete = true;
	locator->complete_at = changes;
	return false;
}

/* True if a search is worth its time; asked for every sample, once that is due. */
static bool is_open(struct image_locator *locator, const struct sample *sample)
{
	if (!locator->tries || is_missing(locator))
		return true;
	for (uint32_t i = 0; i < sample->vcpus; i++)
		if (is_astray(locator, &sample->vcpu[i]))
			return true;
	return false;
}

static struct error *search_kernel(void *ctx, struct budget *budget)
{
	struct image_locator *locator = ctx;
	bool added;

	TRY(kernel_locator_search(&locator->kernel, locator->target, locator->images,
				  &locator->view[0].regs, budget, &added));
	if (added)
		image_locator_say(&locator->notes, false,
				  "names%s are those of the Linux kernel in the guest's memory",
				  locator->target->info.arch == &arch_x86_64 ? " and unwind tables"
									     : "");
	return NULL;
}

/* A unikernel's threads are found by its file, once that is found. */
static struct error *find_unikernel(const struct vcpu_view *view)
{
	struct image_locator *locator = view->locator;
	struct memory_view seen = {locator->target, &view->regs};
	const struct guest_memory memory = {&seen, memory_view_read, locator->budget};

	return locator->kernel.with_threads && !locator->kernel.threads
		       ? guest_threads_open_images(&memory, &view->regs, locator->images,
						   &locator->kernel.threads)
		       : NULL;
}

static struct error *search_files(void *ctx, struct budget *budget)
{
	struct image_locator *locator = ctx;
	struct error *err = NULL;

	locator->budget = budget;
	for (unsigned v = 0; v < locator->views && !err && !budget_over(budget); v++) {
		for (size_t i = 0; i < locator->files && !err; i++)
			err = locate_file(&locator->view[v], i);
		find_running_id(&locator->view[v]);
		if (!err)
			err = find_unikernel(&locator->view[v]);
	}
	return err;
}

static bool time_for_files(struct image_locator *locator, const struct sample *sample)
{
	return sample->time_ns >= locator->next_ns && locator->tries != TRIES &&
	       is_open(locator, sample);
}

static struct error *begin_kernel(struct image_locator *locator, const struct sample *sample,
				  const struct regs *from)
{
	kernel_locator_defer(&locator->kernel, from, sample->time_ns);
	locator->view[0].regs = *from;
	return background_new(search_kernel, locator, KERNEL_LOCATOR_STEPS, &locator->search);
}

void image_locator_offer(struct image_locator *locator, const struct regs *regs,
			 const struct window *stack)
{
	const struct vcpu_sample vcpu = {.regs = *regs, .stack = *stack};

	if (!images_at(locator->images, regs->pc) && is_missing(locator))
		open_view(locator, &vcpu, &locator->offered[locator->offers++ % OFFERED]);
}

static struct error *begin_files(struct image_locator *locator, const struct sample *sample)
{
	locator->views = 0;
	for (uint32_t i = 0; i < sample->vcpus && locator->views < VIEWS; i++)
		if (sample->vcpu[i].online && sample->vcpu[i].regs.word)
			open_view(locator, &sample->vcpu[i], &locator->view[locator->views++]);
	for (unsigned i = 0; i < locator->offers && i < OFFERED; i++)
		locator->view[locator->views++] = locator->offered[i];
	locator->offers = 0;
	/* A search from nowhere finds nothing, and would prove nothing. */
	if (!locator->views)
		return NULL;
	locator->tries++;
	locator->next_ns = sample->time_ns + locator->wait_ns;
	locator->wait_ns =
		2 * locator->wait_ns < PATIENCE_MAX ? 2 * locator->wait_ns : PATIENCE_MAX;
	return background_new(search_files, locator, FILES_STEPS, &locator->search);
}

void image_locator_want_threads(struct image_locator *locator)
{
	locator->kernel.with_threads = true;
}

const struct guest_threads *image_locator_threads(const struct image_locator *locator)
{
	return locator->kernel.threads;
}

struct programs *image_locator_programs(struct image_locator *locator)
{
	return &locator->programs;
}

bool image_locator_busy(const struct image_locator *locator)
{
	return locator->search != NULL;
}

static void end_search(struct image_locator *locator)
{
	if (background_exhausted(locator->search) && !locator->given_up) {
		locator->given_up = true;
		image_locator_say(
			&locator->notes, !images_count(locator->images),
			"the search of the guest's memory for its code and names was given up: too "
			"much in it looks like them (-s FILE gives names)");
	}
	background_free(locator->search);
	locator->search = NULL;
	locator->budget = NULL;
}

struct error *image_locator_work(struct image_locator *locator, uint64_t until_ns)
{
	struct error *err = NULL;

	if (locator->search && !background_run(locator->search, until_ns, &err))
		end_search(locator);
	return err;
}

/* The first search of its kind is worth waiting for: without it, samples are unwound in vain. */
static struct error *work_at_once(struct image_locator *locator, bool first,
				  const volatile sig_atomic_t *stop)
{
	TRY(image_locator_work(locator, clock_now_ns() + SLICE_NS));
	while (first && locator->search && !(stop && *stop))
		TRY(image_locator_work(locator, clock_now_ns() + SLICE_NS));
	return NULL;
}

static struct error *search(struct image_locator *locator, const struct sample *sample,
			    const struct regs *from, const volatile sig_atomic_t *stop)
{
	if (from) {
		const bool first = !locator->kernel.tries && !locator->kernel.program_tries &&
				   !locator->kernel.done;

		TRY(begin_kernel(locator, sample, from));
		TRY(work_at_once(locator, first, stop));
	}
	/* A kernel that was found may have changed that. */
	if (!locator->search && time_for_files(locator, sample)) {
		TRY(begin_files(locator, sample));
		TRY(work_at_once(locator, locator->tries == 1, stop));
	}
	return NULL;
}

struct error *image_locator_sample(struct image_locator *locator, const struct sample *sample,
				   const volatile sig_atomic_t *stop, uint64_t *took_ns)
{
	const bool early = sample->time_ns < locator->ask_ns;
	const struct regs *from;
	struct error *err = NULL;
	uint64_t began;

	*took_ns = 0;
	/* The first sample in a kernel is not unwound before that kernel's tables were searched. */
	if (locator->search || (early && locator->kernel.tries))
		return NULL;
	from = kernel_locator_regs(&locator->kernel, locator->target, locator->images, sample);
	if (!from && early)
		return NULL;
	if (!from && !time_for_files(locator, sample)) {
		locator->ask_ns = sample->time_ns + ASK_AGAIN_NS;
		return NULL;
	}
	began = clock_now_ns();
	err = search(locator, sample, from, stop);
	*took_ns = clock_now_ns() - began;
	return err;
}

static void end_file(struct image_locator *locator, size_t i, bool *found_any)
{
	const struct image_file *file = images_file(locator->images, i);
	const struct progress *progress = &locator->progress[i];

	if (!file->code || progress->dropped)
		return;
	if (image_locator_found(locator->images, file, NULL)) {
		*found_any |= file->given;
		return;
	}
	if (file->mappings && !progress->other) {
		image_locator_say(
			&locator->notes, true,
			"%s cannot be checked: the guest's memory could not be read where its code "
			"should be; it is taken for what runs there",
			file->path);
		*found_any |= file->given;
		return;
	}
	images_unmap(locator->images, i);
	image_locator_say(&locator->notes, true,
			  "%s (build id %s) was not found in the guest's memory and names nothing",
			  file->path, id_or_none(file->build_id));
}

struct error *image_locator_end(struct image_locator *locator)
{
	const bool unfinished = locator->search;
	bool found_any = false;
	size_t other = SIZE_MAX;

	background_free(locator->search);
	locator->search = NULL;
	/* An unfinished first search proves nothing. */
	if (locator->tries <= unfinished)
		return NULL;
	for (size_t i = 0; i < locator->files; i++) {
		const struct image_file *file = images_file(locator->images, i);

		end_file(locator, i, &found_any);
		if (!file->code)
			found_any |= file->given;
		else if (file->given && locator->progress[i].other && other == SIZE_MAX)
			other = i;
	}
	return found_any || other == SIZE_MAX ? NULL : not_this_one(locator, other);
}
