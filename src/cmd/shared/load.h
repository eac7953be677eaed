/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Shared by the verbs that read recordings: options, loading, warnings. */

#include "analysis/grouped_tree.h"
#include "cmd/cmd.h"
#include "cmd/shared/image_args.h"
#include "symbol/source/source.h"
#include "view/page/page.h"
#include "view/svg/flamegraph.h"

/* A stretch by the wall clock, of a guest that `uniprof agent` has sampled, or of a recording. */
struct load_window {
	const char *store;
	const char *from, *to; /* as given: NULL: not by the wall clock */
	uint64_t last_ns;      /* the last so much; 0: not given */
};

struct load_options {
	const char *path; /* the recording */
	struct load_window window;
	struct image_args files; /* none: the names in the recording, or the images it tells of */
	const char *output;	 /* NULL: the verb's default */
	struct profile_filter filter;
	bool state_given; /* --state was: else the filter has the default */
	struct symbolizer_options naming;
	struct progress_line progress_line; /* progress of the filter */
	bool vcpus[RECORDING_MAX_VCPUS];    /* of --vcpu; the filter points to it */
};

/* Rows of struct load_options: samples to show, and files for names. */
extern const struct option_row load_options[];

void load_defaults(struct load_options *options);

/* The outermost nodes of pictures and stacks, instead of the outermost functions. */
struct outer_options {
	const char *by;	    /* NULL: none */
	bool exits;	    /* what counts are exits: profile_filter.exits */
	enum group_key key; /* GROUP_CONTAINER, GROUP_PROCESS or GROUP_THREAD */
};

/* Rows of struct outer_options; what they choose needs filter.divide. */
extern const struct option_row load_outer_options[];

/* Rows of struct source_text_options, of verbs that show lines of sources. */
extern const struct option_row load_source_options[];

/* A recording with everything that belongs to it. */
struct loaded {
	struct profile *profile;
	struct images *images;
	struct symbolizer *symbolizer;
	struct progress_sink *progress;
	char *warning;	       /* a caveat for the user; NULL: none */
	unsigned sentences;    /* in it */
	double nameless_share; /* of the selected samples, 0 to 1: their own code has no name */
};

/*
 * Preopens recording, symbols and output (base/preopen.h), and gives up all
 * rights: root may be reading what others have recorded.
 */
struct error *load_confine(const struct load_options *options);

/*
 * Preopens what options->path names: a recording, or with a window the
 * recordings of a guest, so that they are read under `as` as if they were one;
 * the window begins and ends earlier by so much.
 */
struct error *load_preopen(const struct load_options *options, const char *as, uint64_t earlier_ns);

/*
 * The stretch in ns since the epoch; 0: not bounded. ERR_USAGE.
 */
struct error *load_find_window(const struct load_window *window, uint64_t *from_unix_ns,
			       uint64_t *to_unix_ns);

/* ERR_USAGE if the option asks for threads, and the recording tells of none. */
struct error *load_check_threads(const struct profile *profile, const char *option);

struct error *load_recording(const struct load_options *options, struct loaded *out);

/* What makes trees of the recording have these nodes: *out, if any are asked for, and its *ctx. */
struct error *load_outer(const struct outer_options *options, const struct loaded *loaded,
			 struct group_outer *ctx, struct tree_outer *out);
void load_free(struct loaded *loaded);

/*
 * Share of stacks that are not known to be whole, 0 to 1. Of these,
 * load_cut_short() lack callers for sure; where the walk found no caller
 * (UNWIND_BROKEN), there may be none.
 */
double load_truncated_share(const struct profile *profile);
uint64_t load_cut_short(const struct profile *profile);

/* Pages and pictures of loaded recordings, for the verbs that draw. */

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
