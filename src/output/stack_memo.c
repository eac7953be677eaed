/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/stack_memo.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define SET_BITS  15
#define TEXT_SIZE (32u << 20) /* only what is used costs memory */

struct slot {
	uint64_t hash;
	uint32_t addresses, unresolved;
	uint32_t at; /* in the text: the stack, and behind it what it becomes */
	uint32_t stack_len, becomes_len;
};

/* Two stacks can share a place; the one that came first is forgotten for a third. */
struct set {
	struct slot slots[2];
};

struct stack_memo {
	struct set sets[1u << SET_BITS];
	char *text;
	size_t text_len;
};

struct error *stack_memo_new(struct stack_memo **out)
{
	struct stack_memo *memo = calloc(1, sizeof(*memo));

	if (memo)
		memo->text = malloc(TEXT_SIZE);
	if (!memo || !memo->text) {
		free(memo);
		return error_no_memory();
	}
	*out = memo;
	return NULL;
}

void stack_memo_free(struct stack_memo *memo)
{
	if (memo)
		free(memo->text);
	free(memo);
}

/* Up to eight bytes, the first one lowest. */
static inline uint64_t load(const char *at, size_t len)
{
	uint64_t word = 0;

	memcpy(&word, at, len);
	return le64toh(word);
}

/* The top bit of each byte that is a newline. */
static inline uint64_t newlines(uint64_t word)
{
	const uint64_t low = 0x7f7f7f7f7f7f7f7f;
	uint64_t x = word ^ 0x0a0a0a0a0a0a0a0a;

	return ~(((x & low) + low) | x | low);
}

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* Eight bytes at a time: this reads every byte of the trace. */
const char *stack_end(const char *at, const char *end, uint64_t *hash)
{
	uint64_t h = 0, before = 0; /* was the byte before this word a newline? */

	while (at < end) {
		size_t len = end - at < 8 ? (size_t)(end - at) : 8;
		uint64_t word = len == 8 ? load(at, 8) : load(at, len);
		uint64_t here = newlines(word), twice = here & (here << 8 | before);

		if (twice) {
			unsigned bits = (unsigned)__builtin_ctzll(twice) + 1;

			if (bits < 64)
				word &= (UINT64_C(1) << bits) - 1;
			*hash = mix(h, word);
			return at + bits / 8;
		}
		h = mix(h, word);
		before = here >> 56;
		at += len;
	}
	return NULL;
}

static bool holds(const struct stack_memo *memo, const struct slot *slot, uint64_t hash,
		  struct stack_text stack)
{
	return slot->hash == hash && slot->stack_len == stack.len &&
	       !memcmp(memo->text + slot->at, stack.bytes, stack.len);
}

bool stack_memo_find(const struct stack_memo *memo, uint64_t hash, struct stack_text stack,
		     struct stack_text *becomes, struct resolve_result *result)
{
	const struct slot *slot = memo->sets[hash >> (64 - SET_BITS)].slots;

	if (!holds(memo, slot, hash, stack) && !holds(memo, ++slot, hash, stack))
		return false;
	*becomes = (struct stack_text){memo->text + slot->at + slot->stack_len, slot->becomes_len};
	*result = (struct resolve_result){slot->addresses, slot->unresolved};
	return true;
}

void stack_memo_add(struct stack_memo *memo, uint64_t hash, struct stack_text stack,
		    struct stack_text becomes, struct resolve_result result)
{
	struct set *set = &memo->sets[hash >> (64 - SET_BITS)];
	size_t len = stack.len + becomes.len;

	if (len > TEXT_SIZE)
		return;
	if (len > TEXT_SIZE - memo->text_len) {
		memset(memo->sets, 0, sizeof(memo->sets));
		memo->text_len = 0;
	}
	set->slots[1] = set->slots[0];
	set->slots[0] = (struct slot){
		.hash = hash,
		.addresses = (uint32_t)result.addresses,
		.unresolved = (uint32_t)result.unresolved,
		.at = (uint32_t)memo->text_len,
		.stack_len = (uint32_t)stack.len,
		.becomes_len = (uint32_t)becomes.len,
	};
	memcpy(memo->text + memo->text_len, stack.bytes, stack.len);
	memcpy(memo->text + memo->text_len + stack.len, becomes.bytes, becomes.len);
	memo->text_len += len;
}
