/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_VIEW_H
#define UNIPROF_TOP_VIEW_H

/*
 * What a live view shows, and how keys change it. Knows of no terminal: a
 * screen hands in keys, and shows what draw.h makes of this.
 */

#include <regex.h>

#include "top/summary.h"

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

struct view {
	/* Set by who begins; then changed by keys: */
	uint64_t span_ns, delay_ns;
	bool by_total, all_states, hide_stack, each_vcpu;
	int64_t vcpu; /* -1: all */
	uint32_t vcpus;

	bool quit;
	bool held;    /* the picture stands still */
	bool cleared; /* what was seen so far is to be forgotten */
	bool help;
	bool has_only;
	regex_t only;
	char filter[VIEW_TEXT_MAX];
	char *zoom;	/* a function; NULL: none */
	char *selected; /* a function; NULL: the first */
	enum view_prompt prompt;
	char typed[VIEW_TEXT_MAX];
	char message[2 * VIEW_TEXT_MAX]; /* a sentence, until the next key */
	size_t page;			 /* rows that were shown last */
};

void view_init(struct view *view);

/* How many the guest has. */
void view_set_vcpus(struct view *view, uint32_t vcpus);

void view_free(struct view *view);

/* `shown` are the rows that the user sees; may be NULL. */
void view_key(struct view *view, int key, const struct summary *shown);

/* The index of the selected row. */
size_t view_selected(const struct view *view, const struct summary *shown);

/* A regular expression for names of functions, "" for none; false: it is none, and a message says so. */
bool view_filter(struct view *view, const char *regex);

/* What asks for text, or NULL. */
const char *view_prompt_text(const struct view *view);

/* The lines of the help, NULL behind the last. */
extern const char *const view_help[];

#endif
