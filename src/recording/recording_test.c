/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/testing.h"

#include <math.h>

#include "base/bytes.h"

#define MS UINT64_C(1000000)

static const struct frame frames[] = {
	{0xffffffff81000123, FRAME_PC, TRUST_SURE},
	{0xffffffff81234567, FRAME_RETURN, TRUST_GUESS},
	{0x10, FRAME_RETURN, TRUST_SURE},
	{UINT64_MAX, FRAME_RETURN, TRUST_SURE},
};

static uint32_t intern(struct stacks *stacks, const struct frame *chain, size_t n)
{
	bool whole;
	uint32_t id;

	assert_success(stacks_intern(stacks, chain, n, &id, &whole));
	assert_true(whole);
	return id;
}

static void test_what_is_written_is_read(void **state)
{
	struct recording_info info = {.tool = (char *)"uniprof 1",
				      .guest_name = (char *)"web \"1\"\n\xc3\xa9",
				      .image = (char *)"/a/b\xff.elf",
				      .vcpus = 7,
				      .rate_hz = 997.5};
	struct recording_end end = {.elapsed_ns = 12345678901,
				    .missed = 3,
				    .retakes = 4,
				    .failed = 5,
				    .reason = (char *)"interrupted"};
	struct memory_file file = memory_file_new();
	struct recording_writer *writer;
	struct tick_entry entries[3];
	struct tick tick = {.entries = entries, .time_ns = 5, .weight_ns = 10, .paused_ns = 7};
	struct stacks *stacks;
	struct heard heard;
	const char *want = "info uniprof 1 web \"1\"\n\xc3\xa9 /a/b?.elf 7 997.5\n"
			   "tick 5 10 7\n"
			   " 0 0 0 ffffffff81000123ps ffffffff81234567r? 10rs ffffffffffffffffrs "
			   "cpu 1000\n"
			   " 2 1 3 cpu 7000\n"
			   " 6 2 5 ffffffff81234567r? 10rs ffffffffffffffffrs\n"
			   "name ffffffff81000123 0 f 0\n"
			   "tick 5 10 18446744073709551615\n"
			   "tick 18446744073709551615 18446744073709551614 0\n"
			   " 6 2 5 ffffffff81234567r? 10rs ffffffffffffffffrs\n"
			   "name 10 1 main 16\n"
			   "end 12345678901 3 4 5 interrupted\n";

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	entries[0] = (struct tick_entry){0, intern(stacks, frames, 4), 0, 0, 1999, 0, 0};
	entries[1] = (struct tick_entry){2, STACK_ROOT, VCPU_RUNNABLE, 3, 7000, 0, 0};
	entries[2] =
		(struct tick_entry){6, intern(stacks, frames + 1, 3), VCPU_BLOCKED, 5, 0, 0, 0};
	tick.n = 3;
	assert_success(recording_tick(writer, &tick));
	assert_success(recording_name(writer, frames[0].addr, FRAME_PC, "f", 0));
	tick.n = 0;
	tick.paused_ns = UINT64_MAX;
	assert_success(recording_tick(writer, &tick));
	tick = (struct tick){.time_ns = UINT64_MAX,
			     .weight_ns = UINT64_MAX - 1,
			     .n = 1,
			     .entries = entries + 2};
	assert_success(recording_tick(writer, &tick));
	assert_success(recording_name(writer, 0x10, FRAME_RETURN, "main", 16));
	assert_success(recording_close(writer, &end));
	assert_success(hear(file.path, &heard));
	assert_string_equal(heard.text, want);
	assert_false(heard.cut);
	heard_free(&heard);
	stacks_free(stacks);
	close(file.fd);
}

/* A recording with a sample in each of these chains: [n][2], leaf first. */
static struct memory_file record_chains(const struct frame (*chains)[2], size_t n)
{
	struct recording_info info = {.vcpus = 1};
	struct recording_end end = {.elapsed_ns = n};
	struct memory_file file = memory_file_new();
	struct recording_writer *writer;
	struct stacks *stacks;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	for (size_t i = 0; i < n; i++) {
		struct tick_entry entry = {.stack = intern(stacks, chains[i], 2)};

		assert_success(
			recording_tick(writer,
				       &(struct tick){.time_ns = i, .n = 1, .entries = &entry}));
	}
	assert_success(recording_close(writer, &end));
	stacks_free(stacks);
	return file;
}

/* The leaves of the chains, as they are met. */
struct leaves {
	struct stacks *stacks;
	uint64_t addr[8];
	size_t n;
};

static struct error *take_leaf(void *ctx, const struct tick *tick)
{
	struct leaves *leaves = ctx;

	leaves->addr[leaves->n++] = stacks_node(leaves->stacks, tick->entries[0].stack)->addr;
	return NULL;
}

static void expect_leaves(struct stacks *stacks, const struct memory_file *file,
			  const struct frame (*chains)[2], size_t n)
{
	struct leaves leaves = {.stacks = stacks};
	const struct recording_visitor visitor = {.ctx = &leaves, .tick = take_leaf};
	bool cut;

	assert_success(recording_read(file->path, stacks, &visitor, &cut));
	assert_int_equal(leaves.n, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(leaves.addr[i], chains[i][0].addr);
}

static void test_files_share_a_store_and_one_read_again_adds_nothing(void **state)
{
	const struct frame first[][2] = {{frames[0], frames[3]}, {frames[1], frames[3]}};
	const struct frame second[][2] = {{frames[0], frames[3]},
					  {frames[2], frames[1]},
					  {frames[1], frames[3]},
					  {frames[1], frames[2]}};
	struct memory_file files[] = {record_chains(first, 2), record_chains(second, 4)};
	struct stacks *stacks;

	assert_success(stacks_new(&stacks));
	expect_leaves(stacks, &files[0], first, 2);
	assert_int_equal(stacks_count(stacks), 4);
	expect_leaves(stacks, &files[0], first, 2);
	assert_int_equal(stacks_count(stacks), 4);
	assert_true(stacks_may_append(stacks));
	expect_leaves(stacks, &files[1], second, 4);
	assert_int_equal(stacks_count(stacks), 8);
	expect_leaves(stacks, &files[0], first, 2);
	expect_leaves(stacks, &files[1], second, 4);
	assert_int_equal(stacks_count(stacks), 8);
	stacks_free(stacks);
	close(files[0].fd);
	close(files[1].fd);
}

/* A number below `n`, the same ones in every run. */
static uint32_t below(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)*seed * n) >> 32);
}

#define RANDOM_THREADS 300u

static void random_tick(struct stacks *stacks, uint32_t *seed, uint32_t vcpus, struct tick *tick,
			struct tick_entry *entries)
{
	tick->n = 0;
	tick->entries = entries;
	tick->time_ns += below(seed, 4) ? MS : below(seed, 1u << 30);
	tick->weight_ns = below(seed, 3) ? tick->weight_ns : below(seed, 1u << 31);
	tick->paused_ns = below(seed, 1u << below(seed, 31));
	for (uint32_t vcpu = 0; vcpu < vcpus; vcpu++) {
		struct tick_entry *entry = &entries[vcpu];
		struct frame chain[8];
		size_t n = below(seed, 9);

		if (below(seed, 4)) /* as it was */
			n = 9;
		for (size_t i = 0; i < n && n < 9; i++)
			chain[i] = (struct frame){(uint64_t)below(seed, 6) << below(seed, 60),
						  (uint8_t)below(seed, 2), (uint8_t)below(seed, 2)};
		if (n < 9)
			*entry = (struct tick_entry){vcpu,
						     intern(stacks, chain, n),
						     (uint8_t)below(seed, VCPU_STATES),
						     (uint8_t)below(seed, UNWIND_ENDS),
						     0,
						     entry->thread,
						     0};
		entry->ran_ns = below(seed, 2) * (uint64_t)below(seed, 1 << 30) * 1000;
		if (!below(seed, 3))
			entry->thread = below(seed, RANDOM_THREADS + 1);
	}
	tick->n = vcpus;
}

/* Takes some vCPUs off-line. */
static void thin(uint32_t *seed, struct tick *tick, struct tick_entry *to)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < tick->n; i++)
		if (below(seed, 8))
			to[n++] = tick->entries[i];
	tick->n = n;
	tick->entries = to;
}

static void test_random_ticks_come_back_exactly(void **state)
{
	for (uint32_t round = 1; round <= 12; round++) {
		uint32_t vcpus = round * round, seed = round;
		struct recording_info info = {.vcpus = vcpus};
		struct tick_entry entries[150] = {0}, some[150];
		struct memory_file file = memory_file_new();
		struct heard want = {0}, heard;
		struct recording_writer *writer;
		struct tick tick = {0};

		for (uint32_t vcpu = 0; vcpu < vcpus; vcpu++)
			entries[vcpu].vcpu = vcpu;
		want.log = open_memstream(&want.text, &want.len);
		assert_success(stacks_new(&want.stacks));
		assert_success(recording_create(file.path, &info, want.stacks, &writer));
		hear_info(&want, &info);
		for (uint32_t i = 1; i <= RANDOM_THREADS; i++) {
			const struct recorded_thread thread = {i,     i,   i,	false,
							       false, "a", "b", NULL};

			assert_success(recording_thread(writer, &thread));
			hear_thread(&want, i, &thread);
		}
		for (int i = 0; i < 2000; i++) {
			struct tick seen;

			random_tick(want.stacks, &seed, vcpus, &tick, entries);
			seen = tick;
			thin(&seed, &seen, some);
			assert_success(recording_tick(writer, &seen));
			hear_tick(&want, &seen);
		}
		assert_success(recording_close(writer, NULL));
		fclose(want.log);
		assert_success(hear(file.path, &heard));
		assert_string_equal(heard.text, want.text);
		assert_true(heard.cut); /* there was no end */
		heard_free(&heard);
		heard_free(&want);
		close(file.fd);
	}
}

/* Bytes of a file with this many ticks of a guest with one vCPU and `chains` stacks. */
static size_t size_of(uint32_t ticks, uint32_t chains, uint32_t vcpus)
{
	struct memory_file file = memory_file_new();
	struct recording_info info = {.vcpus = vcpus};
	struct tick_entry entries[64] = {0};
	struct tick tick = {.n = vcpus, .entries = entries, .weight_ns = MS};
	struct recording_writer *writer;
	struct stacks *stacks;
	uint32_t seed = 1;
	size_t len;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	for (uint32_t i = 0; i < ticks; i++) {
		struct frame chain[2] = {{0x10000 + below(&seed, chains) * 16, FRAME_PC, 0},
					 {0xffff, FRAME_RETURN, 0}};

		for (uint32_t vcpu = 0; vcpu < vcpus; vcpu++)
			entries[vcpu].vcpu = vcpu;
		entries[vcpus - 1].stack = intern(stacks, chain, 2);
		tick.time_ns += MS * 9 / 10 + below(&seed, MS / 5);
		tick.paused_ns = 15000 + below(&seed, 8000);
		assert_success(recording_tick(writer, &tick));
	}
	assert_success(recording_close(writer, NULL));
	free(memory_file_get(&file, &len));
	stacks_free(stacks);
	close(file.fd);
	return len;
}

static void test_a_tick_takes_few_bytes(void **state)
{
	/* The bounds leave room for the head, and for a check a second. */
	assert_in_range(size_of(100000, 1000, 1), 800000, 1000000);
	assert_in_range(size_of(100000, 1, 1), 700000, 850000);
	/* 63 vCPUs that stand still cost a byte or two together. */
	assert_true(size_of(100000, 1000, 64) < size_of(100000, 1000, 1) + 300000);
}

static void test_a_stack_costs_the_file_once(void **state)
{
	size_t few = size_of(20000, 10, 1), many = size_of(20000, 1000, 1);

	/* 990 nodes more, and their ids have two bytes in place of one. */
	assert_true(many - few < 990 * 6 + 20000);
}

static void test_ticks_that_cannot_be_are_refused(void **state)
{
	struct memory_file file = memory_file_new();
	struct recording_info info = {.vcpus = 2};
	struct tick_entry bad[][2] = {
		{{1, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}}, /* out of order */
		{{1, 0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0}}, /* twice */
		{{0, 0, 0, 0, 0, 0, 0}, {2, 0, 0, 0, 0, 0, 0}}, /* no such vCPU */
		{{0, 0, 0, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0, 0}}, /* no such stack */
		{{0, 0, 0, 0, 0, 0, 0}, {1, 0, VCPU_STATES, 0, 0, 0, 0}},
		{{0, 0, 0, 0, 0, 0, 0}, {1, 0, 0, UNWIND_ENDS, 0, 0, 0}},
		{{0, 0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 1, 0}}, /* no such thread */
	};
	struct recording_writer *writer;
	struct tick tick = {.n = 2, .time_ns = 10};
	struct stacks *stacks;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		tick.entries = bad[i];
		assert_fails(recording_tick(writer, &tick), ERR_FAILED, "does not fit");
	}
	tick.n = 0;
	assert_success(recording_tick(writer, &tick));
	tick.time_ns = 9;
	assert_fails(recording_tick(writer, &tick), ERR_FAILED, "does not fit");
	recording_abandon(writer);
	stacks_free(stacks);
	close(file.fd);
}

static void test_descriptions_that_cannot_be_are_refused(void **state)
{
	struct memory_file file = memory_file_new();
	struct recording_info many = {.vcpus = RECORDING_MAX_VCPUS + 1};
	struct recording_info nan = {.rate_hz = NAN}, less = {.rate_hz = -1}, lots = {0};
	char *text = malloc(RECORD_MAX + 1);
	struct recording_writer *writer;
	struct stacks *stacks;

	assert_success(stacks_new(&stacks));
	assert_fails(recording_create(file.path, &many, stacks, &writer), ERR_GUEST, "4097 vCPUs");
	assert_fails(recording_create(file.path, &nan, stacks, &writer), ERR_FAILED, "rate");
	assert_fails(recording_create(file.path, &less, stacks, &writer), ERR_FAILED, "rate");
	assert_non_null(text);
	memset(text, 'x', RECORD_MAX);
	text[RECORD_MAX] = 0;
	lots.host = text;
	assert_fails(recording_create(file.path, &lots, stacks, &writer), ERR_FAILED,
		     "description");
	free(text);
	stacks_free(stacks);
	close(file.fd);
}

static void test_a_recording_can_be_read_into_a_store_in_use(void **state)
{
	struct memory_file file = memory_file_new();
	struct recording_info info = {.vcpus = 1};
	struct tick_entry entry = {0};
	struct tick tick = {.n = 1, .entries = &entry};
	struct recording_writer *writer;
	struct recording_visitor visitor = {.tick = hear_tick};
	struct stacks *stacks;
	struct heard heard = {0};

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	entry.stack = intern(stacks, frames, 4);
	assert_success(recording_tick(writer, &tick));
	assert_success(recording_close(writer, NULL));
	stacks_free(stacks);

	assert_success(stacks_new(&heard.stacks));
	intern(heard.stacks, frames + 2, 1);
	intern(heard.stacks, frames + 2, 2);
	heard.log = open_memstream(&heard.text, &heard.len);
	visitor.ctx = &heard;
	assert_success(recording_read(file.path, heard.stacks, &visitor, &heard.cut));
	fclose(heard.log);
	assert_non_null(strstr(heard.text,
			       " ffffffff81000123ps ffffffff81234567r? 10rs ffffffffffffffffrs"));
	assert_int_equal(stacks_count(heard.stacks), 1 + 1 + 2 + 2);
	heard_free(&heard);
	close(file.fd);
}

static void test_ticks_tell_which_threads_ran(void **state)
{
	const struct recorded_thread shell = {7, 7, 123, false, false, "sh\n(x)", "sh", NULL};
	const struct recorded_thread idle = {0, 0, 0, true, true, "swapper/1", "swapper/1", NULL};
	struct memory_file file = memory_file_new();
	struct recording_info info = {.vcpus = 3};
	struct tick_entry entries[3] = {{.vcpu = 0}, {.vcpu = 1}, {.vcpu = 2}};
	struct tick tick = {.n = 3, .entries = entries};
	struct recording_writer *writer;
	struct stacks *stacks;
	struct heard heard;
	/* The second tick lacks vCPU 1, which still runs its thread in the third. */
	const char *want = "info - - - 3 0\n"
			   "thread 1 7 7 123 <sh\n(x)> <sh>\n"
			   "tick 0 0 0\n 0 0 0\n 1 0 0 thread 1\n 2 0 0\n"
			   "thread 2 0 0 0 kernel idle <swapper/1> <swapper/1>\n"
			   "tick 0 0 0\n 0 0 0 thread 2\n 2 0 0 thread 1\n"
			   "tick 0 0 0\n 0 2 0\n 1 0 0 thread 1\n 2 0 0 thread 1\n";

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	entries[1].thread = 1;
	assert_fails(recording_tick(writer, &tick), ERR_FAILED, "does not fit");
	assert_success(recording_thread(writer, &shell));
	assert_success(recording_tick(writer, &tick));
	assert_success(recording_thread(writer, &idle));
	entries[0].thread = 2;
	entries[1] = (struct tick_entry){.vcpu = 2, .thread = 1};
	tick.n = 2;
	assert_success(recording_tick(writer, &tick));
	entries[0] = (struct tick_entry){.vcpu = 0, .state = VCPU_BLOCKED};
	entries[1] = (struct tick_entry){.vcpu = 1, .thread = 1};
	entries[2].thread = 1;
	tick.n = 3;
	assert_success(recording_tick(writer, &tick));
	assert_success(recording_close(writer, NULL));
	assert_success(hear(file.path, &heard));
	assert_string_equal(heard.text, want);
	heard_free(&heard);
	stacks_free(stacks);
	close(file.fd);
}

static void test_ticks_tell_which_threads_wait(void **state)
{
	const struct recorded_thread shell = {7, 7, 123, false, false, "sh", "sh", NULL};
	const struct recording_info info = {.vcpus = 1};
	struct memory_file file = memory_file_new();
	struct recording_writer *writer;
	struct tick_entry entries[3] = {{.vcpu = 0}};
	struct tick tick = {.n = 1, .waits = 2, .entries = entries};
	struct stacks *stacks;
	struct heard heard;
	const char *want = "info - - - 1 0\n"
			   "thread 1 7 7 123 <sh> <sh>\n"
			   "tick 0 0 0\n 0 0 0\n"
			   " waits 1 4 0 5000000000 ffffffff81000123\n waits 1 6 3 1 0\n"
			   "tick 0 0 0\n 0 0 0\n"
			   "tick 0 0 0\n waits 1 3 0 18446744073709551615 10\n"
			   "end 0 0 0 0 -\n";

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	assert_success(recording_thread(writer, &shell));
	entries[1] = (struct tick_entry){.vcpu = NO_VCPU,
					 .stack = intern(stacks, frames, 4),
					 .state = WAIT_SLEEPING,
					 .thread = 1,
					 .weight_ns = 5000000000};
	entries[2] = (struct tick_entry){
		.vcpu = NO_VCPU, .state = WAIT_STOPPED, .end = 3, .thread = 1, .weight_ns = 1};
	assert_success(recording_tick(writer, &tick));
	tick.waits = 0;
	assert_success(recording_tick(writer, &tick));
	entries[0] = (struct tick_entry){.vcpu = NO_VCPU,
					 .stack = intern(stacks, frames + 2, 2),
					 .state = WAIT_QUEUED,
					 .thread = 1,
					 .weight_ns = UINT64_MAX};
	tick.n = 0;
	tick.waits = 1;
	assert_success(recording_tick(writer, &tick));
	/* Not without a thread, in a state of vCPUs, or too many. */
	entries[0].thread = 0;
	assert_fails(recording_tick(writer, &tick), ERR_FAILED, "does not fit");
	entries[0].thread = 1;
	entries[0].state = VCPU_BLOCKED;
	assert_fails(recording_tick(writer, &tick), ERR_FAILED, "does not fit");
	tick.waits = TICK_WAITS_MAX + 1;
	assert_fails(recording_tick(writer, &tick), ERR_FAILED, "does not fit");
	assert_success(recording_close(writer, &(struct recording_end){0}));
	assert_success(hear(file.path, &heard));
	assert_string_equal(heard.text, want);
	heard_free(&heard);
	stacks_free(stacks);
	close(file.fd);
}

static void test_names_of_threads_are_cut_off(void **state)
{
	char name[RECORDED_THREAD_NAME_MAX + 2];
	const struct recorded_thread thread = {UINT32_MAX, UINT32_MAX, UINT64_MAX, true,
					       false,	   name,       name,	   NULL};
	struct memory_file file = memory_file_new();
	struct recording_info info = {0};
	struct recording_writer *writer;
	struct stacks *stacks;
	struct heard heard;
	char want[2 * sizeof(name) + 64];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	assert_success(recording_thread(writer, &thread));
	assert_success(recording_close(writer, NULL));
	assert_success(hear(file.path, &heard));
	name[RECORDED_THREAD_NAME_MAX] = 0;
	snprintf(want, sizeof(want),
		 "thread 1 4294967295 4294967295 18446744073709551615 kernel <%s> <%s>\n", name,
		 name);
	assert_non_null(strstr(heard.text, want));
	heard_free(&heard);
	stacks_free(stacks);
	close(file.fd);
}

static void test_long_names_end_at_64_kib(void **state)
{
	struct memory_file file = memory_file_new();
	struct recording_info info = {0};
	struct recording_writer *writer;
	char *name = malloc(NAME_MAX_LEN + 2);
	struct stacks *stacks;
	struct heard heard;

	assert_non_null(name);
	memset(name, 'x', NAME_MAX_LEN + 1);
	name[NAME_MAX_LEN + 1] = 0;
	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	assert_success(recording_name(writer, 1, FRAME_PC, name, 0));
	assert_success(recording_name(writer, 1, FRAME_PC, "", UINT64_MAX));
	assert_fails(recording_name(writer, 1, FRAME_KINDS, "f", 0), ERR_FAILED, "kind 4");
	assert_success(recording_close(writer, NULL));
	assert_success(hear(file.path, &heard));
	name[NAME_MAX_LEN] = 0;
	assert_non_null(strstr(heard.text, name));
	name[NAME_MAX_LEN] = 'x';
	assert_null(strstr(heard.text, name));
	assert_non_null(strstr(heard.text, "name 1 0  18446744073709551615\n"));
	heard_free(&heard);
	free(name);
	stacks_free(stacks);
	close(file.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_written_is_read),
		cmocka_unit_test(test_files_share_a_store_and_one_read_again_adds_nothing),
		cmocka_unit_test(test_random_ticks_come_back_exactly),
		cmocka_unit_test(test_a_tick_takes_few_bytes),
		cmocka_unit_test(test_a_stack_costs_the_file_once),
		cmocka_unit_test(test_ticks_that_cannot_be_are_refused),
		cmocka_unit_test(test_descriptions_that_cannot_be_are_refused),
		cmocka_unit_test(test_a_recording_can_be_read_into_a_store_in_use),
		cmocka_unit_test(test_ticks_tell_which_threads_ran),
		cmocka_unit_test(test_ticks_tell_which_threads_wait),
		cmocka_unit_test(test_names_of_threads_are_cut_off),
		cmocka_unit_test(test_long_names_end_at_64_kib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
