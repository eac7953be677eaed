/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/stack_cache.h"

#include <stdlib.h>

#define BLOCK 256u /* bytes that are compared at once */

void stack_cache_free(struct stack_cache *cache)
{
	if (!cache)
		return;
	for (size_t i = 0; i < STACK_CACHE_ENTRIES; i++)
		free(cache->entry[i]);
	free(cache);
}

/* Stacks of other address spaces may be at the same address: they are apart by the highest bits. */
static uint64_t stack_key(uint64_t root, uint64_t va)
{
	return va ^ ((root * 0x9e3779b97f4a7c15ull) & 0xff00000000000000ull);
}

/* First entry whose stack ends at this key or behind it. */
static unsigned find(const struct stack_cache *cache, uint64_t key)
{
	unsigned from = 0, n = cache->n;

	while (n) {
		const unsigned half = n / 2;

		if (cache->key[from + half] < key) {
			from += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return from;
}

static void remove_at(struct stack_cache *cache, unsigned pos)
{
	const unsigned behind = --cache->n - pos;

	memmove(cache->key + pos, cache->key + pos + 1, behind * sizeof(*cache->key));
	memmove(cache->at + pos, cache->at + pos + 1, behind * sizeof(*cache->at));
}

static void insert(struct stack_cache *cache, uint64_t key, uint16_t at)
{
	const unsigned pos = find(cache, key), behind = cache->n++ - pos;

	memmove(cache->key + pos + 1, cache->key + pos, behind * sizeof(*cache->key));
	memmove(cache->at + pos + 1, cache->at + pos, behind * sizeof(*cache->at));
	cache->key[pos] = key;
	cache->at[pos] = at;
}

/* An entry outside of the order: a free one, or the one that is to be replaced. */
static uint16_t take_free(struct stack_cache *cache)
{
	const unsigned pos = cache->next % STACK_CACHE_ENTRIES;
	const uint16_t at = cache->at[pos];

	/* Those in use are the first. */
	if (cache->n < STACK_CACHE_ENTRIES)
		return (uint16_t)cache->n;
	cache->next++;
	remove_at(cache, pos);
	return at;
}

/* First address from which on the stack has the same bytes as before. */
static uint64_t same_from(const struct walk *walk, const struct stack_entry *entry)
{
	const struct window *stack = walk->stack;
	const uint64_t low = stack->va > entry->bottom ? stack->va : entry->bottom;
	/* Both end at the entry's top; of the `most` bytes before it, `same` are alike. */
	const uint8_t *now = stack->bytes + (entry->top - stack->va);
	const uint8_t *then = entry->bytes + STACK_CACHE_BYTES;
	const uint64_t most = entry->top - low;
	uint64_t same = 0, a, b;

	while (most - same >= BLOCK && !memcmp(now - same - BLOCK, then - same - BLOCK, BLOCK))
		same += BLOCK;
	while (most - same >= sizeof(a)) {
		memcpy(&a, now - same - sizeof(a), sizeof(a));
		memcpy(&b, then - same - sizeof(b), sizeof(b));
		if (a != b)
			break;
		same += sizeof(a);
	}
	if (most - same < sizeof(a) && !memcmp(now - most, then - most, most - same))
		same = most;
	return entry->top - same;
}

/* First address without a page of the guest; 0: it is farther up. */
static uint64_t window_end(const struct window *stack)
{
	return stack->cut ? 0 : stack->va + stack->len;
}

/* Can the entry know any part of this walk? */
static bool fits(const struct walk *walk, const struct stack_entry *entry)
{
	const struct window *stack = walk->stack;

	return entry->root == walk->in->regs->mmu.root && entry->word == walk->word &&
	       entry->isa == walk->isa->isa && entry->top - stack->va <= stack->len &&
	       stack->va + stack->len <= entry->extent &&
	       (!entry->missed ||
		(!walk->in->n_others &&
		 (entry->end == UNWIND_OUTERMOST || window_end(stack) == entry->window_end)));
}

void stack_cache_begin(struct walk *walk)
{
	const struct unwinder *unwinder = walk->in->unwinder;
	struct stack_cache *cache;
	struct stack_entry *entry;
	unsigned pos;

	walk->entry_at = STACK_CACHE_FRAMES;
	walk->ask_from = UINT64_MAX;
	if (!unwinder || walk->in->anew)
		return;
	walk->cache = cache = unwinder->known_stacks;
	pos = find(cache, stack_key(unwinder->root, walk->stack->va));
	if (pos == cache->n)
		return;
	entry = cache->entry[cache->at[pos]];
	walk->entry_pos = pos;
	walk->entry = entry;
	if (!fits(walk, entry))
		return;
	walk->ask_from = entry->bottom;
	walk->entry_at = STACK_CACHE_FRAMES - entry->n;
}

static bool same_frame(const struct cursor *a, const struct cursor *b)
{
	return a->addr == b->addr && a->sp == b->sp && a->fp == b->fp && a->kind == b->kind &&
	       !a->first && !b->first && a->exact == b->exact && a->fp_known == b->fp_known &&
	       a->chained == b->chained && a->ra_known == b->ra_known &&
	       (!a->ra_known || a->ra == b->ra);
}

/* Does the word at `va` still have its value? */
static bool same_word(const struct walk *walk, const struct stack_entry *entry, uint64_t va)
{
	const uint8_t *now = walk->stack->bytes + (va - walk->stack->va);
	const uint8_t *then = entry->bytes + STACK_CACHE_BYTES - (entry->top - va);

	return !memcmp(now, then, 4) && (walk->word == 4 || !memcmp(now + 4, then + 4, 4));
}

/* Does the step to the entry's next frame still lead there? */
static bool same_step(const struct walk *walk, const struct stack_entry *entry,
		      const struct cursor *next)
{
	const int64_t word = (int64_t)walk->word;

	return next->ret_at && same_word(walk, entry, next->sp + (uint64_t)(next->ret_at * word)) &&
	       (!next->fp_at || same_word(walk, entry, next->sp + (uint64_t)(next->fp_at * word)));
}

/*
 * True if the chain from the entry's frame `at` on is unchanged. Mostly all
 * bytes are, when first asked; if not, finds out once from where on they are,
 * and checks each step up to there. The end of the chain may depend on
 * everything above its last frame.
 */
static bool same_chain(struct walk *walk, const struct stack_entry *entry, size_t at)
{
	const struct window *stack = walk->stack;
	const uint64_t sp = walk->at.sp, len = entry->top - sp;

	if (!walk->same_known && len <= entry->top - entry->bottom &&
	    !memcmp(stack->bytes + (sp - stack->va), entry->bytes + STACK_CACHE_BYTES - len, len)) {
		walk->same_from = sp;
		return true;
	}
	if (!walk->same_known)
		walk->same_from = same_from(walk, entry);
	walk->same_known = true;
	while (entry->cursor[at].sp < walk->same_from) {
		if (++at == STACK_CACHE_FRAMES || !same_step(walk, entry, &entry->cursor[at])) {
			walk->ask_from =
				at < STACK_CACHE_FRAMES ? entry->cursor[at].sp : UINT64_MAX;
			return false;
		}
	}
	return true;
}

/*
 * If the rest of the chain is known from the walk's frame on, appends it to the
 * `n` frames; true: the walk has ended.
 */
static bool stack_cache_ends(struct walk *walk, struct frame *frames, size_t n)
{
	const struct stack_entry *entry = walk->entry;
	const size_t at = walk->entry_at, more = STACK_CACHE_FRAMES - 1 - at;

	/* A frame's trust influences how its caller is found. */
	if (!same_frame(&entry->cursor[at], &walk->at) ||
	    frames[n - 1].trust != entry->frame[at].trust || n + more > walk->in->max_frames ||
	    !same_chain(walk, entry, at))
		return false;
	memcpy(frames + n, entry->frame + at + 1, more * sizeof(*frames));
	walk->common = more + 1;
	walk->missed = walk->missed || entry->missed;
	walk->extent = walk->extent < entry->extent ? walk->extent : entry->extent;
	walk->at = entry->cursor[STACK_CACHE_FRAMES - 1];
	walk->out->n = n + more;
	walk->out->end = entry->end;
	return true;
}

/* Keeps only finished chains on one stack, all of whose words are at hand. */
static bool can_keep(const struct walk *walk, uint64_t top)
{
	const struct unwind_result *out = walk->out;
	const struct window *stack = walk->in->stack;
	const struct unwinder *unwinder = walk->in->unwinder;

	if (out->others || out->n > STACK_CACHE_FRAMES || top < stack->va ||
	    top - stack->va > stack->len || top - stack->va > STACK_CACHE_BYTES)
		return false;
	/* With little left to spend, the search was cut short. */
	return out->end == UNWIND_OUTERMOST || (out->end == UNWIND_BROKEN && !walk->hurried &&
						unwinder->steps >= PATHS_STEPS_WITHIN);
}

/*
 * The entry of this stack, with its new end: the one that was known, or another.
 * NULL: there is no memory. Sampled guests have few stacks as a rule, and the
 * sampler's memory is locked: an entry takes none before its first use.
 */
static struct stack_entry *entry_for(struct walk *walk, uint64_t top)
{
	struct stack_cache *cache = walk->cache;
	struct stack_entry *entry = walk->entry;
	const uint64_t key = stack_key(walk->in->unwinder->root, top);
	uint16_t at;

	/* Contents that overlap at the same addresses: it is the same stack. */
	if (walk->common ||
	    (entry && entry->root == walk->in->unwinder->root && entry->bottom < top)) {
		if (cache->key[walk->entry_pos] == key)
			return entry;
		at = cache->at[walk->entry_pos];
		remove_at(cache, walk->entry_pos);
	} else {
		at = take_free(cache);
		if (!cache->entry[at])
			cache->entry[at] = malloc(sizeof(*entry));
		if (!cache->entry[at])
			return NULL;
	}
	insert(cache, key, at);
	return cache->entry[at];
}

/* Stores the chain; if it ended like the cached one, only its beginning is new. */
static void store(const struct walk *walk, const struct frame *frames, uint64_t top,
		  struct stack_entry *entry)
{
	const struct window *stack = walk->stack;
	const size_t n = walk->out->n, fresh = n - walk->common, at = STACK_CACHE_FRAMES - n;
	const uint64_t len =
		(walk->common && top == entry->top ? walk->same_from : top) - stack->va;

	/* The frame where the chains meet is the same in both, but for the step that led there. */
	memcpy(entry->cursor + at, walk->cache->walk,
	       (fresh + (walk->common > 0)) * sizeof(*entry->cursor));
	memcpy(entry->frame + at, frames, fresh * sizeof(*frames));
	memcpy(entry->bytes + STACK_CACHE_BYTES - (top - stack->va), stack->bytes, len);
	entry->n = n;
	entry->root = walk->in->unwinder->root;
	entry->word = (uint8_t)walk->word;
	entry->isa = walk->isa->isa;
	entry->end = (uint8_t)walk->out->end;
	entry->bottom = stack->va;
	entry->top = top;
	entry->missed = walk->missed;
	entry->extent = walk->extent;
	entry->window_end = window_end(stack);
}

/* Only the innermost frame is another, whose address no later walk asks for. */
static bool is_stored(const struct walk *walk, uint64_t top)
{
	const struct stack_entry *entry = walk->entry;

	return walk->common && walk->common + 1 == walk->out->n && walk->out->n == entry->n &&
	       !walk->same_known && walk->stack->va == entry->bottom && top == entry->top;
}

void stack_cache_keep(struct walk *walk, const struct frame *frames)
{
	struct unwind_result *out = walk->out;
	const uint64_t known = walk->common ? walk->entry->top : walk->at.sp;
	const uint64_t top = walk->top > known ? walk->top : known;
	struct stack_entry *entry = walk->entry;

	if (!can_keep(walk, top))
		return;
	if (!is_stored(walk, top)) {
		entry = entry_for(walk, top);
		if (!entry)
			return;
		store(walk, frames, top, entry);
	}
	out->common = walk->common;
	out->ids = entry->id + STACK_CACHE_FRAMES - out->n;
}

bool unwinder_gap(const struct unwind_result *out, size_t frames, struct stack_gap *gap)
{
	const size_t first = STACK_CACHE_FRAMES - out->n;
	size_t at = out->n > frames ? STACK_CACHE_FRAMES - 1 - frames : first;
	const struct cursor *cursor;

	if (!out->ids)
		return false;
	cursor = ((const struct stack_entry *)((const char *)(out->ids - first) -
					       offsetof(struct stack_entry, id)))
			 ->cursor;
	*gap = (struct stack_gap){0};
	for (; at < STACK_CACHE_FRAMES - 1; at++)
		if (cursor[at + 1].sp - cursor[at].sp > gap->to - gap->from)
			*gap = (struct stack_gap){cursor[at].sp, cursor[at + 1].sp};
	return gap->to;
}

void unwinder_forget_stacks(struct unwinder *unwinder)
{
	unwinder->known_stacks->n = 0;
}

/* Kinds are 0 and 1, words 4 and 8. */
static uint64_t step_key(const struct step_cache *steps, uint8_t kind)
{
	return steps->space | kind;
}

/* The offset in words; 0 if it is no multiple of a word, or too far away. */
static int8_t words(int32_t at, int word)
{
	return at % word || at / word < INT8_MIN ? 0 : (int8_t)(at / word);
}

void step_learn(struct unwinder *unwinder, const struct cursor *from, const struct step *step,
		uint64_t ret, uint8_t trust)
{
	uint64_t key = step_key(unwinder->known_steps, from->kind);
	struct step *known = step_at(unwinder->known_steps, from->addr, key);
	unsigned i;

	/* A step reads nothing above the frame. */
	if (step->ra_at >= 0 || step->fp_at > 0 || unwinder->isa->kept)
		return;
	if (known->addr != from->addr || known->key != key || known->cfa != step->cfa ||
	    known->ra_at != step->ra_at || known->fp_at != step->fp_at ||
	    known->by_fp != step->by_fp) {
		*known = *step;
		memset(known->ret, 0, sizeof(known->ret));
		known->addr = from->addr;
		known->key = key;
		known->n = 0;
		known->ret_words = words(step->ra_at, unwinder->word);
		known->fp_words = words(step->fp_at, unwinder->word);
		if (step->fp_at && !known->fp_words)
			known->ret_words = 0;
	}
	i = known->n < STEP_CALLERS ? known->n++ : ret % STEP_CALLERS;
	known->ret[i] = ret;
	known->trust[i] = trust;
}

/* Index of `ret` among the step's cached callers; STEP_CALLERS if it is none. */
static inline unsigned known_caller(const struct step *step, uint64_t ret)
{
	if (step->ret[0] == ret)
		return 0;
	for (unsigned i = 1; i < STEP_CALLERS; i++)
		if (step->ret[i] == ret)
			return i;
	return STEP_CALLERS;
}

static inline void stand(struct walk *walk, struct cursor *at, uint64_t sp, uint64_t fp)
{
	at->kind = FRAME_RETURN;
	at->first = false;
	at->sp = sp;
	at->fp = fp;
	walk->at = *at;
}

/* The stack cache knew the rest. */
#define ENDED SIZE_MAX

/*
 * Does what rule_code and rule_table would do; cases that take more (another stack, a word that is
 * not at hand) are left to them. Most frames are found here: it works on offsets into the window,
 * and is compiled for each size of words, with and without the stack cache. Returns the number of
 * frames, or ENDED.
 */
static inline __attribute__((always_inline)) size_t follow(struct walk *walk, struct frame *frames,
							   size_t n, const uint64_t word,
							   const bool remember, const bool strip)
{
	const struct step_cache *steps = walk->in->unwinder->known_steps;
	const uint8_t *bytes = walk->stack->bytes;
	const uint64_t va = walk->stack->va, last = walk->stack->len - word;
	const size_t max = walk->in->max_frames;
	struct cursor at = walk->at;
	uint64_t key = step_key(steps, at.kind), sp = at.sp - va, fp = at.fp - va;

	while (n < max) {
		const struct step *step = step_at((struct step_cache *)steps, at.addr, key);
		uint64_t cfa = (step->by_fp ? fp : sp) + (uint64_t)(int64_t)step->cfa;
		uint64_t slot = cfa + (uint64_t)(int64_t)step->ra_at;
		uint64_t saved = step->fp_at ? cfa + (uint64_t)(int64_t)step->fp_at : slot, ret;
		unsigned i;

		if (remember && stack_cache_may_end(walk) && stack_cache_ends(walk, frames, n))
			return ENDED;
		if (step->addr != at.addr || step->key != key ||
		    !(step->by_fp ? at.fp_known : at.exact))
			break;
		/* Both words are on the stack, and not below sp. */
		if (slot > last || slot < sp || saved > last || saved < sp ||
		    (slot | saved | va) & (word - 1))
			break;
		ret = read_word(bytes + slot, word);
		i = known_caller(step, ret);
		if (strip && i == STEP_CALLERS)
			i = known_caller(step, ret = walk_strip(walk, ret));
		if (i == STEP_CALLERS || !ret)
			break;
		if (step->fp_at) {
			fp = read_word(bytes + saved, word) - va;
			at.fp_known = true;
			at.chained = step->chained;
		} else if (step->fp_lost) {
			at.fp_known = false;
		}
		at.addr = ret;
		at.exact = true;
		at.ra_known = false;
		at.ret_at = step->ret_words;
		at.fp_at = step->fp_words;
		sp = cfa;
		key = step_key(steps, FRAME_RETURN);
		if (remember) {
			stand(walk, &at, sp + va, fp + va);
			stack_cache_note(walk, n);
		}
		frames[n++] = (struct frame){ret, FRAME_RETURN, step->trust[i]};
	}
	if (n == walk->out->n)
		return n;
	stand(walk, &at, sp + va, fp + va);
	return n;
}

bool steps_follow(struct walk *walk, struct frame *frames)
{
	struct unwind_result *out = walk->out;
	size_t n;

	if (walk->stack->len < walk->word)
		return false;
	if (walk->isa->strip)
		n = follow(walk, frames, out->n, 8, walk->cache, true);
	else if (walk->word == 8)
		n = walk->cache ? follow(walk, frames, out->n, 8, true, false)
				: follow(walk, frames, out->n, 8, false, false);
	else
		n = walk->cache ? follow(walk, frames, out->n, 4, true, false)
				: follow(walk, frames, out->n, 4, false, false);
	if (n == ENDED)
		return true;
	out->n = n;
	return false;
}
