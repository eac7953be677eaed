/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that a profiler takes, on a sample's whole way from the capture to the recording.
 * MEMORY_TEST_TICKS sets the number of samples (1,000,000).
 */
#include "capture/capture.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recording/recording.h"
#include "target/window.h"

/* With sanitizers, memory says more about them. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED true
#elif defined(__has_feature)
#define SANITIZED __has_feature(address_sanitizer)
#else
#define SANITIZED false
#endif

#define TICKS	1000000ul
#define TICK_NS 100000ull
#define STACKS	1000
/* Until every buffer has been used: the recording's are written out every 10,000. */
#define FIRST_TICKS 50000ul
#define LIMIT	    (32ul << 20)
#define MAY_GROW    (64ul << 10)
#define FUNCTIONS   40
#define FUNCTION    64 /* bytes */
#define MOST_FRAMES 256

#define TEXT  0x100000ull
#define STACK 0x200000ull

/* The physical memory of a guest without paging. */
struct fake {
	struct target base;
	bool all_different;
	uint64_t ticks;
	uint64_t stack[2 * MOST_FRAMES + 2];
	uint8_t text[FRAME_SIZE];
	uint8_t frame[FRAME_SIZE];
};

/*
 * Function i pushes its frame pointer, then calls function i + 1 from one of two places: the return
 * addresses are 9 and 14 bytes behind its start.
 */
static void write_code(struct fake *fake)
{
	static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xe8,	      FUNCTION - 9,
				       0,    0,	   0,	 0xe8, FUNCTION - 14, 0,
				       0,    0,	   0x5d, 0xc3};

	for (unsigned i = 0; i < FUNCTIONS; i++)
		memcpy(fake->text + i * FUNCTION, code, sizeof(code));
}

static const void *frame(void *ctx, uint64_t gfn)
{
	struct fake *fake = ctx;
	uint64_t offset = (gfn << FRAME_SHIFT) - STACK;

	if (gfn == TEXT >> FRAME_SHIFT)
		return fake->text;
	if (offset >= sizeof(fake->stack))
		return NULL;
	memset(fake->frame, 0, FRAME_SIZE);
	memcpy(fake->frame, (uint8_t *)fake->stack + offset,
	       sizeof(fake->stack) - offset < FRAME_SIZE ? sizeof(fake->stack) - offset
							 : FRAME_SIZE);
	return fake->frame;
}

static size_t read_memory(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	struct fake *fake = (struct fake *)target;

	if (va - TEXT >= FRAME_SIZE)
		return 0;
	len = len < FRAME_SIZE - (va - TEXT) ? len : FRAME_SIZE - (va - TEXT);
	memcpy(buf, fake->text + (va - TEXT), len);
	return len;
}

/* `n` frames; bit i of `choice` says which call the i-th caller stands at. */
static void write_stack(struct fake *fake, uint64_t choice, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t function = TEXT + (n - 1 - i) % FUNCTIONS * FUNCTION;

		fake->stack[2 * i] = STACK + 16ull * (i + 1);
		fake->stack[2 * i + 1] = function + (choice >> i % 64 & 1 ? 9 : 14);
	}
	fake->stack[2 * n] = fake->stack[2 * n + 1] = 0;
}

static uint64_t random_word(void)
{
	static uint64_t seed = 88172645463325252ull;

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static struct error *take(struct target *target, struct sample *sample)
{
	struct fake *fake = (struct fake *)target;
	const struct physmem mem = {.frame = frame, .ctx = fake};
	struct vcpu_sample *vcpu = &sample->vcpu[0];
	struct window_copy copy = {.arch = target->info.arch,
				   .regs = &vcpu->regs,
				   .mem = &mem,
				   .buffer = vcpu->buffer,
				   .out = &vcpu->stack};

	if (!vcpu->request.again) {
		sample->time_ns = ++fake->ticks * TICK_NS;
		if (fake->all_different)
			write_stack(fake, random_word(), FUNCTIONS - 1);
		else
			write_stack(fake, fake->ticks * 7 % STACKS, FUNCTIONS - 1);
	}
	sample->paused_ns = 10000 + fake->ticks % 1000;
	sample->retakes = 0;
	vcpu->online = true;
	vcpu->state = VCPU_RUNNING;
	vcpu->ran_ns = TICK_NS;
	vcpu->regs = (struct regs){.pc = TEXT + (FUNCTIONS - 1) * FUNCTION + 4,
				   .sp = STACK,
				   .fp = STACK,
				   .word = 8,
				   .mmu = {.mode = MMU_OFF}};
	window_copy(&copy, vcpu->request.want);
	return NULL;
}

static const struct target_ops fake_ops = {.scheme = "fake", .sample = take, .read = read_memory};

/*
 * Memory of this process, bytes, counted exactly as in statm it is not (proc(5)): "Rss", or
 * "Anonymous", without what the kernel keeps of files as it likes.
 */
static uint64_t memory(const char *kind)
{
	const size_t len = strlen(kind);
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	unsigned long kib = 0;
	char line[128];

	assert_non_null(file);
	while (!kib && fgets(line, sizeof(line), file))
		if (!strncmp(line, kind, len) && line[len] == ':')
			sscanf(line + len, ": %lu kB", &kib);
	fclose(file);
	assert_true(kib > 0);
	return (uint64_t)kib << 10;
}

struct run {
	struct fake fake;
	struct stacks *stacks;
	struct capture *capture;
	struct recording_writer *writer;
	uint64_t cut[UNWIND_ENDS];
};

static struct run *start(bool all_different, uint64_t max_memory)
{
	static const struct recording_info info = {.tool = "test", .vcpus = 1, .rate_hz = 10000};
	const struct sampler_options options = {.rate_hz = 10000, .max_memory = max_memory};
	struct run *run = calloc(1, sizeof(*run));

	assert_non_null(run);
	run->fake.base = (struct target){.ops = &fake_ops};
	run->fake.base.info.arch = &arch_x86_64;
	run->fake.base.info.vcpus = 1;
	run->fake.all_different = all_different;
	write_code(&run->fake);
	assert_null(stacks_new(&run->stacks));
	assert_null(capture_new(&run->fake.base, run->stacks, &options, &run->capture));
	assert_null(recording_create("/dev/null", &info, run->stacks, &run->writer));
	return run;
}

static void go_on(struct run *run, unsigned long ticks)
{
	while (ticks--) {
		struct tick tick;

		assert_null(capture_tick(run->capture, 0, &tick));
		tick.weight_ns = TICK_NS;
		run->cut[tick.entries[0].end]++;
		assert_null(recording_tick(run->writer, &tick));
	}
}

static void end(struct run *run)
{
	assert_null(recording_close(run->writer, NULL));
	capture_free(run->capture);
	stacks_free(run->stacks);
	free(run);
}

static unsigned long ticks_wanted(void)
{
	const char *text = getenv("MEMORY_TEST_TICKS");

	return text ? strtoul(text, NULL, 10) : SANITIZED ? TICKS / 10 : TICKS;
}

static void memory_stays_flat_over_a_million_samples_of_a_thousand_stacks(void **state)
{
	struct run *run = start(false, 0);
	uint64_t early, late;

	go_on(run, FIRST_TICKS);
	early = memory("Anonymous");
	go_on(run, ticks_wanted());
	late = memory("Anonymous");
	print_message("# %lu KiB after %lu samples, %lu KiB after %lu more, %u frames\n",
		      (unsigned long)early >> 10, FIRST_TICKS, (unsigned long)late >> 10,
		      ticks_wanted(), stacks_count(run->stacks));
	/* All stacks are whole, and their number is right. */
	assert_int_equal(run->cut[UNWIND_OUTERMOST], ticks_wanted() + FIRST_TICKS);
	assert_true(stacks_count(run->stacks) > STACKS);
	assert_true(stacks_count(run->stacks) < 4 * STACKS);
	if (!SANITIZED) {
		assert_true(late < early + MAY_GROW);
		assert_true(memory("Rss") < LIMIT);
	}
	end(run);
}

static void a_guest_whose_stacks_all_differ_gets_what_it_may_have(void **state)
{
	const uint64_t before = memory("Anonymous"), may_have = MEMORY_MIN;
	struct run *run = start(true, may_have);
	struct sampler_result result;

	go_on(run, 200000);
	print_message("# %lu KiB more\n", (unsigned long)(memory("Anonymous") - before) >> 10);
	assert_true((uint64_t)stacks_count(run->stacks) * STACKS_NODE_BYTES <= may_have);
	assert_true(run->cut[UNWIND_NO_ROOM] > 0);
	capture_tell(run->capture, &result);
	assert_int_equal(result.no_room, run->cut[UNWIND_NO_ROOM]);
	assert_int_equal(run->cut[UNWIND_NO_ROOM] + run->cut[UNWIND_OUTERMOST], 200000);
	if (!SANITIZED)
		assert_true(memory("Anonymous") - before < may_have + (4ul << 20));
	end(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_stays_flat_over_a_million_samples_of_a_thousand_stacks),
		cmocka_unit_test(a_guest_whose_stacks_all_differ_gets_what_it_may_have),
	};

	/* With MALLOC_PERTURB_, calloc() would touch memory that is never used. */
	mallopt(M_PERTURB, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
