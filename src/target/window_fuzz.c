/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for page walks and the copying of stacks: the input is the registers, and the
 * frames of a guest in which every number leads to one of them, or to none.
 * Copies that go by trails must be those that walk.
 */

#include "base/fuzz_testing.h"
#include "target/window.h"

#define FRAMES 4
/* Levels of the deepest tables, plus the frame itself. */
#define READS_PER_PAGE 6

struct input {
	uint64_t root, va, sp;
	uint32_t want;
	uint8_t arch, mode, how, missing;
	uint64_t control, root_high, own, kernel_root;
	uint32_t pointer, piece;
};

enum { PSE = 1, NARROW = 2, USER = 4, APART = 8 };

struct memory {
	uint8_t frames[FRAMES][FRAME_SIZE];
	uint8_t missing;
	unsigned reads;
};

struct guest {
	const struct arch *arch;
	struct regs regs;
	struct memory *memory;
	struct physmem mem;
};

static const void *frame(void *ctx, uint64_t gfn)
{
	struct memory *memory = ctx;
	unsigned i = (unsigned)(gfn ^ gfn >> 7 ^ gfn >> 21) & 7;

	memory->reads++;
	return memory->missing >> i & 1 ? NULL : memory->frames[i % FRAMES];
}

static void check_translation(const struct guest *guest, uint64_t va)
{
	struct xlate at = {0};
	enum xlate_status status;

	guest->memory->reads = 0;
	status = guest->arch->translate(&guest->regs.mmu, va, &guest->mem, &at);
	need(guest->memory->reads < READS_PER_PAGE);
	need(status <= XLATE_MISSING);
	if (status == XLATE_OK)
		need(at.left > 0 && at.addr < 1ull << 56);
	if (status == XLATE_MISSING)
		need(!frame(guest->memory, at.gfn));
}

static void check_byte(const struct guest *guest, uint64_t addr, uint8_t byte)
{
	const uint8_t *bytes = frame(guest->memory, addr >> FRAME_SHIFT);

	need(bytes && bytes[addr & (FRAME_SIZE - 1)] == byte);
}

/*
 * Compares the copied bytes with where each page's first one is. Large pages of short descriptors
 * (DDI 0487, G5.4.1) and Svnapot's have 16 entries, alike in a guest: the first one that is read
 * counts for all of the page, whatever the others say here.
 */
static void check_bytes(const struct guest *guest, const struct window *window)
{
	uint64_t i = 0, end = window->below + window->len;
	const uint8_t *bytes = window->bytes - window->below;

	while (i < end) {
		const uint64_t va = window->va - window->below + i;
		struct xlate at = {0};
		uint8_t byte;

		need(guest->arch->translate(&guest->regs.mmu, va, &guest->mem, &at) == XLATE_OK);
		need(window_read(guest->arch, &guest->regs.mmu, &guest->mem, va, &byte, 1) == 1 &&
		     byte == bytes[i]);
		for (uint64_t in_page = 0; in_page < at.left && i + in_page < end; in_page += 248)
			check_byte(guest, at.addr + in_page, bytes[i + in_page]);
		i += at.left;
	}
}

static void check_window(const struct guest *guest, const struct window_copy *copy, uint32_t want,
			 bool whole)
{
	const struct window *window = copy->out;

	need(window->len <= want);
	need(guest->memory->reads <= (want / FRAME_SIZE + 4) * READS_PER_PAGE);
	need(whole || !frame(guest->memory, copy->gfn));
	need(window->bytes == copy->buffer + window->below &&
	     window->below <= red_zone(&guest->regs));
	need(window->va % guest->regs.word == 0 && guest->regs.sp - window->va < guest->regs.word);
	check_bytes(guest, window);
}

/* With trails that former copies left, and without any: the same comes out. */
static void copy_both_ways(const struct guest *guest, uint32_t want, struct window_trails *trails)
{
	uint8_t *buffer[2] = {malloc(want + RED_ZONE_MAX), malloc(want + RED_ZONE_MAX)};
	struct window window[2];
	struct window_copy copy[2];
	bool whole[2];

	for (unsigned i = 0; i < 2; i++) {
		need(buffer[i] != NULL);
		copy[i] = (struct window_copy){.arch = guest->arch,
					       .regs = &guest->regs,
					       .mem = &guest->mem,
					       .trails = i ? trails : NULL,
					       .buffer = buffer[i],
					       .out = &window[i]};
		guest->memory->reads = 0;
		whole[i] = window_copy(&copy[i], want);
		check_window(guest, &copy[i], want, whole[i]);
	}
	need(whole[0] == whole[1] && window[0].len == window[1].len);
	need(window[0].below == window[1].below && window[0].cut == window[1].cut);
	(void)window_copy_at(&copy[1], guest->regs.fp, want);
	need(window[1].len <= want);
	free(buffer[0]);
	free(buffer[1]);
}

static void copy_thread(const struct guest *guest, const struct input *in,
			struct window_trails *trails)
{
	const struct thread_request request = {.pointer = in->pointer,
					       .at = {in->piece & 0xffff, in->piece >> 16}};
	struct thread_copy thread[2];

	for (unsigned i = 0; i < 2; i++) {
		struct window_copy copy = {.arch = guest->arch,
					   .regs = &guest->regs,
					   .mem = &guest->mem,
					   .trails = i ? trails : NULL};

		thread[i] = (struct thread_copy){.apart = in->how & APART};
		guest->memory->reads = 0;
		if (!window_copy_thread(&copy, &request, &thread[i]))
			need(!frame(guest->memory, copy.gfn));
		need(guest->memory->reads <= 4 * (THREAD_PIECES + 1) * READS_PER_PAGE);
	}
	need(thread[0].there == thread[1].there);
	need(!thread[0].there ||
	     (thread[0].at == thread[1].at &&
	      !memcmp(thread[0].piece, thread[1].piece, sizeof(thread[0].piece))));
}

/* The way of paging that the input asks for, of those that this processor has. */
static enum mmu_mode mode_of(const struct arch *arch, unsigned n)
{
	enum mmu_mode mode = MMU_OFF;

	for (n %= MMU_MODES;; mode = (mode + 1) % MMU_MODES)
		if (arch->modes >> mode & 1 && !n--)
			return mode;
}

static struct guest make(const struct input *in, struct memory *memory)
{
	static const struct arch *const archs[] = {&arch_x86_64, &arch_x86_32, &arch_arm64,
						   &arch_arm32, &arch_riscv64};
	struct guest guest = {.arch = archs[in->arch % 5],
			      .memory = memory,
			      .mem = {.frame = frame, .ctx = memory}};
	struct regs *regs = &guest.regs;

	regs->isa = guest.arch->isa;
	regs->word = in->how & NARROW ? 4 : guest.arch->word;
	regs->sp = regs->word == 4 ? (uint32_t)in->sp : in->sp;
	regs->fp = in->va;
	regs->user = in->how & USER;
	regs->own[0] = in->own;
	regs->own[1] = in->own ^ in->root_high;
	regs->kernel_root = in->kernel_root;
	regs->mmu = (struct mmu){.mode = mode_of(guest.arch, in->mode),
				 .root = in->root,
				 .pse = in->how & PSE,
				 .root_high = in->root_high,
				 .control = in->control};
	return guest;
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	static struct window_trails trails;
	static struct memory memory;
	struct input in;
	struct guest guest;

	if (size < sizeof(in))
		return;
	memcpy(&in, data, sizeof(in));
	data += sizeof(in);
	size -= sizeof(in);
	memset(&memory, 0, sizeof(memory));
	memory.missing = in.missing;
	memcpy(memory.frames, data, size < sizeof(memory.frames) ? size : sizeof(memory.frames));
	guest = make(&in, &memory);
	window_forget_trails(&trails);
	check_translation(&guest, in.va);
	for (unsigned i = 0; i < 3; i++) {
		copy_both_ways(&guest, in.want % (16u << 10), &trails);
		copy_thread(&guest, &in, &trails);
		/* Then in tables of which some read otherwise. */
		if (i)
			memory.frames[in.piece % FRAMES][in.pointer % FRAME_SIZE] ^=
				1 << in.piece % 8;
	}
}
