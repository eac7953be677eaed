/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * For tests that compare formats from outside: writes one recording, with
 * names of many kinds, as DIR/example.raw and DIR/example.folded.
 */

#include "format/export_fixture.h"

static const char *const names[] = {
	"main",
	"_start",
	"Lua",		/* starts with the letter that stackcollapse.pl deletes */
	"operator+",	/* ends where it cuts */
	"a+0x12",	/* looks resolved */
	"123",		/* looks like a count */
	"0x77",		/* looks like an address */
	"#comment",	/* looks like the head */
	"semi;colon",	/* the separator of folded stacks */
	"semi:colon",	/* the name above in folded stacks */
	"new\nline",	/* the separator of frames */
	"bad\xff utf8", /* no text */
	" blanks ",	/* trimmed by readers */
	"12 34",	/* a count at its end */
	"",
};

#define N_NAMES (sizeof(names) / sizeof(names[0]))

/* Names 0x1000 apart; some addresses have none, some functions are met at their start. */
static void record(struct export_fixture *f)
{
	uint32_t seed = 2026;

	for (size_t i = 0; i < N_NAMES; i++)
		for (uint64_t offset = 0; offset < 4; offset++) {
			uint64_t addr = 0x1000 * (i + 1) + offset;

			must(recording_name(f->writer, addr, FRAME_PC, names[i], offset));
			must(recording_name(f->writer, addr, FRAME_RETURN, names[i], offset));
		}
	for (int sample = 0; sample < 5000; sample++) {
		uint64_t addrs[6];
		size_t n = 0;

		do {
			seed = seed * 1103515245 + 12345;
			addrs[n++] = 0x1000 * (1 + (seed >> 16) % (N_NAMES + 2)) + (seed >> 12) % 4;
		} while (n < 6 && (seed >> 24) % 3);
		fixture_sample(f, 0, seed & 1 << 20 ? VCPU_RUNNING : VCPU_BLOCKED, addrs,
			       sample % 1000 ? n : 0);
	}
}

static void save(struct export_fixture *f, const struct format *format, const char *dir)
{
	char path[4096], *text = fixture_export(f, format, &PROFILE_ON_CPU, NULL);
	FILE *out;

	snprintf(path, sizeof(path), "%s/example%s", dir, format->ending);
	out = fopen(path, "w");
	if (!out || fputs(text, out) < 0 || fclose(out)) {
		perror(path);
		exit(1);
	}
	free(text);
}

int main(int argc, char **argv)
{
	struct export_fixture f;

	if (argc != 2) {
		fprintf(stderr, "usage: export_example DIR\n");
		return 2;
	}
	fixture_begin(&f, &(struct recording_info){.target = "xen",
						   .host = "Xen 4.17, libxencall",
						   .guest_id = "7",
						   .vcpus = 1});
	record(&f);
	save(&f, &format_raw, argv[1]);
	save(&f, &format_folded, argv[1]);
	fixture_end(&f);
	return 0;
}
