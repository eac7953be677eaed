/* SPDX-License-Identifier: BSD-3-Clause */
/* Code of pages that the guest has, has no more, has wiped, and has written anew. */
#include "capture/capture.h"

#include "base/clock.h"
#include "symbol/images/code_fixture.h"

#define SPACE  0x5000 /* the top table's address */
#define SECOND 1000000000ull

static const struct code_fixture app = {.va = 0x100000, .len = 0x4000, .fixed = true};

/* A guest from which this page of the app's code can be taken away. */
struct guest {
	struct target target;
	struct fake_memory memory;
	struct images *images;
	struct code_cache *text;
	struct regs regs;
	uint8_t *loaded;
	uint64_t gone, now_ns;
};

static size_t read_memory(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	struct guest *guest = (struct guest *)target;

	return va - guest->gone < FRAME_SIZE ? 0 : fake_read(&guest->memory, va, buf, len);
}

static const struct target_ops ops = {.scheme = "fake", .read = read_memory};

static int set_up(void **state)
{
	struct guest *guest = calloc(1, sizeof(*guest));
	struct image_spec spec = {.given = true, .names = true};
	char path[32];
	int fd;

	assert_non_null(guest);
	guest->target.ops = &ops;
	guest->regs = (struct regs){.word = 8, .mmu = {.mode = MMU_X86_4, .root = SPACE}};
	guest->loaded = fake_load(&guest->memory, &app, 0);
	guest->gone = UINT64_MAX - FRAME_SIZE;
	assert_null(images_new(&guest->images));
	code_file(&app, &fd, path);
	spec.path = path;
	assert_null(images_load(guest->images, &spec, NULL));
	close(fd);
	assert_null(images_map(guest->images, 0, 0, true));
	assert_null(code_cache_new(&guest->target, guest->images, &guest->text));
	*state = guest;
	return 0;
}

static int tear_down(void **state)
{
	struct guest *guest = *state;

	code_cache_free(guest->text);
	images_free(guest->images);
	fake_end(&guest->memory);
	free(guest);
	return 0;
}

/* Bytes of code, of 16, that can be read at `va`; they must be those of the file. */
static size_t code_at(struct guest *guest, uint64_t va)
{
	uint8_t *file = calloc(1, app.len + CODE_NOTE_LEN), found[16];
	const struct code *code =
		code_cache_for(guest->text, &guest->regs, guest->now_ns += 2 * SECOND);
	size_t n = code->read(code->ctx, va, found, sizeof(found));

	assert_non_null(file);
	code_image(&app, file);
	if (n)
		assert_memory_equal(found, file + (va - app.va), n);
	free(file);
	return n;
}

static void code_of_a_page_that_is_gone_is_that_of_the_file(void **state)
{
	struct guest *guest = *state;

	guest->gone = app.va;
	assert_int_equal(code_at(guest, app.va + 0x100), 0);
	images_compared(guest->images, 0, 0, SPACE, false);
	assert_int_equal(code_at(guest, app.va + 0x100), 16);
	/* Across the page's end, too, where the guest's own code goes on. */
	assert_int_equal(code_at(guest, app.va + FRAME_SIZE - 8), 16);
	guest->gone = app.va + FRAME_SIZE;
	assert_int_equal(code_at(guest, app.va + FRAME_SIZE - 8), 16);
	guest->gone = app.va + 4 * FRAME_SIZE;
	assert_int_equal(code_at(guest, app.va + 4 * FRAME_SIZE), 0);
}

static void code_of_a_page_that_was_wiped_is_that_of_the_file(void **state)
{
	struct guest *guest = *state;

	memset(guest->loaded, 0, FRAME_SIZE);
	images_compared(guest->images, 0, 0, SPACE, false);
	assert_int_equal(code_at(guest, app.va + 0x100), 16);
}

static void other_code_is_what_the_guest_says(void **state)
{
	struct guest *guest = *state;
	const struct code *code;
	uint8_t found[4];

	images_compared(guest->images, 0, 0, SPACE, false);
	memset(guest->loaded, 0, FRAME_SIZE);
	guest->loaded[FRAME_SIZE - 1] = 0x90;
	code = code_cache_for(guest->text, &guest->regs, 2 * SECOND);
	assert_int_equal(code->read(code->ctx, app.va + 0x100, found, sizeof(found)), 4);
	assert_memory_equal(found, "\0\0\0\0", 4);
}

static void another_address_space_may_have_another_program_there(void **state)
{
	struct guest *guest = *state;

	images_compared(guest->images, 0, 0, SPACE, false);
	guest->gone = app.va;
	guest->regs.mmu.root = SPACE + FRAME_SIZE;
	assert_int_equal(code_at(guest, app.va + 0x100), 0);
}

/* Address spaces are looked at anew after this time. */
#define LATER (SECOND / 8)

static bool is_foreign(struct guest *guest, uint64_t root)
{
	struct frame frame = {.addr = app.va + 0x100, .kind = FRAME_PC};
	uint64_t start, end, slide;
	const struct code *code;
	bool foreign;

	guest->regs.mmu.root = root;
	clock_sleep_until(clock_now_ns() + LATER);
	code = code_cache_for(guest->text, &guest->regs, guest->now_ns);
	code_cache_mark_foreign(guest->text, &frame, 1);
	foreign = frame.kind == (FRAME_PC | FRAME_FOREIGN);
	if (foreign) {
		assert_false(code->function &&
			     code->function(code->ctx, app.va + 0x100, &start, &end));
		assert_false(code->table && code->table(code->ctx, app.va + 0x100, &slide));
	}
	return foreign;
}

static void a_program_is_foreign_where_another_one_runs(void **state)
{
	struct guest *guest = *state;

	images_compared(guest->images, 0, 0, SPACE, true);
	assert_false(is_foreign(guest, SPACE));
	/* It runs twice. */
	assert_false(is_foreign(guest, SPACE + FRAME_SIZE));
	memset(guest->loaded, 0xcc, app.len);
	assert_true(is_foreign(guest, SPACE + FRAME_SIZE));
	/* It has ended, and its page tables are another one's. */
	assert_true(is_foreign(guest, SPACE));
}

static void a_kernel_or_unikernel_is_foreign_nowhere(void **state)
{
	struct guest *guest = *state;

	images_compared(guest->images, 0, 0, SPACE, false);
	memset(guest->loaded, 0xcc, app.len);
	assert_false(is_foreign(guest, SPACE));
	assert_false(is_foreign(guest, SPACE + FRAME_SIZE));
}

static void programs_are_foreign_until_their_file_is_found(void **state)
{
	struct guest *guest = *state;

	images_unmap(guest->images, 0);
	guest->regs.user = true;
	assert_true(is_foreign(guest, SPACE));
	guest->regs.user = false;
	/* A unikernel. */
	assert_false(is_foreign(guest, SPACE));
	/* In a kernel that a program called. */
	guest->regs.pc = UINT64_MAX - FRAME_SIZE;
	assert_true(is_foreign(guest, SPACE));
	assert_null(images_map(guest->images, 0, 0, true));
	assert_false(is_foreign(guest, SPACE));
}

/* Takes all memory away. */
static void unmap(struct guest *guest)
{
	fake_end(&guest->memory);
	memset(&guest->memory, 0, sizeof(guest->memory));
}

static void code_that_cannot_be_read_is_the_programs_where_no_other_one_was_seen(void **state)
{
	struct frame other = {.addr = 0x7f0000001000, .kind = FRAME_RETURN};
	struct guest *guest = *state;

	images_compared(guest->images, 0, 0, SPACE, true);
	unmap(guest);
	assert_false(is_foreign(guest, SPACE));
	assert_false(is_foreign(guest, SPACE + FRAME_SIZE));
	/* Other code of programs. */
	code_cache_mark_foreign(guest->text, &other, 1);
	assert_int_equal(other.kind, FRAME_RETURN);
	assert_true(is_foreign(guest, SPACE + FRAME_SIZE));
}

static void code_that_cannot_be_read_is_the_programs_where_it_was_found(void **state)
{
	struct guest *guest = *state;

	images_compared(guest->images, 0, 0, SPACE, true);
	memset(guest->loaded, 0xcc, app.len);
	assert_true(is_foreign(guest, SPACE + FRAME_SIZE));
	unmap(guest);
	assert_false(is_foreign(guest, SPACE));
	assert_true(is_foreign(guest, SPACE + FRAME_SIZE));
}

/* A table of names that covers all of the app's code, as perf-PID.map does. */
static void load_names(struct guest *guest, const char *name, bool names_only)
{
	char path[] = "/tmp/names-XXXXXX";
	const struct image_spec spec = {.path = path, .names = true, .names_only = names_only};
	const int fd = mkstemp(path);

	assert_true(fd >= 0);
	dprintf(fd, "%lx %x %s\n", (unsigned long)app.va, (unsigned)app.len, name);
	assert_null(images_load(guest->images, &spec, NULL));
	close(fd);
	unlink(path);
}

static bool is_function(struct guest *guest, uint64_t *start)
{
	const struct code *code = code_cache_for(guest->text, &guest->regs, guest->now_ns);
	uint64_t end;

	return code->function && code->function(code->ctx, app.va + 0x100, start, &end);
}

static void names_alone_tell_no_starts_of_functions(void **state)
{
	struct guest *guest = *state;
	uint64_t start = 0;

	images_unmap(guest->images, 0);
	load_names(guest, "jit", true);
	assert_false(is_function(guest, &start));
}

static void tables_of_symbols_tell_starts_of_functions(void **state)
{
	struct guest *guest = *state;
	uint64_t start = 0;

	images_unmap(guest->images, 0);
	load_names(guest, "jit", false);
	assert_true(is_function(guest, &start));
	assert_int_equal(start, app.va);
}

static void linux_switches_where_schedule_is_and_not_in_what_it_calls(void **state)
{
	struct guest *guest = *state;
	const struct code *code;

	images_unmap(guest->images, 0);
	load_names(guest, "__schedule", false);
	code = code_cache_for(guest->text, &guest->regs, guest->now_ns);
	assert_true(code->switches(code->ctx, app.va + 0x100, false));
	assert_false(code->switches(code->ctx, app.va + 0x100, true));
	assert_false(code->switches(code->ctx, app.va + app.len, false));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(code_of_a_page_that_is_gone_is_that_of_the_file),
		TEST(code_of_a_page_that_was_wiped_is_that_of_the_file),
		TEST(other_code_is_what_the_guest_says),
		TEST(another_address_space_may_have_another_program_there),
		TEST(a_program_is_foreign_where_another_one_runs),
		TEST(a_kernel_or_unikernel_is_foreign_nowhere),
		TEST(programs_are_foreign_until_their_file_is_found),
		TEST(code_that_cannot_be_read_is_the_programs_where_no_other_one_was_seen),
		TEST(code_that_cannot_be_read_is_the_programs_where_it_was_found),
		TEST(names_alone_tell_no_starts_of_functions),
		TEST(tables_of_symbols_tell_starts_of_functions),
		TEST(linux_switches_where_schedule_is_and_not_in_what_it_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
