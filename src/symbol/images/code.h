/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The machine code of an ELF file as its linker wrote it, to be compared with
 * a guest's memory (placement.h). All addresses are those of the file.
 */

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symbol/names/symbols.h"

/* Name and description lengths, type, "GNU", and the id itself (ELF, note section). */
#define CODE_NOTE_HEAD 16
#define CODE_NOTE_MAX  (CODE_NOTE_HEAD + BUILD_ID_MAX)

/* No program's code is larger, in bytes, and none comes in more pieces. */
#define ELF_CODE_MAX   (512u << 20)
#define ELF_PIECES_MAX (1u << 16)

/* A stretch of code. */
struct code_piece {
	uint64_t va;
	size_t len;
	const uint8_t *bytes;
};

/* From a mapping symbol on ($a and $x, $t, $d; AAELF32, AAELF64), code is of this kind. */
enum code_kind {
	CODE_PLAIN, /* A32, A64 */
	CODE_THUMB,
	CODE_DATA,
	CODE_KINDS
};

struct code_mark {
	uint64_t va;
	uint64_t kind; /* enum code_kind */
};

struct elf_code {
	uint64_t start, end; /* of all executable code; `end` is the first address behind it */
	/*
	 * Code that can be compared, in order of address, without overlaps: not
	 * what a kernel throws away once it has started (.init.text), and
	 * nothing of a file that has only debug information.
	 */
	struct code_piece *piece;
	size_t n;
	/* The code changes itself when it starts, as Linux does (alternatives). */
	bool patched;
	uint16_t machine;	/* e_machine: the processor */
	struct code_mark *mark; /* of Arm's files that are not stripped, in order of address */
	size_t n_marks;
	/* The build id's note, as it is in the file; 0 bytes if there is none, or if it is not loaded. */
	uint8_t note[CODE_NOTE_MAX];
	size_t note_len;
	uint64_t note_va;
	char build_id[2 * BUILD_ID_MAX + 1]; /* in hex; "" if there is none */
};

/*
 * *out is NULL for a file that is no linked ELF file (nm, kallsyms), or has no
 * code. ERR_INPUT for one that is damaged or cannot be read.
 */
struct error *elf_code_load(const char *path, struct elf_code **out);

/*
 * Reads the code of an open ELF file, or of none (NULL); keeps no reference.
 * `path` is for messages.
 */
struct error *elf_code_read(const char *path, Elf *elf, struct elf_code **out);

/* The index of the first piece that ends behind `va`; n if none does. */
size_t elf_code_piece(const struct elf_code *code, uint64_t va);

/* Copies up to `len` bytes of the code at `va`, an address of the file; returns how many. */
size_t elf_code_copy(const struct elf_code *code, uint64_t va, void *buf, size_t len);

/* The mapping symbol that tells what the code at `va` is; NULL: none does. */
const struct code_mark *elf_code_mark(const struct elf_code *code, uint64_t va);

/* Address of the first mapping symbol behind `va`; UINT64_MAX: there is none. */
uint64_t elf_code_next_mark(const struct elf_code *code, uint64_t va);

/* Keeps range and build id. */
void elf_code_drop_pieces(struct elf_code *code);

void elf_code_free(struct elf_code *code);

/*
 * Reads a build id's note at `bytes`; returns the whole note's length, 0 if
 * there is none. `hex` holds 2 * BUILD_ID_MAX + 1.
 */
size_t build_id_note(const uint8_t *bytes, size_t len, char *hex);

/* The first segment that is loaded with this address of the file, or with this offset; false: there is none. */
bool elf_segment(Elf *elf, uint64_t value, bool by_offset, GElf_Phdr *segment);

/* File offset of the byte that is loaded at this address of the file; 0: none, or no such file. */
uint64_t elf_offset(const char *path, uint64_t va);

/* The other way round; false: nothing at this offset is loaded, or there is no such file. */
bool elf_address(const char *path, uint64_t offset, uint64_t *va);
