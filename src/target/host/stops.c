/* SPDX-License-Identifier: BSD-3-Clause */

/* Samples of vCPUs that are threads of a process: struct stops of threads.h. */

#include "target/host/threads.h"

#include <stdlib.h>

#include "base/clock.h"

/*
 * A thread that we stopped in a system call goes back into it, which puts it
 * on a CPU once and for so long at most.
 */
#define BACK_TO_SLEEP_NS 50000u

/* Time for which a sleeper's state is believed: it may have been woken meanwhile. */
#define SLEEPER_NS NS_PER_S

struct stops_seen {
	pid_t tid;
	struct thread_time time;
	uint64_t read_ns;
	bool stopped; /* stopped for this sample */
	bool on_cpu;  /* it was on a CPU; kept if it was not stopped then: it runs on */
};

struct error *stops_new(struct stops *stops)
{
	stops->seen = calloc(stops->threads.n, sizeof(*stops->seen));
	return stops->seen ? NULL : error_no_memory();
}

void stops_free(struct stops *stops)
{
	threads_free(&stops->threads);
	free(stops->seen);
}

/* True if the last reading of the thread is still valid. */
static bool still_holds(const struct stops_seen *seen, const struct thread_time *time,
			bool runnable, uint64_t now_ns)
{
	if (!time->known || !seen->time.known || seen->on_cpu)
		return false;
	if (time->timeslices == seen->time.timeslices && time->cpu_ns == seen->time.cpu_ns)
		return true;
	return seen->stopped && !runnable && time->timeslices == seen->time.timeslices + 1 &&
	       time->cpu_ns - seen->time.cpu_ns < BACK_TO_SLEEP_NS &&
	       now_ns - seen->read_ns < SLEEPER_NS;
}

/* States of a thread in proc(5): uninterruptible sleep, and its end. */
#define UNINTERRUPTIBLE 'D'
#define ENDED		'X'

/*
 * A thread that does not stop at once waits for a CPU: its code does not run
 * now. A sleeping thread first has to be put on a CPU to be stopped.
 */
#define RUNNABLE_NS 1000000u
#define ASLEEP_NS   5000000u
/* A thread that was never read: nothing else is known of it. */
#define FIRST_NS 50000000u

/* Keeps the last reading of a thread that could not be stopped. */
static void could_not_stop(const struct thread *thread, struct vcpu_sample *vcpu, bool runnable)
{
	/* A thread that was never read is off-line. */
	vcpu->online = thread->tid && !thread->dead && vcpu->account.held;
	vcpu->same = vcpu->online;
	vcpu->state = runnable ? VCPU_RUNNABLE : VCPU_BLOCKED;
	vcpu->ran_ns = 0;
}

static void keep_account(struct vcpu_sample *vcpu, struct stops_seen *seen,
			 const struct thread_time *time, bool runnable, int64_t usual_ns)
{
	const struct vcpu_load load = {.cpu_ns = time->cpu_ns,
				       .running =
					       seen->on_cpu ||
					       (runnable && (!vcpu->account.held || !time->known)),
				       .blocked = !runnable};

	/* correct_time() may have estimated more CPU time than the thread used. */
	vcpu->ran_ns = vcpu->account.held && time->cpu_ns > vcpu->account.cpu_ns
			       ? time->cpu_ns - vcpu->account.cpu_ns
			       : 0;
	vcpu->state = vcpu_state_of(&load, vcpu, usual_ns);
	if (!vcpu->account.held || time->cpu_ns > vcpu->account.cpu_ns)
		vcpu->account.cpu_ns = time->cpu_ns;
	vcpu->account.held = true;
	seen->time = *time;
}

static void read_stopped(struct stops *stops, uint32_t i, struct sample *sample, bool runnable,
			 int64_t usual_ns)
{
	struct thread *thread = &stops->threads.at[i];
	struct vcpu_sample *vcpu = &sample->vcpu[i];
	const uint64_t began = clock_now_ns();
	const uint64_t until =
		sample->request.max_pause_ns ? began + sample->request.max_pause_ns / 4 * 3 : 0;
	struct thread_time time;
	bool got;

	if (!thread_stop(&stops->threads, thread,
			 !vcpu->account.held ? FIRST_NS
			 : runnable	     ? RUNNABLE_NS
					     : ASLEEP_NS)) {
		could_not_stop(thread, vcpu, runnable);
		return;
	}
	got = stops->read(stops->ctx, i, vcpu, until);
	thread_time(thread, &time);
	thread_go(&stops->threads, thread);
	stops->seen[i].read_ns = clock_now_ns();
	stops->seen[i].stopped = true;
	sample->paused_ns += stops->seen[i].read_ns - began;
	if (got)
		keep_account(vcpu, &stops->seen[i], &time, runnable, usual_ns);
	else
		could_not_stop(thread, vcpu, runnable);
	stops->seen[i].on_cpu = false;
}

/*
 * The scheduler counts the time of a thread that is on a CPU every few
 * milliseconds only; of one that has not left it since, we know better.
 */
static void correct_time(const struct stops_seen *seen, const struct vcpu_sample *vcpu,
			 uint64_t now_ns, struct thread_time *time)
{
	uint64_t least = vcpu->account.held ? vcpu->account.cpu_ns : 0;

	if (vcpu->account.held && seen->on_cpu && seen->time.timeslices == time->timeslices)
		least += now_ns - seen->read_ns;
	if (time->cpu_ns < least)
		time->cpu_ns = least;
}

static bool sample_nostop(struct stops *stops, uint32_t i, struct vcpu_sample *vcpu,
			  const struct thread_time *before, bool runnable, int64_t usual_ns)
{
	struct stops_seen *seen = &stops->seen[i];
	struct thread_time time = *before;
	uint64_t now_ns;
	bool on_cpu = false;

	if (!stops->read_nostop || !stops->read_nostop(stops->ctx, i, vcpu, &time, &on_cpu)) {
		seen->on_cpu = on_cpu;
		return false;
	}
	now_ns = clock_now_ns();
	correct_time(seen, vcpu, now_ns, &time);
	seen->read_ns = now_ns;
	seen->stopped = false;
	seen->on_cpu = on_cpu;
	keep_account(vcpu, seen, &time, runnable, usual_ns);
	/* It has been halted since it was asked whether it may run. */
	if (vcpu->host && vcpu->host->place == HOST_HALTED)
		vcpu->state = VCPU_BLOCKED;
	return true;
}

static char letter_of(const struct stops *stops, uint32_t i, const struct thread_time *time)
{
	return stops->wants_cpu && stops->wants_cpu(stops->ctx, i, time)
		       ? 'R'
		       : thread_letter(&stops->threads.at[i]);
}

static void sample_one(struct stops *stops, uint32_t i, struct sample *sample, int64_t usual_ns)
{
	const struct thread *thread = &stops->threads.at[i];
	struct vcpu_sample *vcpu = &sample->vcpu[i];
	struct stops_seen *seen = &stops->seen[i];
	struct thread_time time;
	bool runnable;
	char letter;

	if (thread->tid != seen->tid)
		vcpu->account.held = false;
	seen->tid = thread->tid;
	vcpu->online = thread->tid && !thread->dead;
	vcpu->hurried = false;
	vcpu->same = false;
	if (!vcpu->online)
		return;
	thread_time(thread, &time);
	letter = letter_of(stops, i, &time);
	runnable = letter == 'R';
	vcpu->online = letter != ENDED;
	if (!vcpu->online)
		return;
	if (vcpu->account.held && !vcpu->request.again &&
	    still_holds(seen, &time, runnable, sample->time_ns)) {
		vcpu->same = true;
		vcpu->state = runnable ? VCPU_RUNNABLE : VCPU_BLOCKED;
		vcpu->ran_ns = 0;
	} else if (sample_nostop(stops, i, vcpu, &time, runnable, usual_ns)) {
		return;
	} else if (letter == UNINTERRUPTIBLE || stops->never) {
		could_not_stop(thread, vcpu, stops->never && runnable);
	} else if (thread->seized) {
		read_stopped(stops, i, sample, runnable, usual_ns);
	} else {
		vcpu->online = false;
	}
}

struct error *stops_sample(struct stops *stops, struct sample *sample)
{
	struct threads *threads = &stops->threads;
	int64_t usual_ns;

	threads_tend(threads);
	sample->paused_ns = 0;
	sample->time_ns = clock_now_ns();
	usual_ns = vcpu_state_time(sample);
	for (uint32_t i = 0; i < threads->n && i < sample->vcpus && !threads->ended; i++)
		sample_one(stops, i, sample, usual_ns);
	if (threads->ended)
		return error_new(ERR_ENDED, "process %d %s", (int)threads->pid,
				 threads->executed ? "has become another program" : "has ended");
	return NULL;
}
