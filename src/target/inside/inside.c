/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/inside/inside.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/guard.h"
#include "target/host/memory.h"
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

/* Memory is searched in pieces of so many pages. */
#define PIECE_PAGES 256u

/* Bits of a page in /proc/PID/pagemap: it is in memory, or swapped out. */
#define PAGE_IS_THERE (3ull << 62)

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
	int fd;
	struct inside_memory memory;
	uint64_t start, end; /* of the guest's memory in the process */
	uint64_t offset;     /* from the guest's addresses to those in the process */
	struct inside_ring ring[INSIDE_RINGS_MAX];
	uint32_t rings;
	double rate_hz;
	struct guard *guard;
	uint64_t polled_ns, poll_ns; /* last look at the rings, and the time to the next */
	uint64_t told_ns;	     /* time of the last sample */
	uint32_t current;	     /* ring of the sample at hand */
	bool begun;		     /* ready() was called */
	bool there, given;	     /* it is at hand; it was handed out */
	bool told[NEWS];	     /* sentences below */
	struct inside_taken taken;
};

static size_t read_process(void *ctx, uint64_t at, void *buf, size_t len)
{
	return host_memory_read(((struct inside *)ctx)->fd, at, buf, len);
}

/* Tells the guest how many ticks to sample, and which of them; false: its memory cannot be written. */
static bool grant(int fd, const struct inside_ring *ring, uint32_t every, uint32_t lease)
{
	const uint32_t words[] = {every, lease};
	const uint64_t at = ring->at + offsetof(struct uniprof_inside, every);

	return at <= INT64_MAX - sizeof(words) &&
	       pwrite(fd, words, sizeof(words), (off_t)at) == (ssize_t)sizeof(words);
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
	return grant(inside->fd, ring, every_of(inside, ring), ticks_in(ring, LEASE_NS));
}

static void switch_off(const struct inside *inside, const struct inside_ring *ring)
{
	struct inside_dynamic now = {.lease = 1};

	for (int k = 0; k < OFF_TRIES && now.lease; k++) {
		if (!grant(inside->fd, ring, 0, 0))
			return;
		clock_sleep_until(clock_now_ns() + OFF_NAP_NS);
		if (host_memory_read(inside->fd, ring->at + UNIPROF_INSIDE_CONSTANT, &now,
				     sizeof(now)) != sizeof(now))
			return;
	}
}

static void keeps(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, ((struct inside *)ctx)->fd);
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

	if (inside->guard) {
		undo(inside, GUARD_STOPPED);
		guard_set(guard_page(inside->guard), GUARD_RUNNING);
	}
	guard_stop(inside->guard);
	if (inside->fd >= 0)
		close(inside->fd);
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

		host_memory_read(inside->fd, ring->at + UNIPROF_INSIDE_CONSTANT, &now, sizeof(now));
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
	sample->paused_ns = sample->stolen_ns = 0;
	sample->retakes = 0;
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].online = &sample->vcpu[i] == vcpu;
	vcpu->state = taken->state;
	vcpu->regs = taken->regs;
	vcpu->same = vcpu->given_up = vcpu->hurried = false;
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

	if (host_memory_read(inside->fd, inside->ring[0].at, &head, sizeof(head)) != sizeof(head))
		return LIFE_GONE;
	error_free(guard_check(inside->guard));
	return inside_ring_check(&head, inside->ring[0].at, UINT64_MAX, &again) &&
			       again.checksum == inside->ring[0].checksum
		       ? LIFE_RUNS
		       : LIFE_SHUT_DOWN;
}

/* The guest's memory lies in one piece where the ring does; of a process, all of it is there. */
static size_t inside_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	const struct inside *inside = (struct inside *)target;
	const uint64_t at = va + inside->offset;

	if (inside->offset && (at < inside->start || at >= inside->end))
		return 0;
	if (inside->offset && len > inside->end - at)
		len = inside->end - at;
	return host_memory_read(inside->fd, at, buf, len);
}

static const struct target_ops target_inside = {
	.scheme = "inside",
	.close = inside_close,
	.sample = inside_sample,
	.ready = inside_ready,
	.life = inside_life,
	.read = inside_read,
};

/* Searches the writable memory of a process. */
struct ring_search {
	struct inside *inside;
	const volatile sig_atomic_t *stop;
	int pagemap; /* -1: it cannot be read, and all memory is looked at */
};

static bool is_stopped(const volatile sig_atomic_t *stop)
{
	return stop && *stop;
}

static void search_piece(struct ring_search *search, const struct proc_map *map, uint64_t at,
			 size_t pages)
{
	struct inside *inside = search->inside;
	uint64_t there[PIECE_PAGES];
	const ssize_t bytes = (ssize_t)(pages * sizeof(*there));
	const bool known =
		search->pagemap >= 0 && pread(search->pagemap, there, (size_t)bytes,
					      (off_t)(at / FRAME_SIZE * sizeof(*there))) == bytes;
	uint8_t head[sizeof(struct uniprof_inside)];

	for (size_t i = 0; i < pages && inside->rings < INSIDE_RINGS_MAX; i++) {
		const uint64_t va = at + i * FRAME_SIZE;

		/* Only what is there: reading would give the guest memory that it never had. */
		if ((known && !(there[i] & PAGE_IS_THERE)) ||
		    host_memory_read(inside->fd, va, head, sizeof(head)) != sizeof(head))
			continue;
		inside->rings +=
			inside_ring_check(head, va, map->end - va, &inside->ring[inside->rings]);
	}
}

static bool search_map(void *ctx, const struct proc_map *map)
{
	struct ring_search *search = ctx;

	if (!map->readable || !map->writable)
		return true;
	for (uint64_t at = map->start; at < map->end && !is_stopped(search->stop);) {
		const uint64_t left = (map->end - at) / FRAME_SIZE;
		const size_t pages = left < PIECE_PAGES ? (size_t)left : PIECE_PAGES;

		search_piece(search, map, at, pages);
		at += pages * FRAME_SIZE;
	}
	return !is_stopped(search->stop) && search->inside->rings < INSIDE_RINGS_MAX;
}

/* Mapping that holds the first ring: the guest's code is there, too. */
static bool note_map(void *ctx, const struct proc_map *map)
{
	struct inside *inside = ctx;
	const uint64_t at = inside->ring[0].at;

	if (at < map->start || at >= map->end)
		return true;
	inside->start = map->start;
	inside->end = map->end;
	inside->offset = at - inside->ring[0].address;
	return false;
}

/* Waits until they tick. True once the fastest is known well enough. */
static bool watch(struct inside *inside, uint64_t began_ns, uint32_t advanced[])
{
	uint32_t most = 0;

	clock_sleep_until(clock_now_ns() + WATCH_NAP_NS);
	for (uint32_t i = 0; i < inside->rings; i++) {
		struct inside_ring *ring = &inside->ring[i];
		struct inside_dynamic now;

		if (host_memory_read(inside->fd, ring->at + UNIPROF_INSIDE_CONSTANT, &now,
				     sizeof(now)) != sizeof(now))
			continue;
		advanced[i] = now.ticks - ring->ticks;
		ring->usual_ns = advanced[i] ? (clock_now_ns() - began_ns) / advanced[i] : 0;
		ring->next = now.head;
		most = advanced[i] > most ? advanced[i] : most;
	}
	return most >= WATCH_TICKS;
}

static int compare_vcpus(const void *a, const void *b)
{
	const struct inside_ring *x = a, *y = b;

	return x->vcpu == y->vcpu ? 0 : x->vcpu < y->vcpu ? -1 : 1;
}

/*
 * Keeps the rings that tick, one for each vCPU: a second address of the same memory
 * shows a ring again, and one that is left of an earlier run does not tick.
 */
static void choose(struct inside *inside, const uint32_t advanced[])
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < inside->rings; i++) {
		bool again = false;

		for (uint32_t k = 0; k < kept; k++)
			again = again || inside->ring[k].vcpu == inside->ring[i].vcpu;
		if (advanced[i] && !again)
			inside->ring[kept++] = inside->ring[i];
	}
	inside->rings = kept;
	qsort(inside->ring, kept, sizeof(*inside->ring), compare_vcpus);
}

static struct error *find_rings(struct inside *inside, pid_t pid, const volatile sig_atomic_t *stop)
{
	struct ring_search search = {.inside = inside, .stop = stop};
	uint32_t advanced[INSIDE_RINGS_MAX] = {0}, found;
	uint64_t began_ns;
	char path[48];
	struct error *err;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	search.pagemap = open(path, O_RDONLY | O_CLOEXEC);
	err = proc_maps(pid, search_map, &search);
	if (search.pagemap >= 0)
		close(search.pagemap);
	if (err)
		return err;
	found = inside->rings;
	began_ns = clock_now_ns();
	while (found && !is_stopped(stop) && clock_now_ns() - began_ns < WATCH_NS &&
	       !watch(inside, began_ns, advanced))
		;
	if (is_stopped(stop))
		return error_new(ERR_FAILED, "interrupted while the guest's sampler was searched");
	choose(inside, advanced);
	if (inside->rings)
		return proc_maps(pid, note_map, inside);
	return found ? error_new(ERR_GUEST,
				 "the guest's sampler does not tick: the guest is "
				 "paused, or its timer does not call uniprof_inside_tick")
		     : error_new(ERR_GUEST, "there is no sampler in the guest: it has to be linked "
					    "with libuniprof-inside and to call "
					    "uniprof_inside_init");
}

/* Switches all on, in time for the first sample. */
static struct error *start(struct inside *inside)
{
	const uint64_t now_ns = clock_now_ns();

	skip_to(inside, now_ns);
	poll_rings(inside, now_ns);
	return guard_start(&guard_ops, inside, &inside->guard);
}

static void describe(struct inside *inside, pid_t pid)
{
	static const char *const archs[ISAS][2] = {[ISA_X86] = {"x86_32", "x86_64"},
						   [ISA_ARM] = {"arm32", "arm64"},
						   [ISA_RISCV] = {"riscv64", "riscv64"}};
	struct target_info *info = &inside->base.info;

	monitor_name(pid, info->name, sizeof(info->name));
	monitor_image(pid, info->image, sizeof(info->image));
	if (!*info->image && !inside->offset)
		proc_link(pid, "exe", -1, info->image, sizeof(info->image));
	snprintf(info->id, sizeof(info->id), "%d", (int)pid);
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
	pid_t pid;
	unsigned matches;
	const char *elsewhere; /* kind of one that is no process of this host */
};

static void match(void *ctx, const struct target_listing *entry)
{
	struct name_search *search = ctx;

	if (strcmp(entry->name, search->name) && strcmp(entry->id, search->name))
		return;
	if (!entry->pid)
		search->elsewhere = entry->scheme;
	else if (entry->pid != search->pid)
		search->matches++;
	search->pid = entry->pid ?: search->pid;
}

/* A monitor is a process, too, and listed under more than one kind. */
static struct error *find_process(const char *spec, pid_t *pid)
{
	const char *colon = strchr(spec, ':');
	struct name_search search = {.name = colon ? colon + 1 : spec};
	const struct target_ops *ops;

	*pid = proc_parse_pid(search.name);
	if (*pid)
		return NULL;
	for (size_t i = 0; (ops = target_kind(i)); i++)
		if (ops->list && (!colon || (strlen(ops->scheme) == (size_t)(colon - spec) &&
					     !strncmp(ops->scheme, spec, (size_t)(colon - spec)))))
			error_free(ops->list(match, &search));
	*pid = search.pid;
	if (search.matches == 1)
		return NULL;
	if (search.matches)
		return error_new(ERR_GUEST,
				 "%u guests are called \"%s\"; say which by a process id",
				 search.matches, search.name);
	if (search.elsewhere)
		return error_new(ERR_GUEST,
				 "--inside: guests of kind \"%s\" are no processes of this host, "
				 "whose memory could be searched",
				 search.elsewhere);
	return error_new(ERR_GUEST,
			 "no guest of this host is called \"%s\"; `uniprof list` shows what there "
			 "is (--inside takes names and process ids)",
			 search.name);
}

struct error *inside_open(const char *spec, double rate_hz, const volatile sig_atomic_t *stop,
			  struct target **out)
{
	struct inside *inside;
	pid_t pid;
	struct error *err = find_process(spec, &pid);

	if (err)
		return err;
	inside = calloc(1, sizeof(*inside));
	if (!inside)
		return error_no_memory();
	inside->base.ops = &target_inside;
	inside->memory = (struct inside_memory){inside, read_process};
	inside->rate_hz = rate_hz;
	err = host_memory_open(pid, true, &inside->fd);
	if (!err)
		err = find_rings(inside, pid, stop);
	if (!err) {
		describe(inside, pid);
		err = start(inside);
	}
	if (err)
		inside_close(&inside->base);
	else
		*out = &inside->base;
	return err;
}
