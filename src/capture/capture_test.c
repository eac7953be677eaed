/* SPDX-License-Identifier: BSD-3-Clause */
/* Stacks that lead to others: from the interrupt stack to a task's, to a program's. */
#include "capture/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symbol/names/table.h"
#include "target/window.h"

#define TEXT	 0x100000ull
#define FUNCTION 64 /* bytes */
#define STACK	 0x10000000ull
#define APART	 0x1000000ull /* bytes from one stack to the next */
#define LEVELS	 (UNWIND_OTHERS + 1)

/* The physical memory of a guest without paging: some functions, and a page of each stack. */
struct fake {
	struct target base;
	uint8_t text[FRAME_SIZE];
	uint64_t stack[LEVELS][FRAME_SIZE / 8];
	unsigned takes;	 /* how often it was sampled */
	unsigned copied; /* number of other stacks that the last sample copied */
};

static const void *frame(void *ctx, uint64_t gfn)
{
	const struct fake *fake = ctx;

	if (gfn == TEXT >> FRAME_SHIFT)
		return fake->text;
	for (unsigned i = 0; i < LEVELS; i++)
		if (gfn == (STACK + i * APART) >> FRAME_SHIFT)
			return fake->stack[i];
	return NULL;
}

static size_t read_memory(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	const struct fake *fake = (struct fake *)target;

	if (va - TEXT >= FRAME_SIZE)
		return 0;
	len = len < FRAME_SIZE - (va - TEXT) ? len : FRAME_SIZE - (va - TEXT);
	memcpy(buf, fake->text + (va - TEXT), len);
	return len;
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

	sample->time_ns = 1000000ull * ++fake->takes;
	vcpu->online = true;
	vcpu->state = VCPU_RUNNING;
	vcpu->regs = (struct regs){.pc = TEXT + LEVELS * FUNCTION + 4,
				   .sp = STACK,
				   .fp = STACK,
				   .word = 8,
				   .mmu = {.mode = MMU_OFF}};
	window_copy(&copy, vcpu->request.want);
	fake->copied = 0;
	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		const struct other_stack *other = &vcpu->request.other[i];

		copy.buffer = other->buffer;
		copy.out = &vcpu->others[i];
		window_copy_at(&copy, other->va, other->want);
		fake->copied += vcpu->others[i].len > 0;
	}
	return NULL;
}

static const struct target_ops fake_ops = {.scheme = "fake", .sample = take, .read = read_memory};

/* Behind the start of a function, the return addresses of its two calls. */
#define FIRST  9
#define SECOND 14

/* Function i pushes its frame pointer and calls function i + 1, twice. */
static void write_code(struct fake *fake)
{
	static const uint8_t code[] = {
		0x55, 0x48, 0x89, 0xe5, 0xe8, FUNCTION - FIRST, 0, 0, 0, 0xe8, FUNCTION - SECOND,
		0,    0,    0,	  0x5d, 0xc3};

	for (unsigned i = 0; i <= LEVELS; i++)
		memcpy(fake->text + (size_t)i * FUNCTION, code, sizeof(code));
}

static void write_record(struct fake *fake, uint64_t at, uint64_t next, uint64_t ret)
{
	uint64_t *stack = fake->stack[(at - STACK) / APART] + at % FRAME_SIZE / 8;

	stack[0] = next;
	stack[1] = ret;
}

/* As many calls as there are stacks, each `apart` from the one before. */
static void write_stacks(struct fake *fake, unsigned calls, uint64_t apart, unsigned behind)
{
	memset(fake->stack, 0, sizeof(fake->stack));
	for (unsigned i = 0; i < calls; i++)
		write_record(fake, STACK + i * apart,
			     i + 1 < calls ? STACK + (i + 1) * apart : STACK + i * apart + 64,
			     TEXT + (LEVELS - 1 - i) * FUNCTION + behind);
}

static struct images *name_functions(void)
{
	char text[FRAME_SIZE] = "";
	struct symbols *symbols;
	struct images *images;
	size_t len = 0;

	for (unsigned i = 0; i <= LEVELS; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%016llx T function_%u\n",
					TEXT + i * FUNCTION, i);
	assert_null(nm_read("test", strdup(text), len, &symbols));
	assert_null(images_new(&images));
	assert_null(images_add_tables(images, "test", symbols, NULL));
	return images;
}

struct fixture {
	struct fake fake;
	struct images *images;
	struct stacks *stacks;
	struct capture *capture;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct sampler_options options = {.rate_hz = 100};

	assert_non_null(f);
	f->fake.base = (struct target){.ops = &fake_ops};
	f->fake.base.info.arch = &arch_x86_64;
	f->fake.base.info.vcpus = 1;
	f->fake.base.copies_pieces = true;
	write_code(&f->fake);
	options.images = f->images = name_functions();
	assert_null(stacks_new(&f->stacks));
	assert_null(capture_new(&f->fake.base, f->stacks, &options, &f->capture));
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	capture_free(f->capture);
	stacks_free(f->stacks);
	images_free(f->images);
	free(f);
	return 0;
}

/* Looks once; how many samples that took. */
static unsigned capture(struct fixture *f, struct tick_entry *entry)
{
	unsigned before = f->fake.takes;
	struct tick tick;

	assert_null(capture_tick(f->capture, 0, &tick));
	assert_int_equal(tick.n, 1);
	*entry = tick.entries[0];
	return f->fake.takes - before;
}

static void expect_chain(const struct fixture *f, uint32_t id, unsigned behind)
{
	for (unsigned i = 0; i <= LEVELS; i++) {
		const struct stack_node *node = stacks_node(f->stacks, id);

		assert_int_equal(node->addr, TEXT + (LEVELS - i) * FUNCTION + (i ? behind : 4));
		id = node->parent;
	}
	assert_int_equal(id, STACK_ROOT);
}

static void a_stack_is_followed_to_all_that_it_leads_to(void **state)
{
	struct fixture *f = *state;
	struct tick_entry entry;

	write_stacks(&f->fake, LEVELS, APART, FIRST);
	/* Each of the others has to be asked for, once. */
	assert_int_equal(capture(f, &entry), 1 + UNWIND_OTHERS);
	assert_int_equal(entry.end, UNWIND_OUTERMOST);
	expect_chain(f, entry.stack, FIRST);
	assert_int_equal(capture(f, &entry), 1);
	assert_int_equal(entry.end, UNWIND_OUTERMOST);
	expect_chain(f, entry.stack, FIRST);
}

static void stacks_that_are_not_led_to_any_more_are_not_copied(void **state)
{
	struct fixture *f = *state;
	struct tick_entry entry;

	write_stacks(&f->fake, LEVELS, APART, FIRST);
	capture(f, &entry);
	write_stacks(&f->fake, 1, APART, FIRST);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(capture(f, &entry), 1);
	assert_int_equal(f->fake.copied, 0);
	write_stacks(&f->fake, 2, APART, FIRST);
	assert_int_equal(capture(f, &entry), 2);
	assert_int_equal(f->fake.copied, 1);
}

static void of_a_stack_that_is_led_to_no_more_is_copied_than_is_needed(void **state)
{
	struct fixture *f = *state;
	const struct vcpu_sample *vcpu = &capture_sample(f->capture)->vcpu[0];
	const uint64_t other = STACK + APART, far = other + 2048;
	struct tick_entry entry;

	write_stacks(&f->fake, 2, APART, FIRST);
	capture(f, &entry);
	assert_int_equal(vcpu->others[0].len, FRAME_SIZE);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(capture(f, &entry), 1);
	assert_in_range(vcpu->others[0].len, 64, 512);
	/* It goes on farther up: there is more of it again. */
	write_record(&f->fake, other, far, TEXT + (LEVELS - 2) * FUNCTION + FIRST);
	write_record(&f->fake, far, far + 64, TEXT + (LEVELS - 3) * FUNCTION + FIRST);
	assert_int_equal(capture(f, &entry), 2);
	assert_int_equal(entry.end, UNWIND_OUTERMOST);
	assert_int_equal(stacks_depth(f->stacks, entry.stack), 4);
	assert_int_equal(capture(f, &entry), 1);
}

static void a_stack_without_others_is_not_taken_for_the_one_before(void **state)
{
	struct fixture *f = *state;
	struct tick_entry entry;

	/* As many frames each time, on several stacks now and then. */
	for (unsigned i = 0; i < 400; i++) {
		bool several = i % 100 == 99;

		write_stacks(&f->fake, LEVELS, several ? APART : 64, several ? FIRST : SECOND);
		capture(f, &entry);
		assert_int_equal(entry.end, UNWIND_OUTERMOST);
		expect_chain(f, entry.stack, several ? FIRST : SECOND);
	}
}

/* Three frames, of which the outermost two are `apart` bytes above the stack pointer. */
static void write_gap(struct fake *fake, uint64_t apart)
{
	write_stacks(fake, 1, APART, FIRST);
	write_record(fake, STACK, STACK + apart, TEXT + (LEVELS - 1) * FUNCTION + FIRST);
	write_record(fake, STACK + apart, STACK + apart + 64,
		     TEXT + (LEVELS - 2) * FUNCTION + FIRST);
}

static void a_gap_that_stays_in_a_stack_is_not_copied(void **state)
{
	struct fixture *f = *state;
	const struct vcpu_sample *vcpu = &capture_sample(f->capture)->vcpu[0];
	struct tick_entry entry;

	write_gap(&f->fake, 3584);
	for (unsigned i = 0; i < 300; i++) {
		assert_int_equal(capture(f, &entry), 1);
		assert_int_equal(entry.end, UNWIND_OUTERMOST);
		assert_int_equal(stacks_depth(f->stacks, entry.stack), 3);
	}
	assert_in_range(vcpu->stack.len, 1, 512);
	assert_int_equal(f->fake.copied, 1);
	assert_in_range(vcpu->others[0].len, 1, 512);
	/* The upper frames are elsewhere now: once more the stack is copied as a whole. */
	write_gap(&f->fake, 1024);
	assert_int_equal(capture(f, &entry), 2);
	for (unsigned i = 0; i < 300; i++) {
		assert_int_equal(entry.end, UNWIND_OUTERMOST);
		assert_int_equal(stacks_depth(f->stacks, entry.stack), 3);
		assert_int_equal(capture(f, &entry), 1);
	}
	assert_int_equal(f->fake.copied, 0);
	assert_in_range(vcpu->stack.len, 1024, 2048);
}

static void a_gap_that_comes_and_goes_costs_few_samples_more(void **state)
{
	struct fixture *f = *state;
	struct tick_entry entry;
	unsigned more = 0;

	for (unsigned i = 0; i < 6400; i++) {
		write_gap(&f->fake, i % 200 == 199 ? 3000 : 3584);
		more += capture(f, &entry) - 1;
		assert_int_equal(entry.end, UNWIND_OUTERMOST);
		assert_int_equal(stacks_depth(f->stacks, entry.stack), 3);
	}
	assert_in_range(more, 1, 8);
}

/* The first sample has missed a word, and registers that may be saved below are copied with it. */
static void what_is_never_read_of_another_stack_is_not_copied(void **state)
{
	struct vcpu_sample vcpu = {.request.want = 4096};
	const struct other_stack *other = &vcpu.request.other[0];
	struct unwind_result out = {.end = UNWIND_BYTES, .elsewhere = STACK + 3744};
	struct stack_depth depth;

	stack_depth_begin(&depth, true);
	stack_depth_adapt(&depth, &vcpu, STACK_DEFAULT, &out);
	assert_true(vcpu.request.again);
	assert_int_equal(other->va, STACK + 3744);
	for (unsigned i = 0; i < 40; i++) {
		const uint32_t from = (uint32_t)(STACK + 4000 - other->va);

		out = (struct unwind_result){.others = 1,
					     .others_from = {from},
					     .others_used = {from + 56}};
		stack_depth_adapt(&depth, &vcpu, STACK_DEFAULT, &out);
		assert_false(vcpu.request.again);
	}
	/* Nor does a margin begin a page. */
	assert_int_equal(other->va, STACK + 4000);
	assert_int_equal(other->want, 96);
	/* It is needed after all. */
	out = (struct unwind_result){.others = 1, .end = UNWIND_BYTES, .elsewhere = STACK + 3944};
	stack_depth_adapt(&depth, &vcpu, STACK_DEFAULT, &out);
	assert_true(vcpu.request.again);
	assert_int_equal(other->va, STACK + 3944);
	assert_int_equal(other->want, 96 + 56);
	assert_int_equal(vcpu.request.other[1].want, 0);
}

static void a_search_that_ended_with_the_copy_is_made_again_with_more(void **state)
{
	struct vcpu_sample vcpu = {.request.want = 4096};
	struct unwind_result out = {.used = 40};
	struct stack_depth depth;

	stack_depth_begin(&depth, true);
	for (unsigned i = 0; i < 200; i++)
		stack_depth_adapt(&depth, &vcpu, STACK_DEFAULT, &out);
	assert_int_equal(vcpu.request.want, 256);
	vcpu.stack = (struct window){.len = 256, .cut = true};
	out.searched = true;
	stack_depth_adapt(&depth, &vcpu, STACK_DEFAULT, &out);
	assert_true(vcpu.request.again);
	for (unsigned i = 0; i < 200; i++) {
		assert_int_equal(vcpu.request.want, 512);
		vcpu.stack.len = vcpu.request.want;
		stack_depth_adapt(&depth, &vcpu, STACK_DEFAULT, &out);
		assert_false(vcpu.request.again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_stack_is_followed_to_all_that_it_leads_to, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			of_a_stack_that_is_led_to_no_more_is_copied_than_is_needed, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(stacks_that_are_not_led_to_any_more_are_not_copied,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_stack_without_others_is_not_taken_for_the_one_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_gap_that_stays_in_a_stack_is_not_copied, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_gap_that_comes_and_goes_costs_few_samples_more,
						set_up, tear_down),
		cmocka_unit_test(what_is_never_read_of_another_stack_is_not_copied),
		cmocka_unit_test(a_search_that_ended_with_the_copy_is_made_again_with_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
