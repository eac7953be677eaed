/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/settle.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sample/settle_kernel.h"
#include "symbol/placement.h"

/* So often it is tried at most, at first after this time, then after twice as long each time. */
#define TRIES	     24
#define FIRST_NS     50000000ull
#define PATIENCE_MAX 60000000000ull

/* When there is nothing to be found out, this is asked again after this time at the earliest. */
#define ASK_AGAIN_NS 10000000ull

/* vCPUs whose view of memory is looked at in one try. */
#define VIEWS 8

/* Words of a stack that are taken for return addresses, until there are enough pages of them. */
#define STACK_WORDS 512
#define SIGHTS	    256

struct progress {
	bool other;	  /* something else was seen where the file should be */
	bool dropped;	  /* not what runs in the guest, and not given by the user */
	bool provisional; /* its place could not be checked, and is taken for granted */
	char build_id[2 * CODE_BUILD_ID_MAX + 1]; /* of the something else */
};

struct settle {
	struct target *target;
	struct images *images;
	struct settle_notes notes;
	struct progress *progress; /* for each file */
	char seen[2 * CODE_BUILD_ID_MAX +
		  1]; /* a build id in the guest of which there is no file */
	uint64_t seen_va;
	uint64_t next_ns, wait_ns, ask_ns;
	unsigned tries;
	bool complete;	      /* all files have been found, when the images were */
	unsigned complete_at; /* ... at this change */
	struct settle_kernel kernel;
};

/* What one vCPU shows. */
struct view {
	struct settle *settle;
	const struct vcpu_sample *vcpu;
	uint64_t at[SIGHTS];
	size_t n;
};

static void say_so(struct settle *settle, bool warning, const char *format, ...) PRINTF_LIKE(3, 4);

static void say_so(struct settle *settle, bool warning, const char *format, ...)
{
	char *text = NULL;
	va_list args;

	if (!settle->notes.note)
		return;
	va_start(args, format);
	if (vasprintf(&text, format, args) >= 0)
		settle->notes.note(settle->notes.ctx, warning, text);
	va_end(args);
	free(text);
}

struct error *settle_new(struct target *target, struct images *images,
			 const struct settle_notes *notes, struct settle **out)
{
	struct settle *settle = calloc(1, sizeof(*settle));

	if (!settle)
		return error_no_memory();
	settle->target = target;
	settle->images = images;
	if (notes)
		settle->notes = *notes;
	settle->wait_ns = FIRST_NS;
	/* One more: the guest's own kernel, if it is found. */
	settle->progress = calloc(images_files(images) + 1, sizeof(*settle->progress));
	if (!settle->progress) {
		free(settle);
		return error_no_memory();
	}
	*out = settle;
	return NULL;
}

void settle_free(struct settle *settle)
{
	if (!settle)
		return;
	free(settle->progress);
	free(settle);
}

static size_t read_view(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct view *view = ctx;
	struct target *target = view->settle->target;

	return target->ops->read ? target->ops->read(target, &view->vcpu->regs, va, buf, len) : 0;
}

/* The program counter, and what on the stack may be a return address. */
static void open_view(struct settle *settle, const struct vcpu_sample *vcpu, struct view *view)
{
	const struct window *stack = &vcpu->stack;
	size_t word = vcpu->regs.word;

	*view = (struct view){.settle = settle, .vcpu = vcpu};
	view->at[view->n++] = vcpu->regs.pc;
	for (size_t i = 0; i < STACK_WORDS && (i + 1) * word <= stack->len; i++) {
		uint64_t value = 0;

		memcpy(&value, stack->bytes + i * word, word);
		/* Numbers, and pointers into the stack itself. */
		if (view->n == SIGHTS || value - stack->va < STACK_CAP_MAX)
			continue;
		view->at[view->n++] = value;
	}
}

static const char *id_or_none(const char *id)
{
	return *id ? id : "none";
}

static struct error *not_this_one(struct settle *settle, size_t i)
{
	const struct image_file *file = images_file(settle->images, i);
	struct progress *progress = &settle->progress[i];
	const char *there = progress->build_id;

	images_lift(settle->images, i);
	if (file->given)
		return error_new(
			ERR_INPUT,
			"%s (build id %s) is not what runs in guest \"%s\" (%s%s): give the file "
			"that the guest was started from",
			file->path, id_or_none(file->build_id), settle->target->info.name,
			*there ? "build id " : "other code is there, of an unknown build id",
			there);
	say_so(settle, true,
	       "%s (build id %s), from which the guest was started, is not what runs in it (%s%s) "
	       "and is not used",
	       file->path, id_or_none(file->build_id),
	       *there ? "build id " : "other code is there, of an unknown build id", there);
	progress->dropped = true;
	return NULL;
}

/* Has the file been found: at this slide, or (NULL) at all? */
static bool is_checked(const struct settle *settle, size_t i, const uint64_t *slide)
{
	const struct image_file *file = images_file(settle->images, i);

	for (size_t k = 0; k < images_count(settle->images); k++) {
		const struct image *image = images_get(settle->images, k);

		if (image->file == file && image->checked && (!slide || image->slide == *slide))
			return true;
	}
	return false;
}

static struct error *found(struct settle *settle, size_t i, uint64_t slide)
{
	const struct image_file *file = images_file(settle->images, i);
	const struct elf_code *code = file->code;

	if (settle->progress[i].provisional)
		images_lift(settle->images, i);
	settle->progress[i].provisional = false;
	if (!is_checked(settle, i, &slide))
		say_so(settle, false, "%s is at 0x%" PRIx64 " in the guest%s, as its code shows",
		       file->path, code->start + slide, slide ? ", not where it was linked" : "");
	return images_put(settle->images, i, slide, true);
}

/* A place that was told is only checked. */
static enum place_check look_for(struct view *view, size_t i, struct place_finding *finding)
{
	struct settle *settle = view->settle;
	const struct image_file *file = images_file(settle->images, i);
	const struct guest_memory memory = {view, read_view};

	for (size_t k = 0; k < images_count(settle->images); k++) {
		const struct image *image = images_get(settle->images, k);

		if (image->file == file && !image->checked && !settle->progress[i].provisional)
			return placement_check(file->code, image->slide, &memory, view->at, view->n,
					       finding);
	}
	return placement_find(file->code, &memory, view->at, view->n, finding);
}

/* How far from where a guest executes a build id is looked for. */
#define SEEN_PAGES 64

/* Without any file, what runs in the guest can at least be named. */
static void look_for_id(struct view *view)
{
	struct settle *settle = view->settle;
	const struct guest_memory memory = {view, read_view};

	for (size_t i = 0; i < images_files(settle->images); i++)
		if (images_file(settle->images, i)->code)
			return;
	if (!*settle->seen && !view->vcpu->regs.user)
		placement_find_note(&memory, view->at[0], SEEN_PAGES, settle->seen,
				    &settle->seen_va);
}

const char *settle_seen(const struct settle *settle, uint64_t *note_va)
{
	*note_va = settle->seen_va;
	return *settle->seen ? settle->seen : NULL;
}

/* The guest's memory cannot be read where it executes: there is nothing to compare. */
static bool blind(struct view *view)
{
	uint8_t byte;

	return !read_view(view, view->at[0], &byte, 1);
}

/*
 * There is no doubt if the guest executes it. Else the file may still come: a
 * guest that starts is not yet where it will be, and another program may be in
 * the place of this one just now.
 */
static struct error *something_else(struct view *view, size_t i,
				    const struct place_finding *finding)
{
	struct settle *settle = view->settle;
	const struct elf_code *code = images_file(settle->images, i)->code;
	struct progress *progress = &settle->progress[i];

	progress->other = true;
	memcpy(progress->build_id, finding->build_id, sizeof(progress->build_id));
	memcpy(settle->seen, finding->build_id, sizeof(settle->seen));
	settle->seen_va = finding->build_id_va;
	if (progress->provisional)
		images_lift(settle->images, i);
	progress->provisional = false;
	if (view->at[0] - finding->slide - code->start < code->end - code->start &&
	    !view->vcpu->regs.user)
		return not_this_one(settle, i);
	return NULL;
}

static struct error *settle_file(struct view *view, size_t i)
{
	struct settle *settle = view->settle;
	struct image_file *file = images_file(settle->images, i);
	struct progress *progress = &settle->progress[i];
	struct place_finding finding;
	enum place_check there;

	if (!file->code || progress->dropped)
		return NULL;
	there = look_for(view, i, &finding);
	if (there == PLACE_SAME)
		return found(settle, i, finding.slide);
	if (is_checked(settle, i, NULL))
		return NULL;
	if (there == PLACE_OTHER)
		return something_else(view, i, &finding);
	if (!file->places && blind(view)) {
		progress->provisional = true;
		return images_put(settle->images, i, 0, false);
	}
	return NULL;
}

/* Where programs are, on all architectures of 64 bits; kernels are in the upper half. */
#define LOWER_HALF (UINT64_C(1) << 63)

/* Does the vCPU execute what may be a file in a place that is not known yet? */
static bool is_astray(const struct settle *settle, const struct vcpu_sample *vcpu)
{
	if (!vcpu->online || images_at(settle->images, vcpu->regs.pc))
		return false;
	/* Programs of which nobody has given a file run all the time on a Linux guest. */
	for (size_t i = 0; vcpu->regs.user && i < images_count(settle->images); i++)
		if (images_get(settle->images, i)->start < LOWER_HALF)
			return true;
	return !vcpu->regs.user;
}

/* Is there a file that has not been found? */
static bool is_missing(struct settle *settle)
{
	const unsigned changes = images_changes(settle->images);

	if (settle->complete && settle->complete_at == changes)
		return false;
	for (size_t i = 0; i < images_files(settle->images); i++)
		if (images_file(settle->images, i)->code && !settle->progress[i].dropped &&
		    !is_checked(settle, i, NULL))
			return true;
	settle->complete = true;
	settle->complete_at = changes;
	return false;
}

/* Is there anything to be found out? Asked for every sample, once the time has come. */
static bool is_open(struct settle *settle, const struct sample *sample)
{
	if (!settle->tries || is_missing(settle))
		return true;
	for (uint32_t i = 0; i < sample->vcpus; i++)
		if (is_astray(settle, &sample->vcpu[i]))
			return true;
	return false;
}

static struct error *look_from(struct settle *settle, const struct vcpu_sample *vcpu)
{
	struct error *err = NULL;
	struct view view;

	open_view(settle, vcpu, &view);
	for (size_t i = 0; i < images_files(settle->images) && !err; i++)
		err = settle_file(&view, i);
	look_for_id(&view);
	return err;
}

static struct error *look_for_kernel(struct settle *settle, const struct sample *sample,
				     const struct regs *from)
{
	bool added;
	struct error *err = settle_kernel_look(&settle->kernel, settle->target, settle->images,
					       from, sample->time_ns, &added);

	if (!err && added)
		say_so(settle, false, "names%s are those of the Linux kernel in the guest's memory",
		       settle->target->info.arch == &arch_x86_64 ? " and unwind tables" : "");
	return err;
}

static struct error *look_for_files(struct settle *settle, const struct sample *sample)
{
	struct error *err = NULL;
	unsigned views = 0;

	settle->tries++;
	settle->next_ns = sample->time_ns + settle->wait_ns;
	settle->wait_ns = 2 * settle->wait_ns < PATIENCE_MAX ? 2 * settle->wait_ns : PATIENCE_MAX;
	for (uint32_t i = 0; i < sample->vcpus && views < VIEWS && !err; i++) {
		if (!sample->vcpu[i].online || !sample->vcpu[i].regs.word)
			continue;
		views++;
		err = look_from(settle, &sample->vcpu[i]);
	}
	return err;
}

static bool time_for_files(struct settle *settle, const struct sample *sample)
{
	return sample->time_ns >= settle->next_ns && settle->tries != TRIES &&
	       is_open(settle, sample);
}

struct error *settle_look(struct settle *settle, const struct sample *sample, uint64_t *took_ns)
{
	const bool early = sample->time_ns < settle->ask_ns;
	const struct regs *from;
	struct error *err = NULL;
	uint64_t began;

	*took_ns = 0;
	/* The first sample in a kernel is not to be unwound without what that kernel tells. */
	if (early && settle->kernel.tries)
		return NULL;
	from = settle_kernel_from(&settle->kernel, settle->target, settle->images, sample);
	if (!from && early)
		return NULL;
	if (!from && !time_for_files(settle, sample)) {
		settle->ask_ns = sample->time_ns + ASK_AGAIN_NS;
		return NULL;
	}
	began = clock_now_ns();
	if (from)
		err = look_for_kernel(settle, sample, from);
	/* A kernel that was found may have changed that. */
	if (!err && time_for_files(settle, sample))
		err = look_for_files(settle, sample);
	*took_ns = clock_now_ns() - began;
	return err;
}

static void end_file(struct settle *settle, size_t i, bool *found_any)
{
	const struct image_file *file = images_file(settle->images, i);
	const struct progress *progress = &settle->progress[i];

	if (!file->code || progress->dropped)
		return;
	if (is_checked(settle, i, NULL)) {
		*found_any |= file->given;
		return;
	}
	if (file->places && !progress->other) {
		say_so(settle, true,
		       "%s cannot be checked: the guest's memory could not be read where its code "
		       "should be; it is taken for what runs there",
		       file->path);
		*found_any |= file->given;
		return;
	}
	images_lift(settle->images, i);
	say_so(settle, true,
	       "%s (build id %s) was not found in the guest's memory and names nothing", file->path,
	       id_or_none(file->build_id));
}

struct error *settle_end(struct settle *settle)
{
	bool found_any = false;
	size_t other = SIZE_MAX;

	if (!settle->tries)
		return NULL;
	for (size_t i = 0; i < images_files(settle->images); i++) {
		const struct image_file *file = images_file(settle->images, i);

		end_file(settle, i, &found_any);
		if (!file->code)
			found_any |= file->given;
		else if (file->given && settle->progress[i].other && other == SIZE_MAX)
			other = i;
	}
	return found_any || other == SIZE_MAX ? NULL : not_this_one(settle, other);
}
