/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "base/owned.h"

#define BTF_MAGIC 0xeb9f
/* Beyond any real one, bytes. */
#define BTF_MAX (32u << 20)
/* Steps for a byte: each search for a member goes through all types. */
#define BTF_STEPS     8u
#define BTF_TYPES_MAX (1u << 22)
/* Names for names of types, and members without a name within each other: no more of them. */
#define DEPTH_MAX 16
/* Members that one search compares at most. */
#define STEPS_MAX (1u << 16)

enum btf_kind {
	KIND_INT = 1,
	KIND_ARRAY = 3,
	KIND_STRUCT = 4,
	KIND_UNION = 5,
	KIND_ENUM = 6,
	KIND_TYPEDEF = 8,
	KIND_VOLATILE = 9,
	KIND_CONST = 10,
	KIND_RESTRICT = 11,
	KIND_FUNC_PROTO = 13,
	KIND_VAR = 14,
	KIND_DATASEC = 15,
	KIND_DECL_TAG = 17,
	KIND_ENUM64 = 19,
	KINDS
};

struct btf_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t header_len, types_at, types_len, strings_at, strings_len;
};

struct btf_type {
	uint32_t name;
	uint32_t info; /* how many follow: 16 bits; 8 bits on: kind, 5 bits; last: flag */
	uint32_t size_or_type;
};

struct btf_member {
	uint32_t name, type;
	uint32_t offset; /* bits; with the flag, 8 bits of size in front */
};

struct btf_array {
	uint32_t type, index_type, n;
};

struct btf {
	const uint8_t *types;
	const char *strings;
	uint32_t types_len, strings_len;
	uint32_t n;   /* of types; 0 is void */
	uint32_t *at; /* [n], in `types` */
	uint8_t *own; /* the bytes, if btf_read has read them */
};

static enum btf_kind kind_of(const struct btf_type *type)
{
	return (enum btf_kind)(type->info >> 24 & 31);
}

static uint32_t count_of(const struct btf_type *type)
{
	return type->info & 0xffff;
}

/* The bytes that follow a type. */
static uint64_t tail_of(const struct btf_type *type)
{
	static const uint8_t once[32] = {
		[KIND_INT] = 4, [KIND_VAR] = 4, [KIND_DECL_TAG] = 4, [KIND_ARRAY] = 12};
	static const uint8_t each[32] = {
		[KIND_STRUCT] = 12, [KIND_UNION] = 12, [KIND_DATASEC] = 12,
		[KIND_ENUM64] = 12, [KIND_ENUM] = 8,   [KIND_FUNC_PROTO] = 8};

	return once[kind_of(type)] + each[kind_of(type)] * count_of(type);
}

/* Fills in where each type is, if there is room; the number of types. */
static uint32_t list_types(const struct btf *btf, uint32_t *at, uint32_t room)
{
	uint32_t n = 1;

	for (uint64_t i = 0; i + sizeof(struct btf_type) <= btf->types_len; n++) {
		struct btf_type type;

		memcpy(&type, btf->types + i, sizeof(type));
		if (n == BTF_TYPES_MAX || kind_of(&type) >= KINDS ||
		    tail_of(&type) > btf->types_len - i - sizeof(type))
			break;
		if (n < room)
			at[n] = (uint32_t)i;
		i += sizeof(type) + tail_of(&type);
	}
	return n;
}

static bool parse_header(const uint8_t *bytes, size_t len, struct btf *btf)
{
	struct btf_header header;

	if (len < sizeof(header))
		return false;
	memcpy(&header, bytes, sizeof(header));
	if (header.magic != BTF_MAGIC || header.version != 1 || header.header_len > len)
		return false;
	bytes += header.header_len;
	len -= header.header_len;
	if (header.types_at > len || header.types_len > len - header.types_at ||
	    header.strings_at > len || header.strings_len > len - header.strings_at ||
	    !header.strings_len || bytes[header.strings_at + header.strings_len - 1])
		return false;
	*btf = (struct btf){.types = bytes + header.types_at,
			    .strings = (const char *)bytes + header.strings_at,
			    .types_len = header.types_len,
			    .strings_len = header.strings_len};
	return true;
}

struct error *btf_open(const uint8_t *bytes, size_t len, struct btf **out)
{
	FREED uint32_t *at = NULL;
	struct btf btf;

	*out = NULL;
	if (!parse_header(bytes, len, &btf))
		return NULL;
	btf.n = list_types(&btf, NULL, 0);
	at = calloc(btf.n, sizeof(*at));
	*out = at ? malloc(sizeof(**out)) : NULL;
	if (!*out)
		return error_no_memory();
	list_types(&btf, at, btf.n);
	btf.at = at;
	at = NULL;
	**out = btf;
	return NULL;
}

struct error *btf_read(const struct guest_memory *memory, const struct kallsyms *names,
		       struct btf **out)
{
	FREED uint8_t *bytes = NULL;
	uint64_t start, end;

	*out = NULL;
	if (!kallsyms_address(names, "__start_BTF", &start) ||
	    !kallsyms_address(names, "__stop_BTF", &end) || end <= start || end - start > BTF_MAX ||
	    budget_over(memory->budget))
		return NULL;
	bytes = malloc(end - start);
	if (bytes && guest_memory_get(memory, start, bytes, end - start) &&
	    budget_spend(memory->budget, BTF_STEPS * (end - start)))
		TRY(btf_open(bytes, end - start, out));
	if (*out) {
		(*out)->own = bytes;
		bytes = NULL;
	}
	return NULL;
}

void btf_free(struct btf *btf)
{
	if (!btf)
		return;
	free(btf->own);
	free(btf->at);
	free(btf);
}

/* True if this is the name at an offset of the strings. */
static bool is_named(const struct btf *btf, uint32_t at, const char *name, size_t len)
{
	return at < btf->strings_len && !strncmp(btf->strings + at, name, len) &&
	       !btf->strings[at + len];
}

static bool get_type(const struct btf *btf, uint32_t id, struct btf_type *type)
{
	if (!id || id >= btf->n)
		return false;
	memcpy(type, btf->types + btf->at[id], sizeof(*type));
	return true;
}

static bool has_members(const struct btf_type *type)
{
	return kind_of(type) == KIND_STRUCT || kind_of(type) == KIND_UNION;
}

/* Resolves modifiers and typedefs; of an array, goes to its element type. */
static bool resolve(const struct btf *btf, uint32_t *id, struct btf_type *type)
{
	struct btf_array array;

	for (unsigned i = 0; i < DEPTH_MAX && get_type(btf, *id, type); i++) {
		switch (kind_of(type)) {
		case KIND_ARRAY:
			memcpy(&array, btf->types + btf->at[*id] + sizeof(*type), sizeof(array));
			*id = array.type;
			break;
		case KIND_TYPEDEF:
		case KIND_VOLATILE:
		case KIND_CONST:
		case KIND_RESTRICT:
			*id = type->size_or_type;
			break;
		default:
			return true;
		}
	}
	return false;
}

/* State of a search for a member. */
struct btf_search {
	uint32_t id;	 /* of the type */
	uint32_t offset; /* bytes */
	unsigned depth;
};

/* Goes on to the member. */
static bool find_member(const struct btf *btf, struct btf_search *search, const char *name,
			size_t len, unsigned *steps)
{
	struct btf_member member;
	struct btf_type type;

	if (search->depth == DEPTH_MAX || !resolve(btf, &search->id, &type) || !has_members(&type))
		return false;
	for (uint32_t i = 0; i < count_of(&type) && *steps; i++, --*steps) {
		struct btf_search inner = *search;

		memcpy(&member,
		       btf->types + btf->at[search->id] + sizeof(type) + i * sizeof(member),
		       sizeof(member));
		inner.offset += (type.info >> 31 ? member.offset & 0xffffff : member.offset) / 8;
		inner.id = member.type;
		inner.depth++;
		if (is_named(btf, member.name, name, len) ||
		    (is_named(btf, member.name, "", 0) &&
		     find_member(btf, &inner, name, len, steps))) {
			*search = inner;
			return true;
		}
		if (!*steps)
			break;
	}
	return false;
}

static bool find_structure(const struct btf *btf, const char *name, uint32_t *id)
{
	struct btf_type type;

	for (*id = 1; get_type(btf, *id, &type); ++*id)
		if (kind_of(&type) == KIND_STRUCT && is_named(btf, type.name, name, strlen(name)))
			return true;
	return false;
}

bool btf_size(const struct btf *btf, const char *structure, uint32_t *size)
{
	struct btf_type type;
	uint32_t id;

	if (!find_structure(btf, structure, &id) || !get_type(btf, id, &type))
		return false;
	*size = type.size_or_type;
	return true;
}

bool btf_offset(const struct btf *btf, const char *structure, const char *member, uint32_t *offset)
{
	struct btf_search search = {0};
	unsigned steps = STEPS_MAX;

	if (!find_structure(btf, structure, &search.id))
		return false;
	for (;;) {
		size_t len = strcspn(member, ".");

		if (!find_member(btf, &search, member, len, &steps))
			return false;
		*offset = search.offset;
		if (!member[len])
			return true;
		member += len + 1;
	}
}
