/* SPDX-License-Identifier: BSD-3-Clause */
#include "follow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 65536
#define MAX_NODES 1000000

struct node {
	const struct function *function;
	struct node *parent, *children, *sibling;
	uint64_t guest, xen, calls;
};

/* One call that has not returned. */
struct frame {
	struct node *node;
	bool pending; /* an interrupt came between its indirect call and the callee */
};

struct follow {
	const struct counters *counters;
	struct counters last;  /* counts at the last attribution to a stack, or to none */
	uint64_t guest_before; /* guest instructions when dom0 ran last */
	struct node root;
	struct frame frames[MAX_DEPTH];
	size_t depth; /* frames in use; frames[0] is the root */
	size_t n_nodes;
	bool pending; /* an indirect call's callee is about to be entered */
	uint64_t lost;
};

struct follow *follow_new(const struct counters *counters)
{
	struct follow *follow = calloc(1, sizeof(*follow));

	if (!follow)
		return NULL;
	follow->counters = counters;
	follow->last = *counters;
	follow->frames[0].node = &follow->root;
	follow->depth = 1;
	return follow;
}

static struct frame *top(struct follow *follow)
{
	return &follow->frames[follow->depth - 1];
}

/*
 * Attributes the instructions that ran until now to the present stack, with
 * `more` that are about to run.
 */
static void settle(struct follow *follow, uint64_t more)
{
	struct node *node = top(follow)->node;
	const struct counters *now = follow->counters;

	node->guest += now->guest + more - follow->last.guest;
	node->xen += now->xen - follow->last.xen;
	follow->last = *now;
	follow->last.guest += more;
}

void follow_other(struct follow *follow)
{
	const struct counters *now = follow->counters;

	/*
	 * Xen's instructions on the way here count as the guest's; those for
	 * dom0 afterwards do not.
	 */
	if (now->guest != follow->guest_before)
		top(follow)->node->xen += now->xen - follow->last.xen;
	follow->last.xen = now->xen;
	follow->guest_before = now->guest;
}

static struct node *child(struct follow *follow, struct node *parent,
			  const struct function *function)
{
	struct node *node;

	for (node = parent->children; node; node = node->sibling)
		if (node->function == function)
			return node;
	if (follow->n_nodes == MAX_NODES)
		return parent;
	node = calloc(1, sizeof(*node));
	if (!node)
		return parent;
	follow->n_nodes++;
	node->function = function;
	node->parent = parent;
	node->sibling = parent->children;
	/* Last: follow_write may be reading the list. */
	__atomic_store_n(&parent->children, node, __ATOMIC_RELEASE);
	return node;
}

static void push(struct follow *follow, const struct function *function)
{
	struct node *node = child(follow, top(follow)->node, function);

	if (follow->depth == MAX_DEPTH) {
		follow->lost++;
		return;
	}
	node->calls++;
	follow->frames[follow->depth++] = (struct frame){.node = node};
}

static void pop(struct follow *follow)
{
	if (follow->depth > 1)
		follow->depth--;
	else
		follow->lost++;
}

/* A jump: the same return address, another function. */
static void replace(struct follow *follow, const struct function *function)
{
	follow->depth--;
	push(follow, function);
}

static void expect(struct follow *follow, const struct function *function)
{
	if (top(follow)->node->function != function)
		follow->lost++;
}

void follow_call(struct follow *follow, const struct function *function,
		 const struct function *callee)
{
	expect(follow, function);
	settle(follow, 1);
	push(follow, callee);
}

void follow_call_indirect(struct follow *follow, const struct function *function)
{
	expect(follow, function);
	settle(follow, 1);
	follow->pending = true;
}

void follow_return(struct follow *follow, const struct function *function)
{
	expect(follow, function);
	settle(follow, 1);
	pop(follow);
}

void follow_return_interrupt(struct follow *follow, const struct function *function)
{
	follow_return(follow, function);
	follow->pending = top(follow)->pending;
	top(follow)->pending = false;
}

void follow_enter(struct follow *follow, const struct function *function)
{
	bool interrupt = function->kind == FUNCTION_HANDLER;

	if (!interrupt && !follow->pending && top(follow)->node->function == function)
		return;
	settle(follow, 0);
	if (interrupt)
		top(follow)->pending = follow->pending;
	if (interrupt || follow->pending || follow->depth == 1)
		push(follow, function);
	else
		replace(follow, function);
	follow->pending = false;
}

static void write_stack(const struct node *node, FILE *out)
{
	if (node->parent->function) {
		write_stack(node->parent, out);
		fputc(';', out);
	}
	fputs(node->function->name, out);
}

static void write_nodes(const struct node *node, FILE *out)
{
	for (; node; node = node->sibling) {
		write_stack(node, out);
		fprintf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", node->guest, node->xen,
			node->calls);
		write_nodes(node->children, out);
	}
}

void follow_write(struct follow *follow, FILE *out)
{
	settle(follow, 0);
	write_nodes(follow->root.children, out);
	fprintf(out, "# lost %" PRIu64 "\n", follow->lost);
}
