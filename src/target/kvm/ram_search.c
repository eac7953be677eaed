/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/kvm/kvm.h"

#include <stdlib.h>
#include <string.h>

#include "arch/x86/x86.h"
#include "target/host/proc.h"
#include "target/window.h"

/* Smallest guest, bytes. */
#define SMALLEST (1u << 20)
#define MAPS_MAX 256

/*
 * A guest with much memory has some of it above 4 GiB, and devices below: its
 * low memory ends at one of these addresses in the machines of QEMU (q35, pc,
 * microvm), crosvm, Cloud Hypervisor and Firecracker. Below the first all agree.
 */
static const uint64_t low_ends[] = {0x80000000, 0xb0000000, 0xc0000000, 0xd0000000, 0xe0000000};
#define N_LOW_ENDS  (sizeof(low_ends) / sizeof(*low_ends))
#define HIGH_MEMORY 0x100000000u

/*
 * Mappings up to this size may hold the guest's memory from any page on, not
 * only from their start.
 */
#define ANYWHERE_MAX (1ull << 30)

/* Instructions that are checked at a vCPU's pc. */
#define INSTRUCTIONS 4

struct ram_candidate {
	uint64_t start, size;
};

struct ram_candidates {
	struct ram_candidate at[MAPS_MAX]; /* larger ones first */
	size_t n;
};

struct ram_search {
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

struct error *ram_search_new(FILE *maps, struct ram_search **out)
{
	struct ram_search *search = calloc(1, sizeof(*search));
	struct joining joining = {.search = search};

	if (!search)
		return error_no_memory();
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

/* True for bytes that may be executed: memory that nobody has written to does not count. */
static bool is_code(const uint8_t *bytes, size_t len, unsigned word)
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

static bool fits(struct guest_ram *ram, const struct regs *regs, size_t n)
{
	const struct physmem mem = {guest_ram_frame, ram};
	uint8_t bytes[INSTRUCTIONS * X86_INSN_MAX];

	guest_ram_forget(ram);
	for (size_t i = 0; i < n; i++) {
		size_t len = window_read(&arch_x86_64, &regs[i].mmu, &mem, regs[i].pc, bytes,
					 sizeof(bytes));

		if (!len || !is_code(bytes, len, regs[i].word))
			return false;
	}
	return n > 0;
}

/* The guest's memory begins `skip` bytes into a candidate; `low_end` 0: all in one. */
static void assume(struct ram_map *map, const struct ram_candidate *candidate, uint64_t skip,
		   uint64_t low_end)
{
	const uint64_t size = candidate->size - skip, start = candidate->start + skip;

	map->n = 0;
	if (!low_end || size <= low_end) {
		ram_map_add(map, 0, size, start);
		return;
	}
	ram_map_add(map, 0, low_end, start);
	ram_map_add(map, HIGH_MEMORY, size - low_end, start + low_end);
}

/*
 * Tries the ways to divide one large mapping: takes the only one that fits,
 * or the part that all such ways have in common.
 */
static bool try_divided(const struct ram_candidate *candidate, struct guest_ram *ram,
			const struct regs *regs, size_t n)
{
	struct ram_map *map = guest_ram_map(ram);
	unsigned right = 0;
	uint64_t which = 0;

	for (size_t i = 0; i < N_LOW_ENDS; i++) {
		assume(map, candidate, 0, low_ends[i]);
		if (!fits(ram, regs, n))
			continue;
		right++;
		which = low_ends[i];
	}
	assume(map, candidate, 0, which);
	if (right > 1)
		*map = (struct ram_map){{{0, low_ends[0], candidate->start}}, 1};
	return right > 0;
}

static bool try_whole(const struct ram_candidate *candidate, struct guest_ram *ram,
		      const struct regs *regs, size_t n)
{
	if (candidate->size > low_ends[0])
		return try_divided(candidate, ram, regs, n);
	assume(guest_ram_map(ram), candidate, 0, 0);
	return fits(ram, regs, n);
}

/* The kernel shows mappings that happen to touch as one. */
static bool try_inside(const struct ram_candidate *candidate, struct guest_ram *ram,
		       const struct regs *regs, size_t n, struct ram_map *found)
{
	struct ram_map *map = guest_ram_map(ram);
	unsigned right = 0;

	if (candidate->size > ANYWHERE_MAX)
		return false;
	for (uint64_t skip = FRAME_SIZE; skip < candidate->size && right < 2; skip += FRAME_SIZE) {
		assume(map, candidate, skip, 0);
		if (!fits(ram, regs, n))
			continue;
		right++;
		*found = *map;
	}
	return right == 1;
}

/* Counts the candidates that fit, the last of which is left in `found`. */
static unsigned try_each(const struct ram_candidates *all, struct guest_ram *ram,
			 const struct regs *regs, size_t n, struct ram_map *found)
{
	unsigned right = 0;

	for (size_t i = 0; i < all->n; i++) {
		if (!try_whole(&all->at[i], ram, regs, n))
			continue;
		right++;
		*found = *guest_ram_map(ram);
	}
	for (size_t i = 0; i < all->n && !right; i++)
		right += try_inside(&all->at[i], ram, regs, n, found);
	return right;
}

bool ram_search_run(struct ram_search *search, struct guest_ram *ram, const struct regs *regs,
		    size_t n)
{
	struct ram_map *map = guest_ram_map(ram), found = {.n = 0};
	unsigned right = try_each(&search->single, ram, regs, n, &found);

	if (!right)
		right = try_each(&search->joined, ram, regs, n, &found);
	*map = right == 1 ? found : (struct ram_map){.n = 0};
	guest_ram_forget(ram);
	return right == 1;
}
