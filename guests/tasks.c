/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tasks in lists as FreeRTOS keeps them, with its names of data, of which `waiter` does nothing but wait:
 * 20 ms for a lock that `holder` has, 30 ms for an event that `maker` makes, 50 ms for the time to pass,
 * again and again. `worker` works a millisecond and sleeps for three; `halted` has suspended itself, and
 * `ended` has deleted itself, and nobody frees it. There are no interrupts: a task has the CPU until it
 * waits. Ends after `seconds` (option, 60). Expected shares of the waiter's waits: lock_for 0.2,
 * event_for 0.3, sleep_for 0.5; it tells each as `waited`.
 */
#include "guest.h"

#define MS	    1000000ull
#define STACK_WORDS 2048
#define LOCK_MS	    20
#define EVENT_MS    30
#define SLEEP_MS    50
#define TELL_AFTER  5

enum { LOCK, EVENT, SLEEP, ROWS };

struct truth truth[ROWS] = {{"lock_for", 0, 0}, {"event_for", 0, 0}, {"sleep_for", 0, 0}};

struct xLIST;

struct xLIST_ITEM {
	uint64_t xItemValue;
	struct xLIST_ITEM *pxNext, *pxPrevious;
	void *pvOwner;
	struct xLIST *pxContainer;
};

struct xLIST {
	uint64_t uxNumberOfItems;
	struct xLIST_ITEM *pxIndex;
	struct xLIST_ITEM xListEnd;
};

#define NAME_BYTES 16

struct tskTaskControlBlock {
	uint64_t *pxTopOfStack; /* first: the switch in assembly knows it */
	struct xLIST_ITEM xStateListItem, xEventListItem;
	uint64_t uxPriority;
	uint64_t *pxStack;
	char pcTaskName[NAME_BYTES];
	uint64_t uxTCBNumber;
	uint32_t ulNotifiedValue[1];
	uint8_t ucNotifyState[1];
};

/* In assembly: enters the first task; gives the CPU to the task that vTaskSwitchContext chooses. */
void enter_first_task(void) __attribute__((noreturn));
void leave_cpu(void);
void vTaskSwitchContext(void);

enum { WAITER, HOLDER, MAKER, WORKER, HALTED, ENDED, IDLE, TASKS };
enum { PRIORITY_IDLE, PRIORITY_WORK, PRIORITY_WAIT, PRIORITIES };

/* FreeRTOS's. */
struct tskTaskControlBlock *pxCurrentTCB, *xIdleTaskHandle;
struct xLIST pxReadyTasksLists[PRIORITIES], *pxDelayedTaskList, *pxOverflowDelayedTaskList,
	xPendingReadyList, xSuspendedTaskList, xTasksWaitingTermination;
uint64_t uxCurrentNumberOfTasks;

static struct tskTaskControlBlock tasks[TASKS];
static struct xLIST delayed, overflown;
static uint64_t stacks[TASKS][STACK_WORDS] __attribute__((aligned(16)));
static uint64_t end;

static void clear(struct xLIST *list)
{
	list->xListEnd.pxNext = list->xListEnd.pxPrevious = list->pxIndex = &list->xListEnd;
	list->xListEnd.xItemValue = UINT64_MAX;
}

static void put_before(struct xLIST *list, struct xLIST_ITEM *at, struct xLIST_ITEM *item)
{
	item->pxNext = at;
	item->pxPrevious = at->pxPrevious;
	at->pxPrevious->pxNext = item;
	at->pxPrevious = item;
	item->pxContainer = list;
	list->uxNumberOfItems++;
}

static void take_out(struct xLIST_ITEM *item)
{
	item->pxNext->pxPrevious = item->pxPrevious;
	item->pxPrevious->pxNext = item->pxNext;
	item->pxContainer->uxNumberOfItems--;
	item->pxContainer = 0;
}

static void move_to(struct tskTaskControlBlock *task, struct xLIST *list)
{
	take_out(&task->xStateListItem);
	put_before(list, &list->xListEnd, &task->xStateListItem);
}

static void make_ready(struct tskTaskControlBlock *task)
{
	move_to(task, &pxReadyTasksLists[task->uxPriority]);
}

static void wake_sleepers(void)
{
	const uint64_t now = clock_ns();

	while (pxDelayedTaskList->xListEnd.pxNext->xItemValue <= now)
		make_ready(pxDelayedTaskList->xListEnd.pxNext->pvOwner);
}

/* The first task of the highest priority; it goes behind the others of its own. */
VISIBLE void vTaskSwitchContext(void)
{
	unsigned int priority = PRIORITIES - 1;

	wake_sleepers();
	while (!pxReadyTasksLists[priority].uxNumberOfItems)
		priority--;
	pxCurrentTCB = pxReadyTasksLists[priority].xListEnd.pxNext->pvOwner;
	make_ready(pxCurrentTCB);
}

VISIBLE void nap(uint64_t ms)
{
	struct xLIST_ITEM *item = &pxCurrentTCB->xStateListItem, *at;

	take_out(item);
	item->xItemValue = clock_ns() + ms * MS;
	at = pxDelayedTaskList->xListEnd.pxNext;
	while (at->xItemValue <= item->xItemValue)
		at = at->pxNext;
	put_before(pxDelayedTaskList, at, item);
	leave_cpu();
}

struct semaphore {
	uint64_t count;
	struct xLIST waits;
};

static struct semaphore lock = {.count = 1}, event, to_hold, held, to_make;

VISIBLE void down(struct semaphore *semaphore)
{
	while (!semaphore->count) {
		put_before(&semaphore->waits, &semaphore->waits.xListEnd,
			   &pxCurrentTCB->xEventListItem);
		move_to(pxCurrentTCB, &xSuspendedTaskList);
		leave_cpu();
	}
	semaphore->count--;
}

VISIBLE void up(struct semaphore *semaphore)
{
	struct tskTaskControlBlock *task = semaphore->waits.xListEnd.pxNext->pvOwner;

	semaphore->count++;
	if (!semaphore->waits.uxNumberOfItems)
		return;
	take_out(&task->xEventListItem);
	make_ready(task);
}

VISIBLE void lock_for(void)
{
	down(&lock);
	up(&lock);
}

VISIBLE void event_for(void)
{
	down(&event);
}

VISIBLE void sleep_for(void)
{
	nap(SLEEP_MS);
}

VISIBLE void waiter(void)
{
	for (unsigned long n = 1; clock_ns() < end; n++) {
		up(&to_hold);
		down(&held);
		TIMED_BY(clock_ns, &truth[LOCK], lock_for());
		up(&to_make);
		TIMED_BY(clock_ns, &truth[EVENT], event_for());
		TIMED_BY(clock_ns, &truth[SLEEP], sleep_for());
		if (n % TELL_AFTER == 0)
			print("waited %llu %llu %llu\n", (unsigned long long)truth[LOCK].ticks,
			      (unsigned long long)truth[EVENT].ticks,
			      (unsigned long long)truth[SLEEP].ticks);
	}
	print_truth(truth, ROWS);
	shut_down(ENDING_POWEROFF);
}

VISIBLE void holder(void)
{
	for (;;) {
		down(&to_hold);
		down(&lock);
		up(&held);
		nap(LOCK_MS);
		up(&lock);
	}
}

VISIBLE void maker(void)
{
	for (;;) {
		down(&to_make);
		nap(EVENT_MS);
		up(&event);
	}
}

VISIBLE void worker(void)
{
	for (;;) {
		const uint64_t until = clock_ns() + MS;

		do
			spin(1000);
		while (clock_ns() < until);
		nap(3);
	}
}

VISIBLE void leave_for_ever(struct xLIST *list)
{
	move_to(pxCurrentTCB, list);
	leave_cpu();
	shut_down(ENDING_CRASH);
}

VISIBLE void halted(void)
{
	leave_for_ever(&xSuspendedTaskList);
}

VISIBLE void ended(void)
{
	leave_for_ever(&xTasksWaitingTermination);
}

VISIBLE void idle_task(void)
{
	for (;;) {
		sleep_until(pxDelayedTaskList->xListEnd.pxNext->xItemValue);
		leave_cpu();
	}
}

/* What the switch takes from a stack: two words, where it goes on and in what state, x30, a free word, x28, x29 down to x0, x1. */
enum { AT_PC = 2, AT_STATE, AT_X29 = 7, SAVED_WORDS = 36 };
#define EL1T	  0x3c4 /* PSTATE: EL1, SP_EL0, nothing interrupts */
#define FIRST_X29 0x2929292929292929ull

static void create_task(unsigned int n, const char *name, void (*function)(void), uint64_t priority)
{
	struct tskTaskControlBlock *task = &tasks[n];
	uint64_t *top = stacks[n] + STACK_WORDS - SAVED_WORDS;

	top[AT_PC] = (uint64_t)function;
	top[AT_STATE] = EL1T;
	top[AT_X29] = FIRST_X29;
	*task = (struct tskTaskControlBlock){.pxTopOfStack = top,
					     .xStateListItem = {.pvOwner = task},
					     .xEventListItem = {.pvOwner = task},
					     .uxPriority = priority,
					     .pxStack = stacks[n],
					     .uxTCBNumber = n + 1};
	for (unsigned int i = 0; name[i] && i < NAME_BYTES - 1; i++)
		task->pcTaskName[i] = name[i];
	put_before(&pxReadyTasksLists[priority], &pxReadyTasksLists[priority].xListEnd,
		   &task->xStateListItem);
	uxCurrentNumberOfTasks++;
}

static void clear_lists(void)
{
	struct xLIST *const lists[] = {&delayed,	   &overflown,
				       &xPendingReadyList, &xSuspendedTaskList,
				       &lock.waits,	   &event.waits,
				       &to_hold.waits,	   &held.waits,
				       &to_make.waits,	   &xTasksWaitingTermination};

	for (unsigned int i = 0; i < PRIORITIES; i++)
		clear(&pxReadyTasksLists[i]);
	for (unsigned int i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		clear(lists[i]);
	pxDelayedTaskList = &delayed;
	pxOverflowDelayedTaskList = &overflown;
}

int main(void)
{
	end = clock_ns() + option_number("seconds", 60) * 1000 * MS;
	clear_lists();
	create_task(WAITER, "waiter", waiter, PRIORITY_WAIT);
	create_task(HOLDER, "holder", holder, PRIORITY_WAIT);
	create_task(MAKER, "maker", maker, PRIORITY_WAIT);
	create_task(WORKER, "worker", worker, PRIORITY_WORK);
	create_task(HALTED, "halted", halted, PRIORITY_WORK);
	create_task(ENDED, "ended", ended, PRIORITY_WORK);
	create_task(IDLE, "IDLE", idle_task, PRIORITY_IDLE);
	xIdleTaskHandle = &tasks[IDLE];
	print("tasks\n");
	vTaskSwitchContext();
	enter_first_task();
}
