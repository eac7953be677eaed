/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_FLAMEGRAPH_ASSETS_H
#define UNIPROF_OUTPUT_FLAMEGRAPH_ASSETS_H

/* The files flamegraph.css and flamegraph.js, word for word; the build makes C of them (embed.py). */
extern const char flamegraph_css[];
extern const char flamegraph_js[];

#endif
