/* SPDX-License-Identifier: BSD-3-Clause */

/* What is in a guest's memory, as text: code, stacks, and whatever was asked for. */

#include "view/guest_dump.h"

#include <inttypes.h>

#define BYTES_PER_LINE 16

uint64_t glance_word(const uint8_t *bytes, unsigned word)
{
	uint64_t value = 0;

	for (unsigned i = word; i-- > 0;)
		value = value << 8 | bytes[i];
	return value;
}

static void put_ascii(const uint8_t *bytes, size_t len, FILE *out)
{
	fputs("  |", out);
	for (size_t i = 0; i < len; i++)
		fputc(bytes[i] >= ' ' && bytes[i] < 0x7f ? bytes[i] : '.', out);
	fputc('|', out);
}

static void put_address(uint64_t va, unsigned word, FILE *out)
{
	fprintf(out, "%0*" PRIx64, (int)(2 * word), va);
}

static void put_bytes_of(const struct code_line *line, FILE *out)
{
	/* Longer ones are rare. */
	for (unsigned i = 0; i < 10 || i < line->len; i++) {
		if (i < line->len)
			fprintf(out, " %02x", line->bytes[i]);
		else if (*line->text)
			fputs("   ", out);
	}
}

struct error *glance_dump_code(const struct glance *glance, const struct glance_vcpu *vcpu,
			       FILE *out)
{
	fputs("code\n", out);
	if (!vcpu->n_code)
		fputs("      (cannot be read)\n", out);
	for (size_t i = 0; i < vcpu->n_code; i++) {
		const struct code_line *line = &vcpu->code[i];
		struct error *err = NULL;

		fputs(line->here ? "  ->  " : "      ", out);
		put_address(line->va, vcpu->regs->word, out);
		fputc(' ', out);
		put_bytes_of(line, out);
		if (*line->text)
			fprintf(out, "  %s", line->text);
		if (line->target)
			err = glance_put_place(glance, line->target, out);
		if (err)
			return err;
		fputc('\n', out);
	}
	return NULL;
}

static void dump_words(const struct window *stack, unsigned word, const struct glance_style *style,
		       FILE *out)
{
	const unsigned per_line = style->bytes_per_line / word * word;
	uint64_t lines = style->lines;

	for (uint32_t at = 0; at + word <= stack->len && lines--; at += per_line) {
		uint32_t len =
			stack->len - at < per_line ? (stack->len - at) / word * word : per_line;

		fputs("      ", out);
		put_address(stack->va + at, word, out);
		fputc(' ', out);
		for (uint32_t i = 0; i < len; i += word) {
			fputc(' ', out);
			put_address(glance_word(stack->bytes + at + i, word), word, out);
		}
		if (style->ascii)
			put_ascii(stack->bytes + at, len, out);
		fputc('\n', out);
	}
}

/* One word a line, with what it points to; if `known_only`, only those that point into code. */
static struct error *list_words(const struct glance *glance, uint64_t va, const uint8_t *bytes,
				size_t len, unsigned word, bool known_only, FILE *out)
{
	for (size_t at = 0; at + word <= len; at += word) {
		uint64_t value = glance_word(bytes + at, word);
		struct named named;
		struct error *err = namer_name(glance->namer, value, FRAME_PC, &named);

		if (err)
			return err;
		if (known_only && !named.resolved)
			continue;
		fputs("      ", out);
		put_address(va + at, word, out);
		fputs("  ", out);
		put_address(value, word, out);
		if (named.resolved)
			fprintf(out, "  %s+0x%" PRIx64, named.name, named.offset);
		fputc('\n', out);
	}
	return NULL;
}

struct error *glance_dump_stack(const struct glance *glance, const struct glance_vcpu *vcpu,
				const struct glance_style *style, FILE *out)
{
	const struct window *stack = vcpu->stack;
	const unsigned word = vcpu->regs->word;

	if (!stack->len) {
		fputs("stack    (cannot be read)\n", out);
		return NULL;
	}
	if (style->lines) {
		fprintf(out, "stack    %" PRIu32 " bytes were read\n", stack->len);
		dump_words(stack, word, style, out);
	}
	if (!style->words)
		return NULL;
	fputs("words    of the stack that point into code, return addresses or not\n", out);
	return list_words(glance, stack->va, stack->bytes, stack->len, word, true, out);
}

static void dump_bytes(const struct glance_memory *memory, unsigned word, FILE *out)
{
	for (size_t at = 0; at < memory->len; at += BYTES_PER_LINE) {
		size_t len = memory->len - at < BYTES_PER_LINE ? memory->len - at : BYTES_PER_LINE;

		fputs("      ", out);
		put_address(memory->va + at, word, out);
		fputc(' ', out);
		for (size_t i = 0; i < BYTES_PER_LINE; i++) {
			fputs(i == BYTES_PER_LINE / 2 ? "  " : " ", out);
			if (i < len)
				fprintf(out, "%02x", memory->bytes[at + i]);
			else
				fputs("  ", out);
		}
		put_ascii(memory->bytes + at, len, out);
		fputc('\n', out);
	}
}

struct error *glance_dump_memory(const struct glance *glance, const struct glance_memory *memory,
				 FILE *out)
{
	const unsigned word = glance->info->arch->word;
	struct error *err = NULL;

	fprintf(out, "\nmemory   at %#" PRIx64 "%s\n", memory->va,
		memory->as_stack ? ", as a stack" : "");
	if (memory->as_stack)
		err = list_words(glance, memory->va, memory->bytes, memory->len, word, false, out);
	else
		dump_bytes(memory, word, out);
	if (memory->len < memory->asked)
		fprintf(out, "      (nothing can be read at %#" PRIx64 ")\n",
			memory->va + memory->len);
	return err;
}
