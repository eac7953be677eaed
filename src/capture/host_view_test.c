/* SPDX-License-Identifier: BSD-3-Clause */
/* Stacks of the host, by tables of symbols in place of its files. */
#include "capture/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const char program[] = "0000000000401000 T main\n"
			      "0000000000402000 T serve\n"
			      "0000000000403000 T start_thread\n";
static const char kernel[] = "ffffffff81000000 T schedule\n"
			     "ffffffff81001000 T kvm_vcpu_ioctl\n"
			     "ffffffff81002000 T asm_sysvec_call_function_single\n"
			     "ffffffff81003000 T sysvec_call_function_single\n"
			     "ffffffff81004000 T end_of_text\n";

struct fixture {
	struct images *images;
	struct stand_ins *stand_ins;
	struct sample *sample;
	struct host_view *view;
	struct frame frames[HOST_VIEW_FRAMES];
	struct unwind_result out;
};

static void load(struct images *images, const char *symbols)
{
	const int fd = memfd_create("symbols", 0);
	char path[32];

	assert_int_equal(write(fd, symbols, strlen(symbols)), strlen(symbols));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_null(images_load(images, &(struct image_spec){.path = path, .names = true}, NULL));
	close(fd);
}

static int set_up(void **state)
{
	static struct fixture f;

	f = (struct fixture){0};
	*state = &f;
	assert_null(images_new(&f.images));
	load(f.images, kernel);
	load(f.images, program);
	assert_null(stand_ins_new(&f.stand_ins));
	assert_null(sample_new(2, 4096, &f.sample));
	assert_null(host_view_new(f.images, f.stand_ins, f.sample, &f.view));
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	host_view_free(f->view);
	sample_free(f->sample);
	stand_ins_free(f->stand_ins);
	images_free(f->images);
	return 0;
}

static void put(struct fixture *f, const struct host_stack *host)
{
	*f->sample->vcpu[1].host = *host;
	assert_null(host_view_frames(f->view, &f->sample->vcpu[1], f->frames, &f->out));
	assert_null(host_view_enclose(f->view, 1, &f->sample->vcpu[1], f->frames, &f->out));
}

/* The names, outermost first, with a '?' behind guesses. */
static void assert_stack(const struct fixture *f, const char *wanted)
{
	char text[512] = "";

	for (size_t i = f->out.n; i-- > 0;) {
		struct stand_in at;

		assert_true(stand_ins_find(f->stand_ins, f->frames[i].addr, &at));
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s%s",
			 *text ? ";" : "", at.name, f->frames[i].trust == TRUST_GUESS ? "?" : "");
	}
	assert_string_equal(text, wanted);
}

static void test_the_kernel_stands_on_the_monitor_and_both_on_the_vcpu(void **state)
{
	struct fixture *f = *state;

	put(f, &(struct host_stack){.place = HOST_HALTED,
				    .kernel = 2,
				    .user = 3,
				    .at = {0xffffffff81000010, 0xffffffff81001010, 0x402010,
					   0x401010, 0x403010}});
	assert_stack(f, "vCPU 1;[idle];start_thread?;main?;serve;kvm_vcpu_ioctl;schedule");
	assert_int_equal(f->out.end, UNWIND_OUTERMOST);
}

static void test_frames_of_the_sample_itself_are_left_out(void **state)
{
	const char *const skip = "asm_sysvec_call_function_single";
	struct fixture *f = *state;

	/* It came at the first instruction of a function. */
	put(f, &(struct host_stack){.place = HOST_EXIT,
				    .skip = skip,
				    .kernel = 3,
				    .at = {0xffffffff81003010, 0xffffffff81002010,
					   0xffffffff81001000}});
	assert_stack(f, "vCPU 1;[exits];kvm_vcpu_ioctl");
	/* ... and while the monitor's program ran. */
	put(f, &(struct host_stack){.place = HOST_MONITOR,
				    .skip = skip,
				    .kernel = 2,
				    .user = 1,
				    .at = {0xffffffff81003010, 0xffffffff81002010, 0x402000}});
	assert_stack(f, "vCPU 1;[VMM];serve");
}

static void test_callers_that_are_no_code_end_a_stack(void **state)
{
	struct fixture *f = *state;

	put(f, &(struct host_stack){.place = HOST_MONITOR,
				    .user = 3,
				    .at = {0x402010, 0x7fff00001234, 0x403010}});
	assert_stack(f, "vCPU 1;[VMM];serve");
	assert_int_equal(f->out.end, UNWIND_BROKEN);
}

static void test_code_of_the_kernel_without_a_symbol_is_the_kernels(void **state)
{
	struct fixture *f = *state;

	put(f, &(struct host_stack){.place = HOST_EXIT,
				    .kernel = 2,
				    .at = {0xffffffffc0001000, 0xffffffff81001010}});
	assert_stack(f, "vCPU 1;[exits];kvm_vcpu_ioctl;[host kernel]");
}

static void test_a_vcpu_that_was_elsewhere_the_second_time_stays_where_it_was(void **state)
{
	struct fixture *f = *state;
	struct vcpu_sample *vcpu = &f->sample->vcpu[0];

	vcpu->host->place = HOST_GUEST;
	assert_true(host_view_holds(f->view, 0, vcpu, true));
	assert_true(host_view_holds(f->view, 0, vcpu, false));
	vcpu->host->place = HOST_EXIT;
	assert_false(host_view_holds(f->view, 0, vcpu, false));
	assert_true(host_view_holds(f->view, 0, vcpu, true));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_VIEW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
		WITH_VIEW(test_the_kernel_stands_on_the_monitor_and_both_on_the_vcpu),
		WITH_VIEW(test_frames_of_the_sample_itself_are_left_out),
		WITH_VIEW(test_callers_that_are_no_code_end_a_stack),
		WITH_VIEW(test_code_of_the_kernel_without_a_symbol_is_the_kernels),
		WITH_VIEW(test_a_vcpu_that_was_elsewhere_the_second_time_stays_where_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
