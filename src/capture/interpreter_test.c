/* SPDX-License-Identifier: BSD-3-Clause */

/* Interpreters in programs of a guest: a made-up system says which thread runs and what is mapped; a program by bytes. */

#include "capture/capture.h"
#include "runtime/python_testing.h"

#include <unistd.h>

#define PID  77u
#define ROOT 0x5000u
/* Code of the file begins there. */
#define CODE_OFFSET 0x3000u
/* Longer than a mapping is taken to be still there. */
#define LATER_US 120000u

struct guest {
	struct process *process;
	struct target target;
	struct guest_threads threads;
	struct sample *sample;
	struct interpreters *all;
	struct guest_place place;
	unsigned placed; /* times that the system was asked */
	unsigned reads;	 /* while the guest ran */
	bool gone;
};

static struct guest *now; /* the target's functions are handed nothing else */

static bool find(const void *state, const struct guest_memory *memory,
		 const struct guest_thread *thread, uint64_t va, struct guest_place *out)
{
	now->placed++;
	*out = now->place;
	return !now->gone;
}

/* As a copy has it here: the number of the thread, and of its process. */
static bool decode(const struct thread_copy *copy, struct guest_thread *out)
{
	*out = (struct guest_thread){.at = copy->at};
	memcpy(&out->tid, copy->piece[0], sizeof(out->tid));
	memcpy(&out->pid, copy->piece[1], sizeof(out->pid));
	return true;
}

static const struct threads_system made_up = {.place = find, .decode = decode};

static size_t read_guest(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			 size_t len)
{
	now->reads++;
	return read_bytes(now->process, va, buf, len);
}

static const struct target_ops ops = {.scheme = "fake", .read = read_guest};

static void run_thread(struct guest *guest, uint32_t pid, uint32_t tid)
{
	struct vcpu_sample *vcpu = guest->sample->vcpu;

	vcpu->thread.there = true;
	memcpy(vcpu->thread.piece[0], &tid, sizeof(tid));
	memcpy(vcpu->thread.piece[1], &pid, sizeof(pid));
}

static int set_up_guest(void **state)
{
	struct guest *guest = calloc(1, sizeof(*guest));

	assert_non_null(guest);
	if (set_up((void **)&guest->process))
		return -1;
	now = guest;
	guest->target.ops = &ops;
	guest->threads.system = &made_up;
	guest->place = (struct guest_place){.mapping = {.start = BASE + CODE_OFFSET,
							.end = BASE + SIZE,
							.offset = CODE_OFFSET,
							.executable = true,
							.path = "/usr/bin/python3.11",
							.file = 1}};
	assert_null(sample_new(1, 4096, &guest->sample));
	guest->sample->vcpu->regs = (struct regs){.user = true, .mmu = {.root = ROOT}};
	guest->sample->vcpu->stack = guest->process->window;
	run_thread(guest, PID, TID);
	assert_null(interpreters_new(&guest->threads, guest->process->stand_ins, guest->sample,
				     &guest->all));
	*state = guest;
	return 0;
}

static int tear_down_guest(void **state)
{
	struct guest *guest = *state;

	interpreters_free(guest->all);
	sample_free(guest->sample);
	tear_down((void **)&guest->process);
	free(guest);
	return 0;
}

/* The thread that the copy tells, as its stack is looked at. */
static struct program_of program_of(struct guest *guest, struct guest_thread *thread)
{
	const struct vcpu_sample *vcpu = guest->sample->vcpu;

	(void)decode(&vcpu->thread, thread);
	return (struct program_of){&guest->target, &guest->threads, thread, &vcpu->regs,
				   guest->all};
}

static void meet(struct guest *guest)
{
	struct guest_thread thread;
	const struct program_of of = program_of(guest, &thread);

	assert_null(interpreters_meet(guest->all, &of, &guest->place, ROOT));
}

/* Copies in a pause, if that is asked for, and merges. */
static void take(struct guest *guest)
{
	const struct frames_request *request = guest->sample->request.frames;
	const struct guest_memory stopped = {guest->process, read_stopped, NULL};
	struct vcpu_sample *vcpu = guest->sample->vcpu;
	struct guest_thread thread;
	const struct program_of of = program_of(guest, &thread);

	guest->sample->time_ns++;
	put_stack(guest->process);
	if (request)
		request->copy(request->ctx, vcpu, &stopped);
	assert_null(interpreters_merge(guest->all, &of, vcpu, &guest->process->stack));
}

static struct runtime_counts counted(const struct guest *guest)
{
	struct sampler_result result = {0};

	interpreters_tell(guest->all, &result);
	return result.merged;
}

static void check_c_stack(const struct guest *guest)
{
	assert_int_equal(guest->process->stack.n, 7);
	assert_int_equal(guest->process->frames[1].addr, loop_call);
	assert_int_equal(guest->process->frames[4].addr, loop_call);
}

/* The first sample shows where threads have their frames. */
static void find_threads(struct guest *guest)
{
	meet(guest);
	take(guest);
	check_c_stack(guest);
}

static void a_program_has_its_functions_once_it_was_met(void **state)
{
	struct guest *guest = *state;
	struct sampler_result result = {0};

	assert_null(guest->sample->request.frames);
	find_threads(guest);
	assert_non_null(guest->sample->request.frames);
	take(guest);
	check_frame(guest->process, 1, "cart.Cart.key", 101);
	check_frame(guest->process, 5, "cart.<module>", 1);
	interpreters_tell(guest->all, &result);
	assert_string_equal(result.runtime, "CPython 3.11.2");
	assert_int_equal(result.merged.merged, 1);
}

/* Those of the thread's state, of its frames, and of each new function; docs/cost.md tells what they cost. */
static void a_pause_reads_few_pages(void **state)
{
	struct guest *guest = *state;

	find_threads(guest);
	for (unsigned i = 0; i < 8; i++) {
		guest->process->reads = 0;
		take(guest);
		assert_int_equal(guest->process->reads, i < 4 ? 5 : 2);
	}
	/* A pause of another program reads none. */
	run_thread(guest, PID + 1, TID);
	guest->process->reads = 0;
	take(guest);
	assert_int_equal(guest->process->reads, 0);
}

static void a_stack_in_the_kernel_has_those_of_its_program(void **state)
{
	struct guest *guest = *state;
	struct vcpu_sample *vcpu = guest->sample->vcpu;

	vcpu->request.leads_on = 1;
	vcpu->others[0] = guest->process->window;
	vcpu->stack = (struct window){.va = UINT64_C(0xffffc90000000000)};
	find_threads(guest);
	take(guest);
	check_frame(guest->process, 1, "cart.Cart.key", 101);
}

static void files_of_other_names_are_not_searched(void **state)
{
	static const char *const paths[] = {"/usr/bin/perl", "/python3/ls", "python3",
					    "/lib/x-python3", NULL};
	struct guest *guest = *state;

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		guest->place.mapping.path = paths[i];
		meet(guest);
	}
	guest->place.mapping.path = "/usr/bin/python3.11";
	guest->place.mapping.executable = false;
	meet(guest);
	assert_int_equal(guest->reads, 0);
	assert_null(guest->sample->request.frames);
}

static void other_programs_and_threads_have_their_c_stacks(void **state)
{
	struct guest *guest = *state;
	struct vcpu_sample *vcpu = guest->sample->vcpu;

	find_threads(guest);
	run_thread(guest, PID + 1, TID);
	take(guest);
	check_c_stack(guest);
	run_thread(guest, PID, TID + 1);
	take(guest);
	check_c_stack(guest);
	run_thread(guest, PID, TID);
	vcpu->thread.there = false;
	take(guest);
	check_c_stack(guest);
	vcpu->thread.there = true;
	vcpu->regs.mmu.root = ROOT + 0x1000;
	assert_null(interpreters_find(guest->all, &vcpu->regs));
	take(guest);
	check_c_stack(guest);
	assert_int_equal(vcpu->runtime->there, false);
	/* In user mode the processor may have tables without the kernel, beside these. */
	vcpu->regs.kernel_root = ROOT;
	take(guest);
	check_frame(guest->process, 1, "cart.Cart.key", 101);
}

static void a_program_that_is_another_by_now_is_forgotten(void **state)
{
	struct guest *guest = *state;

	find_threads(guest);
	take(guest);
	assert_int_equal(guest->placed, 0);
	usleep(LATER_US);
	take(guest);
	assert_int_equal(guest->placed, 1);
	assert_int_equal(counted(guest).merged, 2);
	usleep(LATER_US);
	/* Not told this time. */
	guest->gone = true;
	take(guest);
	check_c_stack(guest);
	guest->gone = false;
	guest->place.mapping.file = 2;
	take(guest);
	check_c_stack(guest);
	assert_null(interpreters_find(guest->all, &guest->sample->vcpu->regs));
	/* Stacks of a program that has ended stay counted. */
	assert_int_equal(counted(guest).merged, 2);
}

static void searches_are_few_however_many_programs_there_are(void **state)
{
	struct guest *guest = *state;
	unsigned one;

	guest->process->bytes[VERSION] = 0;
	meet(guest);
	one = guest->reads;
	assert_true(one > 0);
	for (uint32_t pid = PID + 1; pid < PID + 1000; pid++) {
		run_thread(guest, pid, pid);
		meet(guest);
	}
	assert_int_equal(guest->reads, one);
}

static void what_is_read_of_a_program_that_lies_has_bounds(void **state)
{
	struct guest *guest = *state;
	struct process *process = guest->process;

	find_threads(guest);
	srand(1);
	for (unsigned round = 0; round < 3000; round++) {
		const unsigned at = STATE + (unsigned)rand() % (STACK + 0x600 - STATE);

		process->bytes[at] = (uint8_t)rand();
		process->reads = guest->reads = 0;
		take(guest);
		assert_true(process->reads <= INTERPRETER_PAGES);
		assert_true(guest->reads <= 2 * 4096);
	}
}

#define GUEST_TEST(name) cmocka_unit_test_setup_teardown(name, set_up_guest, tear_down_guest)

int main(void)
{
	const struct CMUnitTest tests[] = {
		GUEST_TEST(a_program_has_its_functions_once_it_was_met),
		GUEST_TEST(a_pause_reads_few_pages),
		GUEST_TEST(a_stack_in_the_kernel_has_those_of_its_program),
		GUEST_TEST(files_of_other_names_are_not_searched),
		GUEST_TEST(other_programs_and_threads_have_their_c_stacks),
		GUEST_TEST(a_program_that_is_another_by_now_is_forgotten),
		GUEST_TEST(searches_are_few_however_many_programs_there_are),
		GUEST_TEST(what_is_read_of_a_program_that_lies_has_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
