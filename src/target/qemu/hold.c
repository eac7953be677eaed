/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * vCPUs of a QEMU without KVM, held by ptrace(2) while QEMU hears that it is to stop the guest.
 *
 * QEMU's main thread takes the big lock as soon as it hears of a stop, and tells the vCPUs some
 * microseconds later; a vCPU that accesses a device in between waits for the lock and is seen there.
 * Code that runs in the microseconds after an access would get too small a share, the access too
 * large a one. A vCPU that is held does not get to its next access before it has been told.
 */

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/array.h"
#include "base/clock.h"
#include "target/qemu/qemu.h"

/* Longest waits for vCPUs to stop, and for QEMU to have told them to; after that, they run on. */
#define HOLD_NS 1000000u
#define TELL_NS 1000000u

/*
 * QEMU's main thread often waits for the CPU that we are on: it gets that by so many calls of
 * sched_yield(2), or, if our priority is higher than its own, by naps.
 */
#define YIELDS 20
#define NAP_NS 10000

struct qemu_hold {
	struct threads threads; /* the vCPUs' */
	struct thread main;	/* QEMU's main thread; not traced */
	uint64_t timeslices;	/* of the main thread, before it was told */
};

void qemu_hold_free(struct qemu_hold *hold)
{
	if (!hold)
		return;
	threads_free(&hold->threads);
	thread_unwatch(&hold->main);
	free(hold);
}

/* One thread may run all vCPUs. */
static bool is_seized(const struct threads *threads, pid_t tid)
{
	for (uint32_t i = 0; i < threads->n; i++)
		if (threads->at[i].tid == tid)
			return true;
	return false;
}

struct error *qemu_hold_new(pid_t pid, const struct qemu_machine *machine, struct qemu_hold **out)
{
	struct qemu_hold *hold;
	struct thread_time time;
	struct error *err;

	TRY(ARRAY_NEW(&hold, 1));
	thread_watch(&hold->main, pid, pid);
	thread_time(&hold->main, &time);
	err = time.known ? threads_new(&hold->threads, pid, machine->vcpus)
			 : error_new(ERR_DENIED, "this kernel does not tell when a thread ran");
	for (uint32_t i = 0; i < machine->vcpus && !err; i++)
		if (!is_seized(&hold->threads, machine->tid[i]))
			err = threads_seize(&hold->threads, machine->tid[i]);
	if (err) {
		qemu_hold_free(hold);
		return err;
	}
	/* prctl(2): naps would last 50 us longer. */
	(void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	*out = hold;
	return NULL;
}

void qemu_hold_begin(struct qemu_hold *hold)
{
	const uint64_t until_ns = clock_now_ns() + HOLD_NS;
	struct thread_time time;

	if (!hold)
		return;
	for (uint32_t i = 0; i < hold->threads.n; i++) {
		const uint64_t now_ns = clock_now_ns();
		struct thread *thread = &hold->threads.at[i];

		/* A vCPU that sleeps has nothing to access. */
		if (thread->tid && thread_letter(thread) == 'R')
			(void)thread_stop(&hold->threads, thread,
					  until_ns > now_ns ? until_ns - now_ns : 0);
	}
	thread_time(&hold->main, &time);
	hold->timeslices = time.timeslices;
}

/* True once the main thread has run and sleeps again: until the vCPUs stop, or for their lock. */
static bool has_told(const struct qemu_hold *hold)
{
	struct thread_time time;

	thread_time(&hold->main, &time);
	return time.timeslices != hold->timeslices && thread_letter(&hold->main) == 'S';
}

/* True if something has come on `answer`. */
static bool let_it_run(unsigned turn, struct pollfd *answer)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};

	if (turn >= YIELDS)
		return ppoll(answer, 1, &nap, NULL) != 0;
	sched_yield();
	return false;
}

void qemu_hold_until_told(struct qemu_hold *hold, int fd)
{
	const uint64_t until_ns = clock_now_ns() + TELL_NS;
	struct pollfd answer = {.fd = fd, .events = POLLIN};

	for (unsigned turn = 0; !has_told(hold) && clock_now_ns() < until_ns; turn++)
		if (let_it_run(turn, &answer))
			break;
	qemu_hold_end(hold);
}

void qemu_hold_end(struct qemu_hold *hold)
{
	if (hold)
		threads_go(&hold->threads, clock_now_ns() + QEMU_SAMPLE_MS * UINT64_C(1000000));
}

void qemu_hold_wait(struct qemu_hold *hold, uint64_t until_ns)
{
	if (hold)
		threads_wait(&hold->threads, until_ns);
	else
		clock_sleep_until(until_ns);
}
