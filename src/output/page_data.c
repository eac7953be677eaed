/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/page_data.h"

#include <endian.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "output/flamegraph_color.h"
#include "symbol/names/display_name.h"

static struct error *put_text(struct bytes *bytes, const char *text)
{
	size_t len = strlen(text);
	struct error *err = bytes_reserve(bytes, len + VARINT_MAX);

	if (err)
		return err;
	put_varint(bytes, len);
	put_bytes(bytes, text, len);
	return NULL;
}

/* Texts may come from a guest, and JSON takes nothing but UTF-8. */
static json_t *text_json(const char *text)
{
	char *clean = text ? clean_name_new(text) : NULL;
	json_t *json = clean ? json_string(clean) : json_null();

	free(clean);
	return json;
}

static json_t *side_json(const struct page_side *side, const struct slices *slices)
{
	return json_pack("{s:o, s:o, s:b, s:i, s:I, s:I}", "subtitle", text_json(side->subtitle),
			 "warning", text_json(side->warning), "weighted",
			 side->profile->selected.weight_ns > 0, "vcpus",
			 (int)profile_vcpus(side->profile), "slices", (json_int_t)slices->n,
			 "slice_ns", (json_int_t)slices->slice_ns);
}

static struct error *put_head(const struct page_side *sides, const struct slices *slices,
			      unsigned n, const struct page_options *options, struct bytes *bytes)
{
	json_t *list = json_array(), *head;
	char *text = NULL;
	struct error *err;

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, side_json(&sides[i], &slices[i]));
	head = json_pack("{s:o, s:i, s:b, s:b, s:o}", "title",
			 text_json(options->title ? options->title : "Flame Graph"), "states",
			 (int)options->states, "icicle", options->icicle, "reverse",
			 options->reverse, "sides", list);
	if (head)
		text = json_dumps(head, JSON_COMPACT);
	err = text ? put_text(bytes, text) : error_no_memory();
	free(text);
	json_decref(head);
	return err;
}

static struct error *put_names(const struct page_tree *tree, struct bytes *bytes)
{
	struct error *err = bytes_reserve(bytes, VARINT_MAX);

	if (!err)
		put_varint(bytes, tree->n_names);
	for (uint32_t i = 0; i < tree->n_names && !err; i++) {
		uint32_t color = flamegraph_color(tree->names[i], tree->unresolved[i]);

		err = put_text(bytes, tree->names[i]);
		if (!err)
			err = bytes_reserve(bytes, 3);
		if (!err)
			put_bytes(bytes,
				  (uint8_t[]){(uint8_t)(color >> 16), (uint8_t)(color >> 8),
					      (uint8_t)color},
				  3);
	}
	return err;
}

static struct error *put_nodes(const struct page_tree *tree, struct bytes *bytes)
{
	const struct tree_node *nodes = tree->tree->nodes;
	uint32_t n = tree->tree->n, before = 0;
	struct error *err = bytes_reserve(bytes, ((size_t)2 * n + 1) * VARINT_MAX);

	if (err)
		return err;
	put_varint(bytes, n - 1);
	for (uint32_t i = 1; i < n; i++) {
		uint32_t node = tree->order[i], up = 0;

		for (; before != nodes[node].parent; before = nodes[before].parent)
			up++;
		put_varint(bytes, (uint64_t)up << 1 | nodes[node].inlined);
		put_varint(bytes, tree->name[node]);
		before = node;
	}
	return NULL;
}

static bool same_group(const struct slice_row *a, const struct slice_row *b)
{
	return a->slice == b->slice && a->vcpu == b->vcpu && a->state == b->state;
}

/* Rows from `at` on that are one group; returns the first one behind it. */
static size_t put_group(const struct slices *slices, size_t at, uint32_t *slice,
			struct bytes *bytes)
{
	const struct slice_row *first = &slices->rows[at];
	uint32_t place = 0;
	double squares = 0;
	uint64_t word;
	size_t end = at;

	for (; end < slices->n_rows && same_group(&slices->rows[end], first); end++)
		squares += slices->rows[end].squares;
	put_varint(bytes, first->slice - *slice);
	*slice = first->slice;
	put_varint(bytes, first->vcpu);
	put_varint(bytes, first->state);
	memcpy(&word, &squares, sizeof(word));
	word = htole64(word);
	put_bytes(bytes, &word, sizeof(word));
	put_varint(bytes, end - at);
	for (; at < end; at++) {
		const struct slice_row *row = &slices->rows[at];

		put_varint(bytes, row->place - place);
		place = row->place;
		put_varint(bytes, row->samples);
		put_varint(bytes, row->weight_ns);
	}
	return end;
}

static struct error *put_rows(const struct slices *slices, struct bytes *bytes)
{
	uint32_t slice = 0;
	size_t groups = 0;
	struct error *err;

	for (size_t i = 0; i < slices->n_rows; i++)
		groups += !i || !same_group(&slices->rows[i - 1], &slices->rows[i]);
	err = bytes_reserve(bytes, VARINT_MAX * (1 + 5 * groups + 3 * slices->n_rows));
	if (err)
		return err;
	put_varint(bytes, groups);
	for (size_t at = 0; at < slices->n_rows;)
		at = put_group(slices, at, &slice, bytes);
	return NULL;
}

struct error *page_data_put(const struct page_tree *tree, const struct page_side *sides,
			    const struct slices *slices, unsigned n,
			    const struct page_options *options, struct bytes *bytes)
{
	struct error *err = put_head(sides, slices, n, options, bytes);

	if (!err)
		err = put_names(tree, bytes);
	if (!err)
		err = put_nodes(tree, bytes);
	for (unsigned i = 0; i < n && !err; i++)
		err = put_rows(&slices[i], bytes);
	return err;
}
