/* SPDX-License-Identifier: BSD-3-Clause */

/* Recordings of functions of this program itself, as if it were in a guest, at another address. */

#include "maker.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#define SLIDE UINT64_C(0x100000000)

struct self {
	char path[4096], build_id[64];
	uint64_t base; /* addresses here less those in the file */
	struct recorded_image image;
};

/* Never called, but for example_caller. */
int example_leaf(volatile int *at);
int example_middle(volatile int *at);
int example_outer(volatile int *at);
uint64_t example_here(void);
uint64_t example_caller(volatile int *at);

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

/* The address that it was called from. */
__attribute__((noinline)) uint64_t example_here(void)
{
	return (uintptr_t)__builtin_return_address(0);
}

static inline __attribute__((always_inline)) uint64_t example_inlined(volatile int *at)
{
	uint64_t here = example_here(); /* line of the call */

	*at += 1;
	return here;
}

__attribute__((noinline)) uint64_t example_caller(volatile int *at)
{
	return example_inlined(at); /* line of what was inlined */
}

static void read_notes(const ElfW(Nhdr) * note, size_t len, char *hex)
{
	const uint8_t *id = (const uint8_t *)(note + 1) + note->n_namesz;

	if (len < sizeof(*note) || note->n_type != NT_GNU_BUILD_ID || note->n_descsz > 31)
		return;
	for (size_t i = 0; i < note->n_descsz; i++)
		sprintf(hex + 2 * i, "%02x", id[i]);
}

/* This program: its code and build id. */
static int find_self(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct self *self = ctx;

	self->base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_NOTE)
			read_notes((const void *)(info->dlpi_addr + segment->p_vaddr),
				   segment->p_memsz, self->build_id);
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
			continue;
		self->image.start = SLIDE + segment->p_vaddr;
		self->image.end = self->image.start + segment->p_memsz;
	}
	return 1;
}

static void begin(struct maker *m, const char *path, struct self *self)
{
	dl_iterate_phdr(find_self, self);
	self->image.path = realpath("/proc/self/exe", self->path);
	self->image.build_id = self->build_id;
	self->image.slide = SLIDE;
	self->image.checked = true;
	maker_create(m, path, 2, "web server (1)", &(struct recorded_images){&self->image, 1});
}

/* In the guest. */
static uint64_t moved(const struct self *self, uint64_t here)
{
	return here - self->base + SLIDE;
}

#define AT(function) (moved(&self, (uint64_t)(uintptr_t)(function)) + 4)

static void add_samples(struct maker *m, const struct self *at, bool threads)
{
	const struct self self = *at;

	m->thread = threads ? 1 : 0;
	for (int i = 0; i < 60; i++)
		maker_sample(m, 0, VCPU_RUNNING,
			     (uint64_t[]){AT(example_leaf), AT(example_middle), AT(example_outer)},
			     3);
	m->thread = 0;
	for (int i = 0; i < 10; i++)
		maker_sample(m, 0, VCPU_RUNNING, (uint64_t[]){AT(example_outer)}, 1);
	m->thread = threads ? 2 : 0;
	for (int i = 0; i < 30; i++)
		maker_sample(m, 1, VCPU_RUNNING, (uint64_t[]){AT(example_leaf), AT(example_outer)},
			     2);
	for (int i = 0; i < 50; i++)
		maker_sample(m, 1, VCPU_BLOCKED, (uint64_t[]){AT(example_middle)}, 1);
}

void make_plain(struct maker *m, const char *path)
{
	struct self self = {0};

	begin(m, path, &self);
	add_samples(m, &self, false);
}

void make_threads(struct maker *m, const char *path)
{
	struct self self = {0};

	begin(m, path, &self);
	maker_thread(m, 12, 12, "nginx", "nginx");
	maker_thread(m, 12, 13, "nginx", "pool (1)\033[2J");
	add_samples(m, &self, true);
}

void make_inlined(struct maker *m, const char *path)
{
	struct self self = {0};
	volatile int number = 0;
	uint64_t addrs[2];

	begin(m, path, &self);
	addrs[0] = AT(example_here);
	addrs[1] = moved(&self, example_caller(&number));
	for (int i = 0; i < 20; i++)
		maker_sample(m, 0, VCPU_RUNNING, addrs, 2);
	/* The byte before a return address is the call's. */
	addrs[1]--;
	for (int i = 0; i < 10; i++)
		maker_sample(m, 0, VCPU_RUNNING, &addrs[1], 1);
}
