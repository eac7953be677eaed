/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One object. Addresses and registers are strings ("0x1f"): many readers of
 * JSON keep numbers as doubles, which have 53 bits.
 */

#include "view/guest_dump.h"

#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "view/json.h"

static const char *const state_names[VCPU_STATES] = {"running", "runnable", "blocked"};

static json_t *hex_bytes(const uint8_t *bytes, size_t len)
{
	FREED char *digits = malloc(2 * len + 1);

	if (!digits)
		return NULL;
	*digits = '\0';
	for (size_t i = 0; i < len; i++)
		snprintf(digits + 2 * i, 3, "%02x", bytes[i]);
	return json_string(digits);
}

static json_t *bit_names(const struct register_value *reg)
{
	char bits[REGISTER_BITS_TEXT], *next = NULL;
	json_t *names = json_array();

	register_bits_text(reg->bits, reg->value, bits);
	for (char *name = strtok_r(bits, " ", &next); name; name = strtok_r(NULL, " ", &next))
		json_array_append_new(names, json_string(name));
	return names;
}

static json_t *segment(const struct arch *arch, const struct register_segment *from)
{
	json_t *json = json_object();
	char words[64];

	if (from->has_selector)
		json_object_set_new(json, "selector", json_hex(from->selector));
	if (from->has_base)
		json_object_set_new(json, "base", json_hex(from->base));
	if (from->has_limit)
		json_object_set_new(json, "limit", json_hex(from->limit));
	if (from->has_attributes && arch->segment_text) {
		arch->segment_text(from->attributes, words);
		json_object_set_new(json, "attributes", json_hex(from->attributes));
		json_object_set_new(json, "meaning", json_string(words));
	}
	return json;
}

static void add_registers(const struct guest_dump *dump, const struct guest_dump_vcpu *vcpu,
			  json_t *to)
{
	static const char *const groups[REGISTER_GROUPS] = {"general", "control", "debug",
							    "system"};
	json_t *registers = json_object(), *flags = json_object(), *segments = json_object();

	for (int group = 0; group < REGISTER_GROUPS; group++)
		json_object_set_new(registers, groups[group], json_object());
	for (size_t i = 0; i < vcpu->registers.n; i++) {
		const struct register_value *reg = &vcpu->registers.at[i];

		json_object_set_new(json_object_get(registers, groups[reg->group]), reg->name,
				    json_hex(reg->value));
		if (reg->bits)
			json_object_set_new(flags, reg->name, bit_names(reg));
	}
	for (size_t i = 0; i < vcpu->registers.n_segments; i++)
		json_object_set_new(segments, vcpu->registers.segment[i].name,
				    segment(dump->info->arch, &vcpu->registers.segment[i]));
	json_object_set_new(to, "registers", registers);
	json_object_set_new(to, "flags", flags);
	json_object_set_new(to, "segments", segments);
}

static json_t *source(const struct location *location)
{
	json_t *json = json_pack("{s:s, s:b}", "function", location->function, "inlined",
				 (int)location->inlined);

	if (location->file)
		json_object_set_new(json, "file", json_string(location->file));
	if (location->line)
		json_object_set_new(json, "line", json_integer(location->line));
	return json;
}

/* Adds the file that is mapped at an address of a program, and the place in it. */
static void add_mapped(const struct guest_dump_trace *trace, uint64_t va, json_t *to)
{
	const struct guest_mapping *at = guest_mapping_at(trace->mappings, va);

	if (!at || !at->path)
		return;
	json_object_set_new(to, "image", json_text(at->path));
	json_object_set_new(to, "image_offset",
			    json_integer((json_int_t)guest_mapping_offset(at, va)));
}

/* Adds the function at an address, and those that were inlined into it, if it has a name; else its file. */
static struct error *add_source(const struct guest_dump *dump, const struct guest_dump_trace *trace,
				const struct frame *frame, json_t *to)
{
	const struct location *locations;
	json_t *list;
	const struct location *outer;
	size_t n;

	TRY(symbolizer_locate(dump->symbolizer, frame->addr, frame->kind, &locations, &n));
	outer = &locations[n - 1];
	if (!outer->resolved) {
		add_mapped(trace, frame->addr, to);
		return NULL;
	}
	json_object_set_new(to, "symbol", json_string(outer->symbol));
	json_object_set_new(to, "offset",
			    json_integer((json_int_t)location_offset(outer, frame->addr)));
	list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, source(&locations[i]));
	json_object_set_new(to, "source", list);
	return NULL;
}

static json_t *code(const struct guest_dump_vcpu *vcpu)
{
	json_t *lines = json_array();

	for (size_t i = 0; i < vcpu->n_code; i++) {
		const struct code_line *line = &vcpu->code[i];
		json_t *json = json_pack("{s:o, s:o}", "address", json_hex(line->va), "bytes",
					 hex_bytes(line->bytes, line->len));

		if (*line->text)
			json_object_set_new(json, "text", json_string(line->text));
		if (line->here)
			json_object_set_new(json, "here", json_true());
		json_array_append_new(lines, json);
	}
	return lines;
}

static json_t *words(const uint8_t *bytes, size_t len, unsigned word)
{
	json_t *list = json_array();

	for (size_t at = 0; at + word <= len; at += word)
		json_array_append_new(list, json_hex(guest_dump_word(bytes + at, word)));
	return list;
}

static struct error *add_trace(const struct guest_dump *dump, const struct guest_dump_trace *of,
			       json_t *to)
{
	json_t *trace = json_array();

	json_object_set_new(to, "trace", trace);
	json_object_set_new(to, "end", json_string(unwind_end_text(of->end)));
	json_object_set_new(to, "whole", json_boolean(of->end == UNWIND_OUTERMOST));
	for (size_t i = 0; i < of->n_frames; i++) {
		const struct frame *frame = &of->frames[i];
		json_t *json = json_pack("{s:o, s:s}", "address", json_hex(frame->addr), "trust",
					 frame->trust == TRUST_GUESS ? "guess" : "sure");
		struct error *err = add_source(dump, of, frame, json);

		json_array_append_new(trace, json);
		if (err)
			return err;
	}
	return NULL;
}

static json_t *running_thread(const struct recorded_thread *thread)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:b, s:b}", "pid", json_id(thread->pid), "tid",
			 json_id(thread->tid), "name", json_text(thread->name), "process",
			 json_text(thread->process), "kernel", (int)thread->kernel, "idle",
			 (int)thread->idle);
}

static struct error *add_vcpu(const struct guest_dump *dump, const struct guest_dump_vcpu *vcpu,
			      json_t *list)
{
	json_t *json =
		json_pack("{s:I, s:b}", "vcpu", (json_int_t)vcpu->id, "online", (int)vcpu->online);

	json_array_append_new(list, json);
	if (!vcpu->online)
		return NULL;
	json_object_set_new(json, "state", json_string(state_names[vcpu->state]));
	if (guest_dump_has_mode(vcpu))
		json_object_set_new(json, "mode",
				    json_string(vcpu->regs->user ? "user" : "kernel"));
	json_object_set_new(json, "bits", json_integer(guest_dump_bits(vcpu->regs)));
	if (vcpu->thread)
		json_object_set_new(json, "thread", running_thread(vcpu->thread));
	add_registers(dump, vcpu, json);
	json_object_set_new(json, "code", code(vcpu));
	json_object_set_new(json, "stack",
			    json_pack("{s:o, s:o}", "address", json_hex(vcpu->stack->va), "words",
				      words(vcpu->stack->bytes, vcpu->stack->len,
					    vcpu->regs->word)));
	return add_trace(dump, &vcpu->trace, json);
}

static struct error *add_thread(const struct guest_dump *dump,
				const struct guest_dump_thread *thread, json_t *list)
{
	const struct guest_thread *at = &thread->thread;
	json_t *json =
		json_pack("{s:o, s:I, s:o, s:o, s:s, s:I, s:o, s:b}", "pid", json_id(at->pid),
			  "tid", (json_int_t)at->tid, "name", json_text(at->name), "process",
			  json_text(thread->process), "state", guest_thread_state_name(at->state),
			  "cpu", (json_int_t)at->cpu, "switches", json_known(at->switches),
			  "kernel", (int)at->kernel);

	json_array_append_new(list, json);
	if (!thread->read)
		return NULL;
	json_object_set_new(json, "program", json_boolean(thread->program));
	if (thread->program)
		json_object_set_new(json, "program_address", json_hex(thread->program));
	if (thread->program)
		add_mapped(&thread->trace, thread->program, json);
	return add_trace(dump, &thread->trace, json);
}

/* Only where they were asked for. */
static struct error *add_threads(const struct guest_dump *dump, json_t *to)
{
	json_t *list;

	if (!dump->n_threads)
		return NULL;
	list = json_array();
	json_object_set_new(to, "threads", list);
	if (dump->trouble)
		json_object_set_new(to, "trouble", json_string(dump->trouble));
	for (size_t i = 0; i < dump->n_threads; i++)
		TRY(add_thread(dump, &dump->threads[i], list));
	return NULL;
}

static json_t *memory(const struct guest_dump *dump)
{
	json_t *list = json_array();

	for (size_t i = 0; i < dump->n_memory; i++)
		json_array_append_new(
			list, json_pack("{s:o, s:I, s:o}", "address", json_hex(dump->memory[i].va),
					"asked", (json_int_t)dump->memory[i].asked, "bytes",
					hex_bytes(dump->memory[i].bytes, dump->memory[i].len)));
	return list;
}

static json_t *guest(const struct guest_dump *dump)
{
	const struct target_info *info = dump->info;

	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:s, s:I}", "kind", dump->scheme, "id",
			 json_text(info->id), "name", json_text(info->name), "type",
			 json_text(info->type), "host", json_text(info->host), "arch",
			 info->arch->name, "vcpus", (json_int_t)(info->vcpus - info->spare));
}

struct error *guest_dump_write_json(const struct guest_dump *dump, FILE *out)
{
	json_t *vcpus = json_array();
	json_t *root =
		json_pack("{s:o, s:s, s:I, s:I, s:o, s:o}", "guest", guest(dump), "state",
			  guest_dump_life_text(dump->life), "time_ns", (json_int_t)dump->unix_ns,
			  "paused_ns", (json_int_t)dump->paused_ns, "vcpus", vcpus, "memory",
			  memory(dump));
	struct error *err = root ? NULL : error_no_memory();

	for (size_t i = 0; i < dump->n_vcpus && !err; i++)
		err = add_vcpu(dump, &dump->vcpus[i], vcpus);
	if (!err)
		err = add_threads(dump, root);
	if (!err)
		return json_write(root, JSON_INDENT(1), out);
	json_decref(root);
	return err;
}
