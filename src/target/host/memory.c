/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/memory.h"
#include "target/host/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/arch.h"
#include "arch/x86/x86.h"
#include "base/clock.h"
#include "target/window.h"

struct error *host_memory_open(pid_t pid, bool write, int *fd)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	*fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (*fd >= 0)
		return NULL;
	if (errno == ENOENT)
		return error_new(ERR_GUEST, "there is no process %d", (int)pid);
	return proc_cannot_trace(pid);
}

size_t host_memory_read(int fd, uint64_t va, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len && va + done <= INT64_MAX) {
		ssize_t got = pread(fd, (uint8_t *)buf + done, len - done, (off_t)(va + done));

		if (got <= 0)
			break;
		done += (size_t)got;
	}
	return done;
}

bool host_memory_window(void *ctx, uint64_t va, uint32_t want, uint8_t *buffer, struct window *out)
{
	const struct host_memory *memory = ctx;
	/* In one piece, or page by page with an eye on the clock. */
	const uint32_t piece = memory->until_ns ? FRAME_SIZE : want;

	*out = (struct window){.va = va, .bytes = buffer, .cut = true};
	while (out->len < want) {
		uint32_t part = want - out->len < piece ? want - out->len : piece;
		size_t got = host_memory_read(memory->fd, va + out->len, buffer + out->len, part);

		out->len += (uint32_t)got;
		if (got < part) {
			out->cut = false;
			return true;
		}
		if (memory->until_ns && out->len < want && clock_now_ns() >= memory->until_ns)
			return false;
	}
	return true;
}

void virtual_memory_copy_stacks(window_reader *read, void *ctx, struct vcpu_sample *vcpu)
{
	const struct regs *regs = &vcpu->regs;
	const uint64_t va = regs->sp & ~(uint64_t)(regs->word - 1);
	const uint32_t below = va < red_zone(regs) ? 0 : red_zone(regs), want = vcpu->request.want;
	bool done = read(ctx, va - below, below + want, vcpu->buffer, &vcpu->stack);

	if (vcpu->stack.len < below) {
		done = read(ctx, va, want, vcpu->buffer, &vcpu->stack);
	} else {
		vcpu->stack.va = va;
		window_set_below(&vcpu->stack, below);
	}
	vcpu->hurried = !done;
	for (unsigned k = 0; k < UNWIND_OTHERS; k++) {
		const struct other_stack *other = &vcpu->request.other[k];

		vcpu->others[k].len = 0;
		if (other->want)
			(void)read(ctx, other->va, other->want, other->buffer, &vcpu->others[k]);
	}
}

/* A power of two; a sample of a vCPU takes four tables and a few frames of stack. */
#define FRAMES 64u

struct held {
	uint64_t gfn;
	uint64_t round; /* when it was read; 0: never */
	bool there;
	uint8_t bytes[FRAME_SIZE];
};

struct guest_ram {
	struct ram_map map;
	int fd;
	bool missed;
	uint64_t round;
	struct held frame[FRAMES];
};

bool ram_map_add(struct ram_map *map, uint64_t gpa, uint64_t size, uint64_t hva)
{
	if (map->n == RAM_SLOTS_MAX)
		return false;
	map->slot[map->n++] = (struct ram_slot){gpa, size, hva};
	return true;
}

bool ram_map_find(const struct ram_map *map, uint64_t gfn, uint64_t *hva)
{
	const uint64_t gpa = gfn << FRAME_SHIFT;

	for (size_t i = 0; i < map->n; i++) {
		const struct ram_slot *slot = &map->slot[i];

		if (gpa - slot->gpa >= slot->size)
			continue;
		*hva = slot->hva + (gpa - slot->gpa);
		return true;
	}
	return false;
}

bool ram_map_is_same(const struct ram_map *a, const struct ram_map *b)
{
	return a->n == b->n && !memcmp(a->slot, b->slot, a->n * sizeof(*a->slot));
}

uint64_t ram_map_size(const struct ram_map *map)
{
	uint64_t size = 0;

	for (size_t i = 0; i < map->n; i++)
		size += map->slot[i].size;
	return size;
}

struct error *guest_ram_new(int fd, struct guest_ram **out)
{
	struct guest_ram *ram = calloc(1, sizeof(*ram));

	if (!ram)
		return error_no_memory();
	ram->fd = fd;
	ram->round = 1;
	*out = ram;
	return NULL;
}

void guest_ram_free(struct guest_ram *ram)
{
	free(ram);
}

struct ram_map *guest_ram_map(struct guest_ram *ram)
{
	return &ram->map;
}

void guest_ram_forget(struct guest_ram *ram)
{
	ram->round++;
}

static void renew(void *ram)
{
	guest_ram_forget(ram);
}

struct paged_memory guest_ram_memory(struct guest_ram *ram)
{
	return (struct paged_memory){.frames = {guest_ram_frame, ram}, .renew = renew};
}

bool guest_ram_missed(struct guest_ram *ram)
{
	const bool missed = ram->missed;

	ram->missed = false;
	return missed;
}

/* The frame's own slot, or the next one that is free in this round; its own if none is. */
static struct held *slot_of(struct guest_ram *ram, uint64_t gfn)
{
	const size_t home = (size_t)(gfn * 0x9e3779b97f4a7c15ull >> 32);

	for (size_t i = 0; i < FRAMES; i++) {
		struct held *held = &ram->frame[(home + i) & (FRAMES - 1)];

		if (held->round != ram->round || held->gfn == gfn)
			return held;
	}
	return &ram->frame[home & (FRAMES - 1)];
}

const void *guest_ram_frame(void *ctx, uint64_t gfn)
{
	struct guest_ram *ram = ctx;
	struct held *held = slot_of(ram, gfn);
	uint64_t hva;

	if (held->round == ram->round && held->gfn == gfn)
		return held->there ? held->bytes : NULL;
	held->round = ram->round;
	held->gfn = gfn;
	held->there = ram_map_find(&ram->map, gfn, &hva) &&
		      host_memory_read(ram->fd, hva, held->bytes, FRAME_SIZE) == FRAME_SIZE;
	ram->missed |= !held->there;
	return held->there ? held->bytes : NULL;
}

/* Smallest guest, bytes. */
#define SMALLEST (1u << 20)
#define MAPS_MAX 256

/*
 * A guest with much memory has some of it above 4 GiB, and devices below: its
 * low memory ends at one of these addresses in the machines of QEMU (q35, pc,
 * microvm), crosvm, Cloud Hypervisor and Firecracker. Below the first all agree.
 */
static const uint64_t low_ends[] = {0x80000000, 0xb0000000, 0xc0000000, 0xd0000000, 0xe0000000};
#define HIGH_MEMORY 0x100000000u

/*
 * Mappings up to this size may hold the guest's memory from any page on, not
 * only from their start.
 */
#define ANYWHERE_MAX (1ull << 30)

/* Instructions that are checked at a vCPU's pc. */
#define INSTRUCTIONS 4

/* Machines of one architecture. */
struct ram_machine {
	const uint64_t *bases; /* where memory begins */
	size_t n_bases;
	const uint64_t *low_ends;
	size_t n_low_ends;
	/* True for bytes that may be executed: memory that nobody has written to does not count. */
	bool (*is_code)(const uint8_t *bytes, size_t len, unsigned word);
};

static bool is_x86_code(const uint8_t *bytes, size_t len, unsigned word)
{
	struct x86_insn insn;
	size_t at = 0;

	for (int i = 0; i < INSTRUCTIONS && at < len; i++) {
		size_t step = x86_decode(bytes + at, len - at, word, &insn);

		/* Behind a jump or a return there may be anything. */
		if (!step)
			break;
		if (bytes[at] == 0 && at + 1 < len && bytes[at + 1] == 0)
			return false;
		at += step;
	}
	return at > 0;
}

/* Instructions of A64 (DDI 0487, C4.1): groups that are reserved or unallocated, among them a word of zeros; and what leads elsewhere. */
#define A64_GROUP(insn)	    ((insn) >> 25 & 0xf)
#define A64_UNALLOCATED	    (1u << 0 | 1u << 1 | 1u << 3)
#define A64_IS_BRANCH(insn) (((insn)&0xfc000000) == 0x14000000 || ((insn)&0xfe000000) == 0xd6000000)

static bool is_a64_code(const uint8_t *bytes, size_t len, unsigned word)
{
	uint32_t insn;

	for (size_t at = 0; at < INSTRUCTIONS * sizeof(insn) && at + sizeof(insn) <= len;
	     at += sizeof(insn)) {
		memcpy(&insn, bytes + at, sizeof(insn));
		if (A64_UNALLOCATED >> A64_GROUP(insn) & 1)
			return false;
		if (A64_IS_BRANCH(insn))
			break;
	}
	return len >= sizeof(insn);
}

static const uint64_t x86_bases[] = {0};
/* QEMU's virt and Cloud Hypervisor; Firecracker, crosvm and kvmtool. */
static const uint64_t arm64_bases[] = {0x40000000, 0x80000000};

static const struct ram_machine x86_machine = {x86_bases, 1, low_ends,
					       sizeof(low_ends) / sizeof(*low_ends), is_x86_code};
static const struct ram_machine arm64_machine = {arm64_bases, 2, NULL, 0, is_a64_code};

struct ram_candidate {
	uint64_t start, size;
};

struct ram_candidates {
	struct ram_candidate at[MAPS_MAX]; /* larger ones first */
	size_t n;
};

struct ram_search {
	const struct arch *arch;
	const struct ram_machine *machine;
	struct ram_candidates single;
	/*
	 * Mappings that are one piece of memory: Solo5 lets its guest write to
	 * some of the memory only, which divides the mapping that it was.
	 */
	struct ram_candidates joined;
};

/* Mapping that is being joined, while mappings are read. */
struct joining {
	struct ram_search *search;
	struct proc_map last;
	uint64_t start;
	unsigned n;
};

static void add(struct ram_candidates *all, uint64_t start, uint64_t end)
{
	if (end - start >= SMALLEST && all->n < MAPS_MAX)
		all->at[all->n++] = (struct ram_candidate){start, end - start};
}

/* Code that a monitor has loaded is private to it, and of a file. */
static bool could_be_part(const struct proc_map *map)
{
	return *map->path != '[' && (map->shared || (!map->inode && !*map->path));
}

static bool goes_on(const struct proc_map *last, const struct proc_map *map)
{
	return map->start == last->end && map->shared == last->shared &&
	       map->inode == last->inode &&
	       (!map->inode || map->offset == last->offset + (last->end - last->start));
}

static void join(struct joining *joining, const struct proc_map *map)
{
	if (joining->n && map && could_be_part(map) && goes_on(&joining->last, map)) {
		joining->n++;
	} else {
		if (joining->n > 1)
			add(&joining->search->joined, joining->start, joining->last.end);
		joining->n = map && could_be_part(map);
		joining->start = map ? map->start : 0;
	}
	if (map)
		joining->last = *map;
}

static bool add_mapping(void *ctx, const struct proc_map *map)
{
	struct joining *joining = ctx;

	if (map->readable && map->writable && !map->executable && *map->path != '[')
		add(&joining->search->single, map->start, map->end);
	join(joining, map);
	return true;
}

static int compare_sizes(const void *a, const void *b)
{
	const struct ram_candidate *x = a, *y = b;

	return x->size == y->size ? 0 : x->size < y->size ? 1 : -1;
}

static void sort(struct ram_candidates *all)
{
	qsort(all->at, all->n, sizeof(*all->at), compare_sizes);
}

struct error *ram_search_new(FILE *maps, const struct arch *arch, struct ram_search **out)
{
	struct ram_search *search = calloc(1, sizeof(*search));
	struct joining joining = {.search = search};

	if (!search)
		return error_no_memory();
	search->arch = arch;
	search->machine = arch->isa == ISA_X86 ? &x86_machine : &arm64_machine;
	proc_maps_read(maps, add_mapping, &joining);
	join(&joining, NULL);
	sort(&search->single);
	sort(&search->joined);
	*out = search;
	return NULL;
}

void ram_search_free(struct ram_search *search)
{
	free(search);
}

uint64_t ram_search_size(const struct ram_search *search)
{
	uint64_t size = 0;

	for (size_t i = 0; i < search->single.n; i++)
		size += search->single.at[i].size;
	return size;
}

/* What is tried, and whether it fits. */
struct ram_trial {
	const struct ram_search *search;
	struct guest_ram *ram;
	const struct regs *regs;
	size_t n;
	uint64_t base; /* where the guest's memory begins */
};

static bool fits(const struct ram_trial *trial)
{
	const struct physmem mem = {guest_ram_frame, trial->ram};
	uint8_t bytes[INSTRUCTIONS * X86_INSN_MAX];

	guest_ram_forget(trial->ram);
	for (size_t i = 0; i < trial->n; i++) {
		const struct regs *regs = &trial->regs[i];
		size_t len = window_read(trial->search->arch, &regs->mmu, &mem, regs->pc, bytes,
					 sizeof(bytes));

		if (!len || !trial->search->machine->is_code(bytes, len, regs->word))
			return false;
	}
	return trial->n > 0;
}

/* The guest's memory begins `skip` bytes into a candidate; `low_end` 0: all in one. */
static void assume(const struct ram_trial *trial, const struct ram_candidate *candidate,
		   uint64_t skip, uint64_t low_end)
{
	struct ram_map *map = guest_ram_map(trial->ram);
	const uint64_t size = candidate->size - skip, start = candidate->start + skip;

	map->n = 0;
	if (!low_end || size <= low_end) {
		ram_map_add(map, trial->base, size, start);
		return;
	}
	ram_map_add(map, trial->base, low_end, start);
	ram_map_add(map, HIGH_MEMORY, size - low_end, start + low_end);
}

/*
 * Tries the ways to divide one large mapping: takes the only one that fits,
 * or the part that all such ways have in common.
 */
static bool try_divided(const struct ram_trial *trial, const struct ram_candidate *candidate)
{
	const struct ram_machine *machine = trial->search->machine;
	unsigned right = 0;
	uint64_t which = 0;

	for (size_t i = 0; i < machine->n_low_ends; i++) {
		assume(trial, candidate, 0, machine->low_ends[i]);
		if (!fits(trial))
			continue;
		right++;
		which = machine->low_ends[i];
	}
	assume(trial, candidate, 0, which);
	if (right > 1)
		*guest_ram_map(trial->ram) =
			(struct ram_map){{{0, machine->low_ends[0], candidate->start}}, 1};
	return right > 0;
}

static bool try_whole(const struct ram_trial *trial, const struct ram_candidate *candidate)
{
	const struct ram_machine *machine = trial->search->machine;

	if (machine->n_low_ends && candidate->size > machine->low_ends[0])
		return try_divided(trial, candidate);
	assume(trial, candidate, 0, 0);
	return fits(trial);
}

/* The kernel shows mappings that happen to touch as one. */
static bool try_inside(const struct ram_trial *trial, const struct ram_candidate *candidate)
{
	struct ram_map found = {.n = 0};
	unsigned right = 0;

	if (candidate->size > ANYWHERE_MAX)
		return false;
	for (uint64_t skip = FRAME_SIZE; skip < candidate->size && right < 2; skip += FRAME_SIZE) {
		assume(trial, candidate, skip, 0);
		if (!fits(trial))
			continue;
		right++;
		found = *guest_ram_map(trial->ram);
	}
	*guest_ram_map(trial->ram) = found;
	return right == 1;
}

/* Counts what fits, the last of which is left in `found`. */
static unsigned try_each(struct ram_trial *trial, const struct ram_candidates *all, bool inside,
			 struct ram_map *found)
{
	const struct ram_machine *machine = trial->search->machine;
	unsigned right = 0;

	for (size_t i = 0; i < all->n * machine->n_bases; i++) {
		const struct ram_candidate *candidate = &all->at[i / machine->n_bases];

		trial->base = machine->bases[i % machine->n_bases];
		if (!(inside ? try_inside(trial, candidate) : try_whole(trial, candidate)))
			continue;
		right++;
		*found = *guest_ram_map(trial->ram);
	}
	return right;
}

bool ram_search_run(struct ram_search *search, struct guest_ram *ram, const struct regs *regs,
		    size_t n)
{
	struct ram_trial trial = {.search = search, .ram = ram, .regs = regs, .n = n};
	struct ram_map found = {.n = 0};
	unsigned right = 0;

	for (unsigned i = 0; i < 4 && !right; i++)
		right = try_each(&trial, i < 2 ? &search->single : &search->joined, i % 2, &found);
	*guest_ram_map(ram) = right == 1 ? found : (struct ram_map){.n = 0};
	guest_ram_forget(ram);
	return right == 1;
}
