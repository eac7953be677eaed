/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/page/page.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "analysis/name_code.h"
#include "base/bytes.h"
#include "base/owned.h"
#include "view/json.h"
#include "view/svg/flamegraph.h"

/* Rows of all sides together; a file of some megabytes, which opens in a second. */
#define MAX_ROWS (1u << 20)

#define TITLE_CELLS 1000

/* What is written of a page before its head can tell of it. */
struct page_parts {
	struct page_tree *tree;
	struct page_rows rows[2]; /* the sides' */
	struct name_codes *codes;
	struct short_names *shorts; /* NULL: full names are wanted */
};

/*
 * The bytes that the page's script reads (page_profile.js is the other end).
 * Numbers are LEB128 (base/bytes.h), text is its length in bytes and UTF-8.
 *
 *	text    JSON: title, states, icicle, reverse, outer (threads stand around functions), color (what colours tell
 *	        apart at first), images and kinds (name and colour of each), and for each side subtitle,
 *	        warning, weighted, timeless, exits (they count, and no samples), vcpus, buckets, bucket_ns
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

	TRY(bytes_reserve(bytes, len + VARINT_MAX));
	put_varint(bytes, len);
	put_bytes(bytes, text, len);
	return NULL;
}

/* Texts may come from a guest; JSON accepts UTF-8 only. */
static json_t *side_json(const struct page_side *side, const struct page_rows *rows)
{
	const uint64_t buckets = side->profile->last_ns / rows->bucket_ns + 1;
	const bool exits = profile_counts_exits(side->profile);

	return json_pack("{s:o, s:o, s:b, s:b, s:b, s:i, s:I, s:I}", "subtitle",
			 json_text(side->subtitle), "warning", json_text(side->warning), "weighted",
			 side->samples->weighted && !exits, "timeless",
			 side->profile->info.timeless, "exits", exits, "vcpus",
			 (int)profile_vcpus(side->profile), "buckets", (json_int_t)buckets,
			 "bucket_ns", (json_int_t)rows->bucket_ns);
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
	return json_pack("[o, s]", json_text(name), text);
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

static struct error *put_head(const struct page_parts *parts, const struct page_side *sides,
			      unsigned n, const struct page_options *options, struct bytes *bytes)
{
	json_t *list = json_array(), *head;
	FREED char *text = NULL;

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, side_json(&sides[i], &parts->rows[i]));
	head = json_pack("{s:o, s:i, s:b, s:b, s:b, s:s, s:o, s:o, s:o}", "title",
			 json_text(title_of(sides, options)), "states", (int)options->states,
			 "icicle", options->icicle, "reverse", options->reverse, "outer",
			 sides[0].outer != NULL, "color", options->color_by ?: "function", "images",
			 images_json(parts->codes), "kinds", kinds_json(), "sides", list);
	if (head)
		text = json_dumps(head, JSON_COMPACT);
	json_decref(head);
	return text ? put_text(bytes, text) : error_no_memory();
}

/* The full name, and the short one if it is another. */
static struct error *put_name(const struct page_parts *parts, const char *full, struct bytes *bytes)
{
	size_t len = strlen(full);
	const char *name = short_names_get(parts->shorts, full, &len);

	TRY(put_text(bytes, full));
	return put_text(bytes, strcmp(name, full) ? name : "");
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

static struct error *put_names(const struct page_parts *parts, struct bytes *bytes)
{
	const uint32_t n = page_tree_names(parts->tree);
	bool unresolved;

	TRY(bytes_reserve(bytes, VARINT_MAX));
	put_varint(bytes, n);
	for (uint32_t i = 0; i < n; i++) {
		const char *name = page_tree_name(parts->tree, i, &unresolved);

		TRY(short_names_add(parts->shorts, name, strlen(name)));
	}
	for (uint32_t i = 0; i < n; i++) {
		const char *name = page_tree_name(parts->tree, i, &unresolved);
		const uint32_t color = flamegraph_color(name, unresolved, false);

		TRY(put_name(parts, name, bytes));
		TRY(bytes_reserve(bytes, 6 + VARINT_MAX));
		put_color(bytes, color);
		put_color(bytes, unresolved ? color : package_color(name));
		put_varint(bytes, (uint64_t)name_codes_image_of(parts->codes, name) << 3 |
					  name_codes_kind_of(parts->codes, name));
	}
	return NULL;
}

/* All of the code but its rows. */
static struct error *put_code(const struct page_code *code, struct bytes *bytes)
{
	TRY(put_text(bytes, code ? code->text : ""));
	if (!code)
		return NULL;
	TRY(bytes_reserve(bytes, VARINT_MAX * (2 + 2 * (size_t)code->n_nodes)));
	put_varint(bytes, code->n_nodes - 1);
	for (uint32_t i = 1; i < code->n_nodes; i++) {
		put_varint(bytes, i - code->nodes[i].parent);
		put_varint(bytes, code->nodes[i].row);
	}
	put_varint(bytes, code->rows.bucket_ns);
	return NULL;
}

/* Compresses what is put, and writes it as base64. */
struct packer {
	z_stream stream;
	FILE *out;
	uint8_t left[3]; /* compressed bytes that are not three yet */
	unsigned n_left;
};

/* Three bytes as four characters; for those that are missing there are equals signs. */
static void put_three(const struct packer *packer, unsigned n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint32_t word =
		(uint32_t)packer->left[0] << 16 | (uint32_t)packer->left[1] << 8 | packer->left[2];
	const char text[4] = {digits[word >> 18], digits[word >> 12 & 63],
			      n > 1 ? digits[word >> 6 & 63] : '=',
			      n > 2 ? digits[word & 63] : '='};

	fwrite_unlocked(text, 1, sizeof(text), packer->out);
}

static void put_base64(struct packer *packer, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		packer->left[packer->n_left++] = data[i];
		if (packer->n_left == 3) {
			put_three(packer, 3);
			packer->n_left = 0;
		}
	}
}

static void packer_put(struct packer *packer, const uint8_t *data, size_t len, int flush)
{
	uint8_t out[16384];

	packer->stream.next_in = (uint8_t *)data;
	packer->stream.avail_in = (uInt)len;
	do {
		packer->stream.next_out = out;
		packer->stream.avail_out = sizeof(out);
		(void)deflate(&packer->stream, flush);
		put_base64(packer, out, sizeof(out) - packer->stream.avail_out);
	} while (!packer->stream.avail_out);
}

/* In parts that zlib can count. */
static void packer_bytes(struct packer *packer, const struct bytes *bytes)
{
	const size_t most = 1u << 30;

	for (size_t i = 0; i < bytes->len; i += most)
		packer_put(packer, bytes->data + i, bytes->len - i < most ? bytes->len - i : most,
			   Z_NO_FLUSH);
}

static void packer_number(struct packer *packer, uint64_t number)
{
	uint8_t data[VARINT_MAX];
	struct bytes bytes = {.data = data, .cap = sizeof(data)};

	put_varint(&bytes, number);
	packer_bytes(packer, &bytes);
}

static void packer_rows(struct packer *packer, const struct page_rows *rows)
{
	packer_number(packer, rows->groups);
	packer_bytes(packer, &rows->written);
}

static void packer_end(struct packer *packer)
{
	packer_put(packer, NULL, 0, Z_FINISH);
	memset(packer->left + packer->n_left, 0, sizeof(packer->left) - packer->n_left);
	if (packer->n_left)
		put_three(packer, packer->n_left);
	deflateEnd(&packer->stream);
}

static struct error *put_data(const struct page_parts *parts, const struct page_side *sides,
			      unsigned n, const struct page_options *options, FILE *out)
{
	ENDED_BY(bytes_free) struct bytes head = {0};
	ENDED_BY(bytes_free) struct bytes code = {0};
	const struct bytes *nodes;
	struct packer packer = {.out = out};

	TRY(put_head(parts, sides, n, options, &head));
	TRY(put_names(parts, &head));
	TRY(put_code(options->code, &code));
	if (deflateInit(&packer.stream, 6) != Z_OK)
		return error_no_memory();
	packer_bytes(&packer, &head);
	packer_number(&packer, page_tree_nodes(parts->tree, &nodes));
	packer_bytes(&packer, nodes);
	for (unsigned i = 0; i < n; i++)
		packer_rows(&packer, &parts->rows[i]);
	packer_bytes(&packer, &code);
	if (options->code)
		packer_rows(&packer, &options->code->rows);
	packer_end(&packer);
	return NULL;
}

/* The samples, by the nodes that they end in. */
static struct error *write_rows(const struct page_side *sides, unsigned n, struct page_parts *parts)
{
	for (unsigned i = 0; i < n; i++) {
		const struct page_places places = page_tree_places(parts->tree, i);

		TRY(page_samples_rows(sides[i].samples, sides[i].profile, &places, MAX_ROWS / n,
				      &parts->rows[i]));
		page_samples_drop(sides[i].samples);
	}
	return NULL;
}

static struct error *make_parts(const struct page_side *sides, unsigned n,
				const struct page_options *options, struct page_parts *parts)
{
	TRY(page_tree_new(sides, n, &parts->tree));
	TRY(write_rows(sides, n, parts));
	TRY(name_codes_new(&parts->codes));
	for (unsigned i = 0; i < n; i++)
		TRY(name_codes_add(parts->codes, sides[i].profile, sides[i].symbolizer));
	return options->full_names ? NULL : short_names_new(&parts->shorts);
}

struct error *page_write(const struct page_side *sides, unsigned n,
			 const struct page_options *options, FILE *out)
{
	struct page_parts parts = {0};
	struct error *err = make_parts(sides, n, options, &parts);

	if (!err) {
		fputs(page_before_title, out);
		flamegraph_put_text(out, title_of(sides, options), TITLE_CELLS);
		fputs(page_before_data, out);
		err = put_data(&parts, sides, n, options, out);
		fputs(page_behind_data, out);
	}
	page_tree_free(parts.tree);
	for (unsigned i = 0; i < n; i++)
		bytes_free(&parts.rows[i].written);
	name_codes_free(parts.codes);
	short_names_free(parts.shorts);
	return err;
}
