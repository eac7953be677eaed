/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/image_locator.h"

#include "symbol/images/code_fixture.h"

#define MS 1000000ull

/* A guest of one vCPU, with memory that a test makes. */
struct guest {
	struct target target;
	struct fake_memory memory;
	struct images *images;
	struct image_locator *locator;
	uint64_t took_ns;
	struct sample *sample;
	char notes[2048];
	bool flooded;	   /* kernel addresses are full of bytes that may be names */
	uint64_t flooding; /* bytes read of that memory */
};

#define KERNEL 0xffffffff80000000

/* Each 32 bytes begin markers of kallsyms; a page in 256 has tokens and their index. */
static size_t read_flood(struct guest *guest, uint64_t va, uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++, va++) {
		const uint16_t index = (uint16_t)(va & 0x1fe),
			       marker = (uint16_t)(va / 4 % 8 * 512);
		const bool tokens = (va >> 12 & 255) == 255;

		if (tokens && va & 0x200)
			buf[i] = (uint8_t)(index >> va % 2 * 8);
		else if (tokens)
			buf[i] = va & 1 ? 0 : 'a';
		else
			buf[i] = va & 2 ? 0 : (uint8_t)(marker >> va % 2 * 8);
	}
	guest->flooding += len;
	return len;
}

static size_t read_memory(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	struct guest *guest = (struct guest *)target;

	if (guest->flooded && va >= KERNEL)
		return read_flood(guest, va, buf, len);
	return fake_read(&((struct guest *)target)->memory, va, buf, len);
}

static const struct target_ops ops = {.scheme = "fake", .read = read_memory};

static void on_note(void *ctx, bool warning, const char *text)
{
	struct guest *guest = ctx;
	size_t len = strlen(guest->notes);

	snprintf(guest->notes + len, sizeof(guest->notes) - len, "%s%s\n",
		 warning ? "warning: " : "", text);
}

static void add(struct guest *guest, const struct code_fixture *f, bool given)
{
	struct image_spec spec = {.given = given, .names = true};
	char path[32];
	int fd;

	code_file(f, &fd, path);
	spec.path = path;
	assert_null(images_load(guest->images, &spec, NULL));
	close(fd);
}

static void begin(struct guest *guest)
{
	memset(guest, 0, sizeof(*guest));
	guest->target.ops = &ops;
	strcpy(guest->target.info.name, "web");
	assert_null(images_new(&guest->images));
	assert_null(sample_new(1, 4096, &guest->sample));
	guest->sample->vcpu[0].online = true;
	guest->sample->vcpu[0].regs.word = 8;
}

/* All files are loaded. */
static void ready(struct guest *guest)
{
	const struct image_locator_notes notes = {guest, on_note};

	assert_null(image_locator_new(&guest->target, guest->images, &notes, &guest->locator));
}

static struct error *sample_at(struct guest *guest, uint64_t time_ns, uint64_t pc)
{
	struct error *err;

	guest->sample->time_ns = time_ns;
	guest->sample->vcpu[0].regs.pc = pc;
	err = image_locator_sample(guest->locator, guest->sample, NULL, &guest->took_ns);
	while (!err && image_locator_busy(guest->locator))
		err = image_locator_work(guest->locator, 0);
	return err;
}

static void end(struct guest *guest)
{
	image_locator_free(guest->locator);
	images_free(guest->images);
	sample_free(guest->sample);
	fake_end(&guest->memory);
}

static void assert_refused(struct error *err, const char *ids)
{
	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_non_null(strstr(err->text, ids));
	error_free(err);
}

static const struct code_fixture app = {.va = 0x100000, .len = 0x4000, .id = 1};
static const struct code_fixture other = {.va = 0x100000, .len = 0x4000, .id = 2, .seed = 5};

static void a_file_is_found_at_the_first_sample_and_then_left_alone(void **state)
{
	struct guest guest;
	size_t reads;

	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	fake_load(&guest.memory, &app, 0x40000000);
	assert_null(sample_at(&guest, 1, 0x40101234));
	assert_int_equal(images_count(guest.images), 1);
	assert_int_equal(images_get(guest.images, 0)->slide, 0x40000000);
	assert_true(images_get(guest.images, 0)->checked);
	assert_true(images_get(guest.images, 0)->compared);
	reads = guest.memory.reads;
	for (uint64_t i = 0; i < 1000; i++)
		assert_null(sample_at(&guest, i * MS, 0x40101234));
	assert_int_equal(guest.memory.reads, reads);
	assert_null(image_locator_end(guest.locator));
	assert_null(strstr(guest.notes, "warning"));
	end(&guest);
}

static void a_guest_that_has_not_started_is_waited_for(void **state)
{
	struct guest guest;

	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	/* A boot loader runs, and the place of the program is used for something else. */
	fake_load(&guest.memory, &other, 0);
	fake_load(&guest.memory, &(struct code_fixture){.va = 0x7000, .len = 0x1000, .seed = 9}, 0);
	assert_null(sample_at(&guest, 1, 0x7123));
	assert_int_equal(images_count(guest.images), 0);
	fake_end(&guest.memory);
	fake_load(&guest.memory, &app, 0);
	assert_null(sample_at(&guest, 2, 0x101234));
	assert_int_equal(images_count(guest.images), 0);
	assert_null(sample_at(&guest, 100 * MS, 0x101234));
	assert_int_equal(images_count(guest.images), 1);
	assert_null(image_locator_end(guest.locator));
	end(&guest);
}

static void waiting_ends(void **state)
{
	struct guest guest;
	size_t reads;

	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	for (uint64_t s = 0; s < 7200; s++)
		assert_null(sample_at(&guest, s * 1000 * MS, 0x7123));
	reads = guest.memory.reads;
	assert_true(reads < 100000);
	assert_null(sample_at(&guest, 10000000 * MS, 0x7123));
	assert_int_equal(guest.memory.reads, reads);
	end(&guest);
}

/* A kernel that moves when it starts is in both places. */
static void a_second_place_is_found_when_the_guest_gets_there(void **state)
{
	struct guest guest;

	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	fake_load(&guest.memory, &app, 0);
	assert_null(sample_at(&guest, 1, 0x101234));
	fake_load(&guest.memory, &app, 0xffffffff80000000);
	assert_null(sample_at(&guest, 1000 * MS, 0xffffffff80101234));
	assert_int_equal(images_count(guest.images), 2);
	assert_non_null(images_at(guest.images, 0x100000));
	assert_non_null(images_at(guest.images, 0xffffffff80100000));
	end(&guest);
}

static void another_build_that_the_user_gave_is_an_error(void **state)
{
	struct guest guest;

	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	fake_load(&guest.memory, &other, 0);
	assert_refused(sample_at(&guest, 1, 0x101234), "0202020202");
	assert_int_equal(images_count(guest.images), 0);
	end(&guest);
	/* Somewhere else, so that there is doubt until the end. */
	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	fake_load(&guest.memory, &other, 0);
	fake_load(&guest.memory, &other, 0x40000000);
	assert_null(sample_at(&guest, 1, 0x40101234));
	assert_refused(image_locator_end(guest.locator), "0101010101");
	end(&guest);
}

static void another_build_that_the_toolstack_named_is_dropped(void **state)
{
	struct guest guest;
	uint64_t va;

	begin(&guest);
	add(&guest, &app, false);
	ready(&guest);
	fake_load(&guest.memory, &other, 0);
	assert_null(sample_at(&guest, 1, 0x101234));
	assert_int_equal(images_count(guest.images), 0);
	assert_non_null(strstr(guest.notes, "warning: "));
	assert_non_null(strstr(guest.notes, "is not used"));
	assert_string_equal(image_locator_seen(guest.locator, &va),
			    "0202020202020202020202020202020202020202");
	assert_int_equal(va, 0x104000);
	assert_null(image_locator_end(guest.locator));
	end(&guest);
}

static void begin_with_a_program(struct guest *guest)
{
	begin(guest);
	add(guest, &app, true);
	ready(guest);
	guest->sample->vcpu[0].regs.user = true;
	guest->sample->vcpu[0].regs.mmu.mode = MMU_X86_4;
}

/* A user's program of a Linux guest may be in the place of another one. */
static void programs_in_user_mode_are_no_proof(void **state)
{
	struct guest guest;

	begin_with_a_program(&guest);
	fake_load(&guest.memory, &other, 0);
	assert_null(sample_at(&guest, 1, 0x101234));
	fake_end(&guest.memory);
	fake_load(&guest.memory, &app, 0);
	assert_null(sample_at(&guest, 1000 * MS, 0x101234));
	assert_int_equal(images_count(guest.images), 1);
	assert_null(image_locator_end(guest.locator));
	end(&guest);
}

static void a_program_that_did_not_run_is_no_error(void **state)
{
	struct guest guest;

	begin_with_a_program(&guest);
	fake_load(&guest.memory, &other, 0);
	assert_null(sample_at(&guest, 1, 0x101234));
	assert_null(image_locator_end(guest.locator));
	assert_non_null(
		strstr(guest.notes, "was not found in the guest's memory and names nothing"));
	end(&guest);
}

/* By the host's side no vCPU of an idle guest has registers. */
static void a_guest_that_never_ran_proves_nothing_about_a_file(void **state)
{
	struct guest guest;

	begin_with_a_program(&guest);
	fake_load(&guest.memory, &app, 0);
	guest.sample->vcpu[0].regs.word = 0;
	for (uint64_t s = 1; s < 100; s++)
		assert_null(sample_at(&guest, s * 1000 * MS, 0));
	guest.sample->vcpu[0].regs.word = 8;
	assert_null(sample_at(&guest, 100 * 1000 * MS, 0x101234));
	assert_true(images_get(guest.images, 0)->checked);
	assert_null(image_locator_end(guest.locator));
	end(&guest);

	begin_with_a_program(&guest);
	guest.sample->vcpu[0].regs.word = 0;
	assert_null(sample_at(&guest, 1, 0));
	assert_null(image_locator_end(guest.locator));
	assert_string_equal(guest.notes, "");
	end(&guest);
}

/* The kernel has been found; the programs that run on it are not its business. */
static void programs_without_a_file_are_not_looked_for(void **state)
{
	struct code_fixture kernel = {.va = 0xffffffff81000000, .len = 0x4000, .id = 1};
	struct guest guest;
	size_t reads;

	begin(&guest);
	add(&guest, &kernel, true);
	ready(&guest);
	fake_load(&guest.memory, &kernel, 0);
	assert_null(sample_at(&guest, 1, 0xffffffff81001234));
	reads = guest.memory.reads;
	guest.sample->vcpu[0].regs.user = true;
	for (uint64_t s = 1; s < 100; s++)
		assert_null(sample_at(&guest, s * 1000 * MS, 0x401234));
	assert_int_equal(guest.memory.reads, reads);
	end(&guest);
}

static void what_cannot_be_read_is_taken_on_trust_and_said(void **state)
{
	struct guest guest;

	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	assert_null(sample_at(&guest, 1, 0x101234));
	assert_int_equal(images_count(guest.images), 1);
	assert_false(images_get(guest.images, 0)->checked);
	assert_null(image_locator_end(guest.locator));
	assert_non_null(strstr(guest.notes, "cannot be checked"));
	end(&guest);
}

static void return_addresses_on_the_stack_are_looked_at(void **state)
{
	static uint64_t stack[4] = {1, 2, 0x7f0000101234, 3};
	struct guest guest;

	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	fake_load(&guest.memory, &app, 0x7f0000000000);
	/* A page of code that is in no file: the guest is idle. */
	memset(fake_part(&guest.memory, 0x5000, 4096), 0xf4, 4096);
	guest.sample->vcpu[0].stack =
		(struct window){.va = 0x8000, .len = sizeof(stack), .bytes = (void *)stack};
	assert_null(sample_at(&guest, 1, 0x5010));
	assert_int_equal(images_count(guest.images), 1);
	assert_int_equal(images_get(guest.images, 0)->slide, 0x7f0000000000);
	end(&guest);
}

/* No vCPU is ever seen in it, and it is not where it was linked. */
static void a_program_that_waits_is_found_by_a_view_of_its_own(void **state)
{
	const struct regs regs = {.pc = 0x7f0000101234,
				  .word = 8,
				  .user = true,
				  .mmu = {.mode = MMU_X86_4, .root = 0x7000}};
	const struct window stack = {.va = 0x7ffc1000};
	struct guest guest;

	begin_with_a_program(&guest);
	fake_load(&guest.memory, &app, 0x7f0000000000);
	memset(fake_part(&guest.memory, 0x5000, 4096), 0xf4, 4096);
	assert_null(sample_at(&guest, 1, 0x5678));
	assert_int_equal(images_count(guest.images), 0);
	/* More than there is room for: the last ones count. */
	for (unsigned i = 0; i < 10; i++)
		image_locator_offer(guest.locator, &regs, &stack);
	assert_null(sample_at(&guest, 1000 * MS, 0x5678));
	assert_int_equal(images_count(guest.images), 1);
	assert_true(images_get(guest.images, 0)->slide == 0x7f0000000000);
	assert_int_equal(images_get(guest.images, 0)->space, 0x7000);
	assert_true(images_get(guest.images, 0)->program);
	end(&guest);
}

static void without_a_file_the_guest_s_build_id_is_seen(void **state)
{
	struct guest guest;
	uint64_t va;

	begin(&guest);
	ready(&guest);
	fake_load(&guest.memory, &other, 0x1000);
	assert_null(sample_at(&guest, 1, 0x102234));
	assert_string_equal(image_locator_seen(guest.locator, &va),
			    "0202020202020202020202020202020202020202");
	assert_int_equal(va, 0x105000);
	assert_null(image_locator_end(guest.locator));
	end(&guest);
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

static void a_flood_is_given_up_which_is_said_once(void **state)
{
	struct guest guest;
	uint64_t flooding;

	begin(&guest);
	ready(&guest);
	guest.flooded = true;
	assert_null(sample_at(&guest, 1, KERNEL + 0x1000000));
	assert_int_equal(count(guest.notes, "was given up"), 1);
	flooding = guest.flooding;
	/* A gigabyte is there. */
	assert_true(flooding < 256 << 20);
	for (uint64_t s = 1; s < 100; s++)
		assert_null(sample_at(&guest, s * 1000 * MS, KERNEL + 0x1000000));
	assert_int_equal(count(guest.notes, "was given up"), 1);
	/* Only build ids are looked for again. */
	assert_true(guest.flooding < 2 * flooding);
	assert_null(image_locator_end(guest.locator));
	end(&guest);
}

static void a_search_ends_when_it_is_to_stop(void **state)
{
	volatile sig_atomic_t stop = 1;
	struct guest guest;

	begin(&guest);
	add(&guest, &app, true);
	ready(&guest);
	guest.flooded = true;
	guest.sample->time_ns = 1;
	guest.sample->vcpu[0].regs.pc = KERNEL + 0x1000000;
	assert_null(image_locator_sample(guest.locator, guest.sample, &stop, &guest.took_ns));
	assert_true(image_locator_busy(guest.locator));
	assert_null(image_locator_end(guest.locator));
	assert_false(image_locator_busy(guest.locator));
	/* It proves nothing. */
	assert_string_equal(guest.notes, "");
	end(&guest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_found_at_the_first_sample_and_then_left_alone),
		cmocka_unit_test(a_guest_that_has_not_started_is_waited_for),
		cmocka_unit_test(waiting_ends),
		cmocka_unit_test(a_second_place_is_found_when_the_guest_gets_there),
		cmocka_unit_test(another_build_that_the_user_gave_is_an_error),
		cmocka_unit_test(another_build_that_the_toolstack_named_is_dropped),
		cmocka_unit_test(programs_in_user_mode_are_no_proof),
		cmocka_unit_test(a_program_that_did_not_run_is_no_error),
		cmocka_unit_test(a_guest_that_never_ran_proves_nothing_about_a_file),
		cmocka_unit_test(programs_without_a_file_are_not_looked_for),
		cmocka_unit_test(what_cannot_be_read_is_taken_on_trust_and_said),
		cmocka_unit_test(return_addresses_on_the_stack_are_looked_at),
		cmocka_unit_test(a_program_that_waits_is_found_by_a_view_of_its_own),
		cmocka_unit_test(a_flood_is_given_up_which_is_said_once),
		cmocka_unit_test(a_search_ends_when_it_is_to_stop),
		cmocka_unit_test(without_a_file_the_guest_s_build_id_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
