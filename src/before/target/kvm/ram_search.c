/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/kvm/layout.h"

#include <stdlib.h>
#include <string.h>

#include "target/host/proc.h"
#include "target/window.h"
#include "unwind/x86/insn.h"

/* No guest is smaller, bytes. */
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

/* In a mapping no larger than this the guest's memory is looked for at any page, not only its start. */
#define ANYWHERE_MAX (1ull << 30)

/* Instructions that are looked at where a vCPU executes. */
#define INSTRUCTIONS 4

struct piece {
	uint64_t start, size;
};

struct pieces {
	struct piece at[MAPS_MAX]; /* larger ones first */
	size_t n;
};

struct layout {
	struct pieces single;
	/*
	 * Mappings that are one piece of memory: Solo5 lets its guest write to
	 * some of the memory only, which divides the mapping that it was.
	 */
	struct pieces joined;
};

/* While mappings are read: those that the last ones make together. */
struct joining {
	struct layout *layout;
	struct proc_map last;
	uint64_t start;
	unsigned n;
};

static void add(struct pieces *pieces, uint64_t start, uint64_t end)
{
	if (end - start >= SMALLEST && pieces->n < MAPS_MAX)
		pieces->at[pieces->n++] = (struct piece){start, end - start};
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
			add(&joining->layout->joined, joining->start, joining->last.end);
		joining->n = map && could_be_part(map);
		joining->start = map ? map->start : 0;
	}
	if (map)
		joining->last = *map;
}

static bool look_at(void *ctx, const struct proc_map *map)
{
	struct joining *joining = ctx;

	if (map->readable && map->writable && !map->executable && *map->path != '[')
		add(&joining->layout->single, map->start, map->end);
	join(joining, map);
	return true;
}

static int by_size(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->size == y->size ? 0 : x->size < y->size ? 1 : -1;
}

static void sort(struct pieces *pieces)
{
	qsort(pieces->at, pieces->n, sizeof(*pieces->at), by_size);
}

struct error *layout_new(FILE *maps, struct layout **out)
{
	struct layout *layout = calloc(1, sizeof(*layout));
	struct joining joining = {.layout = layout};

	if (!layout)
		return error_no_memory();
	proc_maps_read(maps, look_at, &joining);
	join(&joining, NULL);
	sort(&layout->single);
	sort(&layout->joined);
	*out = layout;
	return NULL;
}

void layout_free(struct layout *layout)
{
	free(layout);
}

uint64_t layout_size(const struct layout *layout)
{
	uint64_t size = 0;

	for (size_t i = 0; i < layout->single.n; i++)
		size += layout->single.at[i].size;
	return size;
}

/* Bytes that could be executed: memory that nobody has written to does not count. */
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

static bool proves(struct guest_ram *ram, const struct regs *regs, size_t n)
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

/* The guest's memory begins `skip` bytes into a piece; `low_end` 0: all in one. */
static void suppose(struct ram_map *map, const struct piece *piece, uint64_t skip, uint64_t low_end)
{
	const uint64_t size = piece->size - skip, start = piece->start + skip;

	map->n = 0;
	if (!low_end || size <= low_end) {
		ram_map_add(map, 0, size, start);
		return;
	}
	ram_map_add(map, 0, low_end, start);
	ram_map_add(map, HIGH_MEMORY, size - low_end, start + low_end);
}

/* One large mapping: of the ways to divide it, the only one, or what all have in common. */
static bool try_divided(const struct piece *piece, struct guest_ram *ram, const struct regs *regs,
			size_t n)
{
	struct ram_map *map = guest_ram_map(ram);
	unsigned right = 0;
	uint64_t which = 0;

	for (size_t i = 0; i < N_LOW_ENDS; i++) {
		suppose(map, piece, 0, low_ends[i]);
		if (!proves(ram, regs, n))
			continue;
		right++;
		which = low_ends[i];
	}
	suppose(map, piece, 0, which);
	if (right > 1)
		*map = (struct ram_map){{{0, low_ends[0], piece->start}}, 1};
	return right > 0;
}

static bool try_whole(const struct piece *piece, struct guest_ram *ram, const struct regs *regs,
		      size_t n)
{
	if (piece->size > low_ends[0])
		return try_divided(piece, ram, regs, n);
	suppose(guest_ram_map(ram), piece, 0, 0);
	return proves(ram, regs, n);
}

/* The kernel shows mappings that happen to touch as one. */
static bool try_inside(const struct piece *piece, struct guest_ram *ram, const struct regs *regs,
		       size_t n, struct ram_map *found)
{
	struct ram_map *map = guest_ram_map(ram);
	unsigned right = 0;

	if (piece->size > ANYWHERE_MAX)
		return false;
	for (uint64_t skip = FRAME_SIZE; skip < piece->size && right < 2; skip += FRAME_SIZE) {
		suppose(map, piece, skip, 0);
		if (!proves(ram, regs, n))
			continue;
		right++;
		*found = *map;
	}
	return right == 1;
}

/* How many of them prove right, the last of which is left in `found`. */
static unsigned try_each(const struct pieces *pieces, struct guest_ram *ram,
			 const struct regs *regs, size_t n, struct ram_map *found)
{
	unsigned right = 0;

	for (size_t i = 0; i < pieces->n; i++) {
		if (!try_whole(&pieces->at[i], ram, regs, n))
			continue;
		right++;
		*found = *guest_ram_map(ram);
	}
	for (size_t i = 0; i < pieces->n && !right; i++)
		right += try_inside(&pieces->at[i], ram, regs, n, found);
	return right;
}

bool layout_find(struct layout *layout, struct guest_ram *ram, const struct regs *regs, size_t n)
{
	struct ram_map *map = guest_ram_map(ram), found = {.n = 0};
	unsigned right = try_each(&layout->single, ram, regs, n, &found);

	if (!right)
		right = try_each(&layout->joined, ram, regs, n, &found);
	*map = right == 1 ? found : (struct ram_map){.n = 0};
	guest_ram_forget(ram);
	return right == 1;
}
