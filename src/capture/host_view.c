/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Addresses of the host's kernel. */
#define KERNEL_HALF LOWER_HALF

/* The sample's own interrupt is at most so many frames of the kernel's stack. */
#define SKIPPED_MAX 24u

/* Functions that threads begin in (glibc, musl): what called them is nobody's. */
static const char *const outermost[] = {"_start", "start_thread", "clone", "__clone",
					"clone3", "__clone3",	  "start", "__libc_start_main",
					NULL};

struct host_view {
	const struct images *images;
	struct stand_ins *stand_ins;
	struct host_stack *stacks;	  /* of each vCPU */
	enum host_place *places;	  /* ... when its sample was first taken */
	struct frame around[HOST_PLACES]; /* frames for places */
};

/* A frame that is no code of the guest's; files of the guest say nothing of it. */
static struct error *stand_in(struct stand_ins *stand_ins, const char *name, const char *file,
			      struct frame *frame)
{
	uint32_t number;
	struct error *err = stand_ins_function(stand_ins, name, file, &number);

	/* More functions than there are numbers for: none of them is lost, all are one. */
	if (number == STAND_IN_NO_FUNCTION)
		number = STAND_IN_FUNCTIONS - 1;
	*frame = (struct frame){.addr = stand_in_address(number, 0),
				.kind = FRAME_PC | FRAME_FOREIGN,
				.trust = TRUST_SURE};
	return err;
}

struct error *host_view_new(const struct images *images, struct stand_ins *stand_ins,
			    struct sample *sample, struct host_view **out)
{
	static const char *const names[] = {[HOST_GUEST] = "[guest]",
					    [HOST_SWITCH] = "[entry and exit]",
					    [HOST_EXIT] = "[exits]",
					    [HOST_MONITOR] = "[VMM]",
					    [HOST_HALTED] = "[idle]"};
	struct host_view *view;
	struct error *err = NULL;

	TRY(ARRAY_NEW(&view, 1));
	view->images = images;
	view->stand_ins = stand_ins;
	view->stacks = calloc(sample->vcpus, sizeof(*view->stacks));
	view->places = calloc(sample->vcpus, sizeof(*view->places));
	if (!view->stacks || !view->places)
		err = error_no_memory();
	for (unsigned k = 0; k < HOST_PLACES && !err; k++)
		err = stand_in(view->stand_ins, names[k], "", &view->around[k]);
	if (err) {
		host_view_free(view);
		return err;
	}
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].host = &view->stacks[i];
	*out = view;
	return NULL;
}

void host_view_free(struct host_view *view)
{
	if (!view)
		return;
	free(view->stacks);
	free(view->places);
	free(view);
}

bool host_view_holds(struct host_view *view, uint32_t i, const struct vcpu_sample *vcpu, bool first)
{
	if (first)
		view->places[i] = vcpu->host->place;
	return view->places[i] == vcpu->host->place;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The function at an address, and its file; false: no file has code there. */
static bool find(const struct host_view *view, uint64_t addr, char *text, size_t size,
		 const char **name, const char **file)
{
	struct symbol symbol;
	const struct image *image = images_find(view->images, addr, true, &symbol);

	if (image) {
		*name = symbol.name;
	} else {
		image = images_at(view->images, addr);
		if (addr < KERNEL_HALF && !image)
			return false;
		snprintf(text, size, "[%s]", image ? base_name(image->file->path) : "host kernel");
		*name = text;
	}
	*file = addr >= KERNEL_HALF ? "[host kernel]" : image->file->path;
	return true;
}

static bool is_outermost(const char *name)
{
	for (size_t k = 0; outermost[k]; k++)
		if (!strcmp(name, outermost[k]))
			return true;
	return false;
}

/* The first frame of the kernel's stack that is not of the sample itself. */
static uint32_t first_frame(const struct host_view *view, const struct host_stack *host)
{
	struct symbol symbol;

	for (uint32_t i = 0; host->skip && i < host->kernel && i < SKIPPED_MAX; i++)
		if (images_find(view->images, host->at[i] - (i > 0), true, &symbol) &&
		    !strcmp(symbol.name, host->skip))
			return i + 1;
	return 0;
}

/*
 * The kernel unwinds its own stacks by tables. Of programs it follows frame pointers alone: callers
 * there are guesses, and the first that is in no code ends the walk.
 */
struct error *host_view_frames(struct host_view *view, const struct vcpu_sample *vcpu,
			       struct frame *frames, struct unwind_result *out)
{
	const struct host_stack *host = vcpu->host;
	const uint32_t all = host->kernel + host->user;
	const uint32_t first = first_frame(view, host);
	struct error *err = NULL;

	*out = (struct unwind_result){.end = host->place == HOST_SWITCH ? UNWIND_OUTERMOST
									: UNWIND_NO_STACK};
	for (uint32_t i = first; i < all && !err; i++) {
		const bool user = i >= host->kernel;
		/* Behind an interrupt the frame is where that came, which may be a function's first instruction. */
		const bool pc = i == first || i == host->kernel;
		const char *name, *file;
		char text[288];

		out->end = UNWIND_BROKEN;
		if (!find(view, host->at[i] - !pc, text, sizeof(text), &name, &file))
			break;
		err = stand_in(view->stand_ins, name, file, &frames[out->n]);
		frames[out->n++].trust = user && !pc ? TRUST_GUESS : TRUST_SURE;
		if (user && is_outermost(name)) {
			out->end = UNWIND_OUTERMOST;
			break;
		}
	}
	return err;
}

struct error *host_view_enclose(struct host_view *view, uint32_t i, const struct vcpu_sample *vcpu,
				struct frame *frames, struct unwind_result *out)
{
	char name[24];

	snprintf(name, sizeof(name), "vCPU %u", i);
	frames[out->n++] = view->around[vcpu->host->place];
	return stand_in(view->stand_ins, name, "", &frames[out->n++]);
}

struct keeping_exits {
	const struct images *images;
	struct stand_ins *stand_ins;
	struct stacks *stacks;
	struct recording_writer *writer;
	struct error *err;
};

static struct error *exits_stack(const struct keeping_exits *keeping,
				 const struct vcpu_exits *exits, uint32_t *stack)
{
	/* An exit does not tell the program: where the guest has several, its code has no one's name. */
	const bool any = exits->user && images_program_at(keeping->images, exits->address);
	struct frame frames[2] = {{.addr = exits->address, .kind = FRAME_PC}};
	size_t n = exits->caused;
	bool whole;

	TRY(any ? stand_in(keeping->stand_ins, "[programs]", "", &frames[0]) : NULL);
	TRY(stand_in(keeping->stand_ins, exits->reason, "", &frames[n++]));
	return stacks_intern(keeping->stacks, frames, n, stack, &whole);
}

static void keep_exits(void *ctx, const struct vcpu_exits *exits)
{
	struct keeping_exits *keeping = ctx;
	struct recorded_exits out = {.vcpu = exits->vcpu, .count = exits->count};

	if (keeping->err)
		return;
	keeping->err = exits_stack(keeping, exits, &out.stack);
	if (!keeping->err && out.stack != STACK_ROOT)
		keeping->err = recording_exits(keeping->writer, &out);
}

struct error *host_exits_record(struct target *target, const struct images *images,
				struct stand_ins *stand_ins, struct stacks *stacks,
				struct recording_writer *writer)
{
	struct keeping_exits keeping = {images, stand_ins, stacks, writer, NULL};

	if (target->sees_host && target->ops->exits && stand_ins)
		target->ops->exits(target, keep_exits, &keeping);
	return keeping.err;
}
