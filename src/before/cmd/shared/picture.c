/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/picture.h"

#include <stdlib.h>
#include <string.h>

bool has_ending(const char *path, const char *ending)
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
	whole->subtitle = load_subtitle(loaded->profile);
	if (!whole->subtitle)
		return error_no_memory();
	if (how->state_given)
		return NULL;
	whole->filter.states = 0;
	return profile_load(path, &whole->filter, &whole->profile);
}

struct error *write_page(const struct loaded *loaded, const char *const *paths, unsigned n,
			 const struct load_options *how, const struct page_options *options,
			 FILE *out)
{
	struct page_options shown = *options;
	struct page_side sides[2] = {0};
	struct whole whole[2] = {0};
	struct error *err = NULL;

	for (unsigned i = 0; i < n && !err; i++) {
		if (!strcmp(paths[i], "-"))
			return error_new(ERR_USAGE, "a page needs its recording more than once: "
						    "write it to a file first");
		err = load_whole(&loaded[i], paths[i], how, &whole[i]);
		sides[i] = (struct page_side){.path = paths[i],
					      .profile = whole[i].profile ? whole[i].profile
									  : loaded[i].profile,
					      .filter = &whole[i].filter,
					      .namer = loaded[i].namer,
					      .subtitle = whole[i].subtitle,
					      .warning = loaded[i].warning};
	}
	shown.states = how->filter.states ? how->filter.states : (1u << VCPU_STATES) - 1;
	if (!err)
		err = page_write(sides, n, &shown, out);
	for (unsigned i = 0; i < n; i++) {
		profile_free(whole[i].profile);
		free(whole[i].subtitle);
	}
	return err;
}

/* What is said of both recordings, or of one of them; NULL: no memory. */
static char *both(const char *before, const char *after, const char *between)
{
	char *text;

	if (asprintf(&text, "%s%s%s", before ? before : "", before && after ? between : "",
		     after ? after : "") < 0)
		return NULL;
	return text;
}

struct error *draw_differences(const struct loaded loaded[2], const char *title, FILE *out)
{
	const struct tree_sides sides = {{loaded[0].profile, loaded[1].profile},
					 {loaded[0].namer, loaded[1].namer}};
	char *before = load_subtitle(loaded[0].profile), *after = load_subtitle(loaded[1].profile);
	char *subtitle = both(before, after, " → ");
	char *warning = both(loaded[0].warning, loaded[1].warning, "; ");
	struct flamegraph_options how = {.title = title ? title : "Differences",
					 .subtitle = subtitle,
					 .warning = warning && *warning ? warning : NULL,
					 .min_width = -1};
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
