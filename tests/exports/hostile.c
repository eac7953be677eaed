/* SPDX-License-Identifier: BSD-3-Clause */
#include "maker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	("no\xc2\xa0"
	 "break"),
	"\xe2\x80\x83wide\xe2\x80\x83",
	"[vdso]",
	"[heap]",
	"//anon",
	"/dev/zero",
	"/SYSV00000000",
	"../../../etc/passwd",
	"'\"><img src=x onerror=alert(1)>",
	"]]>--><!--",
	"C:\\file:7",
	"tab\tbed",
	"javascript:alert(1)",
	"...",
	"/",
	"->",
};

#define N_NAMES (sizeof(names) / sizeof(names[0]))
#define LONGEST (64u << 10)

/* Address of function number i: an image of its own, a page long. */
static uint64_t addr_of(size_t i)
{
	return 0x10000 + 0x1000 * (i % N_NAMES);
}

/* Address of the longest name, behind all others. */
static const uint64_t longest_addr = 0x10000 + 0x1000 * N_NAMES;

static void name_all(struct maker *m, uint64_t addr, const char *text)
{
	const struct source_frame frames[] = {{text, text, 7}, {NULL, text, 12}};

	maker_name(m, addr, text);
	check(recording_locations(m->writer, addr, FRAME_PC, frames, 2));
	check(recording_locations(m->writer, addr, FRAME_RETURN, frames, 2));
}

/* All names in one. */
static char *join(const char *longest)
{
	size_t room = 2 * N_NAMES + strlen(longest) + 1;
	char *all;

	for (size_t i = 0; i < N_NAMES; i++)
		room += strlen(names[i]);
	all = calloc(room, 1);
	if (!all)
		exit(1);
	for (size_t i = 1; i < N_NAMES; i++)
		strcat(strcat(all, names[i]), " ");
	return strcat(all, longest);
}

static void create(struct maker *m, const char *path, char *longest)
{
	struct recorded_image images[N_NAMES + 1];
	char *guest = join(longest);

	for (size_t i = 0; i <= N_NAMES; i++) {
		char *text = i < N_NAMES ? (char *)names[i] : longest;

		images[i] = (struct recorded_image){.path = text,
						    .build_id = text,
						    .start = 0x10000 + 0x1000 * i,
						    .end = 0x11000 + 0x1000 * i};
	}
	maker_create(m, path, 1, guest, &(struct recorded_images){images, N_NAMES + 1});
	free(guest);
}

/* Each name is a leaf of one sample more than the one before, and a caller, and there is a long one. */
void make_hostile(struct maker *m, const char *path)
{
	static char longest[LONGEST + 1];

	m->tick_ns = TICK_NS + 3009; /* no round numbers */
	memset(longest, 'x', LONGEST);
	create(m, path, longest);
	maker_name(m, 0x1000, "root");
	name_all(m, longest_addr, longest);
	for (size_t i = 0; i < N_NAMES; i++)
		name_all(m, addr_of(i), names[i]);
	for (size_t i = 0; i < N_NAMES; i++)
		for (size_t k = 0; k <= i; k++)
			maker_sample(m, 0, VCPU_RUNNING,
				     (uint64_t[]){addr_of(i), addr_of(i + 1), 0x1000}, 3);
	maker_sample(m, 0, VCPU_RUNNING, (uint64_t[]){longest_addr, 0x1000}, 2);
}
