/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares the results of following code with the compiler's: every row of the
 * call frame information of this machine's C library.
 */
#include "unwind/x86/x86.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct image {
	char path[256];
	uint8_t *bytes;
	size_t len;
};

/* Location of the return address by the compiler: rsp + offset - 8, or rbp + offset - 8. */
struct listed {
	unsigned long start, end; /* the function */
	unsigned long at;
	bool by_fp;
	long offset;
};

struct counts {
	unsigned long rows, right, wrong, guessed, not_found;
};

static size_t read_image(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct image *image = ctx;
	const Elf64_Ehdr *head = (const void *)image->bytes;
	const Elf64_Phdr *segment = (const void *)(image->bytes + head->e_phoff);

	for (unsigned i = 0; i < head->e_phnum; i++, segment++) {
		uint64_t offset = va - segment->p_vaddr;

		if (segment->p_type != PT_LOAD || offset >= segment->p_filesz)
			continue;
		if (len > segment->p_filesz - offset)
			len = segment->p_filesz - offset;
		memcpy(buf, image->bytes + segment->p_offset + offset, len);
		return len;
	}
	return 0;
}

static bool open_libc(struct image *image)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];

	image->path[0] = 0;
	while (file && fgets(line, sizeof(line), file))
		if (strstr(line, "/libc.so.6") &&
		    sscanf(line, "%*s %*s %*s %*s %*s %255s", image->path))
			break;
	if (file)
		fclose(file);
	file = image->path[0] ? fopen(image->path, "r") : NULL;
	if (!file)
		return false;
	fseek(file, 0, SEEK_END);
	image->len = (size_t)ftell(file);
	rewind(file);
	image->bytes = malloc(image->len);
	assert_non_null(image->bytes);
	assert_int_equal(fread(image->bytes, 1, image->len, file), image->len);
	fclose(file);
	return true;
}

static void check(const struct listed *row, const struct code *code, void *scratch,
		  struct counts *counts)
{
	unsigned steps = PATHS_STEPS_WITHIN;
	struct code_reader reader = {.code = code, .scratch = scratch, .steps = &steps};
	struct flow_query query = {.isa = &unwind_x86_64,
				   .start = row->start,
				   .end = row->end,
				   .addr = row->at,
				   .kind = FRAME_PC};
	struct x86_state state;
	enum flow_result flow = x86_flow(&query, &reader, &state);

	counts->rows++;
	if (flow == FLOW_GUESSED)
		counts->guessed++;
	else if (flow != FLOW_FOUND)
		counts->not_found++;
	else if (row->by_fp ? state.fp_at + 8 == row->offset || state.copied
			    : state.depth == row->offset - 8)
		counts->right++;
	else
		counts->wrong++;
}

/* Reads readelf's rows: "... FDE ... pc=START..END", then "ADDRESS rsp+OFFSET ..." lines. */
static void check_all(FILE *listing, const struct code *code, void *scratch, struct counts *counts)
{
	struct listed row = {0};
	bool entered = false;
	char line[512], reg[4];

	while (fgets(line, sizeof(line), listing)) {
		const char *range = strstr(line, " pc=");

		if (range && strstr(line, " FDE ")) {
			entered = sscanf(range, " pc=%lx..%lx", &row.start, &row.end) == 2;
			continue;
		}
		if (!entered || sscanf(line, "%lx %3s%ld", &row.at, reg, &row.offset) != 3 ||
		    (strcmp(reg, "rsp") && strcmp(reg, "rbp")))
			continue;
		row.by_fp = !strcmp(reg, "rbp");
		/* Cold parts and other code that is not called. */
		if (row.at == row.start && (row.by_fp || row.offset != 8))
			entered = false;
		else
			check(&row, code, scratch, counts);
	}
}

static void the_code_says_what_the_compiler_says(void **state)
{
	struct image image = {0};
	struct code code = {.ctx = &image, .read = read_image};
	void *scratch;
	struct counts counts = {0};
	char command[300];
	FILE *listing;

	if (system("readelf --version >/dev/null 2>&1") || !open_libc(&image)) {
		print_message("# there is no readelf, or no libc.so.6\n");
		skip();
	}
	scratch = calloc(1, sizeof(struct paths_scratch));
	assert_non_null(scratch);
	snprintf(command, sizeof(command), "readelf -wF %s 2>/dev/null", image.path);
	listing = popen(command, "r");
	assert_non_null(listing);
	check_all(listing, &code, scratch, &counts);
	pclose(listing);
	free(scratch);
	free(image.bytes);
	print_message("# %lu rows: %lu right, %lu wrong, %lu guessed, %lu not found\n", counts.rows,
		      counts.right, counts.wrong, counts.guessed, counts.not_found);
	assert_true(counts.rows > 5000);
	assert_true(counts.wrong <= counts.rows / 5000);
	assert_true(counts.right >= counts.rows / 100 * 98);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_code_says_what_the_compiler_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
