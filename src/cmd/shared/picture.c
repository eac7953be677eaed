/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/picture.h"

#include <stdlib.h>
#include <string.h>

#include "format/format.h"

bool picture_has_ending(const char *path, const char *ending)
{
	size_t len = path ? strlen(path) : 0, end = strlen(ending);

	return len > end && !strcmp(path + len - end, ending);
}

/* A recording with all states in it, though less was loaded for texts and warnings. */
struct whole {
	struct profile_filter filter;
	struct profile *profile;
	char *subtitle;
};

static struct error *load_whole(const struct loaded *loaded, const char *path,
				const struct load_options *how, struct whole *whole)
{
	whole->filter = how->filter;
	whole->subtitle = format_guest_line(loaded->profile);
	if (!whole->subtitle)
		return error_no_memory();
	if (how->state_given)
		return NULL;
	whole->filter.states = 0;
	whole->filter.stacks = loaded->profile->stacks;
	return profile_load(path, &whole->filter, &whole->profile);
}

/* Puts the processes or threads of the guest around its functions. */
static struct error *add_outer(const struct loaded *loaded, const struct outer_options *options,
			       struct page_side *side, struct group_outer *by,
			       struct tree_outer *outer)
{
	struct error *err;

	if (!options || !options->by)
		return NULL;
	err = load_outer(options, loaded, by, outer);
	/* Which may have more states than what was loaded for texts. */
	by->profile = side->profile;
	side->outer = outer;
	return err;
}

/* The code of the functions that take most of the samples that are shown at first. */
static struct error *find_code(const struct loaded *loaded, const struct profile *whole,
			       const struct picture_page *page, struct page_code *out)
{
	const struct page_code_options how = {.profile = whole,
					      .chosen_by = loaded->profile,
					      .images = loaded->images,
					      .symbolizer = loaded->symbolizer,
					      .naming = page->load->naming,
					      .disassembler = page->disassembler,
					      .sources = page->sources};

	return page_code(&how, out);
}

struct error *picture_write_page(const struct loaded *loaded, const char *const *paths, unsigned n,
				 const struct picture_page *page, FILE *out)
{
	const struct profile_filter *filter = &page->load->filter;
	struct page_options options = page->options;
	struct page_side sides[2] = {0};
	struct whole whole[2] = {0};
	struct group_outer by;
	struct tree_outer outer;
	struct page_code code = {0};
	struct error *err = NULL;

	for (unsigned i = 0; i < n && !err; i++) {
		if (!strcmp(paths[i], "-"))
			return error_new(ERR_USAGE, "a page needs its recording more than once: "
						    "write it to a file first");
		err = load_whole(&loaded[i], paths[i], page->load, &whole[i]);
		sides[i] = (struct page_side){.path = paths[i],
					      .profile = whole[i].profile ? whole[i].profile
									  : loaded[i].profile,
					      .filter = &whole[i].filter,
					      .symbolizer = loaded[i].symbolizer,
					      .subtitle = whole[i].subtitle,
					      .warning = loaded[i].warning};
	}
	options.states = filter->states ? filter->states : (1u << VCPU_STATES) - 1;
	if (!err)
		err = add_outer(loaded, page->outer, &sides[0], &by, &outer);
	if (!err && n == 1)
		err = find_code(&loaded[0], sides[0].profile, page, &code);
	options.code = n == 1 ? &code : NULL;
	if (!err)
		err = page_write(sides, n, &options, out);
	page_code_free(&code);
	for (unsigned i = 0; i < n; i++) {
		profile_free(whole[i].profile);
		free(whole[i].subtitle);
	}
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
	char *before = format_guest_line(loaded[0].profile),
	     *after = format_guest_line(loaded[1].profile);
	char *subtitle = both(before, after, " → ");
	char *warning = both(loaded[0].warning, loaded[1].warning, "; ");
	struct flamegraph_options how = {.title = title ? title : "Differences",
					 .subtitle = subtitle,
					 .warning = warning && *warning ? warning : NULL,
					 .min_width = -1,
					 .full_names = full_names};
	struct tree_pair pair;
	struct error *err = before && after && subtitle && warning ? NULL : error_no_memory();

	if (!err)
		err = tree_pair_build(&sides, NULL, &pair);
	if (!err) {
		how.changes = pair.nodes;
		err = flamegraph_write(pair.tree, &how, out);
		tree_pair_free(&pair);
	}
	free(before);
	free(after);
	free(subtitle);
	free(warning);
	return err;
}
