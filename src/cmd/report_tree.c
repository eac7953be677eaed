/* SPDX-License-Identifier: BSD-3-Clause */

/* Call trees as text: a line a function, with lines drawn where ways part. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/report.h"

/* One level of the walk. */
struct level {
	struct branches branches;
	size_t next; /* the branch to show next */
	size_t mark; /* length of the prefix for what is at this level */
};

struct walk {
	const struct report *report;
	const struct tree *tree;
	const struct paper *paper;
	bool has_self; /* of a leaf-first tree that says nothing: only where stacks begin */
	struct level *levels;
	size_t depth, room;
	char *prefix;
	size_t prefix_len, prefix_room;
	uint64_t lines;
	size_t left_out;
	bool cut; /* by -n or --depth */
};

static struct error *reserve_prefix(struct walk *walk, size_t len)
{
	char *grown;

	if (len <= walk->prefix_room)
		return NULL;
	grown = realloc(walk->prefix, 2 * len);
	if (!grown)
		return error_no_memory();
	walk->prefix = grown;
	walk->prefix_room = 2 * len;
	return NULL;
}

static struct error *append(struct walk *walk, const char *text)
{
	size_t len = strlen(text);
	struct error *err = reserve_prefix(walk, walk->prefix_len + len);

	if (err)
		return err;
	memcpy(walk->prefix + walk->prefix_len, text, len);
	walk->prefix_len += len;
	return NULL;
}

/* Goes down to the children of `node`. */
static struct error *descend(struct walk *walk, uint32_t node)
{
	struct level *level;
	struct error *err;

	if (walk->depth == walk->room) {
		size_t room = walk->room ? 2 * walk->room : 64;
		struct level *levels = realloc(walk->levels, room * sizeof(*levels));

		if (!levels)
			return error_no_memory();
		walk->levels = levels;
		walk->room = room;
	}
	level = &walk->levels[walk->depth];
	*level = (struct level){.mark = walk->prefix_len};
	err = report_branches(walk->report, walk->tree, node, &level->branches);
	if (err)
		return err;
	walk->left_out += level->branches.left_out;
	walk->depth++;
	return NULL;
}

static void put_share(const struct walk *walk, const struct profile_cell *cell, bool interval)
{
	struct share share = report_share(walk->report, cell);
	const struct paper *paper = walk->paper;
	char range[32];

	paper_style(paper, style_of_share(share.value));
	fprintf(paper->out, "%7.2f %%", 100 * share.value);
	paper_style(paper, STYLE_PLAIN);
	if (!interval)
		return;
	snprintf(range, sizeof(range), "%.1f-%.1f", 100 * share.low, 100 * share.high);
	fprintf(paper->out, " %-11s", range);
}

static bool has_intervals(const struct paper *paper)
{
	return !paper->width || paper->width >= 60;
}

/* A name's columns with blanks between them, in what is left of the line. */
static void put_name(const struct walk *walk, const struct tree_node *node)
{
	const struct paper *paper = walk->paper;
	size_t used =
		(has_intervals(paper) ? 42 : 18) + 2 + cells_of(walk->prefix, walk->prefix_len);
	size_t left = paper->width > used + 8 ? paper->width - used : paper->width ? 8 : 0;
	char *text;

	if (asprintf(&text, "%s%s", node->name, node->inlined ? " (inlined)" : "") < 0)
		return;
	for (char *tab = text; (tab = strchr(tab, '\t'));)
		*tab = ' ';
	paper_style(paper, node->unresolved ? STYLE_DIM : STYLE_PLAIN);
	paper_put(paper, text, strlen(text), left);
	paper_style(paper, STYLE_PLAIN);
	free(text);
}

static void put_line(struct walk *walk, const struct tree_node *node)
{
	const bool intervals = has_intervals(walk->paper);

	put_share(walk, &node->total, intervals);
	if (walk->has_self)
		put_share(walk, &node->self, intervals);
	fputs("  ", walk->paper->out);
	fwrite(walk->prefix, 1, walk->prefix_len, walk->paper->out);
	put_name(walk, node);
	fputc('\n', walk->paper->out);
	walk->lines++;
}

static bool enough(struct walk *walk)
{
	const struct report_options *options = walk->report->options;

	if (options->rows && walk->lines >= options->rows)
		walk->cut = true;
	return walk->cut;
}

/* Shows one branch of the innermost level, and goes down from it. */
static struct error *step(struct walk *walk)
{
	struct level *level = &walk->levels[walk->depth - 1];
	const uint64_t depth = walk->report->options->depth;
	const bool parts = level->branches.n > 1;
	const bool last = level->next + 1 == level->branches.n;
	uint32_t node = level->branches.at[level->next++];
	struct error *err = NULL;

	walk->prefix_len = level->mark;
	if (parts)
		err = append(walk, last ? "└ " : "├ ");
	if (err)
		return err;
	put_line(walk, &walk->tree->nodes[node]);
	walk->prefix_len = level->mark;
	if (parts)
		err = append(walk, last ? "  " : "│ ");
	if (!err && (!depth || walk->depth < depth))
		return descend(walk, node);
	walk->cut |= walk->tree->nodes[node].first_child != 0;
	return err;
}

static struct error *run(struct walk *walk, uint32_t root)
{
	struct error *err = descend(walk, root);

	while (!err && walk->depth) {
		struct level *level = &walk->levels[walk->depth - 1];

		if (level->next == level->branches.n) {
			free(level->branches.at);
			walk->depth--;
		} else if (walk->report->options->rows && enough(walk)) {
			break;
		} else {
			err = step(walk);
		}
	}
	while (walk->depth)
		free(walk->levels[--walk->depth].branches.at);
	return err;
}

static void put_rest(const struct walk *walk)
{
	if (walk->left_out)
		fprintf(walk->paper->out, "  ... %zu branches with less than %g %% (--min)\n",
			walk->left_out, 100 * walk->report->options->min_share);
	if (walk->cut)
		fputs("  ... there is more (-n 0, --depth)\n", walk->paper->out);
	if (!walk->lines && !walk->left_out)
		fputs("  nothing\n", walk->paper->out);
}

static void put_title(const char *text, bool has_self, const struct paper *paper)
{
	const bool intervals = has_intervals(paper);

	fputc('\n', paper->out);
	paper_style(paper, STYLE_HEAD);
	fprintf(paper->out, "%9s", "total");
	if (intervals)
		fprintf(paper->out, " %-11s", "95 %");
	if (has_self)
		fprintf(paper->out, "%9s", "self");
	if (has_self && intervals)
		fprintf(paper->out, " %-11s", "95 %");
	fprintf(paper->out, "  %s", text);
	paper_style(paper, STYLE_PLAIN);
	fputc('\n', paper->out);
}

static struct error *put_tree(const struct report *report, const struct tree *tree, bool has_self,
			      const char *title, const struct paper *paper)
{
	struct walk walk = {.report = report, .tree = tree, .paper = paper, .has_self = has_self};
	struct error *err;

	put_title(title, has_self, paper);
	err = run(&walk, 0);
	put_rest(&walk);
	free(walk.levels);
	free(walk.prefix);
	return err;
}

struct error *report_put_tree(const struct report *report, const struct paper *paper)
{
	const bool up = report->options->view == REPORT_UP;

	return put_tree(report, report->keyed.tree, !up,
			up ? "innermost first, and below each its callers"
			   : "call tree, outermost first",
			paper);
}

struct error *report_put_around(const struct report *report, const struct paper *paper)
{
	const struct around *around = &report->around;
	const struct tree_node function = {.name = around->name,
					   .self = around->self,
					   .total = around->total};
	struct walk walk = {.report = report, .paper = paper, .has_self = true};
	struct error *err;

	put_title("the function", true, paper);
	put_line(&walk, &function);
	err = put_tree(report, around->callers, false, "its callers, the nearest first", paper);
	return err ? err : put_tree(report, around->callees, true, "what it calls", paper);
}
