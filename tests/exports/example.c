/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Makes recordings for the tests of formats.
 *
 *	export_example_guest plain OUTFILE	functions of this program itself, at another address
 *	export_example_guest threads OUTFILE	... that threads of the guest run
 *	export_example_guest inlined OUTFILE	... of which one was inlined into another
 *	export_example_guest many OUTFILE	many functions, of C and of C++, in threads and in none
 *	export_example_guest hostile OUTFILE	names that mean something to some format
 *	export_example_guest exits OUTFILE	some samples, and exits of two vCPUs
 *	export_example_guest long OUTFILE	1,000,000 samples of 5,000 stacks of 12 frames
 */

#include <stdio.h>
#include <string.h>

#include "maker.h"

static void make_long(struct maker *m, const char *path)
{
	uint32_t seed = 2026;
	char text[32];

	maker_create(m, path, 4, "many", &(struct recorded_images){0});
	for (unsigned i = 0; i < 1200; i++) {
		snprintf(text, sizeof(text), "function_number_%u", i);
		maker_name(m, 0x1000 + i * 0x100, text);
	}
	for (int i = 0; i < 1000000; i++) {
		uint64_t addrs[12];
		uint32_t mix;

		seed = seed * 1103515245 + 12345;
		mix = (seed >> 8) % 5000;
		m->paused_ns = 10000 + (seed >> 12) % 30000;
		for (unsigned k = 12; k > 0; k--) {
			addrs[k - 1] = 0x1000 + mix % 1200 * 0x100;
			mix = k > 6 ? mix * 7 / 4 : mix * 2654435761u >> 8;
		}
		maker_sample(m, (seed >> 4) & 3, VCPU_RUNNING, addrs, 12);
	}
}

static void put_exits(struct maker *m, uint32_t vcpu, uint64_t reason, uint64_t cause,
		      uint64_t count)
{
	const struct frame frames[] = {{cause, FRAME_PC, TRUST_SURE},
				       {reason, FRAME_RETURN, TRUST_SURE}};
	struct recorded_exits exits = {.vcpu = vcpu, .count = count};
	bool whole;

	check(stacks_intern(m->stacks, cause ? frames : frames + 1, cause ? 2 : 1, &exits.stack,
			    &whole));
	check(recording_exits(m->writer, &exits));
}

static void make_exits(struct maker *m, const char *path)
{
	enum {
		PORT = 0x1000,
		FAULT = 0x2000,
		INTERRUPT = 0x3000,
		WRITES = 0x4000,
		TOUCHES = 0x5000
	};

	maker_create(m, path, 2, "exits", &(struct recorded_images){0});
	for (int i = 0; i < 100; i++)
		maker_sample(m, 0, VCPU_RUNNING, (const uint64_t[]){TOUCHES}, 1);
	put_exits(m, 0, PORT, WRITES, 1000000);
	put_exits(m, 1, PORT, WRITES, 400000);
	put_exits(m, 1, FAULT, TOUCHES, 500000);
	put_exits(m, 0, INTERRUPT, 0, 100000);
	maker_name(m, PORT, "port");
	maker_name(m, FAULT, "nested page fault");
	maker_name(m, INTERRUPT, "interrupt");
	maker_name(m, WRITES, "write_ports");
	maker_name(m, TOUCHES, "touch_memory");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*make)(struct maker *m, const char *path);
	} kinds[] = {{"plain", make_plain}, {"threads", make_threads}, {"inlined", make_inlined},
		     {"many", make_many},   {"hostile", make_hostile}, {"exits", make_exits},
		     {"long", make_long}};
	struct maker m = {.tick_ns = TICK_NS};

	for (size_t i = 0; argc == 3 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(argv[1], kinds[i].name)) {
			kinds[i].make(&m, argv[2]);
			maker_close(&m);
			return 0;
		}
	fprintf(stderr, "usage: export_example_guest "
			"plain|threads|inlined|many|hostile|exits|long OUTFILE\n");
	return 2;
}
