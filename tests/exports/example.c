/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Makes recordings for the tests of formats.
 *
 *	export_example_guest plain OUTFILE	functions of this program itself, at another address
 *	export_example_guest threads OUTFILE	... that threads of the guest run
 *	export_example_guest inlined OUTFILE	... of which one was inlined into another
 *	export_example_guest many OUTFILE	many functions, of C and of C++, in threads and in none
 *	export_example_guest hostile OUTFILE	names that mean something to some format
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

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*make)(struct maker *m, const char *path);
	} kinds[] = {{"plain", make_plain}, {"threads", make_threads}, {"inlined", make_inlined},
		     {"many", make_many},   {"hostile", make_hostile}, {"long", make_long}};
	struct maker m = {.tick_ns = TICK_NS};

	for (size_t i = 0; argc == 3 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(argv[1], kinds[i].name)) {
			kinds[i].make(&m, argv[2]);
			maker_close(&m);
			return 0;
		}
	fprintf(stderr, "usage: export_example_guest "
			"plain|threads|inlined|many|hostile|long OUTFILE\n");
	return 2;
}
