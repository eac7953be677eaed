/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/top.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define SPAN_MIN_S  0.1
#define SPAN_MAX_S  600.0
#define DELAY_MIN_S 0.1
#define DELAY_MAX_S 60.0

const char *const live_view_help[] = {
	"Keys",
	"  q            quit",
	"  h ?          this help",
	"  s            sort by self or by total",
	"  space p      hold the picture, and let it go on",
	"  w + -        length of the window: ask, double, halve",
	"  d            seconds between pictures",
	"  / f          only functions that match a regular expression; empty: all",
	"  up down j k  choose a function (also page up, page down, home)",
	"  enter        callers and callees of the chosen one; functions of a process or container",
	"  esc backspace  back to all functions, or to processes",
	"  b            by function, by process, by thread, by container (of a Linux guest)",
	"  v            only one vCPU; empty: all",
	"  i            idle and waiting vCPUs, too, or only running ones",
	"  1            each vCPU, or all in one line",
	"  t            the hottest stack, or more functions",
	"  z            forget what was seen so far",
	"",
	"self: share of the time in the function itself; total: with all that it",
	"called. Behind each its 95 % interval. Colours: red from 5 %, green from 0.5 %.",
	NULL,
};

void live_view_init(struct live_view *view)
{
	*view = (struct live_view){.span_ns = 10 * NS_PER_S, .delay_ns = NS_PER_S, .vcpu = -1};
}

void live_view_set_vcpus(struct live_view *view, uint32_t vcpus)
{
	view->vcpus = vcpus;
	view->each_vcpu = vcpus <= 4;
}

void live_view_free(struct live_view *view)
{
	if (view->has_only)
		regfree(&view->only);
	free(view->inside);
	free(view->zoom);
	free(view->selected);
}

bool live_view_filter(struct live_view *view, const char *regex)
{
	regex_t only;

	if (*regex && regcomp(&only, regex, REG_EXTENDED | REG_NOSUB)) {
		snprintf(view->message, sizeof(view->message), "%s: no regular expression", regex);
		return false;
	}
	if (view->has_only)
		regfree(&view->only);
	view->has_only = *regex;
	if (*regex)
		view->only = only;
	snprintf(view->filter, sizeof(view->filter), "%s", regex);
	return true;
}

const char *live_view_prompt_text(const struct live_view *view)
{
	static const char *const texts[] = {
		[PROMPT_NONE] = NULL,
		[PROMPT_FILTER] = "functions that match: ",
		[PROMPT_SPAN] = "length of the window in seconds: ",
		[PROMPT_DELAY] = "seconds between pictures: ",
		[PROMPT_VCPU] = "only vCPU: ",
	};

	return texts[view->prompt];
}

static void take_seconds(struct live_view *view, double min, double max, uint64_t *ns)
{
	char *end;
	double seconds = strtod(view->typed, &end);

	if (end == view->typed || *end || !(seconds >= min && seconds <= max))
		snprintf(view->message, sizeof(view->message), "%s: not from %g to %g seconds",
			 view->typed, min, max);
	else
		*ns = (uint64_t)(seconds * 1e9);
}

static void take_vcpu(struct live_view *view)
{
	char *end;
	unsigned long vcpu = strtoul(view->typed, &end, 10);

	if (!*view->typed)
		view->vcpu = -1;
	else if (*view->typed < '0' || *view->typed > '9' || *end || vcpu >= view->vcpus)
		snprintf(view->message, sizeof(view->message), "%s: there are vCPUs 0 to %u",
			 view->typed, view->vcpus - 1);
	else
		view->vcpu = (int64_t)vcpu;
}

static void take_typed(struct live_view *view)
{
	enum view_prompt prompt = view->prompt;

	view->prompt = PROMPT_NONE;
	if (prompt == PROMPT_FILTER)
		(void)live_view_filter(view, view->typed);
	else if (prompt == PROMPT_SPAN)
		take_seconds(view, SPAN_MIN_S, SPAN_MAX_S, &view->span_ns);
	else if (prompt == PROMPT_DELAY)
		take_seconds(view, DELAY_MIN_S, DELAY_MAX_S, &view->delay_ns);
	else if (prompt == PROMPT_VCPU)
		take_vcpu(view);
}

/* A key while text is asked for. */
static void type(struct live_view *view, int key)
{
	size_t len = strlen(view->typed);

	if (key == VIEW_ENTER)
		take_typed(view);
	else if (key == VIEW_BACK)
		view->prompt = PROMPT_NONE;
	else if (key == VIEW_ERASE && len)
		view->typed[len - 1] = '\0';
	else if (key >= ' ' && key < 0x7f && len + 1 < sizeof(view->typed))
		view->typed[len] = (char)key;
}

static void ask(struct live_view *view, enum view_prompt prompt)
{
	memset(view->typed, 0, sizeof(view->typed));
	view->prompt = prompt;
}

size_t live_view_selected(const struct live_view *view, const struct summary *summary)
{
	for (size_t i = 0; summary && view->selected && i < summary->n_rows; i++)
		if (!strcmp(summary->rows[i].name, view->selected))
			return i;
	return 0;
}

static void replace(char **text, const char *by)
{
	char *copy = by ? strdup(by) : NULL;

	free(*text);
	*text = copy;
}

/* Chooses the row that is so far from the chosen one, as far as there are any. */
static void move(struct live_view *view, const struct summary *summary, long by)
{
	long at;

	if (!summary || !summary->n_rows)
		return;
	at = (long)live_view_selected(view, summary) + by;
	if (at >= (long)summary->n_rows)
		at = (long)summary->n_rows - 1;
	replace(&view->selected, at > 0 ? summary->rows[at].name : NULL);
}

bool live_view_by_thread(const struct live_view *view)
{
	return view->by != GROUP_FUNCTION && !view->inside;
}

static void zoom(struct live_view *view, const struct summary *summary)
{
	if (!summary || !summary->n_rows)
		return;
	replace(live_view_by_thread(view) ? &view->inside : &view->zoom,
		summary->rows[live_view_selected(view, summary)].name);
	replace(&view->selected, NULL);
}

static void back(struct live_view *view)
{
	char **from = view->zoom ? &view->zoom : &view->inside;

	if (view->help) {
		view->help = false;
		return;
	}
	if (*from)
		replace(&view->selected, *from);
	replace(from, NULL);
}

/* Shows the next kind of rows. */
static void regroup(struct live_view *view)
{
	view->by = view->by == GROUP_FUNCTION  ? GROUP_PROCESS
		   : view->by == GROUP_PROCESS ? GROUP_THREAD
		   : view->by == GROUP_THREAD  ? GROUP_CONTAINER
					       : GROUP_FUNCTION;
	replace(&view->inside, NULL);
	replace(&view->zoom, NULL);
	replace(&view->selected, NULL);
}

static void scale_span(struct live_view *view, double by)
{
	double seconds = (double)view->span_ns / 1e9 * by;

	if (seconds >= SPAN_MIN_S && seconds <= SPAN_MAX_S)
		view->span_ns = (uint64_t)(seconds * 1e9);
}

static bool toggle(struct live_view *view, int key)
{
	bool *what = key == 's'			? &view->by_total
		     : key == ' ' || key == 'p' ? &view->held
		     : key == 'h' || key == '?' ? &view->help
		     : key == 'i'		? &view->all_states
		     : key == '1'		? &view->each_vcpu
		     : key == 't'		? &view->hide_stack
						: NULL;

	if (what)
		*what = !*what;
	return what;
}

static void command(struct live_view *view, int key, const struct summary *summary)
{
	const long page = view->page > 1 ? (long)view->page - 1 : 1;

	switch (key) {
	case 'q':
	case 'Q':
		view->quit = true;
		break;
	case 'w':
		ask(view, PROMPT_SPAN);
		break;
	case '+':
		scale_span(view, 2);
		break;
	case '-':
		scale_span(view, 0.5);
		break;
	case 'd':
		ask(view, PROMPT_DELAY);
		break;
	case '/':
	case 'f':
		ask(view, PROMPT_FILTER);
		break;
	case 'v':
		ask(view, PROMPT_VCPU);
		break;
	case 'z':
		view->cleared = true;
		break;
	case 'b':
		regroup(view);
		break;
	case 'k':
	case VIEW_UP:
		move(view, summary, -1);
		break;
	case 'j':
	case VIEW_DOWN:
		move(view, summary, 1);
		break;
	case VIEW_PAGE_UP:
		move(view, summary, -page);
		break;
	case VIEW_PAGE_DOWN:
		move(view, summary, page);
		break;
	case VIEW_HOME:
		replace(&view->selected, NULL);
		break;
	case VIEW_ENTER:
		zoom(view, summary);
		break;
	case VIEW_BACK:
	case VIEW_ERASE:
		back(view);
		break;
	}
}

void live_view_key(struct live_view *view, int key, const struct summary *summary)
{
	if (key == VIEW_REDRAW)
		return;
	view->message[0] = '\0';
	if (view->prompt != PROMPT_NONE)
		type(view, key);
	else if (!toggle(view, key))
		command(view, key, summary);
}
