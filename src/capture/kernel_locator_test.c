/* SPDX-License-Identifier: BSD-3-Clause */

/* A guest whose kernel only some page tables show. */

#include "capture/image_locator.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "symbol/kernel/kernel_fixture.h"

#define TABLES	 0x5000ull /* of the program */
#define BESIDE	 0x4000ull
#define PROGRAM	 0x401000ull
#define SECOND	 1000000000ull
#define CODE_END 0x9000u

struct guest {
	struct target target;
	struct kernel *kernel;
	struct images *images;
	struct kernel_locator locator;
	struct sample *sample;
	uint64_t shown_by; /* page tables */
	uint64_t reads, reads_beside;
};

static size_t read_memory(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	struct guest *guest = (struct guest *)target;

	guest->reads++;
	guest->reads_beside += regs->mmu.root == BESIDE;
	return regs->mmu.root == guest->shown_by ? read_kernel(guest->kernel, va, buf, len) : 0;
}

static const struct target_ops ops = {.scheme = "fake", .read = read_memory};

/* The tables of a program lead to it; those beside them, too, if they are its kernel's. */
static bool beside_leads;

static enum xlate_status translate(const struct mmu *mmu, uint64_t va, const struct physmem *mem,
				   struct xlate *out)
{
	(void)mem;
	out->addr = mmu->root == TABLES || beside_leads ? va : va + FRAME_SIZE;
	return XLATE_OK;
}

static const struct arch arch = {.name = "fake", .translate = translate};

/* A program runs. */
static int begin(void **state)
{
	static const struct kernel_name names[] = {{"T_text", 0}, {"T_etext", CODE_END}};
	struct guest *guest = calloc(1, sizeof(*guest));
	struct regs *regs;

	assert_non_null(guest);
	beside_leads = true;
	guest->target.ops = &ops;
	guest->target.follows_tables = true;
	guest->target.info.arch = &arch;
	guest->kernel = calloc(1, sizeof(*guest->kernel));
	assert_non_null(guest->kernel);
	guest->kernel->last = names;
	guest->kernel->n_last = sizeof(names) / sizeof(*names);
	kernel_put(guest->kernel, LINUX_6_2, false);
	guest->shown_by = TABLES;
	assert_null(images_new(&guest->images));
	assert_null(sample_new(1, FRAME_SIZE, &guest->sample));
	guest->sample->time_ns = 1;
	guest->sample->vcpu[0].online = true;
	regs = &guest->sample->vcpu[0].regs;
	*regs = (struct regs){.word = 8,
			      .pc = PROGRAM,
			      .user = true,
			      .mmu = {.mode = MMU_X86_4, .root = TABLES},
			      .kernel_root = BESIDE};
	*state = guest;
	return 0;
}

static int end(void **state)
{
	struct guest *guest = *state;

	sample_free(guest->sample);
	images_free(guest->images);
	free(guest->kernel);
	free(guest);
	return 0;
}

/* What is done with each sample; true: it has led to a kernel. */
static bool sample(struct guest *guest)
{
	struct budget budget = {.left = KERNEL_LOCATOR_STEPS};
	const struct regs *from =
		kernel_locator_regs(&guest->locator, &guest->target, guest->images, guest->sample);
	bool added = false;

	if (!from)
		return false;
	kernel_locator_defer(&guest->locator, from, guest->sample->time_ns);
	assert_null(kernel_locator_search(&guest->locator, &guest->target, guest->images, from,
					  &budget, &added));
	return added;
}

static void a_kernel_is_found_while_a_program_runs(void **state)
{
	struct guest *guest = *state;

	beside_leads = false;
	assert_true(sample(guest));
	assert_int_equal(images_count(guest->images), 1);
	guest->reads = 0;
	guest->sample->time_ns += SECOND;
	assert_false(sample(guest));
	assert_int_equal(guest->reads, 0);
}

static void a_kernel_is_found_that_hides_from_programs(void **state)
{
	struct guest *guest = *state;

	guest->shown_by = BESIDE;
	assert_true(sample(guest));
	assert_int_equal(images_count(guest->images), 1);
}

/* Whatever they are. */
static void other_tables_beside_those_of_a_program_are_not_read(void **state)
{
	struct guest *guest = *state;

	beside_leads = false;
	assert_true(sample(guest));
	assert_int_equal(guest->reads_beside, 0);
}

static void a_program_whose_tables_show_no_kernel_delays_none(void **state)
{
	struct guest *guest = *state;

	guest->shown_by = 1;
	assert_false(sample(guest));
	guest->sample->vcpu[0].regs.user = false;
	guest->sample->vcpu[0].regs.pc = START + 1;
	guest->shown_by = TABLES;
	assert_true(sample(guest));
}

static void programs_of_a_guest_without_such_a_kernel_are_soon_left_alone(void **state)
{
	struct guest *guest = *state;

	guest->shown_by = 1;
	for (unsigned i = 0; i < 100; i++, guest->sample->time_ns += SECOND)
		assert_false(sample(guest));
	guest->reads = 0;
	guest->sample->time_ns += SECOND;
	assert_false(sample(guest));
	assert_int_equal(guest->reads, 0);
	/* The kernel may have come meanwhile. */
	guest->shown_by = TABLES;
	guest->sample->vcpu[0].regs.user = false;
	guest->sample->vcpu[0].regs.pc = START + 1;
	assert_true(sample(guest));
}

static void a_search_from_a_program_is_not_repeated_at_once(void **state)
{
	struct guest *guest = *state;

	guest->shown_by = 1;
	assert_false(sample(guest));
	guest->shown_by = BESIDE;
	assert_false(sample(guest));
	guest->sample->time_ns += SECOND;
	assert_true(sample(guest));
}

/* It has no page tables that tell anything. */
static void in_a_process_of_the_host_no_kernel_is_searched_for(void **state)
{
	struct guest *guest = *state;

	guest->sample->vcpu[0].regs.mmu.mode = MMU_OFF;
	assert_false(sample(guest));
	assert_int_equal(guest->reads, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_kernel_is_found_while_a_program_runs),
		TEST(a_kernel_is_found_that_hides_from_programs),
		TEST(other_tables_beside_those_of_a_program_are_not_read),
		TEST(a_program_whose_tables_show_no_kernel_delays_none),
		TEST(programs_of_a_guest_without_such_a_kernel_are_soon_left_alone),
		TEST(a_search_from_a_program_is_not_repeated_at_once),
		TEST(in_a_process_of_the_host_no_kernel_is_searched_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
