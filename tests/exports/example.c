/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Makes recordings for the tests of formats.
 *
 *	export_example_guest plain OUTFILE	functions of this program itself, at another address
 *	export_example_guest hostile OUTFILE	names that mean something to some format
 *	export_example_guest long OUTFILE	1,000,000 samples of 5,000 stacks of 12 frames
 */

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/recording.h"

#define TICK_NS 1000000
#define SLIDE	UINT64_C(0x100000000)

struct maker {
	struct recording_writer *writer;
	struct stacks *stacks;
	struct recorded_image image;
	char build_id[64];
	uint64_t time_ns, tick_ns;
};

static void check(struct error *err)
{
	if (!err)
		return;
	fprintf(stderr, "example: %s\n", err->text);
	exit(1);
}

/* Frames are leaf first. */
static void sample(struct maker *m, uint32_t vcpu, uint8_t state, const uint64_t *addrs, size_t n)
{
	struct tick_entry entry = {.vcpu = vcpu, .state = state};
	struct frame frames[16];
	bool whole;

	for (size_t i = 0; i < n; i++)
		frames[i] = (struct frame){addrs[i], i ? FRAME_RETURN : FRAME_PC, TRUST_SURE};
	check(stacks_intern(m->stacks, frames, n, &entry.stack, &whole));
	m->time_ns += m->tick_ns;
	check(recording_tick(m->writer, &(struct tick){.time_ns = m->time_ns,
						       .weight_ns = m->tick_ns,
						       .n = 1,
						       .entries = &entry}));
}

/* Functions that the plain recording is of; they are never called. */
int example_leaf(volatile int *at);
int example_middle(volatile int *at);
int example_outer(volatile int *at);

__attribute__((noinline)) int example_leaf(volatile int *at)
{
	return (*at += 1);
}

__attribute__((noinline)) int example_middle(volatile int *at)
{
	return example_leaf(at) + example_leaf(at) + 1;
}

__attribute__((noinline)) int example_outer(volatile int *at)
{
	return example_middle(at) + example_leaf(at) + 1;
}

static void read_notes(const ElfW(Nhdr) * note, size_t len, char *hex)
{
	const uint8_t *id = (const uint8_t *)(note + 1) + note->n_namesz;

	if (len < sizeof(*note) || note->n_type != NT_GNU_BUILD_ID || note->n_descsz > 31)
		return;
	for (size_t i = 0; i < note->n_descsz; i++)
		sprintf(hex + 2 * i, "%02x", id[i]);
}

/* This program: its code and build id, by its own addresses. */
static int find_self(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct maker *m = ctx;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_NOTE)
			read_notes((const void *)(info->dlpi_addr + segment->p_vaddr),
				   segment->p_memsz, m->build_id);
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
			continue;
		m->image.start = SLIDE + segment->p_vaddr;
		m->image.end = m->image.start + segment->p_memsz;
		m->image.slide = SLIDE;
		m->time_ns = info->dlpi_addr; /* for a moment: what to take off addresses */
	}
	return 1;
}

static void create(struct maker *m, const char *path, uint32_t vcpus)
{
	const struct recording_info info = {.target = "xen",
					    .guest_name = "web server (1)",
					    .guest_id = "7",
					    .guest_type = "pvh",
					    .arch = "x86_64",
					    .vcpus = vcpus,
					    .rate_hz = 1e9 / TICK_NS,
					    .start_unix_ns = UINT64_C(1790000000000000000),
					    .images = {&m->image, m->image.path ? 1 : 0}};

	check(stacks_new(&m->stacks));
	check(recording_create(path, &info, m->stacks, &m->writer));
}

static void plain(struct maker *m, const char *path)
{
	char self[4096] = "";
	uint64_t base;

	dl_iterate_phdr(find_self, m);
	base = m->time_ns;
	m->time_ns = 0;
	m->image.path = realpath("/proc/self/exe", self);
	m->image.build_id = m->build_id;
	m->image.checked = true;
	create(m, path, 2);
#define AT(function) ((uint64_t)(uintptr_t)(function)-base + SLIDE + 4)
	for (int i = 0; i < 60; i++)
		sample(m, 0, VCPU_RUNNING,
		       (uint64_t[]){AT(example_leaf), AT(example_middle), AT(example_outer)}, 3);
	for (int i = 0; i < 10; i++)
		sample(m, 0, VCPU_RUNNING, (uint64_t[]){AT(example_outer)}, 1);
	for (int i = 0; i < 30; i++)
		sample(m, 1, VCPU_RUNNING, (uint64_t[]){AT(example_leaf), AT(example_outer)}, 2);
	for (int i = 0; i < 50; i++)
		sample(m, 1, VCPU_BLOCKED, (uint64_t[]){AT(example_middle)}, 1);
}

static const char *const names[] = {
	"plain",
	"semi;colon",
	"<script>alert(1)</script>",
	"quote\"back\\slash",
	"new\nline\rback",
	"bell\a\x1b[31mred",
	"bad\xff\xc0\xaf utf8",
	"\xe2\x80\xaetxt.exe",
	"(1) compressed",
	"fn=(2) other",
	"calls=3 4",
	"+5 17",
	"a+0x12",
	"%s%n%d",
	"&amp;",
	"#comment",
	"12 34",
	"__proto__",
	"(in parentheses)",
	"name (file)",
	"",
};

#define N_NAMES (sizeof(names) / sizeof(names[0]))

static void name(struct maker *m, uint64_t addr, const char *text)
{
	check(recording_name(m->writer, addr, FRAME_PC, text, 0));
	check(recording_name(m->writer, addr, FRAME_RETURN, text, 0));
}

/* Each name is a leaf of one sample more than the one before, and a caller, and there is a long one. */
static void hostile(struct maker *m, const char *path)
{
	static char longest[(64 << 10) + 1];

	m->tick_ns = TICK_NS + 3009; /* no round numbers */
	create(m, path, 1);
	memset(longest, 'x', sizeof(longest) - 1);
	name(m, 0x1000, "root");
	name(m, 0x2000, longest);
	for (size_t i = 0; i < N_NAMES; i++)
		name(m, 0x10000 + 0x1000 * i, names[i]);
	for (size_t i = 0; i < N_NAMES; i++)
		for (size_t k = 0; k <= i; k++)
			sample(m, 0, VCPU_RUNNING,
			       (uint64_t[]){0x10000 + 0x1000 * i,
					    0x10000 + 0x1000 * ((i + 1) % N_NAMES), 0x1000},
			       3);
	sample(m, 0, VCPU_RUNNING, (uint64_t[]){0x2000, 0x1000}, 2);
}

static void many(struct maker *m, const char *path)
{
	uint32_t seed = 2026;
	char text[32];

	create(m, path, 4);
	for (unsigned i = 0; i < 1200; i++) {
		snprintf(text, sizeof(text), "function_number_%u", i);
		name(m, 0x1000 + i * 0x100, text);
	}
	for (int i = 0; i < 1000000; i++) {
		uint64_t addrs[12];
		uint32_t mix;

		seed = seed * 1103515245 + 12345;
		mix = (seed >> 8) % 5000;
		for (unsigned k = 12; k > 0; k--) {
			addrs[k - 1] = 0x1000 + mix % 1200 * 0x100;
			mix = k > 6 ? mix * 7 / 4 : mix * 2654435761u >> 8;
		}
		sample(m, (seed >> 4) & 3, VCPU_RUNNING, addrs, 12);
	}
}

int main(int argc, char **argv)
{
	struct recording_end end = {.reason = "time"};
	struct maker m = {.tick_ns = TICK_NS};

	if (argc != 3) {
		fprintf(stderr, "usage: export_example_guest plain|hostile|long OUTFILE\n");
		return 2;
	}
	if (!strcmp(argv[1], "plain"))
		plain(&m, argv[2]);
	else if (!strcmp(argv[1], "hostile"))
		hostile(&m, argv[2]);
	else
		many(&m, argv[2]);
	end.elapsed_ns = m.time_ns;
	check(recording_close(m.writer, &end));
	stacks_free(m.stacks);
	return 0;
}
