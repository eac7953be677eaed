/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/top.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "symbol/names/display_name.h"

void text_buffer_begin(struct text_buffer *buffer, size_t width, size_t height)
{
	buffer->len = buffer->n = buffer->line = buffer->used = 0;
	buffer->width = width;
	buffer->height = height;
	buffer->chosen = buffer->no_memory = false;
}

void text_buffer_free(struct text_buffer *buffer)
{
	free(buffer->text);
	free(buffer->pieces);
	*buffer = (struct text_buffer){0};
}

static void add(struct text_buffer *buffer, enum style style, const char *text, size_t len)
{
	struct error *err = ARRAY_RESERVE(&buffer->text, &buffer->room, buffer->len + len);

	if (!err)
		err = ARRAY_RESERVE(&buffer->pieces, &buffer->pieces_room, buffer->n + 1);
	if (err)
		buffer->no_memory = true;
	error_free(err);
	if (err || !len)
		return;
	buffer->pieces[buffer->n++] = (struct text_buffer_piece){.line = buffer->line,
								 .text = buffer->len,
								 .len = len,
								 .style = style,
								 .chosen = buffer->chosen};
	memcpy(buffer->text + buffer->len, text, len);
	buffer->len += len;
	buffer->used += cells_of(text, len);
}

static void put(struct text_buffer *buffer, enum style style, const char *text, size_t len)
{
	size_t left = buffer->width > buffer->used ? buffer->width - buffer->used : 0;

	if (buffer->line >= buffer->height || (buffer->width && !left))
		return;
	if (!buffer->width || cells_of(text, len) <= left) {
		add(buffer, style, text, len);
		return;
	}
	add(buffer, style, text, cells_fit(text, len, left - 1));
	add(buffer, style, "…", strlen("…"));
	buffer->used = buffer->width;
}

/* Adds to the line, cut off with "…" where it is full. Text must be sanitized (symbol/names/display_name.h). */
static void PRINTF_LIKE(3, 4)
	text_buffer_put(struct text_buffer *buffer, enum style style, const char *format, ...)
{
	va_list args;
	char *text;
	int len;

	va_start(args, format);
	len = vasprintf(&text, format, args);
	va_end(args);
	if (len < 0) {
		buffer->no_memory = true;
		return;
	}
	put(buffer, style, text, (size_t)len);
	free(text);
}

static void text_buffer_end_line(struct text_buffer *buffer)
{
	buffer->line++;
	buffer->used = 0;
}

static size_t text_buffer_left(const struct text_buffer *buffer)
{
	return buffer->height > buffer->line ? buffer->height - buffer->line : 0;
}

/* A stack is shown by so many frames, if a screen is so high. */
#define STACK_FRAMES	6
#define ROOM_FOR_STACK	20
#define ROOM_FOR_RANGES 90 /* cells of a line, for intervals */
#define BAR_CELLS	20

static double part_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void put_first_line(const struct top_picture *p, struct text_buffer *buffer)
{
	const struct live_view *view = p->view;

	text_buffer_put(buffer, STYLE_HEAD, "uniprof top  %s", p->guest);
	text_buffer_put(buffer, STYLE_PLAIN, "  %s  %g/s, last %.1f s", p->clock, p->rate_hz,
			(double)view->span_ns / 1e9);
	if (view->held)
		text_buffer_put(buffer, STYLE_WARNING, "  HELD");
	text_buffer_end_line(buffer);
	if (!p->ended)
		return;
	text_buffer_put(buffer, STYLE_WARNING, "%s; this is the last that was seen%s", p->ended,
			p->keys ? " (q quits)" : "");
	text_buffer_end_line(buffer);
}

static void put_ticks(const struct top_picture *p, struct text_buffer *buffer)
{
	const struct profile *profile = &p->summary->profile;
	/* Each tick stands for itself and for those that were missed before it. */
	uint64_t due = (uint64_t)((double)p->summary->span_ns / 1e9 * p->rate_hz + 0.5);
	uint64_t missed = due > profile->ticks ? due - profile->ticks : 0;

	text_buffer_put(buffer, STYLE_PLAIN,
			"ticks %" PRIu64 " in %.1f s, missed %" PRIu64
			"  paused %.3f %%, a tick: median %.1f us, max %.1f us, none for %.0f %%"
			"  not sampled %.1f %%",
			profile->ticks, (double)p->summary->span_ns / 1e9, missed,
			100 * part_of(profile->paused_ns, p->summary->span_ns),
			(double)histogram_quantile(&profile->pauses, 0.5) / 1e3,
			(double)profile->pauses.max / 1e3,
			100 * part_of(profile->without_pause, profile->ticks),
			100 * profile_not_sampled(profile));
	text_buffer_end_line(buffer);
}

static void put_states(const char *label, const uint64_t *weight_ns, struct text_buffer *buffer)
{
	uint64_t all = 0;
	double running;
	int cells;

	for (int i = 0; i < VCPU_STATES; i++)
		all += weight_ns[i];
	running = part_of(weight_ns[VCPU_RUNNING], all);
	cells = (int)(running * BAR_CELLS + 0.5);
	text_buffer_put(buffer, STYLE_PLAIN,
			"%s  running %5.1f %%  runnable %5.1f %%  blocked %5.1f %%  [", label,
			100 * running, 100 * part_of(weight_ns[VCPU_RUNNABLE], all),
			100 * part_of(weight_ns[VCPU_BLOCKED], all));
	text_buffer_put(buffer, STYLE_WARM, "%.*s", cells, "||||||||||||||||||||");
	text_buffer_put(buffer, STYLE_PLAIN, "%*s]", BAR_CELLS - cells, "");
	text_buffer_end_line(buffer);
}

static void put_vcpus(const struct top_picture *p, struct text_buffer *buffer)
{
	const struct summary *summary = p->summary;
	uint64_t all[VCPU_STATES];
	char label[32];

	for (int i = 0; i < VCPU_STATES; i++)
		all[i] = summary->profile.states[i].weight_ns;
	if (!p->view->each_vcpu || summary->n_vcpus < 2) {
		snprintf(label, sizeof(label), "vCPUs %-3u", summary->told_vcpus);
		put_states(label, all, buffer);
		return;
	}
	for (uint32_t i = 0; i < summary->n_vcpus && i < buffer->height / 2; i++) {
		snprintf(label, sizeof(label), "vCPU %-4u", i);
		if (summary->vcpus[i].seen)
			put_states(label, summary->vcpus[i].weight_ns, buffer);
	}
}

/* Shows settings that are not the default, or the prompt. */
static void put_status(const struct top_picture *p, struct text_buffer *buffer)
{
	const struct live_view *view = p->view;
	const char *prompt = live_view_prompt_text(view);

	if (prompt) {
		text_buffer_put(buffer, STYLE_HEAD, "%s%s_", prompt, view->typed);
	} else if (*view->message) {
		text_buffer_put(buffer, STYLE_WARNING, "%s", view->message);
	} else if (p->warning) {
		text_buffer_put(buffer, STYLE_WARNING, "%s", p->warning);
	} else if (view->by != GROUP_FUNCTION && !p->summary->profile.n_threads) {
		text_buffer_put(buffer, STYLE_WARNING,
				"no processes are known: a Linux guest shows them once its kernel "
				"is found (b: functions)");
	} else if (view->zoom) {
		text_buffer_put(buffer, STYLE_HEAD, "callers and callees of %s (esc: back)",
				view->zoom);
	} else {
		if (view->inside)
			text_buffer_put(buffer, STYLE_HEAD, "in %s (esc: back)  ", view->inside);
		if (*view->filter)
			text_buffer_put(buffer, STYLE_HEAD, "only %s  ", view->filter);
		if (view->vcpu >= 0)
			text_buffer_put(buffer, STYLE_HEAD, "only vCPU %" PRId64 "  ", view->vcpu);
		if (view->all_states)
			text_buffer_put(buffer, STYLE_HEAD, "idle and waiting vCPUs, too");
	}
	text_buffer_end_line(buffer);
}

static void put_share(const struct top_picture *p, const struct profile_cell *cell,
		      struct text_buffer *buffer)
{
	double share = part_of(cell->weight_ns, p->summary->profile.selected.weight_ns);
	struct interval range =
		interval_of_share(share, profile_share_draws(&p->summary->profile, cell));
	char text[32];

	text_buffer_put(buffer, tty_style_of_share(share), "%7.2f %%", 100 * share);
	if (buffer->width && buffer->width < ROOM_FOR_RANGES)
		return;
	snprintf(text, sizeof(text), "%.1f-%.1f", 100 * range.low, 100 * range.high);
	text_buffer_put(buffer, STYLE_DIM, " %-11s", text);
}

static void put_row(const struct top_picture *p, const struct summary_row *row, bool chosen,
		    struct text_buffer *buffer)
{
	static const char *const kinds[] = {"", "called by ", "calls "};
	size_t len = strlen(row->name);

	buffer->chosen = chosen;
	put_share(p, &row->self, buffer);
	put_share(p, &row->total, buffer);
	text_buffer_put(buffer, STYLE_PLAIN, "%9" PRIu64 "  ", row->total.samples);
	text_buffer_put(buffer, STYLE_DIM, "%s", kinds[row->kind]);
	text_buffer_put(buffer, row->unresolved ? STYLE_DIM : STYLE_PLAIN, "%s",
			short_names_get(p->names, row->name, &len));
	if (chosen && buffer->used < buffer->width)
		text_buffer_put(buffer, STYLE_PLAIN, "%*s", (int)(buffer->width - buffer->used),
				"");
	buffer->chosen = false;
	text_buffer_end_line(buffer);
}

static void put_titles(const struct top_picture *p, struct text_buffer *buffer)
{
	const bool ranges = !buffer->width || buffer->width >= ROOM_FOR_RANGES;
	const bool total = p->view->by_total && !p->view->zoom;

	text_buffer_put(buffer, STYLE_HEAD, "%9s%s%9s%s%9s  %s", total ? "self" : "[self]",
			ranges ? " 95 %       " : "", total ? "[total]" : "total",
			ranges ? " 95 %       " : "", "samples",
			group_key_text(live_view_by_thread(p->view) ? p->view->by
								    : GROUP_FUNCTION));
	text_buffer_end_line(buffer);
}

/* Shows the rows around the chosen one. */
static void put_rows(const struct top_picture *p, size_t room, struct text_buffer *buffer)
{
	const struct summary *summary = p->summary;
	size_t chosen = live_view_selected(p->view, summary), first = 0;

	if (chosen >= room)
		first = chosen - room + 1;
	for (size_t i = first; i < summary->n_rows && i < first + room; i++)
		put_row(p, &summary->rows[i], p->keys && i == chosen, buffer);
	if (!summary->n_rows)
		text_buffer_put(buffer, STYLE_DIM, "  no samples%s",
				p->view->all_states ? "" : " of running vCPUs (i shows idle ones)");
}

static void put_functions(const struct top_picture *p, size_t room, struct text_buffer *buffer)
{
	const struct summary_row *zoom = &p->summary->zoom;

	if (p->view->zoom && zoom->name) {
		put_row(p, zoom, false, buffer);
	} else if (p->view->zoom) {
		text_buffer_put(buffer, STYLE_DIM, "  %s is in no sample now", p->view->zoom);
		text_buffer_end_line(buffer);
	}
	if (p->view->zoom && room)
		room--;
	put_rows(p, room, buffer);
}

/* Innermost first. */
static struct error *put_stack(const struct top_picture *p, struct text_buffer *buffer)
{
	const struct profile *profile = &p->summary->profile;
	uint32_t id = p->summary->hottest;

	if (!p->keys)
		text_buffer_end_line(buffer);
	text_buffer_put(buffer, STYLE_HEAD, "the hottest stack: %.2f %%",
			100 * part_of(profile->cells.at[id].weight_ns,
				      profile->selected.weight_ns));
	text_buffer_end_line(buffer);
	while (id != STACK_ROOT && text_buffer_left(buffer)) {
		const struct stack_node *frame = stacks_node(profile->stacks, id);
		const struct location *at;
		size_t n = 0;

		TRY(symbolizer_locate(p->symbolizer, frame->addr, frame->kind, &at, &n));
		for (size_t i = 0; i < n && text_buffer_left(buffer); i++) {
			size_t len = strlen(at[i].function);

			text_buffer_put(buffer, at[i].resolved ? STYLE_PLAIN : STYLE_DIM, "  %s%s",
					short_names_get(p->names, at[i].function, &len),
					at[i].inlined ? " (inlined)" : "");
			text_buffer_end_line(buffer);
		}
		id = frame->parent;
	}
	return NULL;
}

static void put_help(struct text_buffer *buffer)
{
	for (size_t i = 0; live_view_help[i]; i++) {
		text_buffer_put(buffer, i ? STYLE_PLAIN : STYLE_HEAD, "%s", live_view_help[i]);
		text_buffer_end_line(buffer);
	}
}

struct error *top_draw(const struct top_picture *p, struct text_buffer *buffer, size_t *rows)
{
	const bool stack = !p->view->hide_stack && p->summary->hottest != STACK_ROOT &&
			   buffer->height >= ROOM_FOR_STACK;
	size_t end;

	for (size_t i = 0; i < p->summary->n_rows; i++)
		TRY(short_names_add(p->names, p->summary->rows[i].name,
				    strlen(p->summary->rows[i].name)));
	put_first_line(p, buffer);
	if (p->view->help) {
		put_help(buffer);
		return buffer->no_memory ? error_no_memory() : NULL;
	}
	put_ticks(p, buffer);
	put_vcpus(p, buffer);
	put_status(p, buffer);
	put_titles(p, buffer);
	end = buffer->height - (stack ? STACK_FRAMES + 1 : 0);
	*rows = end > buffer->line ? end - buffer->line : 0;
	put_functions(p, *rows, buffer);
	if (stack) {
		buffer->line = p->keys || buffer->line > end ? end : buffer->line;
		TRY(put_stack(p, buffer));
	}
	return buffer->no_memory ? error_no_memory() : NULL;
}
