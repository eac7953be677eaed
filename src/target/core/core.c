/* SPDX-License-Identifier: BSD-3-Clause */

/* A core file of a guest: each sample is the one moment that it holds. */

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "arch/x86/x86.h"
#include "base/clock.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "recording/recording.h"
#include "target/core/elf_core.h"
#include "target/target.h"

/* Guest state in a core file: one reader for each program that writes them. */

struct core {
	struct target base;
	struct elf_core elf;
	struct x86_regs *vcpu; /* info.vcpus of them */
	struct frame_map frames;
	uint8_t frame[FRAME_SIZE]; /* the last one that was read from the file */
};

static void describe(struct core *core, const char *type, const char *writer)
{
	struct target_info *info = &core->base.info;

	snprintf(info->type, sizeof(info->type), "%s", type);
	snprintf(info->host, sizeof(info->host), "%s", writer);
}

static struct error *new_vcpus(struct core *core, uint64_t vcpus)
{
	if (!vcpus || vcpus > RECORDING_MAX_VCPUS)
		return error_new(ERR_INPUT, "%llu vCPUs cannot be", (unsigned long long)vcpus);
	TRY(ARRAY_NEW(&core->vcpu, vcpus));
	core->base.info.vcpus = (uint32_t)vcpus;
	return NULL;
}

/* FRAME_SIZE bytes; false if the frame is not in the file. */
static bool read_frame(const struct core *core, uint64_t gfn, void *bytes)
{
	uint64_t at;

	return frame_map_find(&core->frames, gfn, &at) &&
	       elf_core_read(&core->elf, at, bytes, FRAME_SIZE);
}

/*
 * Dumps of `xl dump-core` (docs/misc/dump-core-format.txt in Xen): sections
 * with the contexts of all vCPUs, with frames, and with their numbers.
 */

#define NOTE_HEADER 0x2000001u
#define MAGIC_PV    0xf00febedu
#define MAGIC_HVM   0xf00febeeu

/* Bytes of the notes that are read: the header is the second note. */
#define XEN_NOTES_MAX 4096u

/* Numbers of frames that are read at once. */
#define NUMBERS 512u

#define FRAME_BITS 40

#define IN_KERNEL (1u << 2) /* VGCF_in_kernel */
#define RPL	  3u

#define PFN_MASK 0x000ffffffffff000ull

/*
 * Bits that PAE reserves in the entries of its top table, and long mode does
 * not (SDM vol. 3, 4.4.1).
 */
#define PRESENT	     1u
#define PAE_RESERVED 0x1e6u

/* struct vcpu_guest_context of 64 bits (xen/include/public/arch-x86/xen.h). */
struct context64 {
	uint8_t fpu[512];
	uint64_t flags;
	uint64_t r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	uint32_t error_code, entry_vector;
	uint64_t ip;
	uint16_t cs, pad;
	uint32_t upcall_mask;
	uint64_t rflags, sp;
	uint64_t ss, es, ds, fs, gs;
	uint8_t traps[256 * 16];
	uint64_t ldt_base, ldt_ents, gdt_frames[16], gdt_ents, kernel_ss, kernel_sp;
	uint64_t ctrlreg[8];
	uint64_t debugreg[8];
	uint64_t more[7];
};

/* ... and of 32 bits, at the beginning of as many bytes. */
struct context32 {
	uint8_t fpu[512];
	uint32_t flags;
	uint32_t bx, cx, dx, si, di, bp, ax, error_code;
	uint32_t ip;
	uint16_t cs, upcall_mask;
	uint32_t eflags, sp;
	uint32_t ss, es, ds, fs, gs;
	uint8_t traps[256 * 8];
	uint32_t ldt_base, ldt_ents, gdt_frames[16], gdt_ents, kernel_ss, kernel_sp;
	uint32_t ctrlreg[8];
	uint32_t debugreg[8];
	uint32_t more[5];
};

_Static_assert(sizeof(struct context64) == 5168 && sizeof(struct context32) == 2800,
	       "these are laid out as Xen's are");

struct head {
	uint64_t magic, vcpus, pages, page_size;
};

union context_any {
	struct context64 wide;
	struct context32 narrow;
};

static void take_general(const struct context64 *from, struct x86_regs *to)
{
	const uint64_t gp[16] = {from->ax,  from->cx,  from->dx,  from->bx, from->sp,  from->bp,
				 from->si,  from->di,  from->r8,  from->r9, from->r10, from->r11,
				 from->r12, from->r13, from->r14, from->r15};

	memcpy(to->gp, gp, sizeof(gp));
	to->rip = from->ip;
	to->rflags = from->rflags;
}

/* In user mode the guest runs on its other top table. Numbers of frames are folded (xen_cr3_to_pfn). */
static void take_pv64(const struct context64 *from, struct x86_regs *to)
{
	const bool kernel = from->flags & IN_KERNEL;
	const uint64_t cr3 = kernel || !from->ctrlreg[1] ? from->ctrlreg[3] : from->ctrlreg[1];

	take_general(from, to);
	to->cr0 = CR0_PG;
	to->cr4 = CR4_PAE;
	to->efer = EFER_LMA;
	to->cr3 = (cr3 >> FRAME_SHIFT | cr3 << (64 - FRAME_SHIFT)) << FRAME_SHIFT;
	to->cs_long = true;
	to->cpl = kernel ? 0 : RPL;
}

static void take_pv32(const struct context32 *from, struct x86_regs *to)
{
	const uint64_t gp[] = {from->ax, from->cx, from->dx, from->bx,
			       from->sp, from->bp, from->si, from->di};
	const uint32_t cr3 = from->ctrlreg[3];

	memcpy(to->gp, gp, sizeof(gp));
	to->rip = from->ip;
	to->rflags = from->eflags;
	to->cr0 = CR0_PG;
	to->cr4 = CR4_PAE;
	to->cr3 = (uint64_t)(cr3 >> FRAME_SHIFT | cr3 << (32 - FRAME_SHIFT)) << FRAME_SHIFT;
	to->cpl = from->cs & RPL;
}

/*
 * The context of an HVM guest has neither EFER nor the type of its code
 * segment. Reserved bits in the first entries of the top table show that it is
 * not PAE's.
 */
static bool in_long_mode(const struct core *core, const struct x86_regs *regs)
{
	uint64_t frame[FRAME_SIZE / sizeof(uint64_t)];
	bool long_mode = regs->rip > UINT32_MAX || regs->gp[4] > UINT32_MAX;

	if (!(regs->cr0 & CR0_PG) || !(regs->cr4 & CR4_PAE))
		return false;
	if (!long_mode && read_frame(core, (regs->cr3 & PFN_MASK) >> FRAME_SHIFT, frame))
		for (size_t i = 0; i < 4; i++) {
			const uint64_t entry = frame[(regs->cr3 & (FRAME_SIZE - 1)) / 32 * 4 + i];

			long_mode |= entry & PRESENT && entry & PAE_RESERVED;
		}
	return long_mode;
}

static void take_hvm(const struct core *core, const struct context64 *from, struct x86_regs *to)
{
	take_general(from, to);
	to->cr0 = from->ctrlreg[0];
	to->cr3 = from->ctrlreg[3];
	to->cr4 = from->ctrlreg[4];
	to->efer = in_long_mode(core, to) ? EFER_LMA : 0;
	to->cs_long = to->efer;
	to->cpl = from->cs & RPL;
}

/* A 32-bit context leaves the bytes behind it zero. */
static bool is_wide(const union context_any *context)
{
	return context->wide.ctrlreg[3];
}

static struct error *read_contexts(struct core *core, const struct head *head)
{
	union context_any context;
	struct elf_part part;
	struct error *err;

	if (!elf_core_section(&core->elf, ".xen_prstatus", &part) ||
	    part.entry_size != sizeof(context) || part.size / sizeof(context) < head->vcpus)
		return error_new(ERR_INPUT, "it holds no contexts of x86 vCPUs");
	err = new_vcpus(core, head->vcpus);
	core->base.info.arch = &arch_x86_64;
	for (uint32_t i = 0; i < core->base.info.vcpus && !err; i++) {
		if (!elf_core_read(&core->elf, part.at + i * sizeof(context), &context,
				   sizeof(context)))
			err = error_new(ERR_INPUT, "it is cut off");
		else if (head->magic == MAGIC_HVM)
			take_hvm(core, &context.wide, &core->vcpu[i]);
		else if (is_wide(&context))
			take_pv64(&context.wide, &core->vcpu[i]);
		else
			take_pv32(&context.narrow, &core->vcpu[i]);
		if (!err && head->magic == MAGIC_PV && !is_wide(&context))
			core->base.info.arch = &arch_x86_32;
	}
	return err;
}

/*
 * Frames are in the order of their numbers in another section. PV guests'
 * numbers have two parts; page tables hold the second.
 */
static struct error *read_frames(struct core *core, bool pv, uint64_t pages)
{
	const size_t size = pv ? 16 : 8;
	struct elf_part frames, numbers;
	uint64_t number[NUMBERS * 2];

	if (!elf_core_section(&core->elf, ".xen_pages", &frames) ||
	    !elf_core_section(&core->elf, pv ? ".xen_p2m" : ".xen_pfn", &numbers) ||
	    frames.size / FRAME_SIZE < pages || numbers.size / size < pages)
		return error_new(ERR_INPUT, "it does not hold all of its memory");
	for (uint64_t i = 0; i < pages; i++) {
		const size_t at = i % NUMBERS;
		const uint64_t left = pages - i;
		uint64_t gfn;

		if (!at && !elf_core_read(&core->elf, numbers.at + i * size, number,
					  (left < NUMBERS ? left : NUMBERS) * size))
			return error_new(ERR_INPUT, "it is cut off");
		gfn = pv ? number[2 * at + 1] : number[at];
		if (gfn >> FRAME_BITS == 0)
			TRY(frame_map_add(&core->frames, gfn, 1, frames.at + i * FRAME_SIZE));
	}
	return NULL;
}

static bool read_head(const struct core *core, struct head *head)
{
	uint8_t notes[XEN_NOTES_MAX];
	struct elf_part part;
	struct elf_note note;
	size_t len;

	if (!elf_core_section(&core->elf, ".note.Xen", &part))
		return false;
	len = part.size < sizeof(notes) ? (size_t)part.size : sizeof(notes);
	if (!elf_core_read(&core->elf, part.at, notes, len))
		return false;
	for (size_t at = 0; elf_note_next(notes, len, &at, &note);) {
		if (strcmp(note.name, "Xen") || note.type != NOTE_HEADER ||
		    note.len < sizeof(*head))
			continue;
		memcpy(head, note.desc, sizeof(*head));
		return true;
	}
	return false;
}

static struct error *read_xen(struct core *core, bool *is_xen)
{
	struct head head;

	*is_xen = read_head(core, &head);
	if (!*is_xen)
		return NULL;
	if (head.page_size != FRAME_SIZE || (head.magic != MAGIC_PV && head.magic != MAGIC_HVM))
		return error_new(ERR_INPUT, "it is of a kind of guest that is not known here");
	if (core->elf.machine != EM_X86_64)
		return error_new(ERR_INPUT, "it is of a guest that is none of x86");
	describe(core, head.magic == MAGIC_PV ? "pv" : "hvm", "xl dump-core");
	TRY(read_frames(core, head.magic == MAGIC_PV, head.pages));
	/* Needed to read contexts: their mode is in the page tables. */
	frame_map_sort(&core->frames);
	return read_contexts(core, &head);
}

/*
 * Dumps of QEMU's dump-guest-memory: memory in segments by physical address,
 * and a note "QEMU" for each vCPU (target/i386/arch_dump.c in QEMU), which has
 * what the notes of ordinary core files lack: control registers.
 */

#define STATE_VERSION 1u

/* Notes are some hundred bytes for each vCPU. */
#define QEMU_NOTES_MAX (16u << 20)

/* Bits of a descriptor's upper word (SDM vol. 3, 3.4.5). */
#define SEGMENT_LONG (1u << 21)
#define SEGMENT_BIG  (1u << 22)

struct segment {
	uint32_t selector, limit, flags, pad;
	uint64_t base;
};

struct state {
	uint32_t version, size;
	uint64_t ax, bx, cx, dx, si, di, sp, bp, r8_to_15[8];
	uint64_t ip, flags;
	struct segment cs, ds, es, fs, gs, ss, ldt, tr, gdt, idt;
	uint64_t cr[5];
};

/* The machine of the file is the 64-bit one if vCPUs are in long mode; EFER is not told. */
static void take_state(const struct core *core, const struct state *from, struct x86_regs *to)
{
	const uint64_t gp[] = {from->ax, from->cx, from->dx, from->bx,
			       from->sp, from->bp, from->si, from->di};

	memcpy(to->gp, gp, sizeof(gp));
	memcpy(to->gp + 8, from->r8_to_15, sizeof(from->r8_to_15));
	to->rip = from->ip;
	to->rflags = from->flags;
	to->cr0 = from->cr[0];
	to->cr3 = from->cr[3];
	to->cr4 = from->cr[4];
	to->efer = core->elf.machine == EM_X86_64 && from->cr[4] & CR4_PAE ? EFER_LMA : 0;
	to->cs_base = from->cs.base;
	to->ss_base = from->ss.base;
	to->cs_long = from->cs.flags & SEGMENT_LONG;
	to->cs_short = !(from->cs.flags & SEGMENT_BIG);
	to->ss_short = !(from->ss.flags & SEGMENT_BIG);
	to->cpl = from->cs.selector & RPL;
}

static bool is_state(const struct elf_note *note)
{
	return !strcmp(note->name, "QEMU") && note->type == 0 && note->len >= sizeof(struct state);
}

static struct error *take_notes(struct core *core, const uint8_t *bytes, size_t len)
{
	struct elf_note note;
	struct state state;
	struct error *err;
	uint32_t n = 0;

	for (size_t at = 0; elf_note_next(bytes, len, &at, &note);)
		n += is_state(&note);
	if (!n || core->vcpu)
		return NULL;
	err = new_vcpus(core, n);
	n = 0;
	for (size_t at = 0; !err && elf_note_next(bytes, len, &at, &note);) {
		if (!is_state(&note))
			continue;
		memcpy(&state, note.desc, sizeof(state));
		if (state.version != STATE_VERSION)
			return error_new(ERR_INPUT, "it was written by a newer QEMU");
		take_state(core, &state, &core->vcpu[n++]);
	}
	return err;
}

static struct error *read_notes(struct core *core, const struct elf_part *part)
{
	const size_t len = part->size < QEMU_NOTES_MAX ? (size_t)part->size : QEMU_NOTES_MAX;
	FREED uint8_t *bytes = malloc(len ? len : 1);

	if (!bytes)
		return error_no_memory();
	return elf_core_read(&core->elf, part->at, bytes, len) ? take_notes(core, bytes, len)
							       : NULL;
}

/* Whole frames of it. */
static struct error *add_memory(struct core *core, const struct elf_part *part)
{
	const uint64_t before = -part->physical & (FRAME_SIZE - 1);

	if (part->size < before + FRAME_SIZE || part->physical > UINT64_MAX - part->size)
		return NULL;
	return frame_map_add(&core->frames, (part->physical + before) >> FRAME_SHIFT,
			     (part->size - before) >> FRAME_SHIFT, part->at + before);
}

static struct error *read_qemu(struct core *core)
{
	struct elf_part part;

	describe(core, "qemu", "QEMU's dump-guest-memory");
	core->base.info.arch = &arch_x86_64;
	for (uint32_t i = 0; i < core->elf.segments; i++) {
		if (!elf_core_segment(&core->elf, i, &part))
			return error_new(ERR_INPUT, "it is cut off");
		if (part.type == PT_NOTE)
			TRY(read_notes(core, &part));
		else if (part.type == PT_LOAD)
			TRY(add_memory(core, &part));
	}
	if (!core->vcpu)
		return error_new(ERR_INPUT,
				 "neither `xl dump-core` nor QEMU's dump-guest-memory of an x86 "
				 "guest wrote it (others do not tell where the page tables are)");
	return NULL;
}

/* Reads all but memory. ERR_INPUT with a sentence. */
static struct error *read_file(struct core *core, const char *path)
{
	struct target_info *info = &core->base.info;
	const char *slash = strrchr(path, '/');
	struct error *err;
	bool is_xen;

	TRY(elf_core_open(path, &core->elf));
	err = read_xen(core, &is_xen);
	if (!is_xen)
		err = read_qemu(core);
	if (err)
		return error_prefix(err, "%s", path);
	frame_map_sort(&core->frames);
	snprintf(info->name, sizeof(info->name), "%s", slash ? slash + 1 : path);
	return NULL;
}

static void core_close(struct target *target)
{
	struct core *core = (struct core *)target;

	elf_core_close(&core->elf);
	frame_map_free(&core->frames);
	free(core->vcpu);
	free(core);
}

/* Valid until the next call. */
static const void *frame(void *ctx, uint64_t gfn)
{
	struct core *core = ctx;

	return read_frame(core, gfn, core->frame) ? core->frame : NULL;
}

static struct error *core_open(const char *name, const char *via, struct target **out)
{
	struct core *core;
	struct error *err;

	TRY(ARRAY_NEW(&core, 1));
	core->base.ops = &target_core;
	core->base.still = true;
	core->base.memory = (struct paged_memory){.frames = {.frame = frame, .ctx = core}};
	err = read_file(core, name);
	if (err)
		core_close(&core->base);
	else
		*out = &core->base;
	return err;
}

static struct error *core_sample(struct target *target, struct sample *sample)
{
	struct core *core = (struct core *)target;

	sample->time_ns = clock_now_ns();
	for (uint32_t i = 0; i < sample->vcpus && i < target->info.vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		vcpu->online = true;
		vcpu->state = VCPU_RUNNABLE;
		x86_regs_convert(&core->vcpu[i], &vcpu->regs);
		paged_memory_copy_stacks(&target->memory, target->info.arch, vcpu);
	}
	return NULL;
}

static enum target_life core_life(struct target *target)
{
	return LIFE_PAUSED;
}

/* A file is meant only if it can be nothing else: a guest may have any name. */
static bool core_is(const char *path)
{
	unsigned char head[EI_NIDENT + sizeof(uint16_t)];
	struct stat file;
	uint16_t type = ET_NONE;
	CLOSED int fd = !stat(path, &file) && S_ISREG(file.st_mode) ? open_to_read(path) : -1;

	if (fd < 0)
		return false;
	if (pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	    !memcmp(head, ELFMAG, SELFMAG))
		memcpy(&type, head + EI_NIDENT, sizeof(type));
	return type == ET_CORE;
}

const struct target_ops target_core = {
	.scheme = "core",
	.is_file = core_is,
	.open = core_open,
	.close = core_close,
	.sample = core_sample,
	.life = core_life,
};
