/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "format/format.h"

bool picture_has_ending(const char *path, const char *ending)
{
	size_t len = path ? strlen(path) : 0, end = strlen(ending);

	return len > end && !strcmp(path + len - end, ending);
}

struct error *picture_samples(struct load_options *load, struct page_samples **out)
{
	struct profile_filter filter = load->filter;

	if (!load->state_given)
		filter.states = 0;
	TRY(page_samples_new(&filter, out));
	load->filter.listener = &(*out)->listener;
	return NULL;
}

/* The code of the functions that take most of the samples that are shown at first. */
static struct error *find_code(const struct loaded *loaded, const struct picture_page *page,
			       struct page_code *out)
{
	const struct page_code_options how = {.profile = loaded->profile,
					      .samples = page->samples[0],
					      .images = loaded->images,
					      .symbolizer = loaded->symbolizer,
					      .naming = page->load->naming,
					      .disassembler = page->disassembler,
					      .sources = page->sources};

	return page_code(&how, out);
}

struct error *picture_write_page(const struct loaded *loaded, unsigned n,
				 const struct picture_page *page, FILE *out)
{
	const unsigned states = page->load->filter.states;
	struct page_options options = page->options;
	struct page_side sides[2] = {0};
	char *subtitles[2] = {NULL};
	struct group_outer by;
	struct tree_outer outer;
	struct page_code code = {0};
	struct error *err = NULL;

	for (unsigned i = 0; i < n && !err; i++) {
		subtitles[i] = format_guest_line(loaded[i].profile);
		err = subtitles[i] ? NULL : error_no_memory();
		sides[i] = (struct page_side){.profile = loaded[i].profile,
					      .samples = page->samples[i],
					      .symbolizer = loaded[i].symbolizer,
					      .subtitle = subtitles[i],
					      .warning = loaded[i].warning};
	}
	options.states = states ? states : (1u << VCPU_STATES) - 1;
	if (!err && page->outer && page->outer->by) {
		err = load_outer(page->outer, &loaded[0], &by, &outer);
		sides[0].outer = &outer;
	}
	if (!err && n == 1)
		err = find_code(&loaded[0], page, &code);
	options.code = n == 1 ? &code : NULL;
	for (unsigned i = 0; i < n; i++)
		profile_drop_cells(loaded[i].profile);
	if (!err)
		err = page_write(sides, n, &options, out);
	page_code_free(&code);
	free(subtitles[0]);
	free(subtitles[1]);
	return err;
}

/* Joins the texts of both recordings; one alone if the other is NULL. NULL: no memory. */
static char *both(const char *before, const char *after, const char *between)
{
	char *text;

	if (asprintf(&text, "%s%s%s", before ? before : "", before && after ? between : "",
		     after ? after : "") < 0)
		return NULL;
	return text;
}

struct error *picture_draw_differences(const struct loaded loaded[2], const char *title,
				       bool full_names, FILE *out)
{
	const struct tree_sides sides = {{loaded[0].profile, loaded[1].profile},
					 {loaded[0].symbolizer, loaded[1].symbolizer}};
	FREED char *before = format_guest_line(loaded[0].profile);
	FREED char *after = format_guest_line(loaded[1].profile);
	FREED char *subtitle = both(before, after, " → ");
	FREED char *warning = both(loaded[0].warning, loaded[1].warning, "; ");
	struct flamegraph_options how = {.title = title ? title : "Differences",
					 .subtitle = subtitle,
					 .warning = warning && *warning ? warning : NULL,
					 .min_width = -1,
					 .full_names = full_names};
	ENDED_BY(tree_pair_free) struct tree_pair pair = {0};

	if (!before || !after || !subtitle || !warning)
		return error_no_memory();
	TRY(tree_pair_build(&sides, NULL, &pair));
	how.changes = pair.nodes;
	return flamegraph_write(pair.tree, &how, out);
}
