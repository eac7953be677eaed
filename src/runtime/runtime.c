/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/runtime.h"

#include <assert.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static const struct runtime_system *const systems[] = {&runtime_python};

/* Threads' states are looked up so often; at once, if one was missed, but not more often than this. */
#define REFRESH_NS	  100000000u
#define REFRESH_MISSED_NS 10000000u

#define PAGE 4096u

/* Words above the marker, within which the return address of its frame lies. */
#define LEADS	   256u
#define LEAD_WORDS (LEADS / 64)

struct runtime_pages {
	const struct runtime_view *view;
	unsigned n, last;
	bool spent;
	uint64_t va[RUNTIME_PAGES_MAX];
	uint8_t bytes[RUNTIME_PAGES_MAX][PAGE];
};

struct runtime {
	const struct runtime_system *system;
	void *state;
	struct runtime_place place;
	uint64_t round, refreshed_ns;
	bool missed; /* a thread's state was not known */
	size_t n_threads;
	struct runtime_thread thread[RUNTIME_THREADS_MAX];
	struct runtime_pages pages;
	uint64_t leads
		[LEAD_WORDS]; /* distances from marker to return address that have fitted so far */
	struct frame *merged;
	size_t room;
	struct runtime_counts counts;
};

/* Steps to recognize an interpreter. */
#define FIND_STEPS (1ull << 28)

static struct error *find(struct runtime *runtime, const struct guest_memory *memory, uint64_t code,
			  struct stand_ins *stand_ins)
{
	for (size_t i = 0; i < sizeof(systems) / sizeof(*systems) && !runtime->state; i++) {
		runtime->system = systems[i];
		TRY(runtime->system->open(memory, code, stand_ins, &runtime->place,
					  &runtime->state));
	}
	return NULL;
}

struct error *runtime_new(const struct guest_memory *memory, const uint64_t *code, size_t n,
			  struct stand_ins *stand_ins, struct runtime **out)
{
	struct runtime *runtime = calloc(1, sizeof(*runtime));
	struct budget budget = {.left = FIND_STEPS};
	const struct guest_memory bounded = {memory->ctx, memory->read, memory->budget ?: &budget};
	struct error *err = NULL;

	*out = NULL;
	if (!runtime)
		return error_no_memory();
	for (size_t i = 0; i < n && !err && !runtime->state; i++)
		err = find(runtime, &bounded, code[i], stand_ins);
	memset(runtime->leads, 0xff, sizeof(runtime->leads));
	if (runtime->state)
		*out = runtime;
	else
		runtime_free(runtime);
	return err;
}

void runtime_free(struct runtime *runtime)
{
	if (!runtime)
		return;
	if (runtime->state)
		runtime->system->close(runtime->state);
	free(runtime->merged);
	free(runtime);
}

const char *runtime_name(const struct runtime *runtime)
{
	return runtime->place.name;
}

struct runtime_counts runtime_count(const struct runtime *runtime)
{
	return runtime->counts;
}

void runtime_refresh(struct runtime *runtime, const struct guest_memory *memory, uint64_t now_ns)
{
	const uint64_t since_ns = now_ns - runtime->refreshed_ns;

	runtime->round++;
	if (since_ns < (runtime->missed ? REFRESH_MISSED_NS : REFRESH_NS))
		return;
	runtime->refreshed_ns = now_ns;
	runtime->missed = false;
	runtime->n_threads = runtime->system->threads(runtime->state, memory, runtime->thread,
						      RUNTIME_THREADS_MAX);
}

static const uint8_t *page_at(struct runtime_pages *pages, uint64_t va)
{
	const struct runtime_view *view = pages->view;

	if (pages->n && pages->va[pages->last] == va)
		return pages->bytes[pages->last];
	for (unsigned i = 0; i < pages->n; i++) {
		if (pages->va[i] != va)
			continue;
		pages->last = i;
		return pages->bytes[i];
	}
	pages->spent = pages->n == (view->pages ?: RUNTIME_PAGES_MAX);
	if (pages->spent || view->read(view->ctx, va, pages->bytes[pages->n], PAGE) != PAGE)
		return NULL;
	pages->last = pages->n++;
	pages->va[pages->last] = va;
	return pages->bytes[pages->last];
}

bool runtime_load(struct runtime_pages *pages, uint64_t va, void *buf, size_t len)
{
	const struct window *stack = pages->view->stack;
	const uint64_t offset = va - stack->va;
	size_t done = 0;

	if (offset < stack->len && stack->len - offset >= len) {
		memcpy(buf, stack->bytes + offset, len);
		return true;
	}
	while (done < len) {
		const uint64_t from = (va + done) % PAGE;
		const size_t part = len - done < PAGE - from ? len - done : PAGE - from;
		const uint8_t *page = page_at(pages, va + done - from);

		if (!page)
			return false;
		memcpy((uint8_t *)buf + done, page + from, part);
		done += part;
	}
	return true;
}

bool runtime_pages_spent(const struct runtime_pages *pages)
{
	return pages->spent;
}

/* Up to the end of a page, if the next one cannot be read. */
static size_t read_pages(void *ctx, uint64_t va, void *buf, size_t len)
{
	const size_t rest = PAGE - va % PAGE;

	if (runtime_load(ctx, va, buf, len))
		return len;
	return rest < len && runtime_load(ctx, va, buf, rest) ? rest : 0;
}

/* A function that is met again in the same copy is not read again, but for some. */
static void identify_frames(const struct runtime *runtime, struct runtime_pages *pages,
			    struct runtime_copy *out)
{
	const struct guest_memory memory = {pages, read_pages, NULL};
	struct runtime_frame met[RUNTIME_IDENTITIES_MAX] = {{0}};
	unsigned left = pages->view->identities ?: RUNTIME_IDENTITIES_MAX;

	for (uint32_t i = 0; i < out->n; i++) {
		struct runtime_frame *frame = &out->at[i];
		struct runtime_frame *like = &met[frame->function / 16 % RUNTIME_IDENTITIES_MAX];

		if (like->function != frame->function) {
			*like = *frame;
			left -= left && runtime->system->identify(runtime->state, &memory,
								  frame->function, &like->identity);
		}
		frame->identity = like->identity;
	}
}

void runtime_copy_frames(struct runtime *runtime, const struct runtime_view *view,
			 struct runtime_copy *out)
{
	struct runtime_pages *pages = &runtime->pages;
	size_t i = 0;

	assert(view->pages <= RUNTIME_PAGES_MAX);
	out->there = out->more = false;
	out->n = 0;
	while (i < runtime->n_threads && runtime->thread[i].tid != view->tid)
		i++;
	if (i < runtime->n_threads) {
		pages->view = view;
		pages->n = pages->last = 0;
		pages->spent = false;
		out->there =
			runtime->system->frames(runtime->state, pages, &runtime->thread[i], out);
		if (out->there)
			identify_frames(runtime, pages, out);
	}
	runtime->missed |= !out->there;
}

struct merging {
	struct runtime *runtime;
	const struct guest_memory *memory;
	const struct runtime_copy *copy;
	const struct runtime_stack *stack;
	size_t n;     /* frames in runtime->merged */
	size_t calls; /* ... from this one on are the C code that the next entry of the loop calls */
	bool behind;  /* the frames since the loop's do nothing but call */
	bool through;  /* the stack goes through the loop */
	bool entering; /* its innermost frame is the loop's, and no entry yet, or not any more */
	bool ended;    /* no room for more, or no more is known */
	bool proven;
	uint32_t at;	 /* the next entry's first frame in the copy */
	uint64_t marker; /* of the entry before */
	uint64_t leads[LEAD_WORDS];
};

static bool is_in(const struct runtime_code *code, const struct frame *frame)
{
	const uint64_t va = frame_code(frame->addr, frame->kind);

	return va >= code->start && va < code->end;
}

static bool is_call(const struct runtime *runtime, const struct frame *frame)
{
	for (unsigned i = 0; i < runtime->place.n_calls; i++)
		if (is_in(&runtime->place.calls[i], frame))
			return true;
	return false;
}

static struct error *append(struct merging *m, const struct frame *frame)
{
	if (m->n == m->stack->max) {
		m->ended = true;
		return NULL;
	}
	return ARRAY_ADD(&m->runtime->merged, &m->runtime->room, &m->n, frame);
}

static bool in_window(const struct window *window, uint64_t va, uint64_t *word)
{
	const uint64_t offset = va - window->va;

	if (offset >= window->len || window->len - offset < sizeof(*word))
		return false;
	memcpy(word, window->bytes + offset, sizeof(*word));
	return true;
}

/* A word of the stack; false: it was not copied. */
static bool stack_word(const struct runtime_stack *stack, uint64_t va, uint64_t *word)
{
	if (in_window(stack->window, va, word))
		return true;
	for (unsigned i = 0; i < stack->n_others; i++)
		if (in_window(&stack->others[i], va, word))
			return true;
	return false;
}

/* Keeps the distances at which the return address of the entry's frame lies; false: at none that has fitted before. */
static bool keep_leads(struct merging *m, uint64_t marker, uint64_t returns_to)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < LEADS; i++) {
		uint64_t word;

		if (!stack_word(m->stack, marker + i * sizeof(word), &word) || word != returns_to)
			m->leads[i / 64] &= ~(UINT64_C(1) << i % 64);
	}
	for (unsigned i = 0; i < LEAD_WORDS; i++)
		any |= m->leads[i];
	return any;
}

/* The last frame of the entry that is next; copy->n: it is not in the copy. */
static uint32_t entry_end(const struct runtime_copy *copy, uint32_t at)
{
	while (at < copy->n && !copy->at[at].marker)
		at++;
	return at;
}

/* True if C frame `i`, of the loop, is that of the next entry. */
static bool is_entry_of(struct merging *m, size_t i)
{
	const uint32_t end = entry_end(m->copy, m->at);
	uint64_t before[LEAD_WORDS], marker;

	if (end == m->copy->n)
		return m->copy->more;
	marker = m->copy->at[end].marker;
	if (marker <= m->marker || marker < m->stack->window->va)
		return false;
	/* The stack is cut here: nothing can be compared. */
	if (i + 1 == m->stack->n)
		return m->stack->end != UNWIND_OUTERMOST;
	memcpy(before, m->leads, sizeof(before));
	if (keep_leads(m, marker, m->stack->frames[i + 1].addr)) {
		m->marker = marker;
		return true;
	}
	memcpy(m->leads, before, sizeof(before));
	return false;
}

/* The functions of an entry, in place of the frame of the loop. *known: all have names. */
static struct error *append_entry(struct merging *m, bool *known)
{
	const struct runtime_copy *copy = m->copy;
	const uint32_t end = entry_end(copy, m->at);
	struct error *err = NULL;

	*known = true;
	for (; m->at < copy->n && m->at <= end && *known && !err; m->at++) {
		struct frame frame = {.kind = FRAME_PC | FRAME_FOREIGN, .trust = TRUST_SURE};

		if (!copy->at[m->at].function)
			continue;
		err = m->runtime->system->name(m->runtime->state, m->memory, m->runtime->round,
					       &copy->at[m->at], &frame.addr);
		*known = frame.addr;
		if (!err && *known)
			err = append(m, &frame);
	}
	m->ended |= end == copy->n;
	return err;
}

/* C frame `i`, of the loop. */
static struct error *replace(struct merging *m, size_t i)
{
	if (!i && m->entering)
		return append(m, &m->stack->frames[i]);
	m->proven = is_entry_of(m, i);
	if (!m->proven)
		return NULL;
	while (m->n > m->calls && is_call(m->runtime, &m->runtime->merged[m->n - 1]))
		m->n--;
	return append_entry(m, &m->proven);
}

/*
 * Counts the loop's frames of a stack that is whole: each is an entry, but for the innermost
 * when it is just being entered or left. Return addresses alone would not tell that one.
 */
static void compare_counts(struct merging *m)
{
	const struct runtime_copy *copy = m->copy;
	size_t loops = 0, entries = 0;

	for (size_t i = 0; i < m->stack->n; i++)
		loops += is_in(&m->runtime->place.loop, &m->stack->frames[i]);
	for (uint32_t i = 0; i < copy->n; i++)
		entries += copy->at[i].marker != 0;
	m->through = loops;
	if (m->stack->end != UNWIND_OUTERMOST || copy->more)
		return;
	m->entering = loops == entries + 1 && is_in(&m->runtime->place.loop, &m->stack->frames[0]);
	m->proven = loops == entries + m->entering;
}

static struct error *merge(struct merging *m)
{
	struct error *err = NULL;

	for (size_t i = 0; i < m->stack->n && m->proven && !m->ended && !err; i++) {
		const struct frame *frame = &m->stack->frames[i];

		if (is_in(&m->runtime->place.loop, frame)) {
			err = replace(m, i);
			m->behind = true;
			m->calls = m->n;
		} else if (!m->behind || !is_call(m->runtime, frame)) {
			m->behind = false;
			err = append(m, frame);
		}
	}
	return err;
}

struct error *runtime_merge(struct runtime *runtime, const struct guest_memory *memory,
			    const struct runtime_copy *copy, struct runtime_stack *stack)
{
	struct merging m = {
		.runtime = runtime, .memory = memory, .copy = copy, .stack = stack, .proven = true};
	struct error *err;

	compare_counts(&m);
	if (!m.through)
		return NULL;
	memcpy(m.leads, runtime->leads, sizeof(m.leads));
	err = m.proven && copy->there ? merge(&m) : NULL;
	if (err || !m.proven || !m.n) {
		runtime->counts.unproven++;
		return err;
	}
	runtime->counts.merged++;
	if (stack->end == UNWIND_OUTERMOST && !m.ended)
		memcpy(runtime->leads, m.leads, sizeof(m.leads));
	memcpy(stack->frames, runtime->merged, m.n * sizeof(*stack->frames));
	stack->n = m.n;
	if (m.ended)
		stack->end = UNWIND_FRAMES;
	return NULL;
}

/* Names of a file as it is mapped: no file has to be read, and no other one can be meant. */

/* Code of a file begins so far behind its head at most; its tables are no larger than these. */
#define HEAD_DISTANCE	(64u << 20)
#define PROGRAM_HEADERS 64u
#define DYNAMIC_ENTRIES 256u
#define CHAIN_MAX	4096u

struct file_view {
	const struct guest_memory *memory;
	uint64_t slide;
	uint64_t hash, symbols, texts, texts_size; /* addresses in the process; 0: none */
	uint32_t buckets, first, bloom_words;
};

/* The head's page is below the code's, with the file's other pages between. */
static bool find_head(const struct guest_memory *memory, uint64_t code, uint64_t *va,
		      Elf64_Ehdr *head)
{
	code &= ~(uint64_t)(PAGE - 1);
	for (uint64_t back = 0; back <= HEAD_DISTANCE && back <= code; back += PAGE) {
		if (!guest_memory_get(memory, code - back, head, sizeof(*head)))
			return false;
		*va = code - back;
		if (!memcmp(head->e_ident, ELFMAG, SELFMAG) && head->e_type != ET_REL)
			return head->e_ident[EI_CLASS] == ELFCLASS64 &&
			       head->e_phentsize == sizeof(Elf64_Phdr);
	}
	return false;
}

/* Addresses of a dynamic section are the process's own once the linker has been there, the file's before. */
static uint64_t placed(const struct file_view *file, uint64_t va)
{
	return va < file->slide ? va + file->slide : va;
}

static bool read_dynamic(struct file_view *file, uint64_t va)
{
	for (unsigned i = 0; i < DYNAMIC_ENTRIES; i++) {
		Elf64_Dyn entry;

		if (!guest_memory_get(file->memory, va + i * sizeof(entry), &entry, sizeof(entry)))
			return false;
		if (entry.d_tag == DT_NULL)
			break;
		if (entry.d_tag == DT_GNU_HASH)
			file->hash = placed(file, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_SYMTAB)
			file->symbols = placed(file, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_STRTAB)
			file->texts = placed(file, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_STRSZ)
			file->texts_size = entry.d_un.d_val;
	}
	return file->hash && file->symbols && file->texts;
}

static bool open_file(struct file_view *file, uint64_t code)
{
	uint64_t head_va, dynamic = 0;
	bool placed_at = false;
	uint32_t table[4];
	Elf64_Ehdr head;

	if (!find_head(file->memory, code, &head_va, &head))
		return false;
	for (unsigned i = 0; i < head.e_phnum && i < PROGRAM_HEADERS; i++) {
		Elf64_Phdr part;

		if (!guest_memory_get(file->memory, head_va + head.e_phoff + i * sizeof(part),
				      &part, sizeof(part)))
			return false;
		if (part.p_type == PT_LOAD && !placed_at) {
			file->slide = head_va + part.p_offset - part.p_vaddr;
			placed_at = true;
		}
		if (part.p_type == PT_DYNAMIC)
			dynamic = part.p_vaddr;
	}
	if (!placed_at || !dynamic || !read_dynamic(file, dynamic + file->slide) ||
	    !guest_memory_get(file->memory, file->hash, table, sizeof(table)))
		return false;
	file->buckets = table[0];
	file->first = table[1];
	file->bloom_words = table[2];
	return file->buckets != 0;
}

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (uint8_t)*name;
	return hash;
}

static bool is_called(const struct file_view *file, const Elf64_Sym *symbol, const char *name)
{
	char text[64];
	const size_t len = strlen(name) + 1;

	return len <= sizeof(text) && symbol->st_name < file->texts_size &&
	       guest_memory_get(file->memory, file->texts + symbol->st_name, text, len) &&
	       !memcmp(text, name, len);
}

/* A bucket's chain holds the hashes of its symbols; the last one's lowest bit is set. */
static void find_symbol(const struct file_view *file, const char *name, struct mapped_symbol *out)
{
	const uint64_t buckets = file->hash + 16 + UINT64_C(8) * file->bloom_words;
	const uint64_t chains = buckets + UINT64_C(4) * file->buckets;
	const uint32_t hash = hash_of(name);
	uint32_t at, here;

	*out = (struct mapped_symbol){0};
	if (!guest_memory_get(file->memory, buckets + UINT64_C(4) * (hash % file->buckets), &at,
			      sizeof(at)) ||
	    at < file->first)
		return;
	for (unsigned i = 0; i < CHAIN_MAX; i++, at++) {
		Elf64_Sym symbol;

		if (!guest_memory_get(file->memory, chains + UINT64_C(4) * (at - file->first),
				      &here, sizeof(here)))
			return;
		if ((here | 1) == (hash | 1) &&
		    guest_memory_get(file->memory, file->symbols + at * sizeof(symbol), &symbol,
				     sizeof(symbol)) &&
		    symbol.st_shndx != SHN_UNDEF && is_called(file, &symbol, name)) {
			*out = (struct mapped_symbol){symbol.st_value + file->slide,
						      symbol.st_size};
			return;
		}
		if (here & 1)
			return;
	}
}

bool mapped_symbols(const struct guest_memory *memory, uint64_t code, const char *const *names,
		    struct mapped_symbol *out, size_t n)
{
	struct file_view file = {.memory = memory};

	if (!open_file(&file, code))
		return false;
	for (size_t i = 0; i < n; i++) {
		find_symbol(&file, names[i], &out[i]);
		if (!out[0].va)
			return false;
	}
	return true;
}
