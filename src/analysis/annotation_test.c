/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/annotation.h"
#include "symbol/images/code_fixture.h"

#include <sys/stat.h>

#include "recording/stacks.h"
#include "symbol/names/table.h"

/* A profile that is made by hand, with tables of symbols. */
struct made {
	struct profile profile;
	struct profile_cell cells[32];
	struct images *images;
	struct symbolizer *symbolizer;
};

static void begin(struct made *m, const char *symbols)
{
	struct symbols *table;

	*m = (struct made){0};
	assert_null(stacks_new(&m->profile.stacks));
	m->profile.cells = (struct profile_cells){.at = m->cells};
	assert_null(images_new(&m->images));
	if (symbols) {
		assert_null(nm_read("test", strdup(symbols), strlen(symbols), &table));
		assert_null(images_add_tables(m->images, "test", table, NULL));
	}
	assert_null(symbolizer_new(m->images, &m->profile, &m->symbolizer));
	symbolizer_set(m->symbolizer, &(struct symbolizer_options){.unnamed = UNNAMED_IMAGE});
}

static void end(struct made *m)
{
	symbolizer_free(m->symbolizer);
	images_free(m->images);
	stacks_free(m->profile.stacks);
}

/* Samples of one stack, leaf first: all but the leaf are return addresses. */
static void sample(struct made *m, uint64_t samples, const uint64_t *addrs, size_t n)
{
	struct frame frames[8];
	uint32_t stack;
	bool whole;

	for (size_t i = 0; i < n; i++)
		frames[i] = (struct frame){.addr = addrs[i], .kind = i ? FRAME_RETURN : FRAME_PC};
	assert_null(stacks_intern(m->profile.stacks, frames, n, &stack, &whole));
	assert_true(stacks_count(m->profile.stacks) < 32);
	profile_cell_count(&m->cells[stack], samples, 1000);
	profile_cell_count(&m->profile.selected, samples, 1000);
}

#define SAMPLE(m, samples, ...)                             \
	sample(m, samples, (const uint64_t[]){__VA_ARGS__}, \
	       sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static struct annotation annotate(struct made *m, const char *const *texts, size_t n)
{
	struct annotation_options how = {.profile = &m->profile,
					 .images = m->images,
					 .symbolizer = m->symbolizer};
	const char *names[4];
	struct annotation out;

	for (size_t i = 0; i < n; i++)
		assert_null(symbolizer_intern(m->symbolizer, texts[i], &names[i]));
	how.names = names;
	how.n_names = n;
	assert_null(annotation_build(&how, &out));
	return out;
}

static struct annotation annotate_range(struct made *m, uint64_t start, uint64_t stop,
					struct disassembler *disassembler)
{
	const struct annotation_options how = {.profile = &m->profile,
					       .images = m->images,
					       .symbolizer = m->symbolizer,
					       .disassembler = disassembler,
					       .start = start,
					       .end = stop};
	struct annotation out;

	assert_null(annotation_build(&how, &out));
	return out;
}

static void check_row(const struct code_row *row, uint64_t va, uint64_t self, uint64_t total)
{
	assert_int_equal(row->line.va, va);
	assert_int_equal(row->self.samples, self);
	assert_int_equal(row->total.samples, total);
	assert_int_equal(row->total.weight_ns, total * 1000);
}

static const char two[] = "1000 T leaf\n1100 T caller\n1200 T end\n";

static void samples_count_at_their_instruction_and_at_the_calls_above(void **state)
{
	struct annotation out;
	struct made m;

	begin(&m, two);
	SAMPLE(&m, 3, 0x1004, 0x1110);
	SAMPLE(&m, 2, 0x1008, 0x1110);
	SAMPLE(&m, 1, 0x1120);
	out = annotate(&m, (const char *const[]){"caller"}, 1);
	assert_int_equal(out.n, 1);
	assert_int_equal(out.part[0].n, 2);
	/* The call ends before the return address. */
	check_row(&out.part[0].row[0], 0x110f, 0, 5);
	check_row(&out.part[0].row[1], 0x1120, 1, 1);
	assert_int_equal(out.part[0].self.samples, 1);
	assert_int_equal(out.part[0].total.samples, 6);
	assert_int_equal(out.part[0].own.samples, 1);
	assert_string_equal(out.part[0].name, "caller");
	assert_non_null(out.part[0].lacks);
	annotation_free(&out);
	end(&m);
}

static void a_stack_counts_once_however_often_it_passes(void **state)
{
	struct annotation out;
	struct made m;

	begin(&m, two);
	SAMPLE(&m, 4, 0x1004, 0x1110, 0x1110, 0x1130, 0x1110);
	out = annotate(&m, (const char *const[]){"caller"}, 1);
	assert_int_equal(out.part[0].n, 2);
	check_row(&out.part[0].row[0], 0x110f, 0, 4);
	check_row(&out.part[0].row[1], 0x112f, 0, 4);
	assert_int_equal(out.part[0].total.samples, 4);
	annotation_free(&out);
	end(&m);
}

static void several_functions_are_parts_the_hottest_first(void **state)
{
	struct annotation out;
	struct made m;

	begin(&m, two);
	SAMPLE(&m, 1, 0x1120);
	SAMPLE(&m, 9, 0x1008, 0x1110);
	out = annotate(&m, (const char *const[]){"caller", "leaf"}, 2);
	assert_int_equal(out.n, 2);
	assert_string_equal(out.part[0].name, "leaf");
	assert_int_equal(out.part[0].self.samples, 9);
	assert_int_equal(out.part[1].total.samples, 10);
	assert_true(out.part[0].whole && out.part[1].whole);
	annotation_free(&out);
	end(&m);
}

static void a_range_takes_what_was_sampled_there_and_no_more(void **state)
{
	struct annotation out;
	struct made m;

	begin(&m, two);
	SAMPLE(&m, 1, 0x1004);
	SAMPLE(&m, 2, 0x10f8);
	SAMPLE(&m, 4, 0x1104);
	SAMPLE(&m, 8, 0x1108);
	out = annotate_range(&m, 0x1008, 0x1108, NULL);
	assert_int_equal(out.n, 2);
	assert_int_equal(out.part[0].self.samples, 4);
	assert_int_equal(out.part[1].self.samples, 2);
	assert_int_equal(out.part[1].n, 1);
	annotation_free(&out);
	out = annotate_range(&m, 0x8000, 0x9000, NULL);
	assert_int_equal(out.n, 0);
	annotation_free(&out);
	end(&m);
}

static void an_address_means_its_function_or_the_code_around(void **state)
{
	struct annotation_options how = {0};
	const char *name = NULL;
	struct made m;

	begin(&m, "1000 T leaf\n1100 T caller\n");
	how.symbolizer = m.symbolizer;
	assert_null(annotation_around(&how, 0x1010, &name));
	assert_int_equal(how.n_names, 1);
	assert_string_equal(how.names[0], "leaf");
	how = (struct annotation_options){.symbolizer = m.symbolizer};
	assert_null(annotation_around(&how, 0x10, &name));
	assert_int_equal(how.n_names, 0);
	assert_int_equal(how.start, 0);
	assert_int_equal(how.end, 0x10 + ANNOTATION_AROUND);
	end(&m);
}

static void ranges_are_hexadecimal_and_not_empty(void **state)
{
	static const char *const bad[] = {"",	       "0x",
					  "1000",      "0x10-",
					  "0x10-0x10", "0x20-0x10",
					  "0x10 ",     "0x1-0x2-0x3",
					  "main",      "0x11112222333344445",
					  "0x10-20"};
	uint64_t start, stop;

	assert_true(annotation_parse_range("0x4010a0", &start, &stop));
	assert_true(start == 0x4010a0 && !stop);
	assert_true(annotation_parse_range("0x10-0xffffffffffffffff", &start, &stop));
	assert_true(start == 0x10 && stop == UINT64_MAX);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(annotation_parse_range(bad[i], &start, &stop));
}

/* The sandbox that reads files has others than this process, and is nobody: one in memory would not be there. */
static void copy_file(int from, char *name)
{
	const int fd = mkstemp(name);
	char bytes[4096];
	ssize_t n;

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, 0644), 0);
	assert_int_equal(lseek(from, 0, SEEK_SET), 0);
	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(fd, bytes, (size_t)n), n);
	assert_int_equal(close(fd), 0);
}

/* A file without symbols: an instruction begins at each sample, and the stretches are bounded. */
static void code_without_a_name_is_shown_around_its_samples(void **state)
{
	const struct code_fixture f = {
		.va = 0x401000, .len = 0x1000, .seed = 3, .id = 7, .no_symbols = true};
	struct disassembler *disassembler = disassembler_open();
	struct recorded_image image = {.start = 0x501000, .end = 0x502000, .slide = 0x100000};
	struct annotation out;
	struct made m;
	char path[32], name[] = "/tmp/annotation-XXXXXX";
	size_t i = 0;
	int fd;

	if (!disassembler) {
		print_message("# no libcapstone here, or none at build time\n");
		skip();
	}
	code_file(&f, &fd, path);
	copy_file(fd, name);
	image.path = name;
	begin(&m, NULL);
	m.profile.info.images = (struct recorded_images){&image, 1};
	SAMPLE(&m, 1, 0x501100);
	SAMPLE(&m, 2, 0x501123);
	SAMPLE(&m, 4, 0x501800);
	out = annotate_range(&m, 0x501000, 0x502000, disassembler);
	assert_int_equal(out.n, 1);
	if (out.part[0].lacks)
		fail_msg("%s", out.part[0].lacks);
	assert_true(out.part[0].nameless);
	assert_string_equal(out.part[0].path, name);
	assert_int_equal(out.part[0].misplaced, 0);
	assert_int_equal(out.part[0].self.samples, 7);
	check_row(&out.part[0].row[0], 0x401100, 1, 1);
	for (i = 1; out.part[0].row[i].line.va < 0x401123; i++)
		assert_false(code_rows_gap(&out.part[0].row[i - 1], &out.part[0].row[i]));
	check_row(&out.part[0].row[i], 0x401123, 2, 2);
	check_row(&out.part[0].row[i + 1], 0x401800, 4, 4);
	assert_true(code_rows_gap(&out.part[0].row[i], &out.part[0].row[i + 1]));
	assert_int_equal(out.part[0].n, i + 2);
	annotation_free(&out);
	end(&m);
	disassembler_close(disassembler);
	unlink(name);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_count_at_their_instruction_and_at_the_calls_above),
		cmocka_unit_test(a_stack_counts_once_however_often_it_passes),
		cmocka_unit_test(several_functions_are_parts_the_hottest_first),
		cmocka_unit_test(a_range_takes_what_was_sampled_there_and_no_more),
		cmocka_unit_test(an_address_means_its_function_or_the_code_around),
		cmocka_unit_test(ranges_are_hexadecimal_and_not_empty),
		cmocka_unit_test(code_without_a_name_is_shown_around_its_samples),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
