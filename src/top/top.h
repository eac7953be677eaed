/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The live view: the last seconds' samples, what is shown of them, and the screen that it is shown on. */

#include <regex.h>
#include <stdbool.h>

#include "analysis/diff.h"
#include "analysis/functions.h"
#include "analysis/grouped_tree.h"
#include "base/error.h"
#include "recording/recording.h"
#include "view/tty_writer.h"

/* The ticks of the last seconds, for a live view; older ones are forgotten. */

/* No more entries are kept, whatever the span: 16 MiB. */
#define RECENT_MAX_ENTRIES (1u << 20)

struct recent_ticks;

struct error *recent_new(uint64_t span_ns, struct recent_ticks **out);
void recent_free(struct recent_ticks *recent);

/* A shorter span forgets at once; a longer one fills up again. */
void recent_set_span(struct recent_ticks *recent, uint64_t span_ns);
void recent_clear(struct recent_ticks *recent);

struct error *recent_add(struct recent_ticks *recent, const struct tick *tick);

/* Oldest first; i < recent_count. The tick's entries are valid until the next recent_add. */
size_t recent_count(const struct recent_ticks *recent);
void recent_get(const struct recent_ticks *recent, size_t i, struct tick *tick);

/* Sums of the last seconds: the numbers behind a picture of the live view. */

struct summary_options {
	bool all_states; /* not only running vCPUs */
	double rate_hz;	 /* asked for; 0: not known */
	int64_t vcpu;	 /* -1: all */
	uint32_t spare;	 /* vCPUs that are there for what may begin later: not told unless seen */
	bool by_total;
	const regex_t *only; /* functions that are shown; NULL: all */
	const char *zoom; /* the name of one function whose callers and callees are; NULL: none */
	/* Rows are functions or, with GROUP_PROCESS, GROUP_THREAD and GROUP_CONTAINER, what ran. */
	enum group_key by;
	const char *inside; /* the name of one of these, whose functions are rows; NULL: none */
	struct recorded_thread *threads; /* [n_threads], number 1 first */
	size_t n_threads;
};

struct vcpu_use {
	bool seen;
	uint64_t weight_ns[VCPU_STATES];
};

/* A function that can be chosen. */
struct summary_row {
	const char *name;
	struct profile_cell self, total;
	bool unresolved;
	enum { ROW_FUNCTION, ROW_CALLER, ROW_CALLEE } kind;
};

struct summary {
	struct profile profile; /* of these seconds; its stacks are the sampler's */
	struct vcpu_use *vcpus; /* [n_vcpus] */
	uint32_t n_vcpus;
	/* Those that are shown as the guest's: without spare ones that were not seen. */
	uint32_t told_vcpus;
	uint64_t span_ns; /* that the ticks stand for */
	struct grouped_tree grouped;
	struct summary_row *rows;
	size_t n_rows, rows_room;
	struct summary_row zoom; /* name NULL: none, or not in the samples now */
	uint32_t hottest;	 /* the stack with the most time; STACK_ROOT: none */
};

/*
 * The options' names and threads, and the stacks, are needed as long as the
 * summary, which is to be freed after an error, too.
 */
struct error *summary_make(struct recent_ticks *recent, struct stacks *stacks, uint32_t vcpus,
			   struct symbolizer *symbolizer, const struct summary_options *options,
			   struct summary *out);
void summary_free(struct summary *summary);

/*
 * State of the live view, and how keys change it. Knows of no terminal: a
 * screen hands in keys, and shows what top_draw makes of this.
 */

/* Keys that are no characters. */
enum view_key {
	VIEW_UP = 0x110000, /* behind Unicode */
	VIEW_DOWN,
	VIEW_PAGE_UP,
	VIEW_PAGE_DOWN,
	VIEW_HOME,
	VIEW_ENTER,
	VIEW_BACK,
	VIEW_ERASE,
	VIEW_REDRAW,
};

enum view_prompt { PROMPT_NONE, PROMPT_FILTER, PROMPT_SPAN, PROMPT_DELAY, PROMPT_VCPU };

#define VIEW_TEXT_MAX 128

struct live_view {
	/* Set by the caller at first; then changed by keys: */
	uint64_t span_ns, delay_ns;
	bool by_total, all_states, hide_stack, each_vcpu;
	int64_t vcpu; /* -1: all */
	uint32_t vcpus;

	bool quit;
	bool held;    /* the picture stands still */
	bool cleared; /* the samples so far are to be forgotten */
	bool help;
	bool has_only;
	regex_t only;
	char filter[VIEW_TEXT_MAX];
	enum group_key by; /* GROUP_FUNCTION, or one of what ran: the rows */
	char *inside;	   /* a process or thread, whose functions are the rows; NULL: none */
	char *zoom;	   /* a function; NULL: none */
	char *selected;	   /* a function; NULL: the first */
	enum view_prompt prompt;
	char typed[VIEW_TEXT_MAX];
	char message[2 * VIEW_TEXT_MAX]; /* a sentence, until the next key */
	size_t page;			 /* rows that were shown last */
};

void live_view_init(struct live_view *view);

/* Sets the number of vCPUs that the guest has. */
void live_view_set_vcpus(struct live_view *view, uint32_t vcpus);

void live_view_free(struct live_view *view);

/* `summary` are the rows that the user sees; may be NULL. */
void live_view_key(struct live_view *view, int key, const struct summary *summary);

/* True if the rows are processes or threads. */
bool live_view_by_thread(const struct live_view *view);

/* The index of the selected row. */
size_t live_view_selected(const struct live_view *view, const struct summary *summary);

/* A regular expression for names of functions, "" for none; false: it is none, and a message says so. */
bool live_view_filter(struct live_view *view, const char *regex);

/* Label of the prompt that reads text now, or NULL. */
const char *live_view_prompt_text(const struct live_view *view);

/* The lines of the help, NULL behind the last. */
extern const char *const live_view_help[];

/* What the live view looks like: lines of marked text, composed before they are shown, and the screen that shows them. */

struct text_buffer_piece {
	size_t line;
	size_t text, len; /* in the buffer's text */
	enum style style;
	bool chosen; /* the user's choice: as a bar */
};

struct text_buffer {
	char *text;
	size_t len, room;
	struct text_buffer_piece *pieces;
	size_t n, pieces_room;
	size_t line; /* that is being written */
	size_t width, height;
	size_t used; /* cells of it */
	bool chosen; /* pieces that are added now are */
	bool no_memory;
};

/* Empty again; lines get no longer than `width` (0: any), and there are at most `height`. */
void text_buffer_begin(struct text_buffer *buffer, size_t width, size_t height);
void text_buffer_free(struct text_buffer *buffer);

/* Composes a picture of the live view. */

struct top_picture {
	const struct live_view *view;
	const struct summary *summary;
	struct symbolizer *symbolizer;
	struct short_names *names; /* NULL: full names are wanted */
	const char *guest;	   /* clean: name of the guest */
	const char *clock;	   /* the time of day */
	const char *ended;	   /* why there is nothing more to see; NULL: there is */
	const char *warning;	   /* NULL: none */
	double rate_hz;
	bool keys; /* somebody can press any */
};

/* *rows is how many functions there is room for. */
struct error *top_draw(const struct top_picture *picture, struct text_buffer *buffer, size_t *rows);

/* A terminal as a screen with keys, by ncurses. */

/*
 * Loads the terminal's description, while files can still be opened. ERR_USAGE
 * when standard input and output are no terminal that can be used.
 */
struct error *screen_prepare(void);

/* Takes the terminal until screen_end, which may be called at any time. */
void screen_begin(void);
void screen_end(void);

/* Gives the terminal back as it was at screen_prepare, for a process that has outlived the screen's. */
void screen_rescue(void);

void screen_size(size_t *width, size_t *height);

/* The next key (a character, or enum view_key), 0 if none was pressed. */
int screen_key(void);

void screen_show(const struct text_buffer *buffer);

/* For `uniprof -V`. */
extern const char screen_feature[];
