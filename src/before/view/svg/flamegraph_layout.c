/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph_layout.h"

static uint64_t value_of(const struct layout *layout, uint32_t node)
{
	const struct profile_cell *total = &layout->tree->nodes[node].total;

	return layout->by_samples ? total->samples : total->weight_ns;
}

void layout_init(struct layout *layout, const struct tree *tree, double width, double min_width)
{
	layout->tree = tree;
	layout->by_samples = tree->nodes[0].total.weight_ns == 0;
	layout->total = value_of(layout, 0);
	layout->unit = layout->total ? width / (double)layout->total : 0;
	layout->min_width = min_width;
	layout->drawn = 0;
	layout->levels = 0;
	layout->left_out = 0;
	layout->too_deep = false;
	layout->ended = false;
	layout->node = 0;
	layout->level = 0;
}

static void take(struct layout *layout, uint32_t node, uint32_t level, struct layout_frame *frame)
{
	uint64_t offset = level ? layout->next[level] : 0, value = value_of(layout, node);

	/* Totals that reached the largest number are less than the sum of their parts. */
	if (level && value > layout->end[level - 1] - offset)
		value = layout->end[level - 1] - offset;
	*frame = (struct layout_frame){node, level, offset, value};
	layout->next[level] = layout->end[level] = offset + value;
	layout->next[level + 1] = offset;
	layout->node = node;
	layout->level = level;
	layout->drawn++;
	if (layout->levels <= level)
		layout->levels = level + 1;
}

static bool is_drawn(struct layout *layout, uint32_t node, uint32_t level)
{
	uint64_t value = value_of(layout, node);

	if (!value)
		return false;
	if (level < LAYOUT_MAX_LEVELS && (double)value * layout->unit >= layout->min_width)
		return true;
	layout->too_deep |= level >= LAYOUT_MAX_LEVELS;
	layout->left_out += value;
	return false;
}

bool layout_next(struct layout *layout, struct layout_frame *frame)
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
