/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/view.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define SPAN_MIN_S  0.1
#define SPAN_MAX_S  600.0
#define DELAY_MIN_S 0.1
#define DELAY_MAX_S 60.0

const char *const view_help[] = {
	"Keys",
	"  q            quit",
	"  h ?          this help",
	"  s            sort by self or by total",
	"  space p      hold the picture, and let it go on",
	"  w + -        length of the window: ask, double, halve",
	"  d            seconds between pictures",
	"  / f          only functions that match a regular expression; empty: all",
	"  up down j k  choose a function (also page up, page down, home)",
	"  enter        callers and callees of the chosen one",
	"  esc backspace  back to all functions",
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

void view_init(struct view *view)
{
	*view = (struct view){.span_ns = 10 * NS_PER_S, .delay_ns = NS_PER_S, .vcpu = -1};
}

void view_set_vcpus(struct view *view, uint32_t vcpus)
{
	view->vcpus = vcpus;
	view->each_vcpu = vcpus <= 4;
}

void view_free(struct view *view)
{
	if (view->has_only)
		regfree(&view->only);
	free(view->zoom);
	free(view->selected);
}

bool view_filter(struct view *view, const char *regex)
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

const char *view_prompt_text(const struct view *view)
{
	switch (view->prompt) {
	case PROMPT_NONE:
		break;
	case PROMPT_FILTER:
		return "functions that match: ";
	case PROMPT_SPAN:
		return "length of the window in seconds: ";
	case PROMPT_DELAY:
		return "seconds between pictures: ";
	case PROMPT_VCPU:
		return "only vCPU: ";
	}
	return NULL;
}

static void take_seconds(struct view *view, double min, double max, uint64_t *ns)
{
	char *end;
	double seconds = strtod(view->typed, &end);

	if (end == view->typed || *end || !(seconds >= min && seconds <= max))
		snprintf(view->message, sizeof(view->message), "%s: not from %g to %g seconds",
			 view->typed, min, max);
	else
		*ns = (uint64_t)(seconds * 1e9);
}

static void take_vcpu(struct view *view)
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

static void take_typed(struct view *view)
{
	enum view_prompt prompt = view->prompt;

	view->prompt = PROMPT_NONE;
	switch (prompt) {
	case PROMPT_NONE:
		break;
	case PROMPT_FILTER:
		(void)view_filter(view, view->typed);
		break;
	case PROMPT_SPAN:
		take_seconds(view, SPAN_MIN_S, SPAN_MAX_S, &view->span_ns);
		break;
	case PROMPT_DELAY:
		take_seconds(view, DELAY_MIN_S, DELAY_MAX_S, &view->delay_ns);
		break;
	case PROMPT_VCPU:
		take_vcpu(view);
		break;
	}
}

/* A key while text is asked for. */
static void type(struct view *view, int key)
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

static void ask(struct view *view, enum view_prompt prompt)
{
	memset(view->typed, 0, sizeof(view->typed));
	view->prompt = prompt;
}

size_t view_selected(const struct view *view, const struct summary *shown)
{
	for (size_t i = 0; shown && view->selected && i < shown->n_rows; i++)
		if (!strcmp(shown->rows[i].name, view->selected))
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
static void move(struct view *view, const struct summary *shown, long by)
{
	long at;

	if (!shown || !shown->n_rows)
		return;
	at = (long)view_selected(view, shown) + by;
	if (at >= (long)shown->n_rows)
		at = (long)shown->n_rows - 1;
	replace(&view->selected, at > 0 ? shown->rows[at].name : NULL);
}

static void zoom(struct view *view, const struct summary *shown)
{
	if (!shown || !shown->n_rows)
		return;
	replace(&view->zoom, shown->rows[view_selected(view, shown)].name);
	replace(&view->selected, NULL);
}

static void back(struct view *view)
{
	if (view->help)
		view->help = false;
	else if (view->zoom)
		replace(&view->selected, view->zoom);
	replace(&view->zoom, NULL);
}

static void scale_span(struct view *view, double by)
{
	double seconds = (double)view->span_ns / 1e9 * by;

	if (seconds >= SPAN_MIN_S && seconds <= SPAN_MAX_S)
		view->span_ns = (uint64_t)(seconds * 1e9);
}

static bool toggle(struct view *view, int key)
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

static void command(struct view *view, int key, const struct summary *shown)
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
	case 'k':
	case VIEW_UP:
		move(view, shown, -1);
		break;
	case 'j':
	case VIEW_DOWN:
		move(view, shown, 1);
		break;
	case VIEW_PAGE_UP:
		move(view, shown, -page);
		break;
	case VIEW_PAGE_DOWN:
		move(view, shown, page);
		break;
	case VIEW_HOME:
		replace(&view->selected, NULL);
		break;
	case VIEW_ENTER:
		zoom(view, shown);
		break;
	case VIEW_BACK:
	case VIEW_ERASE:
		back(view);
		break;
	}
}

void view_key(struct view *view, int key, const struct summary *shown)
{
	if (key == VIEW_REDRAW)
		return;
	view->message[0] = '\0';
	if (view->prompt != PROMPT_NONE)
		type(view, key);
	else if (!toggle(view, key))
		command(view, key, shown);
}
