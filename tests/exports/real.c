/* SPDX-License-Identifier: BSD-3-Clause */

/* Recordings of functions of this program itself, as if it were in a guest, at another address. */

#include "maker.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#define SLIDE UINT64_C(0x100000000)

/* Of a container, as its runtime tells it. */
#define CONTAINER_ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

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

/* Functions with names of C and of C++, never called. */
#define FUNCTION(name, symbol)                             \
	int many_##name(volatile int *at) __asm__(symbol); \
	int many_##name(volatile int *at)                  \
	{                                                  \
		return *at += __LINE__;                    \
	}

FUNCTION(parse, "shop_parse")
FUNCTION(add, "_ZN4shop4Cart3addERKNS_4ItemE")
FUNCTION(hash, "shop_hash")
FUNCTION(total, "_ZNK4shop4Cart5totalEv")
FUNCTION(copy, "shop_copy")
FUNCTION(construct, "_ZN4shop4CartC1Ev")
FUNCTION(lock, "shop_lock")
FUNCTION(destruct, "_ZN4shop4CartD1Ev")
FUNCTION(poll, "shop_poll")
FUNCTION(plus, "_ZN4shopplERKNS_5PriceES2_")
FUNCTION(sort, "_ZN4shop4sortIiEEvPT_S2_")
FUNCTION(find, "_ZN4shop5StoreINS_4ItemEE4findEi")
FUNCTION(insert, "_ZN4shop3MapINS_3KeyENS_4ItemEE6insertERKS1_RKS2_")
FUNCTION(help, "_ZN12_GLOBAL__N_14helpEv")
FUNCTION(convert, "_ZN4shop5PricecvdEv")
FUNCTION(index, "_ZN4shop4ListixEm")
FUNCTION(assign, "_ZN4shop4ItemaSEOS0_")
FUNCTION(update, "_ZN4shop6updateEPFviE")
FUNCTION(print, "_ZN4shop5printEPKcz")
FUNCTION(send, "shop_send")
FUNCTION(receive, "shop_receive")
FUNCTION(close, "shop_close")
FUNCTION(compare, "_ZN4shopltERKNS_4ItemES2_")
FUNCTION(rotate, "_ZN4shop6rotateIcLi4EEEvRAT0__T_")

static int (*const many[])(volatile int *at) = {
	many_parse,  many_add,	    many_hash,	  many_total, many_copy,    many_construct,
	many_lock,   many_destruct, many_poll,	  many_plus,  many_sort,    many_find,
	many_insert, many_help,	    many_convert, many_index, many_assign,  many_update,
	many_print,  many_send,	    many_receive, many_close, many_compare, many_rotate};

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
	m->container = "/system.slice/docker-" CONTAINER_ID ".scope";
	maker_thread(m, 12, 12, "nginx", "nginx");
	m->container = "/system.slice/web \033[2J.service";
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

/*
 * The weights of no two functions are equal, those of heavy ones are far apart.
 * By turns they are on one of two vCPUs without a thread, in two threads that go
 * from vCPU to vCPU, and in the idle one.
 */
void make_many(struct maker *m, const char *path)
{
	const size_t n = sizeof(many) / sizeof(many[0]);
	struct self self = {0};

	begin(m, path, &self);
	maker_thread(m, 12, 12, "nginx", "nginx");
	maker_thread(m, 20, 21, "db", "pool");
	maker_thread(m, 0, 0, "swapper/0", "swapper/0");
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < 5 + 3 * i; k++) {
			m->thread = (uint32_t)(i % 4);
			m->paused_ns = 10000 + 100 * i;
			maker_sample(m, k / 4 % 2, VCPU_RUNNING,
				     (uint64_t[]){AT(many[i]), AT(example_outer)}, 2);
		}
}
