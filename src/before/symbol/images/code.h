/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_ELF_CODE_H
#define UNIPROF_SYMBOL_ELF_CODE_H

/*
 * The machine code of an ELF file as its linker wrote it, to be compared with
 * a guest's memory (placement.h). All addresses are those of the file.
 */

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A build id is 20 bytes, rarely 8 or 16; longer ones are taken for damage. */
#define CODE_BUILD_ID_MAX 64
/* Name and description lengths, type, "GNU", and the id itself (ELF, note section). */
#define CODE_NOTE_HEAD 16
#define CODE_NOTE_MAX  (CODE_NOTE_HEAD + CODE_BUILD_ID_MAX)

/* A stretch of code. */
struct code_piece {
	uint64_t va;
	size_t len;
	const uint8_t *bytes;
};

struct elf_code {
	uint64_t start, end; /* of all that is executable; `end` is the first address behind it */
	/*
	 * What can be compared, in order of address, without overlaps: not what
	 * a kernel throws away once it has started (.init.text), and nothing
	 * of a file that has only debug information.
	 */
	struct code_piece *piece;
	size_t n;
	/* The code changes itself when it starts, as Linux does (alternatives). */
	bool patched;
	/* The build id's note, as it is in the file; 0 bytes if there is none, or if it is not loaded. */
	uint8_t note[CODE_NOTE_MAX];
	size_t note_len;
	uint64_t note_va;
	char build_id[2 * CODE_BUILD_ID_MAX + 1]; /* in hex; "" if there is none */
};

/*
 * *out is NULL for what is no linked ELF file (nm, kallsyms), and for one
 * without code. ERR_INPUT for one that is damaged or cannot be read.
 */
struct error *elf_code_load(const char *path, struct elf_code **out);

/* The same of an ELF file that is open, or NULL; keeps nothing of it. `path` is for messages. */
struct error *elf_code_read(const char *path, Elf *elf, struct elf_code **out);

void elf_code_free(struct elf_code *code);

/*
 * Reads a build id's note at `bytes`; returns the whole note's length, 0 if
 * there is none. `hex` holds 2 * CODE_BUILD_ID_MAX + 1.
 */
size_t build_id_note(const uint8_t *bytes, size_t len, char *hex);

#endif
