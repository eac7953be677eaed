/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_PAGE_DATA_H
#define UNIPROF_OUTPUT_PAGE_DATA_H

/*
 * The bytes that the page's script reads (page_profile.js is the other end).
 * Numbers are LEB128 (profile/bytes.h), text is its length in bytes and UTF-8.
 *
 *	text    JSON: title, states, icicle, reverse, and for each side subtitle,
 *	        warning, weighted, vcpus, slices, slice_ns
 *	number  of names; for each: text, and three bytes of colour
 *	number  of nodes but the root; for each, in preorder:
 *	        number  how many levels it is above a child of the one before,
 *	                times 2, plus 1 if it is inlined into its parent
 *	        number  of its name
 *	for each side:
 *	number  of groups; for each: slice less that of the one before, vCPU,
 *	        state, sum of the squares of weights (8 bytes, an IEEE 754 double,
 *	        little-endian), number of rows; for each row: node less that of the
 *	        row before, samples, weight in ns
 */

#include "output/page_tree.h"
#include "base/bytes.h"
#include "profile/slices.h"

/* Appends all of it. */
struct error *page_data_put(const struct page_tree *tree, const struct page_side *sides,
			    const struct slices *slices, unsigned n,
			    const struct page_options *options, struct bytes *bytes);

#endif
