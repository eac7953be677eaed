/* SPDX-License-Identifier: BSD-3-Clause */
#include "victim.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORDING "victim.uniprof"

/* As it calls itself (src/target/guard.c). */
#define GUARD_NAME "unpause-guard"

/* A profiler that has no guard after this time never will. */
#define START_MAX_US 60000000u

/* Longer than this nobody waits, on however slow a machine: it will never be. */
#define GIVE_UP_MS 20000

void victim_prepare(void)
{
	/* Above the profiler, which would else be left alone until it sleeps, with the guest running. */
	const struct sched_param above = {.sched_priority = sched_get_priority_min(SCHED_FIFO) + 1};

	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		give_up("cannot adopt orphans");
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &above))
		give_up("cannot raise the priority");
}

static void quietly_exec(char *const argv[])
{
	int null = open("/dev/null", O_RDWR);

	/* A shell's background job ignores these signals. */
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	execvp(argv[0], argv);
	_exit(127);
}

struct victim victim_start(uint32_t domid, const char *rate)
{
	struct victim victim = {.recording = RECORDING};
	char id[16];
	char *argv[] = {"uniprof", "record", "-q", "--always-pause", "-F", (char *)rate, "-o",
			RECORDING, id,	     NULL};

	snprintf(id, sizeof(id), "%u", domid);
	unlink(RECORDING);
	victim.pid = fork();
	if (victim.pid < 0)
		give_up("cannot fork");
	if (victim.pid == 0)
		quietly_exec(argv);
	return victim;
}

static bool is_guard(pid_t pid)
{
	char path[64], name[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(name, sizeof(name), file))
		name[0] = '\0';
	fclose(file);
	return !strcmp(name, GUARD_NAME "\n");
}

pid_t victim_guard(const struct victim *victim)
{
	char path[64];
	pid_t child, guard = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", victim->pid, victim->pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	while (!guard && fscanf(file, "%d", &child) == 1)
		if (is_guard(child))
			guard = child;
	fclose(file);
	return guard;
}

static void must_live(const struct victim *victim)
{
	siginfo_t end = {0};

	if (!waitid(P_PID, (id_t)victim->pid, &end, WEXITED | WNOHANG | WNOWAIT) && end.si_pid)
		give_up("the profiler has ended by itself, with status %d", end.si_status);
}

uint64_t victim_wait_for_guard(const struct victim *victim)
{
	const uint64_t start = now_ns();

	while (!victim_guard(victim)) {
		if (now_ns() - start > START_MAX_US * 1000ull)
			give_up("the profiler starts no guard");
		must_live(victim);
		nap_us(1000);
	}
	return (now_ns() - start) / 1000;
}

/* Checks of the guest until it is found paused, and the longest time between two. */
#define LOOKS	       20000
#define LOOK_WITHIN_US 400

void victim_wait_for_a_pause(const struct victim *victim, struct watch *watch)
{
	victim_wait_for_guard(victim);
	for (unsigned i = 0; i < LOOKS && !watch_paused(watch); i++)
		nap_us((uint64_t)random() % LOOK_WITHIN_US);
}

/* True once no child is left; those that ended are counted. */
static bool reap(unsigned *ended)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		++*ended;
	return pid < 0 && errno == ECHILD;
}

/* When all children had gone; NEVER if not before the deadline. */
static uint64_t all_gone(uint64_t deadline_ns, unsigned *ended)
{
	while (!reap(ended)) {
		if (now_ns() >= deadline_ns)
			return NEVER;
		nap_us(500);
	}
	return now_ns();
}

static void read_back(const struct victim *victim, struct toll *toll, const char *what)
{
	char *argv[] = {"uniprof", "report", (char *)victim->recording, NULL};
	struct stat there;
	int status;
	pid_t pid;

	if (stat(victim->recording, &there) || there.st_size == 0) {
		toll->empty++;
		return;
	}
	pid = fork();
	if (pid == 0)
		quietly_exec(argv);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status)) {
		printf("%s: the recording cannot be read: status %#x\n", what, status);
		toll->failures++;
		return;
	}
	toll->read++;
}

static void judge(uint64_t took, uint64_t gone, struct toll *toll, const char *what)
{
	toll->sum_ns += took == NEVER ? 0 : took;
	if (took != NEVER && took > toll->worst_ns)
		toll->worst_ns = took;
	if (took == NEVER || gone == NEVER) {
		printf("%s: %s\n", what,
		       took == NEVER ? "the guest does not run" : "some process does not end");
		toll->failures++;
	} else if (took > MUST_RUN_MS * 1000000ull) {
		printf("%s: the guest is let go after %.1f ms only\n", what, (double)took / 1e6);
		toll->late++;
	}
}

void victim_bury(struct victim *victim, int signal, struct watch *watch, struct toll *toll,
		 const char *what)
{
	uint64_t death, took, gone;
	unsigned ended = 0;

	if (signal && kill(victim->pid, signal))
		give_up("%s: the profiler has ended by itself", what);
	death = now_ns();
	toll->rounds++;
	toll->paused += watch_paused(watch);
	took = watch_runs(watch, death, GIVE_UP_MS * 1000000ull);
	gone = all_gone(death + GIVE_UP_MS * 1000000ull, &ended);
	toll->guarded += ended > 1;
	judge(took, gone, toll, what);
	read_back(victim, toll, what);
	fflush(stdout);
}

bool toll_print(const struct toll *toll)
{
	printf("toll: %u rounds, %u guarded, %u found paused, %u later than %d ms, worst %.1f ms, "
	       "mean %.1f ms, %u recordings read, %u empty, %u failures\n",
	       toll->rounds, toll->guarded, toll->paused, toll->late, MUST_RUN_MS,
	       (double)toll->worst_ns / 1e6,
	       toll->rounds ? (double)toll->sum_ns / 1e6 / toll->rounds : 0, toll->read,
	       toll->empty, toll->failures);
	return toll->failures == 0;
}
