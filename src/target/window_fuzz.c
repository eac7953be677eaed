/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for page walks and the copying of stacks: the input is the registers, and the
 * frames of a guest in which every number leads to one of them, or to none.
 */

#include <stdlib.h>
#include <string.h>

#include "target/window.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FRAMES 4
/* Levels of the deepest tables, plus the frame itself. */
#define READS_PER_PAGE 6

struct input {
	uint64_t root, va, sp;
	uint32_t want;
	uint8_t mode, word, pse, missing;
};

struct memory {
	uint8_t frames[FRAMES][FRAME_SIZE];
	uint8_t missing;
	unsigned reads;
};

static void need(bool good)
{
	if (!good)
		abort();
}

static const void *frame(void *ctx, uint64_t gfn)
{
	struct memory *memory = ctx;
	unsigned i = (unsigned)(gfn ^ gfn >> 7 ^ gfn >> 21) & 7;

	memory->reads++;
	return memory->missing >> i & 1 ? NULL : memory->frames[i % FRAMES];
}

static void check_translation(const struct arch *arch, const struct mmu *mmu, uint64_t va,
			      struct memory *memory)
{
	const struct physmem mem = {frame, memory};
	struct xlate at = {0};
	enum xlate_status status;

	memory->reads = 0;
	status = arch->translate(mmu, va, &mem, &at);
	need(memory->reads < READS_PER_PAGE);
	need(status <= XLATE_MISSING);
	if (status == XLATE_OK)
		need(at.left > 0 && at.left <= 1ull << 30 && at.addr < 1ull << 52);
	if (status == XLATE_MISSING)
		need(!frame(memory, at.gfn));
}

/* Compares the copied bytes with those that each address translates to by itself. */
static void check_bytes(const struct arch *arch, const struct mmu *mmu, const struct window *window,
			struct memory *memory)
{
	const struct physmem mem = {frame, memory};

	for (int64_t i = -(int64_t)window->below; i < window->len; i += 248) {
		struct xlate at = {0};
		const uint8_t *bytes;

		need(arch->translate(mmu, window->va + (uint64_t)i, &mem, &at) == XLATE_OK);
		bytes = frame(memory, at.addr >> FRAME_SHIFT);
		need(bytes && bytes[at.addr & (FRAME_SIZE - 1)] == window->bytes[i]);
	}
}

static void check_window(const struct arch *arch, const struct regs *regs, uint32_t want,
			 struct memory *memory)
{
	const struct physmem mem = {frame, memory};
	uint8_t *buffer = malloc(want + RED_ZONE_MAX);
	struct window window;
	struct window_copy copy = {
		.arch = arch, .regs = regs, .mem = &mem, .buffer = buffer, .out = &window};
	bool whole;

	need(buffer != NULL);
	memory->reads = 0;
	whole = window_copy(&copy, want);
	need(window.len <= want);
	need(memory->reads <= (want / FRAME_SIZE + 4) * READS_PER_PAGE);
	need(whole || !frame(memory, copy.gfn));
	need(window.bytes == buffer + window.below && window.below <= red_zone(regs));
	need(window.va % regs->word == 0 && regs->sp - window.va < regs->word);
	check_bytes(arch, &regs->mmu, &window, memory);
	free(buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct memory memory;
	struct input in;
	struct regs regs = {0};
	const struct arch *arch;

	if (size < sizeof(in))
		return 0;
	memcpy(&in, data, sizeof(in));
	data += sizeof(in);
	size -= sizeof(in);
	memset(&memory, 0, sizeof(memory));
	memory.missing = in.missing;
	memcpy(memory.frames, data, size < sizeof(memory.frames) ? size : sizeof(memory.frames));
	arch = in.word & 2 ? &arch_x86_32 : &arch_x86_64;
	regs.word = in.word & 1 ? 4 : 8;
	regs.sp = regs.word == 4 ? (uint32_t)in.sp : in.sp;
	regs.mmu = (struct mmu){.mode = in.mode % (MMU_X86_5 + 1), .root = in.root, .pse = in.pse};
	check_translation(arch, &regs.mmu, in.va, &memory);
	check_window(arch, &regs, in.want % (64u << 10), &memory);
	return 0;
}
