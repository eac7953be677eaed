/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/stops.h"

#include <stdlib.h>

#include "base/clock.h"
#include "target/vcpu_state.h"

/*
 * A thread that we stopped in a system call goes back into it, which puts it
 * on a CPU once and for so long at most.
 */
#define BACK_TO_SLEEP_NS 50000u

/* It might have been woken in that very moment: so old is what we know of a sleeper at most. */
#define SLEEPER_NS NS_PER_S

struct stops_seen {
	pid_t tid;
	struct thread_time time;
	uint64_t read_ns;
	bool stopped; /* it was stopped for that */
	bool on_cpu;  /* it was not, and was on a CPU: it runs on */
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

/* Does what was last read of it still hold? */
static bool still_holds(const struct stops_seen *seen, const struct thread_time *time,
			bool runnable, uint64_t now_ns)
{
	if (!time->known || !seen->time.known || seen->on_cpu)
		return false;
	if (time->slices == seen->time.slices && time->cpu_ns == seen->time.cpu_ns)
		return true;
	return seen->stopped && !runnable && time->slices == seen->time.slices + 1 &&
	       time->cpu_ns - seen->time.cpu_ns < BACK_TO_SLEEP_NS &&
	       now_ns - seen->read_ns < SLEEPER_NS;
}

/* Asleep in a way that nothing ends but what it waits for (proc(5)). */
#define UNINTERRUPTIBLE 'D'

/*
 * One that does not stop at once waits for a CPU: what it would run is not what
 * runs. One that was asleep first has to be put on a CPU to be stopped.
 */
#define RUNNABLE_NS 1000000u
#define ASLEEP_NS   5000000u
/* Of one that has never been read, nothing could be said else. */
#define FIRST_NS 50000000u

/* It could not be stopped. */
static void could_not_stop(const struct thread *thread, struct vcpu_sample *vcpu, bool runnable)
{
	/* One of which nothing is known yet does not count. */
	vcpu->online = thread->tid && !thread->dead && vcpu->held;
	vcpu->same = vcpu->online;
	vcpu->state = runnable ? VCPU_RUNNABLE : VCPU_BLOCKED;
	vcpu->ran_ns = 0;
}

static void keep_account(struct vcpu_sample *vcpu, struct stops_seen *seen,
			 const struct thread_time *time, bool runnable, int64_t usual_ns)
{
	const struct vcpu_load load = {.cpu_ns = time->cpu_ns,
				       .running = seen->on_cpu ||
						  (runnable && (!vcpu->held || !time->known)),
				       .blocked = !runnable};

	vcpu->ran_ns = vcpu->held ? time->cpu_ns - vcpu->cpu_ns : 0;
	vcpu->state = vcpu_state_of(&load, vcpu, usual_ns);
	vcpu->cpu_ns = time->cpu_ns;
	vcpu->held = true;
	seen->time = *time;
}

static void read_stopped(struct stops *stops, uint32_t i, struct sample *sample, bool runnable,
			 int64_t usual_ns)
{
	struct thread *thread = &stops->threads.at[i];
	struct vcpu_sample *vcpu = &sample->vcpu[i];
	const uint64_t began = clock_now_ns();
	const uint64_t until = sample->max_pause_ns ? began + sample->max_pause_ns / 4 * 3 : 0;
	struct thread_time time;
	bool got;

	if (!thread_stop(&stops->threads, thread,
			 !vcpu->held ? FIRST_NS
			 : runnable  ? RUNNABLE_NS
				     : ASLEEP_NS)) {
		could_not_stop(thread, vcpu, runnable);
		return;
	}
	got = stops->read(stops->ctx, i, vcpu, until);
	thread_time(thread, &time);
	thread_go(&stops->threads, thread);
	stops->seen[i].read_ns = clock_now_ns();
	stops->seen[i].stopped = true;
	stops->seen[i].on_cpu = false;
	sample->paused_ns += stops->seen[i].read_ns - began;
	if (got)
		keep_account(vcpu, &stops->seen[i], &time, runnable, usual_ns);
	else
		could_not_stop(thread, vcpu, runnable);
}

/*
 * The scheduler counts the time of a thread that is on a CPU every few
 * milliseconds only; of one that has not left it since, we know better.
 */
static void correct_time(const struct stops_seen *seen, const struct vcpu_sample *vcpu,
			 uint64_t now_ns, struct thread_time *time)
{
	uint64_t least = vcpu->held ? vcpu->cpu_ns : 0;

	if (vcpu->held && seen->on_cpu && seen->time.slices == time->slices)
		least += now_ns - seen->read_ns;
	if (time->cpu_ns < least)
		time->cpu_ns = least;
}

static bool peek(struct stops *stops, uint32_t i, struct vcpu_sample *vcpu,
		 const struct thread_time *before, bool runnable, int64_t usual_ns)
{
	struct stops_seen *seen = &stops->seen[i];
	struct thread_time time = *before;
	uint64_t now_ns;
	bool on_cpu;

	if (!stops->peek || !stops->peek(stops->ctx, i, vcpu, &time, &on_cpu))
		return false;
	now_ns = clock_now_ns();
	correct_time(seen, vcpu, now_ns, &time);
	seen->read_ns = now_ns;
	seen->stopped = false;
	seen->on_cpu = on_cpu;
	keep_account(vcpu, seen, &time, runnable, usual_ns);
	return true;
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
		vcpu->held = false;
	seen->tid = thread->tid;
	vcpu->online = thread->tid && !thread->dead;
	vcpu->given_up = false;
	vcpu->hurried = false;
	vcpu->same = false;
	if (!vcpu->online)
		return;
	thread_time(thread, &time);
	letter = thread_letter(thread);
	runnable = letter == 'R';
	if (vcpu->held && !vcpu->again && still_holds(seen, &time, runnable, sample->time_ns)) {
		vcpu->same = true;
		vcpu->state = runnable ? VCPU_RUNNABLE : VCPU_BLOCKED;
		vcpu->ran_ns = 0;
	} else if (peek(stops, i, vcpu, &time, runnable, usual_ns)) {
		return;
	} else if (letter == UNINTERRUPTIBLE) {
		could_not_stop(thread, vcpu, false);
	} else {
		read_stopped(stops, i, sample, runnable, usual_ns);
	}
}

struct error *stops_sample(struct stops *stops, struct sample *sample)
{
	struct threads *threads = &stops->threads;
	int64_t usual_ns;

	threads_tend(threads);
	sample->retakes = 0;
	sample->paused_ns = 0;
	sample->stolen_ns = 0;
	sample->time_ns = clock_now_ns();
	usual_ns = vcpu_state_time(sample);
	for (uint32_t i = 0; i < threads->n && i < sample->vcpus && !threads->ended; i++)
		sample_one(stops, i, sample, usual_ns);
	if (threads->ended)
		return error_new(ERR_ENDED, "process %d %s", (int)threads->pid,
				 threads->executed ? "has become another program" : "has ended");
	return NULL;
}
