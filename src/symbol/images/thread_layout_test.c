/* SPDX-License-Identifier: BSD-3-Clause */
/* Where threads are, as copies of this very program tell: it has the symbols and types of all systems. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "symbol/images/file.h"

/* Structures with the systems' names, and an order of their own. */
struct uk_sched;

struct uk_thread {
	const char *name;
	struct uk_sched *sched;
	struct {
		uint64_t sp, ip;
	} ctx;
	uint64_t exec_time;
	uint32_t unused, flags;
	struct {
		void *allocator, *stack;
	} _mem;
	struct {
		struct uk_thread *tqe_next, **tqe_prev;
	} thread_list;
};

struct uk_sched {
	struct uk_sched *next;
	struct {
		struct uk_thread *tqh_first, **tqh_last;
	} thread_list;
};

struct schedcoop {
	struct uk_sched sched;
	uint64_t unused[3];
	struct uk_thread idle;
};

struct thread {
	uint64_t flags, sp, ip;
	struct {
		struct thread *tqe_next, **tqe_prev;
	} thread_list;
	char *stack, *name;
};

struct xLIST_ITEM {
	void *pvOwner;
	struct xLIST *pxContainer;
	uint64_t xItemValue;
	struct xLIST_ITEM *pxNext, *pxPrevious;
};

struct xLIST {
	uint64_t uxNumberOfItems;
	struct xLIST_ITEM xListEnd;
};

struct tskTaskControlBlock {
	uint64_t *pxTopOfStack;
	char pcTaskName[24];
	uint64_t *pxStack, uxPriority, uxTCBNumber;
	struct xLIST_ITEM xEventListItem, xStateListItem;
	uint32_t ulNotifiedValue[3];
	uint8_t ucNotifyState[3];
};

#define KEPT __attribute__((used)) static
/* No sanitizer makes what is in a section of its own larger. */
#define SIZED(section_name) KEPT __attribute__((section(section_name)))

KEPT struct schedcoop uk_sched_head;
/* Its size tells how many CPUs there are. */
SIZED("current") struct uk_thread *__uk_sched_thread_current[2];
KEPT struct thread thread_list;
SIZED("ready") struct xLIST pxReadyTasksLists[5];
SIZED("pending") struct xLIST xPendingReadyList;
SIZED("currents") struct tskTaskControlBlock *pxCurrentTCBs[3];
KEPT struct xLIST *pxDelayedTaskList, *pxOverflowDelayedTaskList, xTasksWaitingTermination;
KEPT uint64_t uxCurrentNumberOfTasks;
KEPT struct tskTaskControlBlock *xIdleTaskHandles[3];

KEPT void thread_starter(void)
{
	asm volatile("");
}

KEPT void schedcoop_schedule(void)
{
	asm volatile("");
}

KEPT void vTaskSwitchContext(void)
{
	asm volatile("");
}

#define NO_UNIKERNEL "--strip-symbol=uk_sched_head --strip-symbol=thread_starter "

static char copy[] = "/tmp/uniprof-layout-XXXXXX";

/* Makes a copy of this program that lacks what the option takes away; skips where that cannot be done. */
static void copy_without(const char *option)
{
	char command[256];

	snprintf(command, sizeof(command), "objcopy %s /proc/%ld/exe %s 2>/dev/null", option,
		 (long)getpid(), copy);
	if (!system(command))
		return;
	print_message("# this needs objcopy\n");
	skip();
}

static struct thread_layout load(void)
{
	struct thread_layout layout;

	thread_layout_load(copy, &layout);
	assert_true(thread_layout_is_sound(&layout));
	return layout;
}

static void need_types(const struct thread_layout *layout)
{
	if (layout->typed)
		return;
	print_message("# this needs debugging information in this program\n");
	skip();
}

static void unikrafts_threads_are_found_by_its_own_types(void **state)
{
	struct thread_layout layout;

	copy_without("");
	layout = load();
	assert_int_equal(layout.system, UNIKERNEL_UNIKRAFT);
	assert_true(layout.head && layout.current && layout.head != layout.current);
	assert_int_equal(layout.cpus, 2);
	assert_true(layout.switches[0] && !layout.switches[1]);
	need_types(&layout);
	assert_int_equal(layout.at[MEMBER_IP], offsetof(struct uk_thread, ctx.ip));
	assert_int_equal(layout.at[MEMBER_SP], offsetof(struct uk_thread, ctx.sp));
	assert_int_equal(layout.at[MEMBER_LINK], offsetof(struct uk_thread, thread_list));
	assert_int_equal(layout.at[MEMBER_FLAGS], offsetof(struct uk_thread, flags));
	assert_int_equal(layout.at[MEMBER_NAME], offsetof(struct uk_thread, name));
	assert_int_equal(layout.at[MEMBER_STACK], offsetof(struct uk_thread, _mem.stack));
	assert_int_equal(layout.at[MEMBER_SCHEDULER], offsetof(struct uk_thread, sched));
	assert_int_equal(layout.at[MEMBER_CPU_TIME], offsetof(struct uk_thread, exec_time));
	assert_int_equal(layout.at[SCHEDULER_LIST], offsetof(struct uk_sched, thread_list));
	assert_int_equal(layout.at[SCHEDULER_NEXT], offsetof(struct uk_sched, next));
	assert_int_equal(layout.at[SCHEDULER_IDLE], offsetof(struct schedcoop, idle));
}

static void mini_oss_threads_are_found_by_its_own_types(void **state)
{
	struct thread_layout layout;

	copy_without("--strip-symbol=uk_sched_head");
	layout = load();
	assert_int_equal(layout.system, UNIKERNEL_MINIOS);
	assert_true(layout.head && layout.starter && !layout.current);
	assert_int_equal(layout.cpus, 1);
	need_types(&layout);
	assert_int_equal(layout.at[MEMBER_IP], offsetof(struct thread, ip));
	assert_int_equal(layout.at[MEMBER_SP], offsetof(struct thread, sp));
	assert_int_equal(layout.at[MEMBER_LINK], offsetof(struct thread, thread_list));
	assert_int_equal(layout.at[MEMBER_FLAGS], offsetof(struct thread, flags));
	assert_int_equal(layout.at[MEMBER_NAME], offsetof(struct thread, name));
	assert_int_equal(layout.at[MEMBER_STACK], offsetof(struct thread, stack));
}

/* Bytes 18 and 19 of an ELF file tell the processor: EM_AARCH64. */
#define MACHINE_AT 18
#define AARCH64	   183

static void copy_for_arm64(const char *option)
{
	const unsigned char machine[2] = {AARCH64, 0};
	FILE *file;

	copy_without(option);
	file = fopen(copy, "r+b");
	assert_non_null(file);
	assert_int_equal(fseek(file, MACHINE_AT, SEEK_SET), 0);
	assert_int_equal(fwrite(machine, sizeof(machine), 1, file), 1);
	assert_int_equal(fclose(file), 0);
}

static void freertos_tasks_are_found_by_its_own_types(void **state)
{
	struct thread_layout layout;

	copy_for_arm64(NO_UNIKERNEL);
	layout = load();
	assert_int_equal(layout.system, UNIKERNEL_FREERTOS);
	assert_true(layout.head && layout.current && layout.switches[0] && layout.cpus == 3);
	assert_true(layout.priorities == 5 && layout.list_size == sizeof(struct xLIST));
	for (size_t i = 0; i < TASK_VARIABLES; i++)
		assert_true(!layout.variables[i] == (i == TASKS_SUSPENDED));
	need_types(&layout);
	assert_int_equal(layout.at[MEMBER_SP], 0);
	assert_int_equal(layout.at[MEMBER_NAME], offsetof(struct tskTaskControlBlock, pcTaskName));
	assert_int_equal(layout.at[MEMBER_STACK], offsetof(struct tskTaskControlBlock, pxStack));
	assert_int_equal(layout.at[MEMBER_PRIORITY],
			 offsetof(struct tskTaskControlBlock, uxPriority));
	assert_int_equal(layout.at[MEMBER_NUMBER],
			 offsetof(struct tskTaskControlBlock, uxTCBNumber));
	assert_int_equal(layout.at[MEMBER_EVENT],
			 offsetof(struct tskTaskControlBlock, xEventListItem));
	assert_int_equal(layout.at[MEMBER_LINK],
			 offsetof(struct tskTaskControlBlock, xStateListItem));
	assert_int_equal(layout.at[MEMBER_NOTIFIED],
			 offsetof(struct tskTaskControlBlock, ulNotifiedValue));
	assert_int_equal(layout.at[MEMBER_NOTIFICATION],
			 offsetof(struct tskTaskControlBlock, ucNotifyState));
	assert_true(!layout.at[MEMBER_STACK_END] && !layout.at[MEMBER_CPU_TIME]);
	assert_int_equal(layout.at[ITEM_NEXT], offsetof(struct xLIST_ITEM, pxNext));
	assert_int_equal(layout.at[ITEM_OWNER], offsetof(struct xLIST_ITEM, pvOwner));
	assert_int_equal(layout.at[LIST_END], offsetof(struct xLIST, xListEnd));
}

static void freertos_without_types_has_the_usual_offsets_for_its_own_processor_alone(void **state)
{
	struct thread_layout layout;

	copy_for_arm64(NO_UNIKERNEL "--strip-debug");
	layout = load();
	assert_int_equal(layout.system, UNIKERNEL_FREERTOS);
	assert_false(layout.typed);
	assert_int_equal(layout.at[MEMBER_LINK], 8);
	assert_int_equal(layout.at[MEMBER_EVENT], 48);
	assert_int_equal(layout.at[MEMBER_NAME], 104);
	copy_without(NO_UNIKERNEL);
	assert_int_equal(load().system, UNIKERNEL_NONE);
	copy_for_arm64(NO_UNIKERNEL "--strip-symbol=uxCurrentNumberOfTasks");
	assert_int_equal(load().system, UNIKERNEL_NONE);
}

static void without_types_the_usual_offsets_are_told_and_that_they_are_no_more(void **state)
{
	struct thread_layout layout;

	copy_without("--strip-debug");
	layout = load();
	assert_int_equal(layout.system, UNIKERNEL_UNIKRAFT);
	assert_false(layout.typed);
	assert_int_equal(layout.at[MEMBER_SP], 8);
	assert_int_equal(layout.at[MEMBER_LINK], 192);
}

static void other_programs_have_none(void **state)
{
	struct thread_layout layout;

	copy_without(NO_UNIKERNEL);
	assert_int_equal(load().system, UNIKERNEL_NONE);
	copy_without("--strip-all");
	assert_int_equal(load().system, UNIKERNEL_NONE);
	thread_layout_load("/nowhere/at/all", &layout);
	assert_int_equal(layout.system, UNIKERNEL_NONE);
	assert_int_equal(truncate(copy, 100), 0);
	assert_int_equal(load().system, UNIKERNEL_NONE);
}

static void a_layout_that_no_file_has_is_told(void **state)
{
	const struct thread_layout good = {.system = UNIKERNEL_MINIOS, .cpus = 1};
	struct thread_layout bad;

	assert_true(thread_layout_is_sound(&good));
	bad = good;
	bad.system = UNIKERNELS;
	assert_false(thread_layout_is_sound(&bad));
	bad = good;
	bad.typed = 2;
	assert_false(thread_layout_is_sound(&bad));
	bad = good;
	bad.cpus = THREAD_LAYOUT_CPUS + 1;
	assert_false(thread_layout_is_sound(&bad));
	bad.cpus = 0;
	assert_false(thread_layout_is_sound(&bad));
	bad = good;
	bad.at[SCHEDULER_IDLE] = THREAD_LAYOUT_SPAN;
	assert_false(thread_layout_is_sound(&bad));
}

static void lists_that_are_smaller_than_what_is_read_of_them_are_none(void **state)
{
	const struct thread_layout good = {
		.system = UNIKERNEL_FREERTOS,
		.cpus = 1,
		.priorities = 1,
		.list_size = 40,
		.at = {[ITEM_NEXT] = 8, [ITEM_OWNER] = 24, [LIST_END] = 16}};
	struct thread_layout bad;

	assert_true(thread_layout_is_sound(&good));
	bad = good;
	bad.priorities = 0;
	assert_false(thread_layout_is_sound(&bad));
	bad.priorities = THREAD_LAYOUT_PRIORITIES + 1;
	assert_false(thread_layout_is_sound(&bad));
	bad = good;
	bad.list_size = 31;
	assert_false(thread_layout_is_sound(&bad));
	bad.list_size = THREAD_LAYOUT_LIST + 1;
	assert_false(thread_layout_is_sound(&bad));
	bad = good;
	bad.at[ITEM_NEXT] = 0;
	assert_false(thread_layout_is_sound(&bad));
	bad = good;
	bad.at[ITEM_OWNER] = THREAD_LAYOUT_LIST - 15;
	assert_false(thread_layout_is_sound(&bad));
}

static int set_up(void **state)
{
	const int fd = mkstemp(copy);

	return fd < 0 || close(fd);
}

static int tear_down(void **state)
{
	return unlink(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unikrafts_threads_are_found_by_its_own_types),
		cmocka_unit_test(mini_oss_threads_are_found_by_its_own_types),
		cmocka_unit_test(
			without_types_the_usual_offsets_are_told_and_that_they_are_no_more),
		cmocka_unit_test(other_programs_have_none),
		cmocka_unit_test(freertos_tasks_are_found_by_its_own_types),
		cmocka_unit_test(
			freertos_without_types_has_the_usual_offsets_for_its_own_processor_alone),
		cmocka_unit_test(a_layout_that_no_file_has_is_told),
		cmocka_unit_test(lists_that_are_smaller_than_what_is_read_of_them_are_none),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
