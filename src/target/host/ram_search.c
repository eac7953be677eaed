/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/memory.h"

#include <stdlib.h>
#include <string.h>

#include "arch/x86/x86.h"
#include "base/array.h"
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

	return COMPARE(y->size, x->size);
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
	const struct physmem mem = {.frame = guest_ram_frame, .ctx = trial->ram};
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
