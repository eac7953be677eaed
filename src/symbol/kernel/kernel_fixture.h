/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* For tests only: a kernel's memory with its table of symbols, and BTF. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kernel's memory with a kallsyms table of NAMES symbols, each of the layouts that Linux had. */

#define START 0xffffffff81000000ull
#define SIZE  (256u << 10)
#define NAMES 2500u
#define HEAD  0x3000u /* bytes in front of the table */

enum layout { LINUX_5_10, LINUX_6_2, LINUX_6_12, LINUX_7_2 };

/* Of data, or of where something begins or ends. */
struct kernel_name {
	const char *text; /* with its type in front */
	uint32_t offset;  /* from START */
};

struct kernel {
	uint8_t bytes[SIZE];
	size_t at;    /* where the next part begins */
	size_t align; /* of each */
	size_t markers, names;
	size_t missing; /* a page that cannot be read; 0: none */
	/* The last names, in order of address; the others are function_0 and so on. */
	const struct kernel_name *last;
	unsigned n_last;
};

static inline size_t read_kernel(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct kernel *kernel = ctx;
	size_t at = va - START;

	if (at >= SIZE)
		return 0;
	if (len > SIZE - at)
		len = SIZE - at;
	for (size_t i = 0; kernel->missing && i < len; i++)
		if ((at + i) / 4096 == kernel->missing / 4096)
			len = i;
	memcpy(buf, kernel->bytes + at, len);
	return len;
}

static inline void put(struct kernel *kernel, const void *bytes, size_t len)
{
	memcpy(kernel->bytes + kernel->at, bytes, len);
	kernel->at += len;
}

static inline void put_number(struct kernel *kernel, uint64_t value, size_t len)
{
	put(kernel, &value, len);
}

static inline void align(struct kernel *kernel)
{
	kernel->at = (kernel->at + kernel->align - 1) & ~(kernel->align - 1);
}

static inline uint64_t address(unsigned i)
{
	return START + 16 * (uint64_t)i;
}

static inline uint32_t kernel_offset(const struct kernel *kernel, unsigned i)
{
	const unsigned first = NAMES - kernel->n_last;

	return i < first ? 16 * i : kernel->last[i - first].offset;
}

/* The first is one of each CPU's own, at an absolute address. */
static inline void put_offsets(struct kernel *kernel, bool percpu)
{
	align(kernel);
	for (unsigned i = 0; i < NAMES; i++)
		put_number(kernel,
			   !percpu ? kernel_offset(kernel, i)
			   : i	   ? -1u - kernel_offset(kernel, i)
				   : 0x40,
			   4);
	align(kernel);
	put_number(kernel, START, 8);
}

/* ... each from where it stands. */
static inline void put_places(struct kernel *kernel)
{
	align(kernel);
	for (unsigned i = 0; i < NAMES; i++)
		put_number(kernel, kernel_offset(kernel, i) - (uint32_t)kernel->at, 4);
}

/* Token 0 to 255 stand for themselves, but for 1: "function_", and 2: "T". */
static inline const char *token(unsigned i, char own[2])
{
	if (i == 1)
		return "function_";
	own[0] = (char)(i >= '!' && i < 127 ? i : i == 2 ? 'T' : '_');
	own[1] = '\0';
	return own;
}

/* "Tfunction_17"; number 3 is so long that its length takes two bytes. */
static inline size_t kernel_name(const struct kernel *kernel, unsigned i, uint8_t *tokens)
{
	char text[16];
	const unsigned first = NAMES - kernel->n_last;
	size_t n = 2;

	if (i >= first) {
		n = strlen(kernel->last[i - first].text);
		memcpy(tokens, kernel->last[i - first].text, n);
		return n;
	}
	tokens[0] = i == 5 ? 'D' : 2;
	tokens[1] = 1;
	while (i == 3 && n < 200)
		tokens[n++] = 'x';
	snprintf(text, sizeof(text), "%u", i);
	memcpy(tokens + n, text, strlen(text));
	return n + strlen(text);
}

static inline void put_names(struct kernel *kernel)
{
	uint32_t markers[NAMES / 256 + 1];

	align(kernel);
	put_number(kernel, NAMES, kernel->align);
	kernel->names = kernel->at;
	for (unsigned i = 0; i < NAMES; i++) {
		uint8_t tokens[256];
		size_t n = kernel_name(kernel, i, tokens);

		if (i % 256 == 0)
			markers[i / 256] = (uint32_t)(kernel->at - kernel->names);
		if (n > 127)
			put_number(kernel, (n & 0x7f) | 0x80, 1);
		put_number(kernel, n > 127 ? n >> 7 : n, 1);
		put(kernel, tokens, n);
	}
	align(kernel);
	kernel->markers = kernel->at;
	put(kernel, markers, sizeof(markers));
}

static inline void put_sequence(struct kernel *kernel)
{
	align(kernel);
	for (unsigned i = 0; i < NAMES; i++)
		put_number(kernel, (i * 77) % NAMES, 3);
}

static inline void put_tokens(struct kernel *kernel)
{
	uint16_t index[256];
	size_t first;
	char own[2];

	align(kernel);
	first = kernel->at;
	for (unsigned i = 0; i < 256; i++) {
		index[i] = (uint16_t)(kernel->at - first);
		put(kernel, token(i, own), strlen(token(i, own)) + 1);
	}
	align(kernel);
	put(kernel, index, sizeof(index));
}

/* Puts the table into a kernel that is all zeros, but for its last names. */
static inline void kernel_put(struct kernel *kernel, enum layout layout, bool percpu)
{
	memset(kernel->bytes, 0x55, HEAD + 4);
	kernel->align = layout == LINUX_7_2 ? 4 : 8;
	kernel->at = HEAD + kernel->align;
	if (layout < LINUX_6_12)
		put_offsets(kernel, percpu);
	put_names(kernel);
	if (layout == LINUX_6_2)
		put_sequence(kernel);
	put_tokens(kernel);
	if (layout == LINUX_6_12)
		put_offsets(kernel, percpu);
	if (layout == LINUX_7_2)
		put_places(kernel);
	if (layout >= LINUX_6_12)
		put_sequence(kernel);
}

static inline struct kernel *kernel_make(enum layout layout, bool percpu)
{
	struct kernel *kernel = calloc(1, sizeof(*kernel));

	if (!kernel)
		abort();
	kernel_put(kernel, layout, percpu);
	return kernel;
}

/* Kinds (Documentation/bpf/btf.rst). */
enum {
	BTF_INT = 1,
	BTF_POINTER = 2,
	BTF_ARRAY = 3,
	BTF_STRUCT = 4,
	BTF_UNION = 5,
	BTF_TYPEDEF = 8,
	BTF_CONST = 10
};

#define BTF_BITFIELDS (1u << 31)

struct btf_made {
	uint8_t bytes[4096];
	uint32_t types, types_len, strings_len;
	char strings[1024];
};

static inline void btf_put(struct btf_made *made, uint32_t value)
{
	memcpy(made->bytes + made->types + made->types_len, &value, 4);
	made->types_len += 4;
}

static inline uint32_t btf_name(struct btf_made *made, const char *text)
{
	uint32_t at = made->strings_len;

	strcpy(made->strings + at, text);
	made->strings_len += (uint32_t)strlen(text) + 1;
	return *text ? at : 0;
}

static inline void btf_type(struct btf_made *made, const char *text, uint32_t kind, uint32_t n,
			    uint32_t value)
{
	btf_put(made, btf_name(made, text));
	btf_put(made, kind << 24 | n);
	btf_put(made, value);
}

static inline void btf_member(struct btf_made *made, const char *text, uint32_t of, uint32_t bits)
{
	btf_put(made, btf_name(made, text));
	btf_put(made, of);
	btf_put(made, bits);
}

static inline void btf_begin(struct btf_made *made)
{
	*made = (struct btf_made){.types = 24};
	btf_name(made, "");
}

/* The header, and the strings behind the types. */
static inline size_t btf_finish(struct btf_made *made)
{
	const uint32_t head[] = {0x1eb9f,	   24, 0, made->types_len, made->types_len,
				 made->strings_len};
	size_t len = made->types + made->types_len;

	memcpy(made->bytes, head, sizeof(head));
	memcpy(made->bytes + len, made->strings, made->strings_len);
	return len + made->strings_len;
}
