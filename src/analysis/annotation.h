/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Samples by instruction and source line, of chosen functions or addresses.
 * Code is read from the files that the recording names, or that the user gives,
 * and disassembled; where there is none, the sampled addresses stand alone and
 * a sentence says what is missing.
 */

#include "arch/arch.h"
#include "symbol/names/symbolizer.h"

/* An instruction with its samples; where there is no code, an address that was sampled. */
struct code_row {
	struct code_line line; /* of the file's addresses; len 0: no code */
	uint64_t addr;	       /* the guest's; with kind, for the symbolizer */
	uint8_t kind;
	struct profile_cell self; /* stacks that end there */
	/* Stacks through it: callers count at the call, before the return address; once for each stack. */
	struct profile_cell total;
	const struct location *at; /* innermost first */
	size_t n_at;
	uint32_t last; /* private */
};

/*
 * The code of one function: several can have the same name, or one inlined into
 * them. Of code without a name, of one file: stretches around the samples.
 */
struct code_part {
	const char *name; /* of the function with the code */
	const char *path; /* NULL: no file is known */
	const char *build_id;
	uint64_t start, end, slide; /* of the file's addresses; the guest's are `slide` higher */
	bool whole; /* a function that was asked for, which others may be inlined into */
	bool nameless, patched, has_lines;
	bool guessed; /* nothing says where it ends */
	char *lacks;  /* a sentence on what is missing; NULL: nothing is */
	struct code_row *row;
	size_t n, room;
	struct profile_cell self, total; /* of all of its code */
	/* Samples of self whose innermost function is one that was asked for. */
	struct profile_cell own;
	uint64_t misplaced; /* samples of self that are not where an instruction begins */
	uint32_t last;	    /* private */
};

/* Where to look, and for what. All must outlive the annotation. */
struct annotation_options {
	const struct profile *profile;
	const struct images *images;
	struct symbolizer *symbolizer; /* of these two */
	struct symbolizer_options naming;
	struct disassembler *disassembler; /* NULL: none */
	const char *const *names;	   /* functions, pointers of the symbolizer's */
	size_t n_names;
	uint64_t start, end; /* without names: guest addresses, `end` excluded */
};

struct annotation {
	struct code_part *part; /* the one with most samples first */
	size_t n;
	struct code_frames *frames;  /* private: of all stacks */
	struct images *images;	     /* private: files with code */
	struct symbolizer *lines;    /* private */
	struct symbolizer *recorded; /* private: the options' */
};

/* annotation_free is due, also after an error. */
struct error *annotation_build(const struct annotation_options *options, struct annotation *out);
void annotation_free(struct annotation *annotation);

/* Place in the code of a frame. */
struct code_place {
	size_t part, row; /* row: CODE_NO_ROW if the part has none there */
	bool misplaced;	  /* no instruction begins, or no call ends there */
};

#define CODE_NO_ROW SIZE_MAX

/* False: the frame of this node of the stacks is in no part. */
bool annotation_place(const struct annotation *annotation, uint32_t stack, struct code_place *out);

/*
 * "0x4010a0", or "0x4010a0-0x401100": addresses of the guest. *end is 0 for a
 * single one. False: it is something else.
 */
bool annotation_parse_range(const char *text, uint64_t *start, uint64_t *end);

/* The bytes before and after a single address in code without a name. */
#define ANNOTATION_AROUND 256

/*
 * Looks what the options mean by one address: the function that holds it
 * (options->names points to *name then), or the code around it.
 */
struct error *annotation_around(struct annotation_options *options, uint64_t address,
				const char **name);

/* Name of what an instruction calls or jumps to, unless it is in the same part; NULL: none. */
const char *annotation_target(const struct annotation *annotation, const struct code_part *part,
			      const struct code_row *row);

/* True if both have the same functions, files and lines: a text tells them once. */
bool code_rows_same_lines(const struct code_row *a, const struct code_row *b);

/* True if code lies between the two that is not shown: the second does not follow the first. */
bool code_rows_gap(const struct code_row *a, const struct code_row *b);

/* Private to annotation*.c: reading code. */

/* A sampled address of a part, as the part's rows. */
struct code_hit {
	uint64_t va; /* of code: of a call, not behind it */
	bool is_call;
};

struct code_reader {
	struct images *images; /* files are loaded into these */
	struct disassembler *disassembler;
	const struct recorded_images *recorded;
};

struct error *code_part_add_row(struct code_part *part, const struct code_line *line);

/* Adds rows with the part's code; `hits`: sorted, each once. Without rows, part->lacks says why. */
struct error *code_part_read(const struct code_reader *reader, const struct code_hit *hits,
			     size_t n_hits, struct code_part *part);
