/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/inside/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "target/guard.h"
#include "target/host/proc.h"

/*
 * Between two looks at the rings, unless one would be a quarter full by then. The time between
 * them is shared evenly by their samples, so that a late tick weighs hardly more than others.
 */
#define POLL_NS	      (250 * 1000000ull)
#define POLL_LEAST_NS (10 * 1000000ull)

/* Sampling ends so long after its last renewal, by the guest's own ticks. */
#define LEASE_NS (3 * NS_PER_S)

/* The wait for rings that tick, and what makes it shorter. */
#define WATCH_NS     (2 * NS_PER_S)
#define WATCH_NAP_NS (20 * 1000000ull)
#define WATCH_TICKS  16u

/* Attempts to switch off, which the guest may undo by counting the lease down in that moment. */
#define OFF_TRIES  3
#define OFF_NAP_NS 100000ull

enum news { NOT_WRITTEN, LOST, STOOD_STILL, WENT_BACK, NEWS };

static const char *const news_text[NEWS] = {
	[NOT_WRITTEN] = "the guest's memory cannot be written: it samples only while its own code "
			"switches that on (uniprof_inside_switch)",
	[LOST] = "samples were overwritten before they could be read: they count as missed "
		 "deadlines",
	[STOOD_STILL] = "the guest's timer stood still for a while, as of a guest that is paused "
			"or sleeps: that time is left out",
	[WENT_BACK] = "the guest's samples have numbers that cannot be: some are lost",
};

struct inside {
	struct target base;
	struct inside_memory memory;
	struct inside_ring ring[INSIDE_RINGS_MAX];
	uint32_t rings;
	double rate_hz;
	struct guard *guard;
	uint64_t polled_ns, poll_ns; /* last look at the rings, and the time to the next */
	uint64_t told_ns;	     /* time of the last sample */
	uint32_t current;	     /* ring of the sample at hand */
	bool started;		     /* the rings were switched on */
	bool begun;		     /* ready() was called */
	bool there, given;	     /* it is at hand; it was handed out */
	bool told[NEWS];	     /* sentences below */
	struct inside_taken taken;
};

/* Tells the guest how many ticks to sample, and which of them; false: its memory cannot be written. */
static bool grant(const struct inside *inside, const struct inside_ring *ring, uint32_t every,
		  uint32_t lease)
{
	const uint32_t words[] = {every, lease};

	return inside->memory.write(inside->memory.ctx,
				    ring->at + offsetof(struct uniprof_inside, every), words);
}

/* The numbers of a ring that change; false: they cannot be read. */
static bool read_dynamic(const struct inside *inside, const struct inside_ring *ring,
			 struct inside_dynamic *now)
{
	return inside->memory.read(inside->memory.ctx, ring->at + UNIPROF_INSIDE_CONSTANT, now,
				   sizeof(*now)) == sizeof(*now);
}

static uint32_t ticks_in(const struct inside_ring *ring, uint64_t ns)
{
	const uint64_t ticks = ns / (ring->usual_ns ?: 1);

	return ticks < 1			  ? 1
	       : ticks > UNIPROF_INSIDE_LEASE_MAX ? UNIPROF_INSIDE_LEASE_MAX
						  : (uint32_t)ticks;
}

/* So many ticks have one sample. */
static uint32_t every_of(const struct inside *inside, const struct inside_ring *ring)
{
	return ticks_in(ring, (uint64_t)((double)NS_PER_S / inside->rate_hz) + ring->usual_ns / 2);
}

/* Switches a ring on, or renews what is left of it. */
static bool switch_on(struct inside *inside, const struct inside_ring *ring)
{
	return grant(inside, ring, every_of(inside, ring), ticks_in(ring, LEASE_NS));
}

static void switch_off(const struct inside *inside, const struct inside_ring *ring)
{
	struct inside_dynamic now = {.lease = 1};

	for (int k = 0; k < OFF_TRIES && now.lease; k++) {
		if (!grant(inside, ring, 0, 0))
			return;
		clock_sleep_until(clock_now_ns() + OFF_NAP_NS);
		if (!read_dynamic(inside, ring, &now))
			return;
	}
}

static void keeps(void *ctx, struct descriptors *keep)
{
	const struct inside *inside = ctx;

	inside->memory.keeps(inside->memory.ctx, keep);
}

/* Switches off at once what would end by itself some seconds later. */
static struct error *undo(void *ctx, enum guard_phase phase)
{
	const struct inside *inside = ctx;

	for (uint32_t i = 0; i < inside->rings; i++)
		switch_off(inside, &inside->ring[i]);
	return NULL;
}

static const struct guard_ops guard_ops = {.keeps = keeps, .undo = undo};

static void inside_close(struct target *target)
{
	struct inside *inside = (struct inside *)target;

	if (inside->started)
		undo(inside, GUARD_STOPPED);
	if (inside->guard)
		guard_set(guard_page(inside->guard), GUARD_RUNNING);
	guard_stop(inside->guard);
	if (inside->memory.close)
		inside->memory.close(inside->memory.ctx);
	free(inside);
}

/* Time in which a quarter of the ring is filled, within bounds. */
static uint64_t poll_after(const struct inside *inside, const struct inside_ring *ring)
{
	const uint64_t quarter_ns = ring->slots / 4 * ring->usual_ns * every_of(inside, ring);

	if (quarter_ns < POLL_LEAST_NS)
		return POLL_LEAST_NS;
	return quarter_ns < POLL_NS ? quarter_ns : POLL_NS;
}

static void tell_once(struct inside *inside, enum news news, bool is_so)
{
	if (is_so && !inside->told[news])
		target_tell(&inside->base, news_text[news]);
	inside->told[news] |= is_so;
}

/* Looks at all rings; what is left of their leases is renewed in time. */
static void poll_rings(struct inside *inside, uint64_t now_ns)
{
	inside->polled_ns = now_ns;
	inside->poll_ns = POLL_NS;
	for (uint32_t i = 0; i < inside->rings; i++) {
		struct inside_ring *ring = &inside->ring[i];
		const uint64_t poll_ns = poll_after(inside, ring);
		uint32_t lease;

		inside->poll_ns = poll_ns < inside->poll_ns ? poll_ns : inside->poll_ns;
		inside_ring_poll(ring, &inside->memory, now_ns, &lease);
		if (lease < ticks_in(ring, LEASE_NS) / 2)
			tell_once(inside, NOT_WRITTEN, !switch_on(inside, ring));
		tell_once(inside, LOST, ring->lost);
		tell_once(inside, STOOD_STILL, ring->stood_still);
		tell_once(inside, WENT_BACK, ring->went_back);
	}
}

/* Leaves out what was before. */
static void skip_to(struct inside *inside, uint64_t now_ns)
{
	for (uint32_t i = 0; i < inside->rings; i++) {
		struct inside_ring *ring = &inside->ring[i];
		struct inside_dynamic now = {.ticks = ring->ticks, .head = ring->next};

		read_dynamic(inside, ring, &now);
		ring->ticks = now.ticks;
		ring->next = now.head;
		ring->left = 0;
		ring->since_ns = now_ns;
	}
}

/* The ring whose next sample is the oldest; NULL: none has one. */
static struct inside_ring *oldest(struct inside *inside)
{
	struct inside_ring *first = NULL;

	for (uint32_t i = 0; i < inside->rings; i++) {
		struct inside_ring *ring = &inside->ring[i];

		if (ring->left &&
		    (!first || inside_ring_next_ns(ring) < inside_ring_next_ns(first)))
			first = ring;
	}
	return first;
}

static bool inside_ready(struct target *target)
{
	struct inside *inside = (struct inside *)target;
	const uint64_t now_ns = clock_now_ns();
	struct inside_ring *ring;

	if (inside->there && !inside->given)
		return true;
	/* Files were read since it was opened. */
	if (!inside->begun)
		skip_to(inside, now_ns);
	inside->begun = true;
	inside->there = inside->given = false;
	if (!oldest(inside) && now_ns - inside->polled_ns >= inside->poll_ns)
		poll_rings(inside, now_ns);
	while (!inside->there && (ring = oldest(inside))) {
		inside->current = (uint32_t)(ring - inside->ring);
		inside->there = inside_ring_take(ring, &inside->memory, &inside->taken);
	}
	if (inside->taken.time_ns > inside->told_ns)
		inside->told_ns = inside->taken.time_ns;
	return inside->there;
}

/* As much of the stack as is asked for: to more of it, the same sample is handed out again. */
static struct error *inside_sample(struct target *target, struct sample *sample)
{
	struct inside *inside = (struct inside *)target;
	const struct inside_taken *taken = &inside->taken;
	struct vcpu_sample *vcpu = &sample->vcpu[inside->current];

	if (!inside->there)
		return error_new(ERR_FAILED, "the guest has taken no sample");
	inside->given = true;
	sample->time_ns = inside->told_ns;
	sample->weight_ns = taken->weight_ns;
	sample->lost = taken->lost;
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].online = &sample->vcpu[i] == vcpu;
	vcpu->state = taken->state;
	vcpu->regs = taken->regs;
	vcpu->stack = (struct window){.va = taken->regs.sp & ~(uint64_t)(taken->regs.word - 1),
				      .bytes = vcpu->buffer};
	vcpu->stack.len =
		taken->stack_bytes < vcpu->request.want ? taken->stack_bytes : vcpu->request.want;
	vcpu->stack.cut = taken->cut || vcpu->stack.len < taken->stack_bytes;
	memcpy(vcpu->buffer, taken->stack, vcpu->stack.len);
	for (unsigned k = 0; k < UNWIND_OTHERS; k++)
		vcpu->others[k].len = 0;
	return NULL;
}

/* A ring that was made anew belongs to another run of the guest. */
static enum target_life inside_life(struct target *target)
{
	struct inside *inside = (struct inside *)target;
	struct uniprof_inside head;
	struct inside_ring again;
	const struct inside_memory *memory = &inside->memory;
	const enum target_life life = memory->life ? memory->life(memory->ctx) : LIFE_RUNS;

	if (life != LIFE_RUNS)
		return life;
	if (memory->read(memory->ctx, inside->ring[0].at, &head, sizeof(head)) != sizeof(head))
		return LIFE_GONE;
	if (inside->guard)
		(void)guard_check(inside->guard);
	return inside_ring_check(&head, inside->ring[0].at, UINT64_MAX, &again) &&
			       again.checksum == inside->ring[0].checksum
		       ? LIFE_RUNS
		       : LIFE_SHUT_DOWN;
}

static size_t inside_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	const struct inside_memory *memory = &((struct inside *)target)->memory;

	return memory->code(memory->ctx, va, buf, len);
}

static const struct target_ops target_inside = {
	.scheme = "inside",
	.close = inside_close,
	.sample = inside_sample,
	.ready = inside_ready,
	.life = inside_life,
	.read = inside_read,
};

/* Waits until they tick. True once the fastest is known well enough. */
static bool watch(struct inside *inside, uint64_t began_ns)
{
	uint32_t most = 0;

	clock_sleep_until(clock_now_ns() + WATCH_NAP_NS);
	for (uint32_t i = 0; i < inside->rings; i++) {
		struct inside_ring *ring = &inside->ring[i];
		struct inside_dynamic now;
		uint32_t advanced;

		if (!read_dynamic(inside, ring, &now))
			continue;
		advanced = now.ticks - ring->ticks;
		ring->usual_ns = advanced ? (clock_now_ns() - began_ns) / advanced : 0;
		ring->next = now.head;
		most = advanced > most ? advanced : most;
	}
	return most >= WATCH_TICKS;
}

static int compare_vcpus(const void *a, const void *b)
{
	const struct inside_ring *x = a, *y = b;

	return COMPARE(x->vcpu, y->vcpu);
}

/*
 * Keeps the rings that tick, one for each vCPU: a second address of the same memory
 * shows a ring again, and one that is left of an earlier run does not tick.
 */
static void choose(struct inside *inside)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < inside->rings; i++) {
		bool again = false;

		for (uint32_t k = 0; k < kept; k++)
			again = again || inside->ring[k].vcpu == inside->ring[i].vcpu;
		if (inside->ring[i].usual_ns && !again)
			inside->ring[kept++] = inside->ring[i];
	}
	inside->rings = kept;
	qsort(inside->ring, kept, sizeof(*inside->ring), compare_vcpus);
}

static void take_ring(void *ctx, const void *head, uint64_t at, uint64_t left)
{
	struct inside *inside = ctx;
	const struct inside_memory *memory = &inside->memory;
	struct inside_ring *ring = &inside->ring[inside->rings];

	if (inside->rings < INSIDE_RINGS_MAX && inside_ring_check(head, at, left, ring) &&
	    (!memory->hold || memory->hold(memory->ctx, ring, inside_ring_size(ring))))
		inside->rings++;
}

static struct error *no_ring(bool found, bool whole)
{
	if (found)
		return error_new(ERR_GUEST,
				 "the guest's sampler does not tick: the guest is paused, or its "
				 "timer does not call uniprof_inside_tick");
	if (whole)
		return error_new(ERR_GUEST, "there is no sampler in the guest: it has to be linked "
					    "with libuniprof-inside and to call "
					    "uniprof_inside_init");
	return error_new(ERR_GUEST, "no sampler was found in the pages of the guest that are "
				    "searched, which are not all that it has");
}

static struct error *find_rings(struct inside *inside, const volatile sig_atomic_t *stop)
{
	const struct inside_memory *memory = &inside->memory;
	bool whole = true;
	uint64_t began_ns;
	uint32_t found;

	TRY(memory->search(memory->ctx, stop, take_ring, inside, &whole));
	found = inside->rings;
	/* They have ticked since they were found. */
	began_ns = clock_now_ns();
	skip_to(inside, began_ns);
	while (found && !*stop && clock_now_ns() - began_ns < WATCH_NS && !watch(inside, began_ns))
		;
	if (*stop)
		return error_new(ERR_FAILED, "interrupted while the guest's sampler was searched");
	choose(inside);
	if (inside->rings)
		return memory->locate ? memory->locate(memory->ctx, &inside->ring[0]) : NULL;
	return no_ring(found, whole);
}

/* Switches all on, in time for the first sample. */
static struct error *start(struct inside *inside)
{
	const uint64_t now_ns = clock_now_ns();

	skip_to(inside, now_ns);
	poll_rings(inside, now_ns);
	inside->started = true;
	return inside->memory.keeps ? guard_start(&guard_ops, inside, &inside->guard) : NULL;
}

static void describe(struct inside *inside)
{
	static const char *const archs[ISAS][2] = {[ISA_X86] = {"x86_32", "x86_64"},
						   [ISA_ARM] = {"arm32", "arm64"},
						   [ISA_RISCV] = {"riscv64", "riscv64"}};
	struct target_info *info = &inside->base.info;

	inside->memory.describe(inside->memory.ctx, info);
	snprintf(info->type, sizeof(info->type), "inside");
	snprintf(info->host, sizeof(info->host), "sampler inside the guest, %.1f ticks a second",
		 (double)NS_PER_S / (double)(inside->ring[0].usual_ns ?: 1));
	info->arch = arch_by_name(archs[inside->ring[0].isa][inside->ring[0].word == 8]);
	info->vcpus = inside->rings;
	inside->base.way = "its own sampler";
}

/* Guests that answer to a name. */
struct name_search {
	const char *name;
	const struct target_ops *kind; /* that is asked now */
	pid_t pid;
	unsigned matches;
	/* One that is no process of this host: its kind and id. */
	const struct target_ops *elsewhere;
	char id[64];
};

static void match(void *ctx, const struct target_listing *entry)
{
	struct name_search *search = ctx;

	if (strcmp(entry->name, search->name) && strcmp(entry->id, search->name))
		return;
	if (entry->pid) {
		search->matches += entry->pid != search->pid;
		search->pid = entry->pid;
		return;
	}
	search->matches++;
	search->elsewhere = search->kind;
	snprintf(search->id, sizeof(search->id), "%s", entry->id);
}

/* A monitor is a process, too, and listed under more than one kind. */
static struct error *find(const char *spec, struct name_search *search)
{
	const char *colon = strchr(spec, ':');

	*search = (struct name_search){.name = colon ? colon + 1 : spec};
	/* A number alone is a process's; behind a kind, that kind's id comes first. */
	search->pid = colon ? 0 : proc_parse_pid(search->name);
	if (search->pid)
		return NULL;
	for (size_t i = 0; (search->kind = target_kind(i)); i++)
		if (search->kind->list &&
		    (!colon || (strlen(search->kind->scheme) == (size_t)(colon - spec) &&
				!strncmp(search->kind->scheme, spec, (size_t)(colon - spec)))))
			error_free(search->kind->list(search->kind, match, search));
	if (!search->matches)
		search->pid = proc_parse_pid(search->name);
	if (search->matches == 1 || search->pid)
		return NULL;
	if (search->matches)
		return error_new(
			ERR_GUEST,
			"%u guests are called \"%s\"; say which by KIND:NAME or a process id",
			search->matches, search->name);
	return error_new(ERR_GUEST,
			 "no guest of this host is called \"%s\"; `uniprof list` shows what there "
			 "is (--inside takes names and process ids)",
			 search->name);
}

static struct error *open_memory(const char *spec, struct inside_memory *out)
{
	struct name_search search;

	TRY(find(spec, &search));
	if (!search.elsewhere)
		return inside_process(search.pid, out);
	if (search.elsewhere->inside)
		return search.elsewhere->inside(search.id, out);
	return error_new(ERR_GUEST,
			 "--inside: guests of kind \"%s\" are no processes of this host, whose "
			 "memory could be searched",
			 search.elsewhere->scheme);
}

struct error *inside_open(const char *spec, double rate_hz, const volatile sig_atomic_t *stop,
			  struct target **out)
{
	struct inside *inside;
	struct error *err;

	TRY(ARRAY_NEW(&inside, 1));
	inside->base.ops = &target_inside;
	inside->rate_hz = rate_hz;
	err = open_memory(spec, &inside->memory);
	if (!err)
		err = find_rings(inside, stop);
	if (!err) {
		describe(inside);
		err = start(inside);
	}
	if (err)
		inside_close(&inside->base);
	else
		*out = &inside->base;
	return err;
}
