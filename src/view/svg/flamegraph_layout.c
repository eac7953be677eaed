/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph_layout.h"

static uint64_t value_in(const struct flamegraph_layout *layout, const struct profile_cell *cell)
{
	return layout->by_samples ? cell->samples : cell->weight_ns;
}

static uint64_t value_of(const struct flamegraph_layout *layout, uint32_t node)
{
	return value_in(layout, &layout->tree->nodes[node].total);
}

void flamegraph_layout_init(struct flamegraph_layout *layout, const struct tree *tree, double width,
			    double min_width)
{
	layout->tree = tree;
	layout->by_samples = tree->nodes[0].total.weight_ns == 0;
	layout->total = value_of(layout, 0);
	layout->unit = layout->total ? width / (double)layout->total : 0;
	layout->min_width = min_width;
	layout->drawn = 0;
	layout->levels = 0;
	layout->left_out = 0;
	layout->n_left_out = 0;
	layout->too_deep = false;
	layout->ended = false;
	layout->node = 0;
	layout->level = 0;
}

static void take(struct flamegraph_layout *layout, uint32_t node, uint32_t level,
		 struct flamegraph_frame *frame)
{
	uint64_t offset = level ? layout->next[level] : 0, value = value_of(layout, node);
	const struct tree_rest rest = tree_rest(layout->tree, node);

	/* Totals that reached the largest number are less than the sum of their parts. */
	if (level && value > layout->end[level - 1] - offset)
		value = layout->end[level - 1] - offset;
	*frame = (struct flamegraph_frame){node, level, offset, value};
	layout->next[level] = layout->end[level] = offset + value;
	layout->next[level + 1] = offset;
	layout->node = node;
	layout->level = level;
	layout->drawn++;
	layout->left_out += value_in(layout, &rest.cell);
	layout->n_left_out += rest.n;
	if (layout->levels <= level)
		layout->levels = level + 1;
}

static bool is_drawn(struct flamegraph_layout *layout, uint32_t node, uint32_t level)
{
	uint64_t value = value_of(layout, node);

	if (!value)
		return false;
	if (level < FLAMEGRAPH_MAX_LEVELS && (double)value * layout->unit >= layout->min_width)
		return true;
	layout->too_deep |= level >= FLAMEGRAPH_MAX_LEVELS;
	layout->left_out += value;
	layout->n_left_out++;
	return false;
}

bool flamegraph_layout_next(struct flamegraph_layout *layout, struct flamegraph_frame *frame)
{
	const struct tree_node *nodes = layout->tree->nodes;
	uint32_t node, level = layout->level + 1;

	if (layout->ended)
		return false;
	if (!layout->drawn) {
		take(layout, 0, 0, frame);
		return true;
	}
	node = nodes[layout->node].first_child;
	for (;;) {
		for (; node; node = nodes[node].next_sibling) {
			if (is_drawn(layout, node, level)) {
				take(layout, node, level, frame);
				return true;
			}
		}
		if (layout->node == 0) {
			layout->ended = true;
			return false;
		}
		node = nodes[layout->node].next_sibling;
		layout->node = nodes[layout->node].parent;
		level = layout->level--;
	}
}
