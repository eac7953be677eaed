/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SHARED_PICTURE_H
#define UNIPROF_CMD_SHARED_PICTURE_H

/* Pages and pictures of loaded recordings, for the verbs that draw. */

#include "cmd/shared/load.h"
#include "view/svg/flamegraph.h"
#include "view/page/page.h"

/* True if the file name has that ending (".html"); `path` NULL: false. */
bool picture_has_ending(const char *path, const char *ending);

/*
 * Takes down the samples of a page while load_recording() loads with these options. Unless
 * the user chose states, the page has all of them, and shows at first those of the options.
 */
struct error *picture_samples(struct load_options *load, struct page_samples **out);

struct picture_page {
	const struct load_options *load;
	struct page_samples *samples[2];   /* of each recording */
	const struct outer_options *outer; /* NULL: none, as of two recordings */
	struct disassembler *disassembler; /* NULL: none */
	struct source_text_options sources;
	struct page_options options; /* `states` and `code` are filled in */
};

/* Writes a page of one recording, or of two (before and after), whose profiles lose their samples. */
struct error *picture_write_page(const struct loaded *loaded, unsigned n,
				 const struct picture_page *page, FILE *out);

/* Draws the differences of two recordings. */
struct error *picture_draw_differences(const struct loaded loaded[2], const char *title,
				       bool full_names, FILE *out);

#endif
