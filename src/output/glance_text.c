/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/guest_dump.h"

#include <inttypes.h>
#include <time.h>

#include "symbol/names/display_name.h"

#define REGISTERS_PER_LINE 4

static const char *const state_texts[VCPU_STATES] = {
	[VCPU_RUNNING] = "running",
	[VCPU_RUNNABLE] = "runnable: waits for a CPU",
	[VCPU_BLOCKED] = "blocked: waits for an event",
};

const char *glance_life_text(enum target_life life)
{
	switch (life) {
	case LIFE_PAUSED:
		return "paused";
	case LIFE_SHUT_DOWN:
		return "shut down";
	case LIFE_CRASHED:
		return "crashed";
	case LIFE_GONE:
		return "gone";
	case LIFE_RUNS:
	case LIFE_UNGUARDED:
		break;
	}
	return "runs";
}

struct error *glance_put_place(const struct glance *glance, uint64_t addr, FILE *out)
{
	struct named named;
	struct error *err = namer_name(glance->namer, addr, FRAME_PC, &named);

	if (!err && named.resolved)
		fprintf(out, "  %s+0x%" PRIx64, named.name, named.offset);
	return err;
}

bool glance_has_mode(const struct glance_vcpu *vcpu)
{
	return vcpu->registers.n_segments || vcpu->regs->mmu.mode != MMU_OFF;
}

static void put_head(const struct glance *glance, FILE *out)
{
	const struct target_info *info = glance->info;
	const uint32_t vcpus = info->vcpus - info->spare;
	time_t seconds = (time_t)(glance->unix_ns / 1000000000u);
	char date[64] = "";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	fprintf(out, "guest    %s:", glance->scheme);
	put_clean(info->id, out);
	fputs(" \"", out);
	put_clean(info->name, out);
	fputs("\", ", out);
	put_clean(info->type, out);
	fprintf(out, ", %" PRIu32 " vCPU%s, on ", vcpus, vcpus == 1 ? "" : "s");
	put_clean(info->host, out);
	fprintf(out, ", %s\nstate    %s; ", date, glance_life_text(glance->life));
	if (glance->paused_ns)
		fprintf(out, "stopped for %.1f us for this look\n",
			(double)glance->paused_ns / 1e3);
	else
		fputs("not stopped for this look\n", out);
}

static struct error *put_registers(const struct glance *glance, const struct glance_vcpu *vcpu,
				   FILE *out)
{
	const struct registers *registers = &vcpu->registers;
	char bits[REGISTER_BITS_TEXT];
	unsigned column = 0;

	for (size_t i = 0; i < registers->n; i++) {
		const struct register_value *reg = &registers->at[i];
		struct error *err = NULL;

		if (reg->group != REGISTER_GENERAL)
			continue;
		if (i == 0 || reg->bits) {
			fprintf(out, "%-8s %0*" PRIx64, reg->name, 2 * reg->bytes, reg->value);
			if (reg->bits)
				register_bits_text(reg->bits, reg->value, bits);
			if (reg->bits)
				fprintf(out, "  %s", bits);
			else
				err = glance_put_place(glance, vcpu->regs->pc, out);
			fputc('\n', out);
		} else {
			column++;
			fprintf(out, "%-*s %0*" PRIx64 "%s", column == 1 ? 8 : 3, reg->name,
				2 * reg->bytes, reg->value,
				column == REGISTERS_PER_LINE ? "\n" : "  ");
			column %= REGISTERS_PER_LINE;
		}
		if (err)
			return err;
	}
	if (column)
		fputc('\n', out);
	return NULL;
}

static void put_group(const struct registers *registers, enum register_group group, FILE *out)
{
	char bits[REGISTER_BITS_TEXT];

	for (size_t i = 0; i < registers->n; i++) {
		const struct register_value *reg = &registers->at[i];

		if (reg->group != group)
			continue;
		fprintf(out, "%-11s %0*" PRIx64, reg->name, 2 * reg->bytes, reg->value);
		if (reg->bits) {
			register_bits_text(reg->bits, reg->value, bits);
			fprintf(out, "  %s", bits);
		}
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

/* "  spin+0x13  spin.c:12"; of what was inlined, the offset is not known. */
static void put_location(const struct location *location, FILE *out)
{
	fprintf(out, "  %s", location->resolved ? location->function : "(no name)");
	if (location->resolved && !location->inlined)
		fprintf(out, "+0x%" PRIx64, location->offset);
	if (location->file)
		fprintf(out, "  %s", location->file);
	if (location->file && location->line)
		fprintf(out, ":%" PRIu32, location->line);
	fputs(location->inlined ? "  (inlined)\n" : "\n", out);
}

static struct error *put_frame(const struct glance *glance, const struct glance_vcpu *vcpu,
			       size_t i, FILE *out)
{
	const struct frame *frame = &vcpu->frames[i];
	const struct location *locations;
	size_t n;
	struct error *err = namer_locate(glance->namer, frame->addr, frame->kind, &locations, &n);

	for (size_t k = 0; !err && k < n; k++) {
		fprintf(out, "%c%4zu  %0*" PRIx64, frame->trust == TRUST_GUESS ? '?' : ' ', i,
			2 * vcpu->regs->word, frame->addr);
		put_location(&locations[k], out);
	}
	return err;
}

static struct error *put_trace(const struct glance *glance, const struct glance_vcpu *vcpu,
			       FILE *out)
{
	struct error *err = NULL;
	bool guesses = false;

	fputs("trace\n", out);
	for (size_t i = 0; i < vcpu->n_frames && !err; i++) {
		guesses = guesses || vcpu->frames[i].trust == TRUST_GUESS;
		err = put_frame(glance, vcpu, i, out);
	}
	if (vcpu->end != UNWIND_OUTERMOST)
		fprintf(out, "         cut short: %s\n", unwind_end_text(vcpu->end));
	if (guesses)
		fputs("         ? marks callers that may be wrong\n", out);
	return err;
}

static struct error *put_vcpu(const struct glance *glance, const struct glance_vcpu *vcpu,
			      const struct glance_style *style, FILE *out)
{
	const struct registers *registers = &vcpu->registers;
	struct error *err;

	fprintf(out, "\nvCPU %-3" PRIu32 " %s; ", vcpu->id,
		glance->life == LIFE_RUNS ? state_texts[vcpu->state] : "stands still");
	if (glance_has_mode(vcpu))
		fprintf(out, "in %s mode, ", vcpu->regs->user ? "user" : "kernel");
	fprintf(out, "%u bits\n", 8 * vcpu->regs->word);
	err = put_registers(glance, vcpu, out);
	if (err)
		return err;
	put_group(registers, REGISTER_CONTROL, out);
	for (size_t i = 0; i < registers->n_segments; i++)
		put_segment(glance->info->arch, &registers->segment[i], out);
	if (style->all) {
		put_group(registers, REGISTER_DEBUG, out);
		put_group(registers, REGISTER_SYSTEM, out);
	}
	err = glance_dump_code(glance, vcpu, out);
	if (!err)
		err = glance_dump_stack(glance, vcpu, style, out);
	return err ? err : put_trace(glance, vcpu, out);
}

/* Of a process, most threads that there could be are not. */
static size_t put_offline(const struct glance *glance, size_t i, FILE *out)
{
	const struct glance_vcpu *vcpu = &glance->vcpus[i];
	size_t n = 1;

	while (i + n < glance->n_vcpus && !vcpu[n].online)
		n++;
	fprintf(out, "\nvCPU %" PRIu32, vcpu->id);
	if (n > 1)
		fprintf(out, " to %" PRIu32, vcpu[n - 1].id);
	fputs("   off-line\n", out);
	return n;
}

struct error *glance_write_text(const struct glance *glance, const struct glance_style *style,
				FILE *out)
{
	struct error *err = NULL;

	put_head(glance, out);
	for (size_t i = 0; i < glance->n_vcpus && !err;) {
		if (glance->vcpus[i].online)
			err = put_vcpu(glance, &glance->vcpus[i++], style, out);
		else
			i += put_offline(glance, i, out);
	}
	for (size_t i = 0; i < glance->n_memory && !err; i++)
		err = glance_dump_memory(glance, &glance->memory[i], out);
	return err;
}
