/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_VIEW_H
#define UNIPROF_TOP_VIEW_H

/*
 * State of the live view, and how keys change it. Knows of no terminal: a
 * screen hands in keys, and shows what draw.h makes of this.
 */

#include <regex.h>

#include "top/recent.h"

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
	enum group_key by; /* GROUP_FUNCTION, GROUP_PROCESS or GROUP_THREAD: the rows */
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

#endif
