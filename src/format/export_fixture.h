/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * For tests of formats: makes a recording in memory, sample by sample, and
 * exports it. A step that fails ends the program.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/format.h"

struct export_fixture {
	int fd;
	char path[32];
	struct stacks *stacks;
	struct recording_writer *writer; /* NULL once closed */
	uint64_t now_ns;
	uint32_t thread; /* of the samples to come */
};

static inline void must(struct error *err)
{
	if (!err)
		return;
	fprintf(stderr, "%s\n", err->text);
	abort();
}

static inline void fixture_begin(struct export_fixture *f, const struct recording_info *info)
{
	*f = (struct export_fixture){.fd = memfd_create("recording", 0)};
	snprintf(f->path, sizeof(f->path), "/proc/self/fd/%d", f->fd);
	must(stacks_new(&f->stacks));
	must(recording_create(f->path, info, f->stacks, &f->writer));
}

/* One tick with one vCPU; the addresses are leaf first. */
static inline void fixture_sample(struct export_fixture *f, uint32_t vcpu, enum vcpu_state state,
				  const uint64_t *addrs, size_t n)
{
	struct frame *frames = calloc(n + 1, sizeof(*frames));
	struct tick_entry entry = {.vcpu = vcpu, .state = (uint8_t)state, .thread = f->thread};
	bool whole = true;

	for (size_t i = 0; i < n; i++)
		frames[i] = (struct frame){.addr = addrs[i], .kind = i ? FRAME_RETURN : FRAME_PC};
	if (n)
		must(stacks_intern(f->stacks, frames, n, &entry.stack, &whole));
	f->now_ns += 1000000;
	must(recording_tick(f->writer, &(struct tick){.time_ns = f->now_ns,
						      .weight_ns = 1000000,
						      .n = 1,
						      .entries = &entry}));
	free(frames);
}

#define SAMPLE(f, vcpu, state, ...)                                     \
	fixture_sample(f, vcpu, state, (const uint64_t[]){__VA_ARGS__}, \
		       sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

/* Exports the fixture in this format; the caller frees the text. `images` may be NULL. */
static inline char *fixture_export(struct export_fixture *f, const struct format *format,
				   const struct profile_filter *filter, const struct images *images)
{
	struct format_job job = {.path = f->path, .filter = filter};
	struct profile *profile;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (f->writer)
		must(recording_close(f->writer, NULL));
	f->writer = NULL;
	must(profile_load(f->path, filter, &profile));
	job.profile = profile;
	must(symbolizer_new(images, profile, &job.symbolizer));
	must(format->write(&job, out));
	fclose(out);
	symbolizer_free(job.symbolizer);
	profile_free(profile);
	return text;
}

static inline void fixture_end(struct export_fixture *f)
{
	stacks_free(f->stacks);
	close(f->fd);
}
