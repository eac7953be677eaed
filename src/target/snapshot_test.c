/* SPDX-License-Identifier: BSD-3-Clause */

/* Snapshots are written here and read by the replay target. */

#include "target/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void a_frame_is_what_was_stored_last(void **state)
{
	uint8_t bytes[FRAME_SIZE] = {1, 2, 3};
	struct frame_store *store;
	bool changed = false;

	assert_null(frame_store_new(&store));
	assert_null(frame_store_get(store, 7));
	assert_null(frame_store_put(store, 7, bytes, &changed));
	assert_true(changed);
	assert_memory_equal(frame_store_get(store, 7), bytes, FRAME_SIZE);
	assert_null(frame_store_put(store, 7, bytes, &changed));
	assert_false(changed);
	bytes[4095] = 9;
	assert_null(frame_store_put(store, 7, bytes, &changed));
	assert_true(changed);
	assert_memory_equal(frame_store_get(store, 7), bytes, FRAME_SIZE);
	assert_null(frame_store_get(store, 8));
	frame_store_free(store);
}

static void many_frames_are_kept_apart(void **state)
{
	uint8_t bytes[FRAME_SIZE] = {0};
	struct frame_store *store;
	bool changed;

	assert_null(frame_store_new(&store));
	for (uint64_t i = 0; i < 1000; i++) {
		memcpy(bytes, &i, sizeof(i));
		assert_null(frame_store_put(store, i << (i % 50), bytes, &changed));
	}
	for (uint64_t i = 999; i > 950; i--) {
		uint64_t found;

		memcpy(&found, frame_store_get(store, i << (i % 50)), sizeof(found));
		assert_int_equal(found, i);
	}
	frame_store_free(store);
}

#define STACK_VA 0x7f0000010000ull

static char path[] = "/tmp/uniprof-snapshot-test-XXXXXX";
static uint8_t memory[16][FRAME_SIZE];
static struct sample *written, *got;

static void put(unsigned gfn, unsigned index, uint64_t entry)
{
	memcpy(memory[gfn] + 8 * index, &entry, 8);
}

/* Tables in frames 1 to 4 map two pages of stack at STACK_VA: frames 10 and 11. */
static int build(void **state)
{
	struct regs *regs;

	memset(memory, 0, sizeof(memory));
	put(1, STACK_VA >> 39 & 511, 0x2001);
	put(2, STACK_VA >> 30 & 511, 0x3001);
	put(3, STACK_VA >> 21 & 511, 0x4001);
	put(4, STACK_VA >> 12 & 511, 0xa001);
	put(4, (STACK_VA >> 12 & 511) + 1, 0xb001);
	memset(memory[10], 0xaa, FRAME_SIZE);
	memset(memory[11], 0xbb, FRAME_SIZE / 2);
	assert_null(sample_new(2, 16384, &written));
	assert_null(sample_new(2, 16384, &got));
	got->vcpu[0].request.want = 16384;
	written->time_ns = 5000000000;
	written->paused_ns = 12345;
	written->stolen_ns = 77;
	written->retakes = 1;
	written->vcpu[0].online = true;
	written->vcpu[0].state = VCPU_BLOCKED;
	regs = &written->vcpu[0].regs;
	*regs = (struct regs){.pc = 0xffffffff81000000,
			      .sp = STACK_VA + 0xff0,
			      .fp = STACK_VA + 0xff8,
			      .flags = 0x246,
			      .gp_valid = 0x80000009,
			      .gp = {[0] = 1, [3] = UINT64_MAX, [31] = 31},
			      .word = 8,
			      .user = true,
			      .mmu = {.mode = MMU_X86_4, .root = 0x1000, .pse = true}};
	strcpy(path, "/tmp/uniprof-snapshot-test-XXXXXX");
	close(mkstemp(path));
	return 0;
}

static int teardown(void **state)
{
	sample_free(written);
	sample_free(got);
	unlink(path);
	return 0;
}

static struct snapshot_writer *create(void)
{
	struct target_info info = {.name = "web",
				   .id = "7",
				   .type = "pvh",
				   .host = "Xen 4.17",
				   .image = "/boot/web",
				   .arch = &arch_x86_64,
				   .vcpus = 2};
	struct snapshot_writer *writer;

	assert_null(snapshot_create(path, &info, &writer));
	return writer;
}

static void write_frames(struct snapshot_writer *writer)
{
	static const unsigned used[] = {1, 2, 3, 4, 10, 11};

	for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++)
		assert_null(snapshot_frame(writer, used[i], memory[used[i]]));
}

/* A snapshot of two samples, between which the upper stack page changes. */
static void write_two(void)
{
	struct snapshot_writer *writer = create();

	write_frames(writer);
	assert_null(snapshot_sample(writer, written));
	memset(memory[11], 0xcc, 16);
	written->time_ns += 1000;
	write_frames(writer);
	assert_null(snapshot_sample(writer, written));
	assert_null(snapshot_close(writer));
}

static struct target *replay(void)
{
	struct target *target;

	assert_null(target_replay.open(path, NULL, &target));
	return target;
}

static void assert_error(struct error *err, enum error_kind kind)
{
	assert_non_null(err);
	assert_int_equal(err->kind, kind);
	error_free(err);
}

static void the_guest_is_described(void **state)
{
	struct target *target;

	write_two();
	target = replay();
	assert_string_equal(target->info.name, "web");
	assert_string_equal(target->info.id, "7");
	assert_string_equal(target->info.type, "pvh");
	assert_string_equal(target->info.host, "Xen 4.17");
	assert_string_equal(target->info.image, "/boot/web");
	assert_ptr_equal(target->info.arch, &arch_x86_64);
	assert_int_equal(target->info.vcpus, 2);
	target_replay.close(target);
}

static void samples_come_back_as_they_were(void **state)
{
	struct target *target;
	uint64_t first;

	write_two();
	target = replay();
	assert_int_equal(target_replay.life(target), LIFE_RUNS);
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->paused_ns, 12345);
	assert_int_equal(got->stolen_ns, 77);
	assert_int_equal(got->retakes, 1);
	assert_true(got->vcpu[0].online);
	assert_false(got->vcpu[1].online);
	assert_int_equal(got->vcpu[0].state, VCPU_BLOCKED);
	assert_memory_equal(&got->vcpu[0].regs, &written->vcpu[0].regs, sizeof(struct regs));
	assert_int_equal(got->vcpu[0].stack.va, STACK_VA + 0xff0);
	assert_int_equal(got->vcpu[0].stack.len, 0x1010);
	assert_false(got->vcpu[0].stack.cut);
	assert_int_equal(got->vcpu[0].stack.bytes[15], 0xaa);
	assert_int_equal(got->vcpu[0].stack.bytes[16], 0xbb);
	assert_int_equal(got->vcpu[0].stack.bytes[0x100f], 0);
	first = got->time_ns;
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->time_ns, first + 1000);
	assert_int_equal(got->vcpu[0].stack.bytes[16], 0xcc);
	assert_int_equal(target_replay.life(target), LIFE_GONE);
	assert_error(target_replay.sample(target, got), ERR_ENDED);
	target_replay.close(target);
}

static void code_in_segments_comes_back_as_such(void **state)
{
	static const uint8_t kinds[] = {16, 32, 0};
	struct regs *regs = &written->vcpu[0].regs;

	regs->word = 4;
	regs->mmu.mode = MMU_OFF;
	for (size_t i = 0; i < sizeof(kinds); i++) {
		struct target *target;

		regs->segmented = kinds[i];
		write_two();
		target = replay();
		assert_null(target_replay.sample(target, got));
		assert_int_equal(got->vcpu[0].regs.word, 4);
		assert_int_equal(got->vcpu[0].regs.segmented, kinds[i]);
		target_replay.close(target);
	}
}

static void registers_of_arm_come_back_as_they_were(void **state)
{
	struct regs *regs = &written->vcpu[0].regs;
	struct target *target;

	regs->isa = ISA_ARM;
	regs->has_elr = true;
	regs->elr = 0x400220;
	regs->spsr = 0x80000000;
	/* Each by itself: padding is compared, too. */
	regs->mmu.mode = MMU_ARM64;
	regs->mmu.root = 0x1000;
	regs->mmu.pse = false;
	regs->mmu.root_high = 0x12000000002000;
	regs->mmu.control = 0x32b5503510;
	write_two();
	target = replay();
	assert_null(target_replay.sample(target, got));
	assert_memory_equal(&got->vcpu[0].regs, regs, sizeof(*regs));
	target_replay.close(target);
}

static void registers_of_riscv_come_back_as_they_were(void **state)
{
	struct regs *regs = &written->vcpu[0].regs;
	struct target *target;

	regs->isa = ISA_RISCV;
	regs->has_elr = true;
	regs->elr = 0x80200220;
	regs->gp_valid = UINT32_MAX;
	regs->mmu.mode = MMU_RISCV_57;
	regs->mmu.root = 0x80345000;
	regs->mmu.pse = false;
	write_two();
	target = replay();
	assert_null(target_replay.sample(target, got));
	assert_memory_equal(&got->vcpu[0].regs, regs, sizeof(*regs));
	target_replay.close(target);
}

static void a_translation_of_another_processor_is_damage(void **state)
{
	static const uint8_t isa[] = {ISA_X86, ISA_ARM, ISA_RISCV, ISA_RISCV, ISAS};
	static const enum mmu_mode mode[] = {MMU_ARM64, MMU_X86_5, MMU_ARM64, MMU_MODES, MMU_OFF};

	for (size_t i = 0; i < sizeof(isa); i++) {
		struct target *target;

		written->vcpu[0].regs.isa = isa[i];
		written->vcpu[0].regs.mmu.mode = mode[i];
		write_two();
		assert_error(target_replay.open(path, NULL, &target), ERR_INPUT);
	}
}

static void asking_for_more_gives_the_same_sample_again(void **state)
{
	struct target *target;

	write_two();
	target = replay();
	got->vcpu[0].request.want = 8;
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->vcpu[0].stack.len, 8);
	assert_true(got->vcpu[0].stack.cut);
	got->vcpu[0].request.want = 64;
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->vcpu[0].stack.len, 64);
	assert_int_equal(got->vcpu[0].stack.bytes[16], 0xbb);
	got->vcpu[0].request.other[1].va = STACK_VA;
	got->vcpu[0].request.other[1].want = 32;
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->vcpu[0].others[1].va, STACK_VA);
	assert_int_equal(got->vcpu[0].others[1].len, 32);
	assert_int_equal(got->vcpu[0].others[1].bytes[0], 0xaa);
	assert_int_equal(got->vcpu[0].stack.bytes[16], 0xbb);
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->vcpu[0].stack.bytes[16], 0xcc);
	assert_error(target_replay.sample(target, got), ERR_ENDED);
	target_replay.close(target);
}

static void memory_is_read_through_the_page_tables(void **state)
{
	const struct regs *regs = &written->vcpu[0].regs;
	struct target *target;
	uint8_t bytes[32];

	write_two();
	target = replay();
	assert_int_equal(target_read(target, regs, STACK_VA, bytes, 32), 0);
	assert_null(target_replay.sample(target, got));
	assert_int_equal(target_read(target, regs, STACK_VA + 0xff0, bytes, 32), 32);
	assert_int_equal(bytes[15], 0xaa);
	assert_int_equal(bytes[16], 0xbb);
	assert_int_equal(target_read(target, regs, STACK_VA + 0x1ff0, bytes, 32), 16);
	assert_int_equal(target_read(target, regs, STACK_VA + 0x5000, bytes, 32), 0);
	target_replay.close(target);
}

static void a_frame_is_written_again_only_when_it_changed(void **state)
{
	long once, thrice;
	struct snapshot_writer *writer = create();
	FILE *file;

	write_frames(writer);
	assert_null(snapshot_close(writer));
	file = fopen(path, "r");
	fseek(file, 0, SEEK_END);
	once = ftell(file);
	fclose(file);
	writer = create();
	for (int i = 0; i < 3; i++)
		write_frames(writer);
	assert_null(snapshot_close(writer));
	file = fopen(path, "r");
	fseek(file, 0, SEEK_END);
	thrice = ftell(file);
	fclose(file);
	assert_int_equal(once, thrice);
}

static void the_first_contents_of_a_frame_in_a_sample_count(void **state)
{
	struct snapshot_writer *writer = create();
	struct target *target;

	write_frames(writer);
	memset(memory[11], 0xdd, 16);
	write_frames(writer);
	assert_null(snapshot_sample(writer, written));
	assert_null(snapshot_frame(writer, 11, memory[10]));
	snapshot_restart(writer);
	write_frames(writer);
	assert_null(snapshot_sample(writer, written));
	assert_null(snapshot_close(writer));
	target = replay();
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->vcpu[0].stack.bytes[16], 0xbb);
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->vcpu[0].stack.bytes[16], 0xdd);
	target_replay.close(target);
}

static void stack_that_was_not_recorded_counts_as_cut_off(void **state)
{
	struct snapshot_writer *writer = create();
	struct target *target;

	for (unsigned i = 1; i <= 10; i++)
		assert_null(snapshot_frame(writer, i, memory[i]));
	assert_null(snapshot_sample(writer, written));
	assert_null(snapshot_close(writer));
	target = replay();
	assert_null(target_replay.sample(target, got));
	assert_int_equal(got->vcpu[0].stack.len, 16);
	assert_true(got->vcpu[0].stack.cut);
	target_replay.close(target);
}

static size_t read_file(uint8_t *bytes, size_t size)
{
	FILE *file = fopen(path, "r");
	size_t len = fread(bytes, 1, size, file);

	fclose(file);
	assert_true(len < size);
	return len;
}

static void write_file(const uint8_t *bytes, size_t len)
{
	FILE *file = fopen(path, "w");

	assert_int_equal(fwrite(bytes, 1, len, file), len);
	fclose(file);
}

/* Takes all samples that there are; returns how many, -1 if the file is refused. */
static int take_all(void)
{
	struct target *target;
	struct error *err = target_replay.open(path, NULL, &target);
	int n = 0;

	if (err) {
		assert_error(err, ERR_INPUT);
		return -1;
	}
	while (!(err = target_replay.sample(target, got)))
		n++;
	assert_error(err, ERR_ENDED);
	target_replay.close(target);
	return n;
}

static void a_file_that_ends_anywhere_gives_its_whole_samples(void **state)
{
	static uint8_t bytes[65536];
	size_t len;
	int before = -1;

	write_two();
	len = read_file(bytes, sizeof(bytes));
	for (size_t cut = 0; cut <= len; cut += cut < 100 || cut > len - 100 ? 1 : 61) {
		int n;

		write_file(bytes, cut);
		n = take_all();
		assert_true(n >= before && n <= 2);
		before = n;
	}
	assert_int_equal(before, 2);
}

static void a_changed_byte_is_noticed(void **state)
{
	static uint8_t bytes[65536];
	size_t len;

	write_two();
	len = read_file(bytes, sizeof(bytes));
	for (size_t at = 0; at < len; at += at < 100 || at > len - 150 ? 1 : 61) {
		int n;

		bytes[at] ^= 0x20;
		write_file(bytes, len);
		n = take_all();
		/* A length that became too large looks like the end of the file. */
		assert_true(n < 2 || at > len - 20);
		bytes[at] ^= 0x20;
	}
}

static void other_files_are_refused(void **state)
{
	struct target *target;

	assert_error(target_replay.open("/nonexistent/file", NULL, &target), ERR_INPUT);
	assert_error(target_replay.open("/tmp", NULL, &target), ERR_INPUT);
	assert_error(target_replay.open("/dev/null", NULL, &target), ERR_INPUT);
	write_file((const uint8_t *)"uniprof-snapshot", 16);
	assert_int_equal(take_all(), -1);
	write_file((const uint8_t *)"something else, of some length", 30);
	assert_int_equal(take_all(), -1);
}

static void a_file_that_cannot_be_written_is_an_error(void **state)
{
	struct target_info info = {.arch = &arch_x86_64, .vcpus = 1};
	struct snapshot_writer *writer;

	assert_error(snapshot_create("/nonexistent/file", &info, &writer), ERR_OUTPUT);
	assert_null(snapshot_create("/dev/full", &info, &writer));
	assert_error(snapshot_close(writer), ERR_OUTPUT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, build, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_is_what_was_stored_last),
		cmocka_unit_test(many_frames_are_kept_apart),
		TEST(the_guest_is_described),
		TEST(samples_come_back_as_they_were),
		TEST(code_in_segments_comes_back_as_such),
		TEST(registers_of_arm_come_back_as_they_were),
		TEST(registers_of_riscv_come_back_as_they_were),
		TEST(a_translation_of_another_processor_is_damage),
		TEST(asking_for_more_gives_the_same_sample_again),
		TEST(memory_is_read_through_the_page_tables),
		TEST(a_frame_is_written_again_only_when_it_changed),
		TEST(the_first_contents_of_a_frame_in_a_sample_count),
		TEST(stack_that_was_not_recorded_counts_as_cut_off),
		TEST(a_file_that_ends_anywhere_gives_its_whole_samples),
		TEST(a_changed_byte_is_noticed),
		TEST(other_files_are_refused),
		TEST(a_file_that_cannot_be_written_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
