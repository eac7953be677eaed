/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/target.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/clock.h"
#include "target/window.h"

#define FIRST_WANT 4096u

/* Buffers of a vCPU: one allocation, touched now, so that no page fault happens while the guest is paused. */
static bool new_buffers(struct vcpu_sample *vcpu, uint32_t stack_cap)
{
	const size_t own = stack_cap + RED_ZONE_MAX, size = own + UNWIND_OTHERS * OTHER_STACK_CAP;

	vcpu->buffer = malloc(size);
	if (!vcpu->buffer)
		return false;
	memset(vcpu->buffer, 0, size);
	vcpu->stack.bytes = vcpu->buffer;
	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		vcpu->request.other[i].buffer = vcpu->buffer + own + i * OTHER_STACK_CAP;
		vcpu->others[i].bytes = vcpu->request.other[i].buffer;
	}
	return true;
}

struct error *sample_new(uint32_t vcpus, uint32_t stack_cap, struct sample **out)
{
	struct sample *sample;
	bool whole;

	TRY(ARRAY_NEW(&sample, 1));
	sample->vcpus = vcpus;
	sample->stack_cap = stack_cap;
	sample->vcpu = calloc(vcpus, sizeof(*sample->vcpu));
	whole = sample->vcpu;
	for (uint32_t i = 0; whole && i < vcpus; i++) {
		sample->vcpu[i].request.want = stack_cap < FIRST_WANT ? stack_cap : FIRST_WANT;
		whole = new_buffers(&sample->vcpu[i], stack_cap);
	}
	if (!whole) {
		sample_free(sample);
		return error_no_memory();
	}
	*out = sample;
	return NULL;
}

void sample_free(struct sample *sample)
{
	if (!sample)
		return;
	for (uint32_t i = 0; sample->vcpu && i < sample->vcpus; i++)
		free(sample->vcpu[i].buffer);
	free(sample->vcpu);
	free(sample);
}

unsigned vcpu_others(const struct vcpu_sample *vcpu)
{
	unsigned n = vcpu->request.leads_on ? UNWIND_OTHERS : 0;

	while (n && !vcpu->others[n - 1].len)
		n--;
	return n;
}

int64_t vcpu_state_time(struct sample *sample)
{
	int64_t since_ns = (int64_t)(sample->time_ns - sample->account.noted_ns);

	if (sample->account.noted_ns)
		sample->account.usual_ns += sample->account.usual_ns
						    ? (since_ns - sample->account.usual_ns) / 8
						    : since_ns;
	sample->account.noted_ns = sample->time_ns;
	return sample->account.usual_ns;
}

enum vcpu_state vcpu_state_of(const struct vcpu_load *now, struct vcpu_sample *vcpu,
			      int64_t usual_ns)
{
	const int64_t most = 2 * usual_ns;
	enum vcpu_state state;

	if (vcpu->account.held)
		vcpu->account.owed_ns += (int64_t)(now->cpu_ns - vcpu->account.counted_ns);
	vcpu->account.counted_ns = now->cpu_ns;
	if (now->running)
		state = VCPU_RUNNING;
	else if (now->blocked)
		state = VCPU_BLOCKED;
	else
		state = vcpu->account.owed_ns > usual_ns / 2 ? VCPU_RUNNING : VCPU_RUNNABLE;
	if (state == VCPU_RUNNING)
		vcpu->account.owed_ns -= usual_ns;
	if (vcpu->account.owed_ns > most)
		vcpu->account.owed_ns = most;
	else if (vcpu->account.owed_ns < -most)
		vcpu->account.owed_ns = -most;
	return state;
}

void paged_memory_copy_stacks(const struct paged_memory *memory, const struct arch *arch,
			      struct vcpu_sample *vcpu)
{
	const struct vcpu_request *request = &vcpu->request;
	struct window_copy copy = {.arch = arch,
				   .regs = &vcpu->regs,
				   .mem = &memory->frames,
				   .buffer = vcpu->buffer,
				   .out = &vcpu->stack};

	if (!window_copy(&copy, request->want) && !memory->partial)
		vcpu->stack.cut = vcpu->stack.len == request->want;
	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		copy.buffer = request->other[i].buffer;
		copy.out = &vcpu->others[i];
		copy.out->len = 0;
		if (request->other[i].want)
			(void)window_copy_at(&copy, request->other[i].va, request->other[i].want);
	}
}

void paged_memory_copy_thread(const struct paged_memory *memory, const struct arch *arch,
			      struct vcpu_sample *vcpu, const struct thread_request *request)
{
	struct window_copy copy = {.arch = arch, .regs = &vcpu->regs, .mem = &memory->frames};

	vcpu->thread.there = false;
	if (request)
		(void)window_copy_thread(&copy, request, &vcpu->thread);
}

/* A vCPU's view of memory in a pause. */
struct paged_view {
	const struct paged_memory *memory;
	const struct arch *arch;
	const struct regs *regs;
};

static size_t read_paged_view(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct paged_view *view = ctx;

	return window_read(view->arch, &view->regs->mmu, &view->memory->frames, va, buf, len);
}

void paged_memory_copy_frames(const struct paged_memory *memory, const struct arch *arch,
			      struct vcpu_sample *vcpu, const struct frames_request *request)
{
	struct paged_view view = {memory, arch, &vcpu->regs};
	const struct guest_memory program = {&view, read_paged_view, NULL};

	if (request)
		request->copy(request->ctx, vcpu, &program);
}

const struct target_ops *target_kind(size_t i)
{
#define KIND(name) &target_##name,
	static const struct target_ops *const kinds[] = {TARGET_KINDS(KIND) NULL};
#undef KIND

	return kinds[i];
}

static const struct target_ops *kind_by_scheme(const char *scheme, size_t len)
{
	const struct target_ops *ops;

	for (size_t i = 0; (ops = target_kind(i)); i++)
		if (strlen(ops->scheme) == len && !strncmp(ops->scheme, scheme, len))
			return ops;
	return NULL;
}

static struct error *no_such_way(const struct target_ops *ops, const char *via)
{
	char names[128] = "";

	for (const struct target_way *way = ops->ways; way && way->name; way++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
			 *names ? ", " : "", way->name);
	return *names ? error_new(ERR_USAGE, "--via %s: guests of kind \"%s\" are read via %s", via,
				  ops->scheme, names)
		      : error_new(ERR_USAGE,
				  "--via %s: there is no choice of ways to read guests of kind "
				  "\"%s\"",
				  via, ops->scheme);
}

static struct error *open_kind(const struct target_ops *ops, const char *name, const char *via,
			       struct target **out)
{
	const struct target_way *way = ops->ways;

	while (via && way && way->name && strcmp(way->name, via))
		way++;
	return via && (!way || !way->name) ? no_such_way(ops, via) : ops->open(name, via, out);
}

static struct error *open_with_scheme(const char *spec, size_t len, const char *via,
				      struct target **out)
{
	const struct target_ops *ops = kind_by_scheme(spec, len);

	if (!ops)
		return error_new(ERR_USAGE, "\"%s\": there is no kind of guest called \"%.*s\"",
				 spec, (int)len, spec);
	return open_kind(ops, spec + len + 1, via, out);
}

/* Guests that answer to a bare name. */
struct bare_search {
	const char *name;
	unsigned matches;
	const char *scheme;
	const char *nameless; /* there are guests that may or may not be called so */
};

static void match(void *ctx, const struct target_listing *entry)
{
	struct bare_search *search = ctx;

	search->nameless = entry->nameless ?: search->nameless;
	if (strcmp(entry->name, search->name) && strcmp(entry->id, search->name))
		return;
	search->matches++;
	search->scheme = entry->scheme;
}

static const struct target_ops *kind_of_file(const char *path)
{
	const struct target_ops *ops;

	for (size_t i = 0; (ops = target_kind(i)); i++)
		if (ops->is_file && ops->is_file(path))
			return ops;
	return NULL;
}

/* The answer to a name that is no guest's. */
static struct error *no_such_guest(const char *name)
{
	struct stat file;

	if (stat(name, &file))
		return error_new(
			ERR_GUEST,
			"there is no guest called \"%s\"; `uniprof list` shows what there is",
			name);
	if (S_ISSOCK(file.st_mode))
		return error_new(ERR_GUEST,
				 "\"%s\" is a socket: qemu:%s is the guest if it is QEMU's QMP, "
				 "gdb:unix:%s if it is a gdb stub",
				 name, name, name);
	return error_new(ERR_GUEST,
			 "\"%s\" is a file, not a guest: `uniprof run -- COMMAND` starts a guest, "
			 "`uniprof list` shows those that run",
			 name);
}

static struct error *open_bare(const char *name, const char *via, struct target **out)
{
	struct bare_search search = {.name = name};
	const struct target_ops *ops = kind_of_file(name);
	struct error *err = NULL;

	if (ops)
		return open_kind(ops, name, via, out);
	for (size_t i = 0; (ops = target_kind(i)); i++)
		if (ops->list)
			err = error_first(err, ops->list(ops, match, &search));
	if (!search.matches && err)
		return err;
	error_free(err);
	if (search.matches == 1)
		return open_kind(kind_by_scheme(search.scheme, strlen(search.scheme)), name, via,
				 out);
	if (!search.matches && search.nameless)
		return error_new(ERR_GUEST, "no guest whose name can be read is called \"%s\": %s",
				 name, search.nameless);
	if (!search.matches)
		return no_such_guest(name);
	return error_new(ERR_GUEST,
			 "\"%s\" can mean %u guests; say which as KIND:NAME (see uniprof list)",
			 name, search.matches);
}

struct error *target_open(const char *spec, const char *via, struct target **out)
{
	const char *colon = strchr(spec, ':');

	if (!*spec)
		return error_new(ERR_USAGE, "the name of the guest is empty");
	return colon ? open_with_scheme(spec, (size_t)(colon - spec), via, out)
		     : open_bare(spec, via, out);
}

struct error *target_check_runs(const struct target *target)
{
	if (!target->still)
		return NULL;
	return error_new(ERR_GUEST,
			 "\"%s\" holds one moment of a guest, which `uniprof stack` shows: there "
			 "is nothing to be sampled",
			 target->info.name);
}

struct error *target_check_life(struct target *target, enum target_life *life)
{
	*life = target->ops->life(target);
	if (*life == LIFE_GONE)
		return error_new(ERR_GUEST, "there is nothing left to see of the guest");
	if (*life == LIFE_UNGUARDED)
		return error_new(ERR_FAILED, "the guard cannot be started that would let the guest "
					     "run again, should this program be killed");
	return NULL;
}

void target_tell(struct target *target, const char *text)
{
	struct target_news *news = &target->news;

	for (unsigned i = 0; i < news->n; i++)
		if (!strcmp(news->text[i], text))
			return;
	assert(news->n < TARGET_NEWS_MAX);
	news->text[news->n++] = text;
}

bool target_can_read(const struct target *target)
{
	return target->ops->read || target->memory.frames.frame;
}

size_t target_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
		   size_t len)
{
	const struct paged_memory *memory = &target->memory;

	if (target->ops->read)
		return target->ops->read(target, regs, va, buf, len);
	if (!memory->frames.frame)
		return 0;
	if (memory->renew)
		memory->renew(memory->frames.ctx);
	return window_read(target->info.arch, &regs->mmu, &memory->frames, va, buf, len);
}

size_t memory_view_read(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct memory_view *view = ctx;

	return target_read(view->target, view->regs, va, buf, len);
}

/* Frames of page tables, one at a time. */
struct table_reader {
	struct target *target;
	uint8_t frame[FRAME_SIZE];
};

static const void *read_table(void *ctx, uint64_t gfn)
{
	static const struct regs physical = {.mmu.mode = MMU_OFF};
	struct table_reader *reader = ctx;
	const size_t got = target_read(reader->target, &physical, gfn << FRAME_SHIFT, reader->frame,
				       FRAME_SIZE);

	return got == FRAME_SIZE ? reader->frame : NULL;
}

bool target_translate(struct target *target, const struct mmu *mmu, uint64_t va, uint64_t *physical)
{
	struct table_reader reader = {.target = target};
	const struct physmem tables = {.frame = read_table, .ctx = &reader};
	struct xlate page = {0};

	if (!(target->ops->read ? target->follows_tables : target->memory.frames.frame != NULL) ||
	    target->info.arch->translate(mmu, va, &tables, &page) != XLATE_OK)
		return false;
	*physical = page.addr;
	return true;
}

void target_wait(struct target *target, uint64_t until_ns)
{
	if (target->ops->wait)
		target->ops->wait(target, until_ns);
	else
		clock_sleep_until(until_ns);
}

void target_close(struct target *target)
{
	if (target)
		target->ops->close(target);
}
