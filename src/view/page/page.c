/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/page/page.h"

#include <endian.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/intern.h"
#include "profile/time_buckets.h"
#include "recording/stacks.h"
#include "symbol/names/display_name.h"
#include "view/svg/flamegraph_box.h"

/* Rows of all sides together; a file of some megabytes, which opens in a second. */
#define MAX_ROWS (1u << 20)

/* ... of samples in code. */
#define MAX_CODE_ROWS (1u << 18)

#define TITLE_CELLS 1000

struct page_buckets {
	struct time_buckets of[2]; /* the sides' */
	struct time_buckets code;
};

/*
 * The tree of all stacks as a page has it: nodes in preorder, children by
 * name, so that a node's children follow it and a subtree is one stretch.
 */
struct page_tree {
	struct tree *tree;
	uint32_t *order;    /* [tree->n]: the tree's node at each position of the preorder */
	uint32_t *position; /* [tree->n]: position in the preorder of each of the tree's nodes */
	uint32_t *name;	    /* [tree->n]: number of the name of each of the tree's nodes */
	const char **names; /* [n_names]: sorted */
	bool *unresolved;   /* [n_names]: the name is an address */
	uint32_t n_names;
	struct name_codes *codes;
	struct short_names *shorts;	/* NULL: full names are wanted */
	struct node_map position_of[2]; /* of each side's samples */
};

/* Walks the tree without recursion: stacks can be thousands of frames deep. */
static void number_nodes(struct page_tree *tree)
{
	const struct tree_node *nodes = tree->tree->nodes;
	uint32_t at = 0, n = 0;

	for (;;) {
		tree->position[at] = n;
		tree->order[n++] = at;
		if (nodes[at].first_child) {
			at = nodes[at].first_child;
			continue;
		}
		while (at && !nodes[at].next_sibling)
			at = nodes[at].parent;
		if (!at)
			return;
		at = nodes[at].next_sibling;
	}
}

/* A name, and the first of the nodes that have it. */
struct named_node {
	const char *name;
	uint32_t node;
	uint32_t number; /* in the order in which names are met */
};

static int by_name(const void *left, const void *right)
{
	const struct named_node *a = left, *b = right;

	return strcmp(a->name, b->name);
}

/* Sorts names, of which there are far fewer than nodes. Equal names are the same pointer. */
static struct error *number_names(struct page_tree *tree)
{
	const struct tree_node *nodes = tree->tree->nodes;
	const uint32_t n = tree->tree->n;
	struct named_node *met = calloc(n, sizeof(*met));
	uint32_t *sorted = calloc(n, sizeof(*sorted));
	struct ids *ids = NULL;
	struct error *err = met && sorted ? ids_new(&ids) : error_no_memory();

	for (uint32_t i = 0; i < n && !err; i++) {
		bool added;

		err = ids_get(ids, (uintptr_t)nodes[i].name, 0, &tree->name[i], &added);
		if (!err && added)
			met[tree->n_names++] = (struct named_node){nodes[i].name, i, tree->name[i]};
	}
	if (!err)
		qsort(met, tree->n_names, sizeof(*met), by_name);
	for (uint32_t i = 0; i < tree->n_names && !err; i++) {
		tree->names[i] = met[i].name;
		tree->unresolved[i] = nodes[met[i].node].unresolved;
		sorted[met[i].number] = i;
	}
	for (uint32_t i = 0; i < n && !err; i++)
		tree->name[i] = sorted[tree->name[i]];
	ids_free(ids);
	free(met);
	free(sorted);
	return err;
}

static struct error *add_sides(const struct page_side *sides, unsigned n, struct page_tree *tree)
{
	struct error *err = tree_new(&tree->tree);

	for (unsigned i = 0; i < n && !err; i++) {
		const struct tree_options options = {.outer = sides[i].outer};

		err = tree_add(tree->tree, sides[i].profile, sides[i].symbolizer,
			       sides[0].symbolizer, &options, &tree->position_of[i]);
	}
	return err ? err : tree_sum(tree->tree);
}

static void page_tree_free(struct page_tree *tree)
{
	tree_free(tree->tree);
	free(tree->order);
	free(tree->position);
	free(tree->name);
	free(tree->names);
	name_codes_free(tree->codes);
	short_names_free(tree->shorts);
	free(tree->unresolved);
	node_map_free(&tree->position_of[0]);
	node_map_free(&tree->position_of[1]);
	memset(tree, 0, sizeof(*tree));
}

static struct error *tree_of_sides(const struct page_side *sides, unsigned n, bool full_names,
				   struct page_tree *out)
{
	struct error *err;

	memset(out, 0, sizeof(*out));
	err = add_sides(sides, n, out);
	if (!err) {
		size_t nodes = out->tree->n;

		out->order = calloc(nodes, sizeof(*out->order));
		out->position = calloc(nodes, sizeof(*out->position));
		out->name = calloc(nodes, sizeof(*out->name));
		out->names = calloc(nodes, sizeof(*out->names));
		out->unresolved = calloc(nodes, sizeof(*out->unresolved));
		if (!out->order || !out->position || !out->name || !out->names || !out->unresolved)
			err = error_no_memory();
	}
	if (!err)
		err = number_names(out);
	if (!err)
		err = name_codes_new(&out->codes);
	for (unsigned i = 0; i < n && !err; i++)
		err = name_codes_add(out->codes, sides[i].profile, sides[i].symbolizer);
	if (!err && !full_names)
		err = short_names_new(&out->shorts);
	if (err) {
		page_tree_free(out);
		return err;
	}
	number_nodes(out);
	for (unsigned i = 0; i < n; i++)
		for (uint32_t k = 0; k < out->position_of[i].n; k++) {
			uint32_t *node = &out->position_of[i].node[k];

			*node = out->position[*node];
		}
	return NULL;
}

/*
 * The bytes that the page's script reads (page_profile.js is the other end).
 * Numbers are LEB128 (base/bytes.h), text is its length in bytes and UTF-8.
 *
 *	text    JSON: title, states, icicle, reverse, outer (threads stand around functions), color (what colours tell
 *	        apart at first), images and kinds (name and colour of each), and for each side subtitle,
 *	        warning, weighted, timeless, vcpus, buckets, bucket_ns
 *	number  of names; for each: text, its short form (empty: the same), three
 *	        bytes of its colour, three of that of its package, and a number: its
 *	        kind, plus 8 times its image, counted from 1 (0: not known)
 *	number  of nodes but the root; for each, in preorder:
 *	        number  how many levels it is above a child of the one before,
 *	                times 2, plus 1 if it is inlined into its parent
 *	        number  of its name
 *	for each side:
 *	number  of groups; for each: bucket less that of the one before, vCPU,
 *	        state, sum of the squares of weights (8 bytes, an IEEE 754 double,
 *	        little-endian), number of rows; for each row: node less that of the
 *	        row before, samples, weight in ns
 *	text    code of functions, by page_code; empty: there is none. Else:
 *	number  of nodes of code but the first; for each: how much less than its own
 *	        number that of its parent is, number of its row
 *	number  ns of a bucket of code, some of the side's; then groups as above,
 *	        with nodes of code times PAGE_CODE_ENDS plus their end
 */

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

/* Texts may come from a guest; JSON accepts UTF-8 only. */
static json_t *text_json(const char *text)
{
	char *sanitized = text ? sanitize_new(text) : NULL;
	json_t *json = sanitized ? json_string(sanitized) : json_null();

	free(sanitized);
	return json;
}

static json_t *side_json(const struct page_side *side, const struct time_buckets *buckets)
{
	return json_pack("{s:o, s:o, s:b, s:b, s:i, s:I, s:I}", "subtitle",
			 text_json(side->subtitle), "warning", text_json(side->warning), "weighted",
			 side->profile->selected.weight_ns > 0, "timeless",
			 side->profile->info.timeless, "vcpus", (int)profile_vcpus(side->profile),
			 "buckets", (json_int_t)buckets->n, "bucket_ns",
			 (json_int_t)buckets->bucket_ns);
}

/* The guest is what a person looks for among open pages. */
static const char *title_of(const struct page_side *sides, const struct page_options *options)
{
	const char *guest = sides[0].profile->info.guest_name;

	if (options->title)
		return options->title;
	return guest && *guest ? guest : "Flame Graph";
}

static json_t *patch_json(const char *name, uint32_t color)
{
	char text[8];

	snprintf(text, sizeof(text), "#%06x", color);
	return json_pack("[o, s]", text_json(name), text);
}

static json_t *images_json(const struct name_codes *codes)
{
	json_t *images = json_array();
	const char *image;

	for (uint32_t i = 1; (image = name_codes_image(codes, i)); i++)
		json_array_append_new(images,
				      patch_json(image,
						 flamegraph_text_color(image, strlen(image))));
	return images;
}

static json_t *kinds_json(void)
{
	json_t *kinds = json_array();

	for (int kind = 0; kind < NAME_KINDS; kind++)
		json_array_append_new(kinds, patch_json(name_kind_text(kind),
							flamegraph_kind_color(kind)));
	return kinds;
}

static struct error *put_head(const struct page_tree *tree, const struct page_side *sides,
			      const struct time_buckets *buckets, unsigned n,
			      const struct page_options *options, struct bytes *bytes)
{
	json_t *list = json_array(), *head;
	char *text = NULL;
	struct error *err;

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, side_json(&sides[i], &buckets[i]));
	head = json_pack("{s:o, s:i, s:b, s:b, s:b, s:s, s:o, s:o, s:o}", "title",
			 text_json(title_of(sides, options)), "states", (int)options->states,
			 "icicle", options->icicle, "reverse", options->reverse, "outer",
			 sides[0].outer != NULL, "color", options->color_by ?: "function", "images",
			 images_json(tree->codes), "kinds", kinds_json(), "sides", list);
	if (head)
		text = json_dumps(head, JSON_COMPACT);
	err = text ? put_text(bytes, text) : error_no_memory();
	free(text);
	json_decref(head);
	return err;
}

/* The full name, and the short one if it is another. */
static struct error *put_name(const struct page_tree *tree, const char *full, struct bytes *bytes)
{
	size_t len = strlen(full);
	const char *name = short_names_get(tree->shorts, full, &len);
	struct error *err = put_text(bytes, full);

	return err ? err : put_text(bytes, strcmp(name, full) ? name : "");
}

static void put_color(struct bytes *bytes, uint32_t color)
{
	put_bytes(bytes, (uint8_t[]){(uint8_t)(color >> 16), (uint8_t)(color >> 8), (uint8_t)color},
		  3);
}

static uint32_t package_color(const char *name)
{
	size_t len;
	const char *package = name_package(name, &len);

	return flamegraph_text_color(package, len);
}

static struct error *put_names(const struct page_tree *tree, struct bytes *bytes)
{
	struct error *err = bytes_reserve(bytes, VARINT_MAX);

	if (!err)
		put_varint(bytes, tree->n_names);
	for (uint32_t i = 0; i < tree->n_names && !err; i++)
		err = short_names_add(tree->shorts, tree->names[i], strlen(tree->names[i]));
	for (uint32_t i = 0; i < tree->n_names && !err; i++) {
		const char *name = tree->names[i];
		const uint32_t color = flamegraph_color(name, tree->unresolved[i], false);

		err = put_name(tree, name, bytes);
		if (!err)
			err = bytes_reserve(bytes, 6 + VARINT_MAX);
		if (err)
			break;
		put_color(bytes, color);
		put_color(bytes, tree->unresolved[i] ? color : package_color(name));
		put_varint(bytes, (uint64_t)name_codes_image_of(tree->codes, name) << 3 |
					  name_codes_kind_of(tree->codes, name));
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

static bool same_group(const struct time_bucket_row *a, const struct time_bucket_row *b)
{
	return a->bucket == b->bucket && a->vcpu == b->vcpu && a->state == b->state;
}

/* Rows from `at` on that are one group; returns the first one behind it. */
static size_t put_group(const struct time_buckets *buckets, size_t at, uint32_t *bucket,
			struct bytes *bytes)
{
	const struct time_bucket_row *first = &buckets->rows[at];
	uint32_t node = 0;
	double squares = 0;
	uint64_t word;
	size_t end = at;

	for (; end < buckets->n_rows && same_group(&buckets->rows[end], first); end++)
		squares += buckets->rows[end].squares;
	put_varint(bytes, first->bucket - *bucket);
	*bucket = first->bucket;
	put_varint(bytes, first->vcpu);
	put_varint(bytes, first->state);
	memcpy(&word, &squares, sizeof(word));
	word = htole64(word);
	put_bytes(bytes, &word, sizeof(word));
	put_varint(bytes, end - at);
	for (; at < end; at++) {
		const struct time_bucket_row *row = &buckets->rows[at];

		put_varint(bytes, row->node - node);
		node = row->node;
		put_varint(bytes, row->samples);
		put_varint(bytes, row->weight_ns);
	}
	return end;
}

static struct error *put_rows(const struct time_buckets *buckets, struct bytes *bytes)
{
	uint32_t bucket = 0;
	size_t groups = 0;
	struct error *err;

	for (size_t i = 0; i < buckets->n_rows; i++)
		groups += !i || !same_group(&buckets->rows[i - 1], &buckets->rows[i]);
	err = bytes_reserve(bytes, VARINT_MAX * (1 + 5 * groups + 3 * buckets->n_rows));
	if (err)
		return err;
	put_varint(bytes, groups);
	for (size_t at = 0; at < buckets->n_rows;)
		at = put_group(buckets, at, &bucket, bytes);
	return NULL;
}

static struct error *put_code(const struct page_code *code, const struct time_buckets *buckets,
			      struct bytes *bytes)
{
	struct error *err = put_text(bytes, code ? code->text : "");

	if (err || !code)
		return err;
	err = bytes_reserve(bytes, VARINT_MAX * (2 + 2 * (size_t)code->n_nodes));
	if (err)
		return err;
	put_varint(bytes, code->n_nodes - 1);
	for (uint32_t i = 1; i < code->n_nodes; i++) {
		put_varint(bytes, i - code->nodes[i].parent);
		put_varint(bytes, code->nodes[i].row);
	}
	put_varint(bytes, buckets->bucket_ns);
	return put_rows(buckets, bytes);
}

static struct error *put_data(const struct page_tree *tree, const struct page_side *sides,
			      const struct page_buckets *buckets, unsigned n,
			      const struct page_options *options, struct bytes *bytes)
{
	struct error *err = put_head(tree, sides, buckets->of, n, options, bytes);

	if (!err)
		err = put_names(tree, bytes);
	if (!err)
		err = put_nodes(tree, bytes);
	for (unsigned i = 0; i < n && !err; i++)
		err = put_rows(&buckets->of[i], bytes);
	return err ? err : put_code(options->code, &buckets->code, bytes);
}

static struct error *compressed(const struct bytes *bytes, struct bytes *out)
{
	uLongf len = compressBound(bytes->len);
	struct error *err = bytes_reserve(out, len);

	if (!err && compress2(out->data, &len, bytes->data, bytes->len, 6) != Z_OK)
		err = error_no_memory();
	out->len = err ? 0 : len;
	return err;
}

static void put_base64(const struct bytes *bytes, FILE *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < bytes->len; i += 3) {
		size_t left = bytes->len - i;
		uint32_t word = (uint32_t)bytes->data[i] << 16 |
				(left > 1 ? (uint32_t)bytes->data[i + 1] << 8 : 0) |
				(left > 2 ? bytes->data[i + 2] : 0);
		char text[4] = {digits[word >> 18], digits[word >> 12 & 63],
				left > 1 ? digits[word >> 6 & 63] : '=',
				left > 2 ? digits[word & 63] : '='};

		fwrite(text, 1, sizeof(text), out);
	}
}

/* Samples of code are read along with those of the only side. */
static struct error *read_buckets(const struct page_side *sides, unsigned n,
				  const struct page_options *options, const struct page_tree *tree,
				  struct page_buckets *buckets)
{
	struct error *err = NULL;

	for (unsigned i = 0; i < n && !err; i++) {
		const struct time_bucket_set sets[] = {{&tree->position_of[i], MAX_ROWS / n,
							&buckets->of[i]},
						       {options->code ? &options->code->of_stack
								      : NULL,
							MAX_CODE_ROWS, &buckets->code}};

		err = time_buckets_read_sets(sides[i].path, sides[i].profile, sides[i].filter, sets,
					     options->code ? 2 : 1);
	}
	return err;
}

static struct error *pack(const struct page_side *sides, unsigned n,
			  const struct page_options *options, struct bytes *bytes)
{
	struct page_buckets buckets = {0};
	struct page_tree tree;
	struct error *err = tree_of_sides(sides, n, options->full_names, &tree);

	if (err)
		return err;
	err = read_buckets(sides, n, options, &tree, &buckets);
	if (!err)
		err = put_data(&tree, sides, &buckets, n, options, bytes);
	time_buckets_free(&buckets.of[0]);
	time_buckets_free(&buckets.of[1]);
	time_buckets_free(&buckets.code);
	page_tree_free(&tree);
	return err;
}

struct error *page_write(const struct page_side *sides, unsigned n,
			 const struct page_options *options, FILE *out)
{
	struct bytes bytes = {0}, small = {0};
	struct error *err = pack(sides, n, options, &bytes);

	if (!err)
		err = compressed(&bytes, &small);
	if (!err) {
		fputs(page_before_title, out);
		flamegraph_put_text(out, title_of(sides, options), TITLE_CELLS);
		fputs(page_before_data, out);
		put_base64(&small, out);
		fputs(page_behind_data, out);
	}
	bytes_free(&bytes);
	bytes_free(&small);
	return err;
}
