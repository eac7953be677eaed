/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Threads and programs of stacks: the system of the guest tells which file is mapped where a program
 * works, and the program's memory what that file is.
 */

#include "capture/capture.h"

#include <elf.h>
#include <string.h>

#include "base/clock.h"
#include "symbol/names/symbolizer.h"

/* Time for which a mapping is taken to be still there. */
#define PLACE_KEPT_NS 100000000ull

/* Steps to find the files of one stack. */
#define PLACES_STEPS (1ull << 22)

#define PAGE GUEST_MEMORY_PAGE

size_t kernel_view_read(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct memory_view *view = ctx;
	const size_t got = target_read(view->target, view->regs, va, buf, len);
	struct regs kernel;

	if (got || !view->regs->kernel_root)
		return got;
	kernel = *view->regs;
	mmu_use_kernel(&kernel.mmu, kernel.kernel_root);
	return target_read(view->target, &kernel, va, buf, len);
}

/* Frames that a switch between threads is among, the innermost ones. */
#define SWITCH_FRAMES 8u

static bool is_among(bool (*asks)(const struct guest_threads *threads, uint64_t va),
		     const struct guest_threads *threads, const struct stacks *stacks,
		     uint32_t stack)
{
	for (unsigned i = 0; i < SWITCH_FRAMES && stack != STACK_ROOT; i++) {
		const struct stack_node *node = stacks_node(stacks, stack);

		if (asks(threads, node->addr))
			return true;
		stack = node->parent;
	}
	return false;
}

bool is_switching(const struct guest_threads *threads, const struct stacks *stacks, uint32_t stack)
{
	return is_among(guest_threads_switches, threads, stacks, stack);
}

bool is_idling(const struct guest_threads *threads, const struct stacks *stacks, uint32_t stack)
{
	return is_among(guest_threads_idles, threads, stacks, stack);
}

/* One stack whose frames are put to their files. */
struct placing {
	struct programs *programs;
	const struct program_of *of;
	struct guest_memory kernel, program;
	uint64_t now_ns;
	bool missed;
};

/* True if these are the page tables of the stack, which begin at *root: the thread may have begun another program since. */
static bool is_own(const struct program_of *of, uint64_t tables, uint64_t *root)
{
	const struct regs *regs = of->regs;
	struct mmu mmu = regs->mmu;

	if (!target_translate(of->target, &mmu, tables, root)) {
		mmu_use_kernel(&mmu, regs->kernel_root);
		if (!regs->kernel_root || !target_translate(of->target, &mmu, tables, root))
			return false;
	}
	return *root == mmu_table(&regs->mmu) || *root == regs->kernel_root;
}

static bool find_mapping(const struct placing *p, uint64_t va, struct guest_place *out)
{
	return guest_threads_place(p->of->threads, &p->kernel, p->of->thread, va, out);
}

/* A file, by what its first page tells, or without it. */
struct file_head {
	bool there;
	struct mapped_file file;
	uint64_t less;	  /* addresses of a mapping, less offsets in the file */
	uint64_t dynamic; /* address of its dynamic section; 0: none */
	char build_id[2 * BUILD_ID_MAX + 1];
};

/* Finds the build id among notes, which are aligned to 4 bytes; all sizes are the guest's. */
static void find_build_id(const uint8_t *notes, size_t len, char *hex)
{
	for (size_t at = 0; at < len && !build_id_note(notes + at, len - at, hex); at += 4)
		;
}

/* Takes the code that this part of the file has; *there: the mapping of `offset` is of it. */
static bool take_code(const Elf64_Phdr *part, uint64_t offset, struct file_head *out, bool *there)
{
	const uint64_t end = part->p_vaddr + part->p_memsz;

	if (part->p_vaddr >= MAPPED_FILE_SIZE || part->p_memsz >= MAPPED_FILE_SIZE - part->p_vaddr)
		return false;
	if (!out->file.end || part->p_vaddr < out->file.start)
		out->file.start = part->p_vaddr;
	if (end > out->file.end)
		out->file.end = end;
	if (offset >= (part->p_offset & ~(uint64_t)(PAGE - 1)) &&
	    offset - part->p_offset + PAGE < part->p_filesz + PAGE) {
		out->less = part->p_vaddr - part->p_offset;
		*there = true;
	}
	return true;
}

/* Reads the head of a file from its first page; `offset`: of a mapping of its code. False: it is none. */
static bool read_head(const uint8_t *page, uint64_t offset, struct file_head *out)
{
	bool there = false;
	Elf64_Ehdr head;

	memcpy(&head, page, sizeof(head));
	if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phoff >= PAGE ||
	    head.e_phnum > (PAGE - head.e_phoff) / sizeof(Elf64_Phdr))
		return false;
	for (unsigned i = 0; i < head.e_phnum; i++) {
		Elf64_Phdr part;

		memcpy(&part, page + head.e_phoff + i * sizeof(part), sizeof(part));
		if (part.p_type == PT_LOAD && part.p_flags & PF_X &&
		    !take_code(&part, offset, out, &there))
			return false;
		if (part.p_type == PT_DYNAMIC)
			out->dynamic = part.p_vaddr;
		if (part.p_type == PT_NOTE && part.p_offset < PAGE && !*out->build_id)
			find_build_id(page + part.p_offset,
				      part.p_filesz < PAGE - part.p_offset ? part.p_filesz
									   : PAGE - part.p_offset,
				      out->build_id);
	}
	return there;
}

/* The file's first page is mapped as far below its code as it is in the file. */
static bool find_head(const struct placing *p, const struct guest_mapping *of,
		      struct file_head *out)
{
	const uint64_t first = of->start - of->offset;
	struct guest_place place;
	uint8_t page[PAGE];

	if (of->offset && (of->offset > of->start || !find_mapping(p, first, &place) ||
			   place.mapping.start != first || place.mapping.offset ||
			   place.mapping.file != of->file))
		return false;
	return guest_memory_get(&p->program, first, page, PAGE) && read_head(page, of->offset, out);
}

/* All that is known without its first page are offsets in the file. */
static bool describe(const struct placing *p, const struct guest_mapping *mapping,
		     struct file_head *out)
{
	*out = (struct file_head){0};
	out->there = find_head(p, mapping, out);
	if (!out->there) {
		*out = (struct file_head){0};
		out->file.start = mapping->offset;
		out->file.end = mapping->offset + (mapping->end - mapping->start);
	}
	out->file.path = mapping->path;
	out->file.build_id = out->build_id;
	return out->file.end < MAPPED_FILE_SIZE && out->file.start < out->file.end;
}

/* True if all of the mapping is in code from `first` to `end`: no address of it is another file's. */
static bool is_within(const struct guest_mapping *mapping, uint64_t less, uint64_t first,
		      uint64_t end)
{
	const uint64_t start = mapping->offset + less;

	return start + PAGE > first && start < end &&
	       mapping->end - mapping->start < end - start + PAGE;
}

/* True if this is the mapping's file. One without a first page is known by the system's word for it. */
static bool is_file(const struct programs *programs, const struct program_file *known,
		    const struct guest_mapping *mapping, const struct file_head *head)
{
	const struct image_file *image = images_file(programs->images, known->image);
	const bool same = known->key == mapping->file;

	if (strcmp(image->path, mapping->path) != 0)
		return false;
	if (!head->there)
		return same && is_within(mapping, known->less, known->start, known->end);
	if (!known->head)
		return same && !head->less;
	return known->start == head->file.start && known->end == head->file.end &&
	       !strcmp(image->build_id, head->build_id) && (*head->build_id || same);
}

/* The file among those that were met before; NULL: it is new. */
static struct program_file *find_file(struct programs *programs,
				      const struct guest_mapping *mapping,
				      const struct file_head *head)
{
	for (size_t i = 0; i < programs->n; i++)
		if (is_file(programs, &programs->file[i], mapping, head))
			return &programs->file[i];
	return NULL;
}

static struct error *add_file(struct programs *programs, const struct guest_mapping *mapping,
			      const struct file_head *head, struct program_file **out)
{
	struct program_file file = {.key = mapping->file,
				    .start = head->file.start,
				    .end = head->file.end,
				    .less = head->less,
				    .head = head->there,
				    .image = images_files(programs->images)};

	*out = NULL;
	if (programs->n == PROGRAM_FILES_MAX)
		return NULL;
	TRY(images_add_mapped(programs->images, &head->file, &file.base));
	programs->file[programs->n] = file;
	*out = &programs->file[programs->n++];
	return NULL;
}

/* A file that was met before its first page was at hand: addresses in it are its offsets. */
static void complete(struct programs *programs, const struct file_head *head,
		     struct program_file *file)
{
	file->start = head->file.start;
	file->end = head->file.end;
	file->head = true;
	file->sought = file->copied;
	images_tell_mapped(programs->images, file->image, &head->file);
}

/* Entries of a dynamic section that are read; pages that names are on may come later. */
#define DYNAMIC_ENTRIES 64u
#define NAME_TRIES	8u

/* Tables of a dynamic section: addresses in the program; 0: none. */
struct dynamic {
	uint64_t symbols, strings, gnu_hash, hash;
};

/* Addresses there are the program's own once its linker has been there, the file's before. */
static uint64_t placed(uint64_t va, uint64_t slide)
{
	return va < slide ? va + slide : va;
}

static bool read_dynamic(const struct guest_memory *memory, uint64_t va, uint64_t slide,
			 struct dynamic *out)
{
	Elf64_Dyn entry[DYNAMIC_ENTRIES];
	const size_t n = guest_memory_read(memory, va, entry, sizeof(entry)) / sizeof(*entry);

	*out = (struct dynamic){0};
	for (size_t i = 0; i < n && entry[i].d_tag != DT_NULL; i++) {
		const uint64_t to = placed(entry[i].d_un.d_ptr, slide);

		if (entry[i].d_tag == DT_SYMTAB)
			out->symbols = to;
		else if (entry[i].d_tag == DT_STRTAB)
			out->strings = to;
		else if (entry[i].d_tag == DT_GNU_HASH)
			out->gnu_hash = to;
		else if (entry[i].d_tag == DT_HASH)
			out->hash = to;
	}
	return out->symbols && out->strings;
}

/* Symbols of one chain, and buckets of a table, at most. */
#define CHAIN_MAX   4096u
#define BUCKETS_MAX (1u << 17)

/* Number behind the last symbol: its chain is that of the bucket which begins last. 0: it is not told. */
static uint32_t count_by_gnu_hash(const struct guest_memory *memory, uint64_t va)
{
	uint32_t head[4], last = 0, block[PAGE / 4];
	uint64_t chains;

	if (!guest_memory_get(memory, va, head, sizeof(head)) || head[0] > BUCKETS_MAX)
		return 0;
	va += sizeof(head) + UINT64_C(8) * head[2];
	chains = va + UINT64_C(4) * head[0];
	for (uint32_t i = 0; i < head[0]; i += PAGE / 4) {
		const uint32_t n = head[0] - i < PAGE / 4 ? head[0] - i : PAGE / 4;

		if (guest_memory_read(memory, va + UINT64_C(4) * i, block, 4ul * n) != 4ul * n)
			return 0;
		for (uint32_t k = 0; k < n; k++)
			last = block[k] > last ? block[k] : last;
	}
	if (last < head[1])
		return 0;
	for (uint32_t i = 0; i < CHAIN_MAX; i++, last++)
		if (guest_memory_read(memory, chains + UINT64_C(4) * (last - head[1]), block, 4) !=
		    4)
			return 0;
		else if (block[0] & 1)
			return last + 1;
	return 0;
}

static uint32_t count_symbols(const struct guest_memory *memory, const struct dynamic *at)
{
	uint32_t head[2] = {0};

	if (at->gnu_hash)
		return count_by_gnu_hash(memory, at->gnu_hash);
	return at->hash && guest_memory_read(memory, at->hash, head, sizeof(head)) == sizeof(head)
		       ? head[1]
		       : 0;
}

/* Reads the functions that the file tells its loader, as far as their pages are at hand. */
static struct error *read_names(const struct placing *p, const struct guest_mapping *mapping,
				const struct file_head *head, struct program_file *file)
{
	const uint64_t slide = mapping->start - mapping->offset - head->less;
	struct symbols_place place = {.start = file->start, .end = file->end, .typed = true};
	struct symbols *symbols;
	struct dynamic dynamic;

	if (!head->dynamic)
		return NULL;
	file->tries++;
	if (!read_dynamic(&p->program, head->dynamic + slide, slide, &dynamic))
		return NULL;
	place.symbols = dynamic.symbols;
	place.strings = dynamic.strings;
	place.n = count_symbols(&p->program, &dynamic);
	TRY(symbols_read(&p->program, &place, &symbols));
	if (!symbols)
		return NULL;
	file->named = true;
	images_name_mapped(p->programs->images, file->image, symbols);
	return NULL;
}

/* Puts what this machine has of the file where the program has it, for the walk: unwind tables, and code that cannot be read. */
static struct error *map_copy(const struct placing *p, const struct guest_mapping *mapping,
			      const struct program_file *file)
{
	const uint64_t slide = mapping->start - mapping->offset - file->less;
	struct images *images = p->programs->images;

	TRY(images_map(images, file->image, slide, true));
	images_compared(images, file->image, slide, p->of->regs->mmu.root, true);
	return NULL;
}

/* Finds the file that is mapped there, at `va`, and how far from its own address; kept->shift stays 0 where none is. */
static struct error *find_shift(const struct placing *p, const struct guest_mapping *mapping,
				uint64_t va, struct program_place *kept)
{
	struct program_file *file;
	struct file_head head;

	if (!mapping->executable || !mapping->path || !describe(p, mapping, &head))
		return NULL;
	file = find_file(p->programs, mapping, &head);
	if (!file)
		TRY(add_file(p->programs, mapping, &head, &file));
	else if (head.there && !file->head)
		complete(p->programs, &head, file);
	if (!file || !is_within(mapping, file->less, file->start, file->end))
		return NULL;
	kept->shift = file->base + mapping->offset + file->less - mapping->start;
	TRY(programs_find_copy(p->programs, file, mapping, &p->program, va));
	if (file->copied)
		TRY(map_copy(p, mapping, file));
	return file->named || file->tries == NAME_TRIES ? NULL
							: read_names(p, mapping, &head, file);
}

/* The mapping with an address, as it was not long ago. */
static const struct program_place *find_kept(const struct placing *p, uint64_t va)
{
	for (unsigned i = 0; i < PROGRAM_PLACES; i++) {
		const struct program_place *kept = &p->programs->place[i];

		if (va - kept->start < kept->end - kept->start &&
		    kept->root == p->of->regs->mmu.root && kept->pid == p->of->thread->pid &&
		    p->now_ns < kept->until_ns)
			return kept;
	}
	return NULL;
}

static struct error *find_place(struct placing *p, uint64_t va, const struct program_place **out)
{
	struct programs *programs = p->programs;
	struct guest_place found;
	struct program_place *kept;
	uint64_t root;

	*out = find_kept(p, va);
	if (*out || p->missed)
		return NULL;
	p->missed = !find_mapping(p, va, &found) || !is_own(p->of, found.tables, &root);
	if (p->missed)
		return NULL;
	TRY(interpreters_meet(p->of->interpreters, p->of, &found, root));
	kept = &programs->place[programs->next++ % PROGRAM_PLACES];
	*kept = (struct program_place){.root = p->of->regs->mmu.root,
				       .start = found.mapping.start,
				       .end = found.mapping.end,
				       .until_ns = p->now_ns + PLACE_KEPT_NS,
				       .pid = p->of->thread->pid};
	*out = kept;
	if (found.mapping.executable && !found.mapping.file && !found.mapping.path)
		return programs_find_made(programs, p->of, &p->kernel, root, va, kept);
	return find_shift(p, &found.mapping, va, kept);
}

/* True for code that keeps its address: of a file that has none of its own, as the user gave it. */
static bool stays(const struct programs *programs, const struct frame *frame, uint64_t va)
{
	const struct image *image =
		frame->kind & FRAME_FOREIGN ? NULL : images_at(programs->images, va);

	return image && (programs->unmoved || !image->file->opened);
}

/* The memory of the kernel and that of the program, as one stack sees them. */
static struct placing begin(struct programs *programs, const struct program_of *of,
			    struct memory_view *view, struct budget *budget)
{
	return (struct placing){.programs = programs,
				.of = of,
				.kernel = {view, kernel_view_read, budget},
				.program = {view, memory_view_read, budget}};
}

struct error *programs_seek(struct programs *programs, const struct program_of *of,
			    const struct guest_mapping_list *list)
{
	struct memory_view view = {of->target, of->regs};
	struct budget budget = {.left = PLACES_STEPS};
	const struct placing p = begin(programs, of, &view, &budget);

	for (size_t i = 0; i < list->n; i++) {
		struct program_place unused;

		TRY(find_shift(&p, &list->at[i], list->at[i].start, &unused));
	}
	return NULL;
}

struct error *programs_place(struct programs *programs, const struct program_of *of,
			     struct frame *frames, size_t n, bool *missed)
{
	struct memory_view view = {of->target, of->regs};
	struct budget budget = {.left = PLACES_STEPS};
	struct placing p = begin(programs, of, &view, &budget);
	struct error *err = NULL;

	for (size_t i = 0; i < n && !err; i++) {
		const uint64_t va = frame_code(frames[i].addr, frames[i].kind);
		const struct program_place *place;

		if (va >= LOWER_HALF || is_stand_in(va) || stays(programs, &frames[i], va))
			continue;
		if (!p.now_ns)
			p.now_ns = clock_now_ns();
		/* Another program's memory says nothing of this address. */
		frames[i].kind |= FRAME_FOREIGN;
		err = find_place(&p, va, &place);
		if (err || !place || !place->shift || programs->unmoved)
			continue;
		frames[i].addr += place->shift;
		frames[i].kind &= (uint8_t)~FRAME_FOREIGN;
	}
	*missed = p.missed;
	return err;
}
