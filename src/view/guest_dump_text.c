/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "view/guest_dump.h"

/* A dump of a guest as text. */

#define BYTES_PER_LINE 16

uint64_t guest_dump_word(const uint8_t *bytes, unsigned word)
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

static void put_name(const struct guest_dump *dump, const char *full, FILE *out)
{
	size_t len = strlen(full);
	const char *name = short_names_get(dump->names, full, &len);

	fprintf(out, "%.*s", (int)len, name);
}

/* "  spin+0x13" */
static void put_named(const struct guest_dump *dump, const struct named *named, FILE *out)
{
	fputs("  ", out);
	put_name(dump, named->name, out);
	fprintf(out, "+0x%" PRIx64, named->offset);
}

/* ... if there is code by some name, else nothing. */
static struct error *put_symbol(const struct guest_dump *dump, uint64_t addr, FILE *out)
{
	struct named named;

	TRY(symbolizer_name(dump->symbolizer, addr, FRAME_PC, &named));
	if (named.resolved)
		put_named(dump, &named, out);
	return NULL;
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

static struct error *dump_code(const struct guest_dump *dump, const struct guest_dump_vcpu *vcpu,
			       FILE *out)
{
	fputs("code\n", out);
	if (!vcpu->n_code)
		fputs("      (cannot be read)\n", out);
	for (size_t i = 0; i < vcpu->n_code; i++) {
		const struct code_line *line = &vcpu->code[i];

		fputs(line->here ? "  ->  " : "      ", out);
		put_address(line->va, vcpu->regs->word, out);
		fputc(' ', out);
		put_bytes_of(line, out);
		if (*line->text)
			fprintf(out, "  %s", line->text);
		if (line->target)
			TRY(put_symbol(dump, line->target, out));
		fputc('\n', out);
	}
	return NULL;
}

static void dump_words(const struct window *stack, unsigned word,
		       const struct guest_dump_style *style, FILE *out)
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
			put_address(guest_dump_word(stack->bytes + at + i, word), word, out);
		}
		if (style->ascii)
			put_ascii(stack->bytes + at, len, out);
		fputc('\n', out);
	}
}

/*
 * Lists one word a line, with the name of its target; if `known_only`, only
 * words that point into code.
 */
static struct error *list_words(const struct guest_dump *dump, const struct window *range,
				unsigned word, bool known_only, FILE *out)
{
	for (uint32_t at = 0; at + word <= range->len; at += word) {
		uint64_t value = guest_dump_word(range->bytes + at, word);
		struct named named;

		TRY(symbolizer_name(dump->symbolizer, value, FRAME_PC, &named));
		if (known_only && !named.resolved)
			continue;
		fputs("      ", out);
		put_address(range->va + at, word, out);
		fputs("  ", out);
		put_address(value, word, out);
		if (named.resolved)
			put_named(dump, &named, out);
		fputc('\n', out);
	}
	return NULL;
}

static struct error *dump_stack(const struct guest_dump *dump, const struct guest_dump_vcpu *vcpu,
				const struct guest_dump_style *style, FILE *out)
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
	return list_words(dump, stack, word, true, out);
}

static void dump_bytes(const struct guest_dump_memory *memory, unsigned word, FILE *out)
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

static struct error *dump_memory(const struct guest_dump *dump,
				 const struct guest_dump_memory *memory, FILE *out)
{
	const struct window range = {.va = memory->va,
				     .len = (uint32_t)memory->len,
				     .bytes = memory->bytes};
	const unsigned word = dump->info->arch->word;

	fprintf(out, "\nmemory   at %#" PRIx64 "%s\n", memory->va,
		memory->as_stack ? ", as a stack" : "");
	if (memory->as_stack)
		TRY(list_words(dump, &range, word, false, out));
	else
		dump_bytes(memory, word, out);
	if (memory->len < memory->asked)
		fprintf(out, "      (nothing can be read at %#" PRIx64 ")\n",
			memory->va + memory->len);
	return NULL;
}

#define REGISTERS_PER_LINE 4

static const char *const state_texts[VCPU_STATES] = {
	[VCPU_RUNNING] = "running",
	[VCPU_RUNNABLE] = "runnable: waits for a CPU",
	[VCPU_BLOCKED] = "blocked: waits for an event",
};

const char *guest_dump_life_text(enum target_life life)
{
	static const char *const texts[] = {
		[LIFE_RUNS] = "runs",	    [LIFE_PAUSED] = "paused",
		[LIFE_UNGUARDED] = "runs",  [LIFE_SHUT_DOWN] = "shut down",
		[LIFE_CRASHED] = "crashed", [LIFE_GONE] = "gone",
	};

	return texts[life];
}

bool guest_dump_has_mode(const struct guest_dump_vcpu *vcpu)
{
	return vcpu->registers.n_segments || vcpu->regs->mmu.mode != MMU_OFF;
}

static void put_head(const struct guest_dump *dump, FILE *out)
{
	const struct target_info *info = dump->info;
	const uint32_t vcpus = info->vcpus - info->spare;
	time_t seconds = (time_t)(dump->unix_ns / 1000000000u);
	char date[64] = "";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	fprintf(out, "guest    %s:", dump->scheme);
	sanitize_print(info->id, out);
	fputs(" \"", out);
	sanitize_print(info->name, out);
	fputs("\", ", out);
	sanitize_print(info->type, out);
	fprintf(out, ", %" PRIu32 " vCPU%s, on ", vcpus, vcpus == 1 ? "" : "s");
	sanitize_print(info->host, out);
	fprintf(out, ", %s\nstate    %s; ", date, guest_dump_life_text(dump->life));
	if (dump->paused_ns)
		fprintf(out, "stopped for %.1f us for this dump\n", (double)dump->paused_ns / 1e3);
	else
		fputs("not stopped for this dump\n", out);
}

/* Name and value, and the names of bits that are set. */
static void put_register(const struct register_value *reg, int width, FILE *out)
{
	char bits[REGISTER_BITS_TEXT];

	fprintf(out, "%-*s %0*" PRIx64, width, reg->name, 2 * reg->bytes, reg->value);
	if (!reg->bits)
		return;
	register_bits_text(reg->bits, reg->value, bits);
	fprintf(out, "  %s", bits);
}

static struct error *put_registers(const struct guest_dump *dump,
				   const struct guest_dump_vcpu *vcpu, FILE *out)
{
	const struct registers *registers = &vcpu->registers;
	unsigned column = 0;

	for (size_t i = 0; i < registers->n; i++) {
		const struct register_value *reg = &registers->at[i];

		if (reg->group != REGISTER_GENERAL)
			continue;
		if (i == 0 || reg->bits) {
			put_register(reg, 8, out);
			if (!reg->bits)
				TRY(put_symbol(dump, vcpu->regs->pc, out));
			fputc('\n', out);
		} else {
			put_register(reg, column ? 3 : 8, out);
			column = (column + 1) % REGISTERS_PER_LINE;
			fputs(column ? "  " : "\n", out);
		}
	}
	if (column)
		fputc('\n', out);
	return NULL;
}

static void put_group(const struct registers *registers, enum register_group group, FILE *out)
{
	for (size_t i = 0; i < registers->n; i++) {
		if (registers->at[i].group != group)
			continue;
		put_register(&registers->at[i], 11, out);
		fputc('\n', out);
	}
}

static void put_segment(const struct arch *arch, const struct register_segment *segment, FILE *out)
{
	char text[64];

	fprintf(out, "%-11s", segment->name);
	if (segment->has_selector)
		fprintf(out, " %04" PRIx32, segment->selector);
	else
		fputs("     ", out);
	if (segment->has_base)
		fprintf(out, "  base %0*" PRIx64, 2 * arch->word, segment->base);
	if (segment->has_limit)
		fprintf(out, " limit %08" PRIx32, segment->limit);
	if (segment->has_attributes && arch->segment_text) {
		arch->segment_text(segment->attributes, text);
		fprintf(out, "  %s", text);
	}
	fputc('\n', out);
}

/* "libc.so.6+0x29e56f", by the file's bytes; false if nothing is mapped at `va` that has a name. */
static bool put_mapped(const struct guest_dump_trace *trace, uint64_t va, FILE *out)
{
	const struct guest_mapping *at = guest_mapping_at(trace->mappings, va);
	const char *slash;

	if (!at || !at->path)
		return false;
	slash = strrchr(at->path, '/');
	sanitize_print(slash ? slash + 1 : at->path, out);
	fprintf(out, "+0x%" PRIx64, guest_mapping_offset(at, va));
	return true;
}

/* " spin+0x13 spin.c:12"; the offset in an inlined function is unknown. */
static void put_location(const struct guest_dump *dump, const struct guest_dump_trace *trace,
			 const struct location *location, uint64_t addr, FILE *out)
{
	fputs("  ", out);
	if (location->resolved)
		put_name(dump, location->function, out);
	else if (!put_mapped(trace, addr, out))
		fputs("(no name)", out);
	if (location->resolved && !location->inlined)
		fprintf(out, "+0x%" PRIx64, location_offset(location, addr));
	if (location->file)
		fprintf(out, "  %s", location->file);
	if (location->file && location->line)
		fprintf(out, ":%" PRIu32, location->line);
	fputs(location->inlined ? "  (inlined)\n" : "\n", out);
}

static struct error *put_frame(const struct guest_dump *dump, const struct guest_dump_trace *trace,
			       size_t i, unsigned word, FILE *out)
{
	const struct frame *frame = &trace->frames[i];
	const struct location *locations;
	size_t n;

	TRY(symbolizer_locate(dump->symbolizer, frame->addr, frame->kind, &locations, &n));
	for (size_t k = 0; k < n; k++) {
		fprintf(out, "%c%4zu  %0*" PRIx64, frame->trust == TRUST_GUESS ? '?' : ' ', i,
			2 * (int)word, frame->addr);
		put_location(dump, trace, &locations[k], frame->addr, out);
	}
	return NULL;
}

static struct error *put_trace(const struct guest_dump *dump, const struct guest_dump_trace *trace,
			       unsigned word, FILE *out)
{
	bool guesses = false;

	fputs("trace\n", out);
	for (size_t i = 0; i < trace->n_frames; i++) {
		guesses = guesses || trace->frames[i].trust == TRUST_GUESS;
		TRY(put_frame(dump, trace, i, word, out));
	}
	if (trace->end == UNWIND_BROKEN)
		fputs("         no caller was found: callers may be missing\n", out);
	else if (trace->end != UNWIND_OUTERMOST)
		fprintf(out, "         cut short: %s\n", unwind_end_text(trace->end));
	if (guesses)
		fputs("         ? marks callers that may be wrong\n", out);
	return NULL;
}

/* Xen does not tell a vCPU that wants a CPU from one whose access to a device is being emulated. */
static const char *state_text(const struct guest_dump *dump, enum vcpu_state state)
{
	return state == VCPU_RUNNABLE && !strcmp(dump->info->type, "hvm")
		       ? "runnable: waits for a CPU, or for its device model"
		       : state_texts[state];
}

/* Name of a thread, in brackets if it is the kernel's. */
static void put_thread_name(bool kernel, const char *name, FILE *out)
{
	if (kernel)
		fputc('[', out);
	sanitize_print(name, out);
	if (kernel)
		fputc(']', out);
}

/* "; thread 17 worker of process 12 httpd" */
static void put_running(const struct recorded_thread *thread, FILE *out)
{
	fputs("; thread ", out);
	if (thread->tid != RECORDED_ID_UNKNOWN)
		fprintf(out, "%" PRIu32 " ", thread->tid);
	put_thread_name(thread->kernel, thread->name, out);
	if (thread->pid == thread->tid || thread->pid == RECORDED_ID_UNKNOWN)
		return;
	fprintf(out, " of process %" PRIu32 " ", thread->pid);
	put_thread_name(thread->kernel, thread->process, out);
}

static struct error *put_vcpu(const struct guest_dump *dump, const struct guest_dump_vcpu *vcpu,
			      const struct guest_dump_style *style, FILE *out)
{
	const struct registers *registers = &vcpu->registers;
	fprintf(out, "\nvCPU %-3" PRIu32 " %s; ", vcpu->id,
		dump->life == LIFE_RUNS ? state_text(dump, vcpu->state) : "stands still");
	if (guest_dump_has_mode(vcpu))
		fprintf(out, "in %s mode, ", vcpu->regs->user ? "user" : "kernel");
	fprintf(out, "%u bits", guest_dump_bits(vcpu->regs));
	if (vcpu->thread)
		put_running(vcpu->thread, out);
	fputc('\n', out);
	TRY(put_registers(dump, vcpu, out));
	put_group(registers, REGISTER_CONTROL, out);
	for (size_t i = 0; i < registers->n_segments; i++)
		put_segment(dump->info->arch, &registers->segment[i], out);
	if (style->all) {
		put_group(registers, REGISTER_DEBUG, out);
		put_group(registers, REGISTER_SYSTEM, out);
	}
	TRY(dump_code(dump, vcpu, out));
	TRY(dump_stack(dump, vcpu, style, out));
	return put_trace(dump, &vcpu->trace, vcpu->regs->word, out);
}

/* The place in the program that called the kernel. */
static void put_program(const struct guest_dump_thread *thread, FILE *out)
{
	if (!thread->program)
		return;
	fputs("         called by its program", out);
	if (guest_mapping_at(thread->trace.mappings, thread->program)) {
		fputs(" at ", out);
		if (!put_mapped(&thread->trace, thread->program, out))
			fprintf(out, "0x%" PRIx64, thread->program);
	}
	fputs(", whose stack is not shown: -s gives the file of its code\n", out);
}

/* A system without processes tells the CPU of no others. */
static bool is_on_cpu(const struct guest_thread *thread)
{
	return thread->state == THREAD_RUNNING ||
	       (thread->pid == RECORDED_ID_UNKNOWN && thread->cpu >= 0);
}

static struct error *put_thread(const struct guest_dump *dump,
				const struct guest_dump_thread *thread, FILE *out)
{
	const struct guest_thread *at = &thread->thread;

	fprintf(out, "\nthread %-5" PRIu32 " ", at->tid);
	put_thread_name(at->kernel, at->name, out);
	fprintf(out, "; %s", guest_thread_state_name(at->state));
	if (at->pid != at->tid && at->pid != RECORDED_ID_UNKNOWN) {
		fprintf(out, "; of process %" PRIu32 " ", at->pid);
		put_thread_name(at->kernel, thread->process, out);
	}
	fputc('\n', out);
	if (!thread->read) {
		fputs(is_on_cpu(at) ? "         on a CPU: see its vCPU\n"
				    : "         its stack could not be read\n",
		      out);
		return NULL;
	}
	TRY(put_trace(dump, &thread->trace, dump->info->arch->word, out));
	put_program(thread, out);
	return NULL;
}

/* Writes one line for a row of off-line vCPUs, none for spare ones; returns how many there are in the row. */
static size_t put_offline(const struct guest_dump *dump, size_t i, FILE *out)
{
	const struct guest_dump_vcpu *vcpu = &dump->vcpus[i];
	const uint32_t told = dump->info->vcpus - dump->info->spare;
	size_t n = 1;

	while (i + n < dump->n_vcpus && !vcpu[n].online && (vcpu[n].id < told || vcpu->id >= told))
		n++;
	if (vcpu->id >= told)
		return n;
	fprintf(out, "\nvCPU %" PRIu32, vcpu->id);
	if (n > 1)
		fprintf(out, " to %" PRIu32, vcpu[n - 1].id);
	fputs("   off-line\n", out);
	return n;
}

struct error *guest_dump_write_text(const struct guest_dump *dump,
				    const struct guest_dump_style *style, FILE *out)
{
	put_head(dump, out);
	for (size_t i = 0; i < dump->n_vcpus;) {
		if (dump->vcpus[i].online)
			TRY(put_vcpu(dump, &dump->vcpus[i++], style, out));
		else
			i += put_offline(dump, i, out);
	}
	for (size_t i = 0; i < dump->n_threads; i++)
		TRY(put_thread(dump, &dump->threads[i], out));
	for (size_t i = 0; i < dump->n_memory; i++)
		TRY(dump_memory(dump, &dump->memory[i], out));
	return NULL;
}
