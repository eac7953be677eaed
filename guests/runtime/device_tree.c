/* SPDX-License-Identifier: BSD-3-Clause */
#include "device_tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BEGIN_NODE = 1, END_NODE, PROPERTY, NOTHING };

struct header {
	uint32_t magic, size, structure, strings;
};

static uint32_t big(uint32_t value)
{
	return value << 24 | (value & 0xff00) << 8 | (value >> 8 & 0xff00) | value >> 24;
}

static bool same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

static size_t words(size_t bytes)
{
	return (bytes + 3) / 4;
}

static size_t name_words(const char *name)
{
	size_t length = 0;

	while (name[length])
		length++;
	return words(length + 1);
}

const char *device_tree_property(const void *tree, const char *node, const char *property)
{
	const struct header *header = tree;
	const uint32_t *word;
	const char *strings;
	bool inside = false;

	if (!tree)
		return 0;
	word = tree + big(header->structure);
	strings = tree + big(header->strings);
	for (;;) {
		switch (big(*word++)) {
		case BEGIN_NODE:
			inside = same((const char *)word, node);
			word += name_words((const char *)word);
			break;
		case PROPERTY:
			if (inside && same(strings + big(word[1]), property))
				return (const char *)(word + 2);
			word += 2 + words(big(word[0]));
			break;
		case END_NODE:
		case NOTHING:
			break;
		default:
			return 0;
		}
	}
}
