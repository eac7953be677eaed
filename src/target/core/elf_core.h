/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * An ELF core file, as dumps of guests need it. Little-endian only. Nothing in
 * the file is trusted: all offsets that are handed out lie within it.
 */

struct elf_core {
	int fd;
	uint64_t size; /* of the file, bytes */
	uint16_t machine;
	bool wide; /* ELFCLASS64 */
	uint64_t segments_at, sections_at;
	uint32_t segments, sections;
	uint32_t names; /* the section with the names of sections */
};

/* A segment or a section; at + size is within the file. */
struct elf_part {
	uint64_t at, size;
	uint32_t type;	     /* of a segment: PT_... */
	uint64_t physical;   /* of a segment */
	uint32_t name;	     /* of a section: byte in the section of names */
	uint64_t entry_size; /* of a section */
};

/* ERR_INPUT with a sentence, if it is no ELF core; core->fd is closed by elf_core_close. */
struct error *elf_core_open(const char *path, struct elf_core *core);
void elf_core_close(struct elf_core *core);

/* False if that much is not in the file. */
bool elf_core_read(const struct elf_core *core, uint64_t at, void *buf, size_t len);

/* False where the part, or its header, is not within the file. */
bool elf_core_segment(const struct elf_core *core, uint32_t i, struct elf_part *out);
/* False if there is none of this name. */
bool elf_core_section(const struct elf_core *core, const char *name, struct elf_part *out);

struct elf_note {
	char name[8]; /* longer ones are cut off */
	uint32_t type;
	const uint8_t *desc;
	size_t len;
};

/* The next note from *at on, and *at behind it; false: there is no whole one any more. */
bool elf_note_next(const uint8_t *bytes, size_t len, size_t *at, struct elf_note *out);

/*
 * File offsets of a guest's frames: frames that are neighbours in the guest and
 * in the file are one run.
 */

/* The most runs: 384 MiB of memory. */
#define FRAME_RUNS_MAX (1u << 24)

struct frame_run {
	uint64_t gfn, n; /* frames */
	uint64_t at;	 /* byte in the file */
};

struct frame_map {
	struct frame_run *run;
	size_t n, room;
};

/* gfn + n, and at + n frames, must not wrap around. */
struct error *frame_map_add(struct frame_map *map, uint64_t gfn, uint64_t n, uint64_t at);

/* Call once all runs are added; keeps one of the frames that were added twice. */
void frame_map_sort(struct frame_map *map);

/* False if the frame is not in the file. */
bool frame_map_find(const struct frame_map *map, uint64_t gfn, uint64_t *at);

void frame_map_free(struct frame_map *map);
