/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_PAGE_ASSETS_H
#define UNIPROF_OUTPUT_PAGE_ASSETS_H

/* page.html with its style and scripts in it, in three parts; the build makes C of it (page_embed.py). */
extern const char page_before_title[];
extern const char page_before_data[];
extern const char page_behind_data[];

#endif
