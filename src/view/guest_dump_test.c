/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/guest_dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "arch/x86/x86.h"
#include "symbol/names/table.h"

/* A guest that stands in `leaf`, which `main` called; with a name that no terminal should see. */
struct fixture {
	struct target_info info;
	struct images *images;
	struct regs regs;
	struct window window;
	uint8_t stack[64];
	struct frame frames[3];
	struct guest_dump_vcpu vcpus[2];
	struct guest_dump_thread threads[3];
	struct guest_dump dump;
	struct guest_dump_style style;
};

static void put_word(uint8_t *to, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(value >> 8 * i);
}

static void fill_vcpu(struct fixture *f)
{
	struct guest_dump_vcpu *vcpu = &f->vcpus[0];

	f->regs = (struct regs){.pc = 0x1008,
				.sp = 0x7000,
				.flags = 0x246,
				.word = 8,
				.gp_valid = 0xffff,
				.gp = {[0] = 0xabc, [7] = 0x7000}};
	put_word(f->stack + 8, 0x2010);
	put_word(f->stack + 16, 0x41424344);
	f->window = (struct window){.va = 0x7000, .len = sizeof(f->stack), .bytes = f->stack};
	f->frames[0] = (struct frame){0x1008, FRAME_PC, TRUST_SURE};
	f->frames[1] = (struct frame){0x2010, FRAME_RETURN, TRUST_GUESS};
	f->frames[2] = (struct frame){0x99999, FRAME_RETURN, TRUST_SURE};
	*vcpu = (struct guest_dump_vcpu){.online = true,
					 .state = VCPU_RUNNING,
					 .regs = &f->regs,
					 .stack = &f->window,
					 .trace = {.frames = f->frames,
						   .n_frames = 3,
						   .end = UNWIND_BROKEN},
					 .n_code = 1};
	vcpu->code[0] = (struct code_line){.va = 0x1008,
					   .len = 1,
					   .bytes = {0x55},
					   .here = true,
					   .text = "pushq %rbp",
					   .target = 0x2000};
	x86_registers_general(&f->regs, 0x1008, &vcpu->registers);
	registers_add(&vcpu->registers, REGISTER_CONTROL, "cr0", 8, 0x80000001, x86_cr0);
	registers_add(&vcpu->registers, REGISTER_DEBUG, "dr7", 8, 0x400, NULL);
	registers_segment(&vcpu->registers, &(struct register_segment){.name = "cs",
								       .selector = 0x10,
								       .has_selector = true,
								       .has_attributes = true,
								       .attributes = 0xa9b});
	f->vcpus[1] = (struct guest_dump_vcpu){.id = 1};
}

/* A process of two threads, of which one runs; and a thread of the kernel. */
static void add_threads(struct fixture *f)
{
	f->threads[0] = (struct guest_dump_thread){
		.thread = {.pid = 7, .tid = 7, .state = THREAD_SLEEPING, .name = "w\033[31m"},
		.process = "w\033[31m",
		.read = true,
		.program = 0x401234,
		.trace = {.frames = f->frames, .n_frames = 2, .end = UNWIND_OUTERMOST}};
	f->threads[1] = (struct guest_dump_thread){
		.thread = {.pid = 7, .tid = 8, .state = THREAD_RUNNING, .name = "worker"},
		.process = "w\033[31m"};
	f->threads[2] = (struct guest_dump_thread){
		.thread = {.pid = 9, .tid = 9, .kernel = true, .state = THREAD_IDLE, .name = "gp"},
		.process = "gp"};
	f->dump.threads = f->threads;
	f->dump.n_threads = 3;
}

static void setup(struct fixture *f)
{
	static const char table[] =
		"1000 T Pool<int>::leaf(int)\n2000 T ma\033[31min\n3000 T end\n";
	struct symbols *symbols;

	*f = (struct fixture){.info = {.id = "3",
				       .type = "pv",
				       .host = "Xen 4.17",
				       .vcpus = 2,
				       .arch = &arch_x86_64,
				       .name = "web\033[2J"},
			      .style = {.lines = 8, .bytes_per_line = 32}};
	fill_vcpu(f);
	assert_null(nm_read("test", strdup(table), strlen(table), &symbols));
	assert_null(images_new(&f->images));
	assert_null(images_add_tables(f->images, "test", symbols, NULL));
	f->dump = (struct guest_dump){.scheme = "xen",
				      .info = &f->info,
				      .n_vcpus = 2,
				      .vcpus = f->vcpus,
				      .paused_ns = 12300,
				      .n_memory = 2};
	f->dump.memory[0] = (struct guest_dump_memory){
		.va = 0x7008, .len = 16, .asked = 64, .as_stack = true, .bytes = f->stack + 8};
	f->dump.memory[1] = (struct guest_dump_memory){.va = 0x7010,
						       .len = 8,
						       .asked = 8,
						       .bytes = f->stack + 16};
	assert_null(symbolizer_new(f->images, NULL, &f->dump.symbolizer));
}

static void teardown(struct fixture *f)
{
	symbolizer_free(f->dump.symbolizer);
	images_free(f->images);
}

static char *as_text(const struct fixture *f)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_null(guest_dump_write_text(&f->dump, &f->style, out));
	assert_int_equal(fclose(out), 0);
	return text;
}

static json_t *as_json(const struct fixture *f)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	json_t *json;

	assert_null(guest_dump_write_json(&f->dump, out));
	assert_int_equal(fclose(out), 0);
	json = json_loads(text, 0, NULL);
	assert_non_null(json);
	free(text);
	return json;
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static void text_shows_everything_with_names(void **state)
{
	struct fixture f;
	char *text;

	setup(&f);
	text = as_text(&f);
	has(text, "guest    xen:3 \"web");
	has(text, "stopped for 12.3 us for this dump");
	has(text, "vCPU 0   running; in kernel mode, 64 bits");
	has(text, "rip      0000000000001008  Pool<int>::leaf(int)+0x8\n");
	has(text, "rflags   0000000000000246  IF ZF PF\n");
	has(text, "rax      0000000000000abc  rbx ");
	has(text, "cr0         0000000080000001  PG PE\n");
	has(text, "cs          0010  64-bit code, ring 0\n");
	has(text, "  ->  0000000000001008  55 ");
	has(text, "pushq %rbp  ma");
	has(text, "      0000000000007000  0000000000000000 0000000000002010 0000000041424344 ");
	has(text, "    0  0000000000001008  Pool<int>::leaf(int)+0x8\n");
	has(text, "?   1  0000000000002010  ma");
	has(text, "    2  0000000000099999  (no name)\n");
	has(text, "no caller was found: callers may be missing");
	has(text, "? marks callers that may be wrong");
	has(text, "vCPU 1   off-line\n");
	has(text, "      0000000000007008  0000000000002010  ma");
	has(text, "(nothing can be read at 0x7018)");
	has(text, "44 43 42 41 00 00 00 00");
	has(text, "|DCBA....|");
	assert_null(strchr(text, '\033'));
	assert_null(strstr(text, "dr7"));
	free(text);
	teardown(&f);
}

static void options_say_how_much_is_shown(void **state)
{
	struct fixture f;
	char *text;

	setup(&f);
	f.style = (struct guest_dump_style){
		.all = true, .words = true, .lines = 1, .bytes_per_line = 16, .ascii = true};
	f.dump.n_memory = 0;
	text = as_text(&f);
	has(text, "dr7         0000000000000400\n");
	has(text, "0000000000007000  0000000000000000 0000000000002010  |");
	/* On the second line, which is not shown, and no address of code. */
	assert_null(strstr(text, "0000000041424344"));
	has(text, "words    of the stack that point into code");
	has(text, "      0000000000007008  0000000000002010  ma");
	free(text);
	teardown(&f);
}

static void names_are_short_if_asked_for(void **state)
{
	struct fixture f;
	char *text;

	setup(&f);
	assert_null(short_names_new(&f.dump.names));
	text = as_text(&f);
	has(text, "rip      0000000000001008  Pool<int>::leaf+0x8\n");
	has(text, "    0  0000000000001008  Pool<int>::leaf+0x8\n");
	free(text);
	short_names_free(f.dump.names);
	teardown(&f);
}

static void vcpus_for_what_may_begin_later_are_not_told(void **state)
{
	struct fixture f;
	char *text;

	setup(&f);
	f.info.spare = 1;
	text = as_text(&f);
	has(text, "vCPU 0 ");
	assert_null(strstr(text, "off-line"));
	free(text);
	teardown(&f);
}

static void a_paused_guest_stands_still(void **state)
{
	struct fixture f;
	char *text;

	setup(&f);
	f.dump.life = LIFE_CRASHED;
	f.dump.paused_ns = 0;
	text = as_text(&f);
	has(text, "state    crashed; not stopped for this dump\n");
	has(text, "vCPU 0   stands still; in kernel mode");
	free(text);
	teardown(&f);
}

static const char *string_at(json_t *json, const char *key)
{
	const char *value = json_string_value(json_object_get(json, key));

	return value ? value : "";
}

static void the_thread_that_a_vcpu_runs_is_told(void **state)
{
	struct recorded_thread thread = {.pid = 7,
					 .tid = 8,
					 .name = "work\033x",
					 .process = "httpd"};
	struct fixture f;
	json_t *json, *told;
	char *text;

	setup(&f);
	f.vcpus[0].thread = &thread;
	text = as_text(&f);
	has(text, " mode, 64 bits; thread 8 work\xef\xbf\xbdx of process 7 httpd\n");
	free(text);
	json = as_json(&f);
	told = json_object_get(json_array_get(json_object_get(json, "vcpus"), 0), "thread");
	assert_int_equal(json_integer_value(json_object_get(told, "pid")), 7);
	assert_int_equal(json_integer_value(json_object_get(told, "tid")), 8);
	assert_string_equal(string_at(told, "process"), "httpd");
	json_decref(json);
	thread.pid = 8;
	thread.kernel = true;
	text = as_text(&f);
	has(text, "; thread 8 [work\xef\xbf\xbdx]\n");
	free(text);
	thread.pid = thread.tid = RECORDED_ID_UNKNOWN;
	thread.kernel = false;
	text = as_text(&f);
	has(text, "; thread work\xef\xbf\xbdx\n");
	free(text);
	teardown(&f);
}

static void threads_have_their_traces(void **state)
{
	struct fixture f;
	char *text;

	setup(&f);
	add_threads(&f);
	text = as_text(&f);
	has(text, "\nthread 7     w");
	has(text, "; sleeping\ntrace\n    0  0000000000001008  Pool<int>::leaf(int)+0x8\n");
	has(text,
	    "called by its program, whose stack is not shown: -s gives the file of its code\n");
	has(text, "\nthread 8     worker; running; of process 7 w");
	has(text, "on a CPU: see its vCPU\n");
	has(text, "\nthread 9     [gp]; idle\n         its stack could not be read\n");
	assert_null(strchr(text, '\033'));
	free(text);
	teardown(&f);
}

/* The file that a program's code is of is told where it has no name. */
static void code_of_programs_is_told_by_what_is_mapped(void **state)
{
	struct guest_mapping mapping[] = {
		{.start = 0x400000, .end = 0x402000, .offset = 0x3000, .path = "/lib/a\033b.so"},
		{.start = 0x500000, .end = 0x501000}};
	const struct guest_mapping_list list = {.at = mapping, .n = 2};
	struct frame frames[] = {{.addr = 0x400010}, {.addr = 0x500010}};
	struct fixture f;
	json_t *json, *thread, *frame;
	char *txt;

	setup(&f);
	add_threads(&f);
	f.threads[0].program = 0x401234;
	f.threads[0].trace = (struct guest_dump_trace){.frames = frames,
						       .n_frames = 2,
						       .end = UNWIND_OUTERMOST,
						       .mappings = &list};
	txt = as_text(&f);
	has(txt, "\n    0  0000000000400010  a\xef\xbf\xbd"
		 "b.so+0x3010\n");
	has(txt, "\n    1  0000000000500010  (no name)\n");
	has(txt, "called by its program at a\xef\xbf\xbd"
		 "b.so+0x4234, whose stack");
	free(txt);
	json = as_json(&f);
	thread = json_array_get(json_object_get(json, "threads"), 0);
	frame = json_array_get(json_object_get(thread, "trace"), 0);
	assert_string_equal(json_string_value(json_object_get(frame, "image")), "/lib/a\xef\xbf\xbd"
										"b.so");
	assert_int_equal(json_integer_value(json_object_get(frame, "image_offset")), 0x3010);
	assert_int_equal(json_integer_value(json_object_get(thread, "image_offset")), 0x4234);
	json_decref(json);
	teardown(&f);
}

static void json_has_threads_where_they_were_asked_for(void **state)
{
	struct fixture f;
	json_t *json, *threads, *first;

	setup(&f);
	json = as_json(&f);
	assert_null(json_object_get(json, "threads"));
	json_decref(json);
	add_threads(&f);
	f.dump.trouble = "some are missing";
	json = as_json(&f);
	threads = json_object_get(json, "threads");
	assert_int_equal(json_array_size(threads), 3);
	first = json_array_get(threads, 0);
	assert_int_equal(json_integer_value(json_object_get(first, "tid")), 7);
	assert_int_equal(json_array_size(json_object_get(first, "trace")), 2);
	assert_true(json_is_true(json_object_get(first, "program")));
	assert_null(json_object_get(json_array_get(threads, 1), "trace"));
	assert_string_equal(json_string_value(json_object_get(json, "trouble")),
			    "some are missing");
	json_decref(json);
	teardown(&f);
}

static void json_has_the_same_and_can_be_read(void **state)
{
	json_t *json, *vcpu, *trace;
	struct fixture f;

	setup(&f);
	json = as_json(&f);
	assert_string_equal(string_at(json, "state"), "runs");
	assert_null(strchr(string_at(json_object_get(json, "guest"), "name"), '\033'));
	vcpu = json_array_get(json_object_get(json, "vcpus"), 0);
	assert_string_equal(
		string_at(json_object_get(json_object_get(vcpu, "registers"), "general"), "rax"),
		"0xabc");
	assert_int_equal(json_array_size(json_object_get(json_object_get(vcpu, "flags"), "rflags")),
			 3);
	assert_int_equal(json_array_size(json_object_get(json_object_get(vcpu, "stack"), "words")),
			 8);
	trace = json_object_get(vcpu, "trace");
	assert_int_equal(json_array_size(trace), 3);
	assert_string_equal(string_at(json_array_get(trace, 0), "symbol"), "Pool<int>::leaf(int)");
	assert_string_equal(string_at(json_array_get(trace, 1), "trust"), "guess");
	assert_null(json_object_get(json_array_get(trace, 2), "symbol"));
	assert_string_equal(string_at(vcpu, "end"), "broken chain");
	assert_true(json_is_false(
		json_object_get(json_array_get(json_object_get(json, "vcpus"), 1), "online")));
	assert_string_equal(string_at(json_array_get(json_object_get(json, "memory"), 1), "bytes"),
			    "4443424100000000");
	json_decref(json);
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_shows_everything_with_names),
		cmocka_unit_test(options_say_how_much_is_shown),
		cmocka_unit_test(names_are_short_if_asked_for),
		cmocka_unit_test(vcpus_for_what_may_begin_later_are_not_told),
		cmocka_unit_test(a_paused_guest_stands_still),
		cmocka_unit_test(code_of_programs_is_told_by_what_is_mapped),
		cmocka_unit_test(the_thread_that_a_vcpu_runs_is_told),
		cmocka_unit_test(threads_have_their_traces),
		cmocka_unit_test(json_has_threads_where_they_were_asked_for),
		cmocka_unit_test(json_has_the_same_and_can_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
