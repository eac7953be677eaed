/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/page/page.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "output/flamegraph_text.h"
#include "output/page_assets.h"
#include "output/page_data.h"

/* Rows of all sides together; a file of some megabytes, which opens in a second. */
#define MAX_ROWS (1u << 20)

#define TITLE_CELLS 1000

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

static struct error *pack(const struct page_side *sides, unsigned n,
			  const struct page_options *options, struct bytes *bytes)
{
	struct slices slices[2] = {0};
	struct page_tree tree;
	struct error *err = page_tree_build(sides, n, &tree);

	if (err)
		return err;
	for (unsigned i = 0; i < n && !err; i++)
		err = slices_read(sides[i].path, sides[i].profile, sides[i].filter,
				  tree.place_of[i], MAX_ROWS / n, &slices[i]);
	if (!err)
		err = page_data_put(&tree, sides, slices, n, options, bytes);
	slices_free(&slices[0]);
	slices_free(&slices[1]);
	page_tree_free(&tree);
	return err;
}

struct error *page_write(const struct page_side *sides, unsigned n,
			 const struct page_options *options, FILE *out)
{
	struct bytes bytes = {0}, small = {0};
	struct error *err = NULL;

	for (unsigned i = 0; i < n && !err; i++)
		if (!strcmp(sides[i].path, "-"))
			err = error_new(ERR_USAGE,
					"a page reads its recording twice, so the recording "
					"cannot come from standard input");
	if (!err)
		err = pack(sides, n, options, &bytes);
	if (!err)
		err = compressed(&bytes, &small);
	if (!err) {
		fputs(page_before_title, out);
		flamegraph_put_text(out, options->title ? options->title : "Flame Graph",
				    TITLE_CELLS);
		fputs(page_before_data, out);
		put_base64(&small, out);
		fputs(page_behind_data, out);
	}
	bytes_free(&bytes);
	bytes_free(&small);
	return err;
}
