/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/draw.h"

#include <inttypes.h>

/* A stack is shown by so many frames, if a screen is so high. */
#define STACK_FRAMES	6
#define ROOM_FOR_STACK	20
#define ROOM_FOR_RANGES 90 /* cells of a line, for intervals */
#define BAR_CELLS	20

static double part_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void put_first_line(const struct picture *p, struct sheet *sheet)
{
	const struct view *view = p->view;

	sheet_put(sheet, STYLE_HEAD, "uniprof top  %s", p->guest);
	sheet_put(sheet, STYLE_PLAIN, "  %s  %g/s, last %.1f s", p->clock, p->rate_hz,
		  (double)view->span_ns / 1e9);
	if (view->held)
		sheet_put(sheet, STYLE_WARNING, "  HELD");
	sheet_end_line(sheet);
	if (!p->ended)
		return;
	sheet_put(sheet, STYLE_WARNING, "%s; this is the last that was seen%s", p->ended,
		  p->keys ? " (q quits)" : "");
	sheet_end_line(sheet);
}

static void put_looks(const struct picture *p, struct sheet *sheet)
{
	const struct profile *profile = &p->summary->profile;
	/* Each look stands for itself and for those that were missed before it. */
	uint64_t due = (uint64_t)((double)p->summary->span_ns / 1e9 * p->rate_hz + 0.5);
	uint64_t missed = due > profile->ticks ? due - profile->ticks : 0;

	sheet_put(sheet, STYLE_PLAIN,
		  "looks %" PRIu64 " in %.1f s, missed %" PRIu64
		  "  paused %.3f %%, a look: median %.1f us, max %.1f us, none for %.0f %%",
		  profile->ticks, (double)p->summary->span_ns / 1e9, missed,
		  100 * part_of(profile->paused_ns, p->summary->span_ns),
		  (double)histogram_quantile(&profile->pauses, 0.5) / 1e3,
		  (double)profile->pauses.max / 1e3,
		  100 * part_of(profile->unpaused, profile->ticks));
	sheet_end_line(sheet);
}

static void put_states(const char *label, const uint64_t *weight_ns, struct sheet *sheet)
{
	uint64_t all = 0;
	double running;
	int cells;

	for (int i = 0; i < VCPU_STATES; i++)
		all += weight_ns[i];
	running = part_of(weight_ns[VCPU_RUNNING], all);
	cells = (int)(running * BAR_CELLS + 0.5);
	sheet_put(sheet, STYLE_PLAIN,
		  "%s  running %5.1f %%  runnable %5.1f %%  blocked %5.1f %%  [", label,
		  100 * running, 100 * part_of(weight_ns[VCPU_RUNNABLE], all),
		  100 * part_of(weight_ns[VCPU_BLOCKED], all));
	sheet_put(sheet, STYLE_WARM, "%.*s", cells, "||||||||||||||||||||");
	sheet_put(sheet, STYLE_PLAIN, "%*s]", BAR_CELLS - cells, "");
	sheet_end_line(sheet);
}

static void put_vcpus(const struct picture *p, struct sheet *sheet)
{
	const struct summary *summary = p->summary;
	uint64_t all[VCPU_STATES];
	char label[32];

	for (int i = 0; i < VCPU_STATES; i++)
		all[i] = summary->profile.states[i].weight_ns;
	if (!p->view->each_vcpu || summary->n_vcpus < 2) {
		snprintf(label, sizeof(label), "vCPUs %-3u", summary->n_vcpus);
		put_states(label, all, sheet);
		return;
	}
	for (uint32_t i = 0; i < summary->n_vcpus && i < sheet->height / 2; i++) {
		snprintf(label, sizeof(label), "vCPU %-4u", i);
		if (summary->vcpus[i].seen)
			put_states(label, summary->vcpus[i].weight_ns, sheet);
	}
}

/* What is shown but not by default, or what the user is asked. */
static void put_status(const struct picture *p, struct sheet *sheet)
{
	const struct view *view = p->view;
	const char *prompt = view_prompt_text(view);

	if (prompt) {
		sheet_put(sheet, STYLE_HEAD, "%s%s_", prompt, view->typed);
	} else if (*view->message) {
		sheet_put(sheet, STYLE_WARNING, "%s", view->message);
	} else if (p->warning) {
		sheet_put(sheet, STYLE_WARNING, "%s", p->warning);
	} else if (view->zoom) {
		sheet_put(sheet, STYLE_HEAD, "callers and callees of %s (esc: back)", view->zoom);
	} else {
		if (*view->filter)
			sheet_put(sheet, STYLE_HEAD, "only %s  ", view->filter);
		if (view->vcpu >= 0)
			sheet_put(sheet, STYLE_HEAD, "only vCPU %" PRId64 "  ", view->vcpu);
		if (view->all_states)
			sheet_put(sheet, STYLE_HEAD, "idle and waiting vCPUs, too");
	}
	sheet_end_line(sheet);
}

static void put_share(const struct picture *p, const struct profile_cell *cell, struct sheet *sheet)
{
	double share = part_of(cell->weight_ns, p->summary->profile.selected.weight_ns);
	struct interval range = interval_of_share(share, p->summary->draws);
	char text[32];

	sheet_put(sheet, style_of_share(share), "%7.2f %%", 100 * share);
	if (sheet->width && sheet->width < ROOM_FOR_RANGES)
		return;
	snprintf(text, sizeof(text), "%.1f-%.1f", 100 * range.low, 100 * range.high);
	sheet_put(sheet, STYLE_DIM, " %-11s", text);
}

static void put_row(const struct picture *p, const struct summary_row *row, bool chosen,
		    struct sheet *sheet)
{
	static const char *const kinds[] = {"", "called by ", "calls "};

	sheet->chosen = chosen;
	put_share(p, &row->self, sheet);
	put_share(p, &row->total, sheet);
	sheet_put(sheet, STYLE_PLAIN, "%9" PRIu64 "  ", row->total.samples);
	sheet_put(sheet, STYLE_DIM, "%s", kinds[row->kind]);
	sheet_put(sheet, row->unresolved ? STYLE_DIM : STYLE_PLAIN, "%s", row->name);
	if (chosen && sheet->used < sheet->width)
		sheet_put(sheet, STYLE_PLAIN, "%*s", (int)(sheet->width - sheet->used), "");
	sheet->chosen = false;
	sheet_end_line(sheet);
}

static void put_titles(const struct picture *p, struct sheet *sheet)
{
	const bool ranges = !sheet->width || sheet->width >= ROOM_FOR_RANGES;
	const bool total = p->view->by_total && !p->view->zoom;

	sheet_put(sheet, STYLE_HEAD, "%9s%s%9s%s%9s  %s", total ? "self" : "[self]",
		  ranges ? " 95 %       " : "", total ? "[total]" : "total",
		  ranges ? " 95 %       " : "", "samples", "function");
	sheet_end_line(sheet);
}

/* So that the chosen row is to be seen. */
static void put_rows(const struct picture *p, size_t room, struct sheet *sheet)
{
	const struct summary *summary = p->summary;
	size_t chosen = view_selected(p->view, summary), first = 0;

	if (chosen >= room)
		first = chosen - room + 1;
	for (size_t i = first; i < summary->n_rows && i < first + room; i++)
		put_row(p, &summary->rows[i], p->keys && i == chosen, sheet);
	if (!summary->n_rows)
		sheet_put(sheet, STYLE_DIM, "  no samples%s",
			  p->view->all_states ? "" : " of running vCPUs (i shows idle ones)");
}

static void put_functions(const struct picture *p, size_t room, struct sheet *sheet)
{
	if (p->view->zoom) {
		if (p->summary->zoom.name)
			put_row(p, &p->summary->zoom, false, sheet);
		else
			sheet_put(sheet, STYLE_DIM, "  %s is in no sample now", p->view->zoom);
		if (!p->summary->zoom.name)
			sheet_end_line(sheet);
		room -= room > 0;
	}
	put_rows(p, room, sheet);
}

/* Innermost first. */
static struct error *put_stack(const struct picture *p, struct sheet *sheet)
{
	const struct profile *profile = &p->summary->profile;
	uint32_t id = p->summary->hottest;
	struct error *err = NULL;

	if (!p->keys)
		sheet_end_line(sheet);
	sheet_put(sheet, STYLE_HEAD, "the hottest stack: %.2f %%",
		  100 * part_of(profile->cells[id].weight_ns, profile->selected.weight_ns));
	sheet_end_line(sheet);
	while (id != STACK_ROOT && sheet_left(sheet) && !err) {
		const struct stack_node *frame = stacks_node(profile->stacks, id);
		const struct location *at;
		size_t n = 0;

		err = namer_locate(p->namer, frame->addr, frame->kind, &at, &n);
		for (size_t i = 0; i < n && sheet_left(sheet) && !err; i++) {
			sheet_put(sheet, at[i].resolved ? STYLE_PLAIN : STYLE_DIM, "  %s%s",
				  at[i].function, at[i].inlined ? " (inlined)" : "");
			sheet_end_line(sheet);
		}
		id = frame->parent;
	}
	return err;
}

static void put_help(struct sheet *sheet)
{
	for (size_t i = 0; view_help[i]; i++) {
		sheet_put(sheet, i ? STYLE_PLAIN : STYLE_HEAD, "%s", view_help[i]);
		sheet_end_line(sheet);
	}
}

struct error *draw(const struct picture *p, struct sheet *sheet, size_t *rows)
{
	const bool stack = !p->view->hide_stack && p->summary->hottest != STACK_ROOT &&
			   sheet->height >= ROOM_FOR_STACK;
	struct error *err = NULL;
	size_t end;

	put_first_line(p, sheet);
	if (p->view->help) {
		put_help(sheet);
		return sheet->no_memory ? error_no_memory() : NULL;
	}
	put_looks(p, sheet);
	put_vcpus(p, sheet);
	put_status(p, sheet);
	put_titles(p, sheet);
	end = sheet->height - (stack ? STACK_FRAMES + 1 : 0);
	*rows = end > sheet->line ? end - sheet->line : 0;
	put_functions(p, *rows, sheet);
	if (stack) {
		sheet->line = p->keys || sheet->line > end ? end : sheet->line;
		err = put_stack(p, sheet);
	}
	return !err && sheet->no_memory ? error_no_memory() : err;
}
