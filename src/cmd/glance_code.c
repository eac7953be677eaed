/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/glance_take.h"

#include <stdlib.h>
#include <string.h>

/*
 * Where instructions begin is only known from a function's start on; of one
 * that is longer, the code behind the instruction pointer must do.
 */
#define FUNCTION_MOST 1024u
#define BEHIND	      48u /* bytes */
#define LINES_BEFORE  6u
#define LINES_BEHIND  8u
/* An instruction has at least a byte. */
#define ALL_LINES (FUNCTION_MOST + BEHIND)

/* Without a disassembler: bytes in lines, one of which begins at pc. */
#define PLAIN_BYTES 8u
#define PLAIN_LINES 4u

static size_t plain_lines(struct target *target, const struct regs *regs, struct code_line *lines)
{
	uint64_t va = regs->pc - PLAIN_LINES / 2 * PLAIN_BYTES;
	size_t n = 0;

	for (unsigned i = 0; i < PLAIN_LINES; i++, va += PLAIN_BYTES) {
		struct code_line *line = &lines[n];
		size_t len;

		*line = (struct code_line){.va = va, .here = va == regs->pc};
		len = target->ops->read(target, regs, va, line->bytes, PLAIN_BYTES);
		line->len = (uint8_t)len;
		n += len != 0;
	}
	return n;
}

/* Keeps those around pc; none if no line begins there, for then all may be misread. */
static size_t choose_lines(const struct code_line *all, size_t n, uint64_t pc,
			   struct code_line *lines)
{
	size_t here = 0, first, last;

	while (here < n && all[here].va != pc)
		here++;
	if (here == n)
		return 0;
	first = here > LINES_BEFORE ? here - LINES_BEFORE : 0;
	last = here + LINES_BEHIND < n ? here + LINES_BEHIND : n;
	memcpy(lines, all + first, (last - first) * sizeof(*lines));
	lines[here - first].here = true;
	return last - first;
}

static size_t lines_from(struct target *target, const struct regs *regs, uint64_t start,
			 struct disassembler *disassembler, struct code_line *lines)
{
	struct code_line *all = calloc(ALL_LINES, sizeof(*all));
	uint8_t bytes[ALL_LINES];
	size_t len, n;

	if (!all)
		return 0;
	len = target->ops->read(target, regs, start, bytes, (size_t)(regs->pc - start) + BEHIND);
	n = disassemble(disassembler, regs->word, start, bytes, len, all, ALL_LINES);
	n = choose_lines(all, n, regs->pc, lines);
	free(all);
	return n;
}

void glance_read_code(struct target *target, const struct images *images, const struct regs *regs,
		      struct disassembler *disassembler, struct glance_vcpu *out)
{
	struct symbol symbol;

	out->n_code = 0;
	if (images_find(images, regs->pc, false, &symbol) &&
	    regs->pc - symbol.start <= FUNCTION_MOST)
		out->n_code = lines_from(target, regs, symbol.start, disassembler, out->code);
	if (!out->n_code)
		out->n_code = lines_from(target, regs, regs->pc, disassembler, out->code);
	if (!out->n_code)
		out->n_code = plain_lines(target, regs, out->code);
}
