/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * meanwhile DOMID COMMAND: records the domain, stops the profiler while it
 * holds the guest, and starts a shell's command then. The profiler goes on
 * after a while, and has to end once the command has, or to be told to.
 */

#include "victim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define RATE "2000"

/* Pauses that are tried for: the guest may be let go before the profiler is stopped. */
#define TRIES 200

/* The guard finds a stopped profiler within 1 s. */
#define STOPPED_US 1500000u
#define LEFT_US	   3000000u
#define TURN_US	   100000u

#define COMMAND_MOST_S 120

static bool stop_within_a_pause(const struct victim *victim, struct watch *watch)
{
	for (unsigned i = 0; i < TRIES; i++) {
		victim_wait_for_a_pause(victim, watch);
		kill(victim->pid, SIGSTOP);
		if (watch_paused(watch))
			return true;
		kill(victim->pid, SIGCONT);
	}
	return false;
}

static pid_t start(const char *command)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	return pid;
}

/* Waits for a child; kills one that does not end. */
static int status_of(pid_t pid, unsigned most_s)
{
	int status;

	for (unsigned i = 0; i < 100 * most_s; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		nap_us(10000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1;
}

/* True for a child that is only to be waited for. */
static bool has_ended(pid_t pid)
{
	siginfo_t end = {0};

	return !waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) && end.si_pid;
}

int main(int argc, char **argv)
{
	struct victim victim;
	struct watch *watch;
	int status;
	pid_t command;

	if (argc != 3)
		give_up("usage: meanwhile DOMID COMMAND");
	victim_prepare();
	watch = watch_open((uint32_t)strtoul(argv[1], NULL, 10));
	victim = victim_start((uint32_t)strtoul(argv[1], NULL, 10), RATE);
	if (!stop_within_a_pause(&victim, watch))
		give_up("the profiler could not be stopped within a pause");
	command = start(argv[2]);
	nap_us(STOPPED_US);
	printf("paused %d\n", watch_paused(watch));
	kill(victim.pid, SIGCONT);
	status = status_of(command, COMMAND_MOST_S);
	printf("command %d\n", status);
	for (unsigned us = 0; us < LEFT_US && !has_ended(victim.pid); us += TURN_US)
		nap_us(TURN_US);
	kill(victim.pid, SIGINT);
	printf("profiler %d\n", status_of(victim.pid, 60));
	return 0;
}
