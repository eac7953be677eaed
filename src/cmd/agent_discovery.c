/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Looking for guests, in a process of its own, the discoverer: it parses what `list` parses. Asked by a byte, it
 * answers with what it has found, and with a byte.
 */

#include "cmd/agent.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "target/host/proc.h"

#define DISCOVERER_NAME "discoverer"

#define DISCOVER_MOST_NS (60 * NS_PER_S)
#define DISCOVER_SHARE	 500 /* one in so many parts of a CPU is what looking for guests may take */
#define DISCOVER_LONG_NS (20 * NS_PER_S)

/* Looks after which all processes are looked into anew: programs may rename themselves. */
#define ANEW 20u

/* A process, and the program that it ran when it was no guest. */
struct passed {
	pid_t pid;
	dev_t device;
	ino_t inode;
};

struct passed_list {
	struct passed *at;
	size_t n, room;
};

struct discovery {
	const struct monitor_kind *kinds[8];
	size_t n;
	bool may_become;	 /* some kind of guest, in a program that runs already */
	struct passed_list last; /* processes that were no guests, ascending, */
	struct passed_list now;	 /* and in this look */
	size_t next;		 /* of the last */
};

/* A domain of Xen's that is being received does not run before it gets its own name. */
static bool is_incoming(const struct target_listing *entry)
{
	static const char incoming[] = "--incoming";
	const size_t len = strlen(entry->name), end = sizeof(incoming) - 1;

	return !strcmp(entry->scheme, "xen") && len > end &&
	       !strcmp(entry->name + len - end, incoming);
}

static void put_found(void *ctx, const struct target_listing *entry)
{
	struct found found = {0};

	if (entry->note || is_incoming(entry))
		return;
	snprintf(found.kind, sizeof(found.kind), "%s", entry->scheme);
	snprintf(found.id, sizeof(found.id), "%s", entry->id);
	snprintf(found.name, sizeof(found.name), "%s", entry->name);
	(void)!write(STDOUT_FILENO, &found, sizeof(found));
}

/* True if the process was no guest in the last look, and runs the same program. The kernel gives pids in ascending order. */
static bool was_passed(struct discovery *discovery, const struct passed *process)
{
	const struct passed_list *last = &discovery->last;
	const struct passed *at;

	while (discovery->next < last->n && last->at[discovery->next].pid < process->pid)
		discovery->next++;
	if (discovery->next == last->n)
		return false;
	at = &last->at[discovery->next];
	return at->pid == process->pid && at->device == process->device &&
	       at->inode == process->inode;
}

static void pass(struct discovery *discovery, const struct passed *process)
{
	struct passed_list *now = &discovery->now;

	/* One that finds no room is looked into again. */
	if (!ARRAY_RESERVE(&now->at, &now->room, now->n + 1))
		now->at[now->n++] = *process;
}

/* Looks whether a process is a guest, of any kind. */
static bool try_process(void *ctx, int pid)
{
	struct discovery *discovery = ctx;
	struct passed process = {.pid = pid};
	bool is_guest = false;
	struct stat program;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (!stat(path, &program)) {
		process.device = program.st_dev;
		process.inode = program.st_ino;
	} else if (errno == ENOENT) {
		/* A thread of the kernel. */
		return true;
	}
	if (!discovery->may_become && process.inode && was_passed(discovery, &process)) {
		pass(discovery, &process);
		return true;
	}
	for (size_t i = 0; i < discovery->n; i++)
		is_guest |= monitor_list_process(discovery->kinds[i], pid, put_found, NULL);
	if (!is_guest && process.inode)
		pass(discovery, &process);
	return true;
}

static void find_processes(struct discovery *discovery)
{
	struct passed_list free_one;

	discovery->may_become = false;
	for (size_t i = 0; i < discovery->n; i++)
		discovery->may_become |=
			discovery->kinds[i]->becomes && discovery->kinds[i]->becomes();
	discovery->next = 0;
	discovery->now.n = 0;
	(void)proc_numbers(0, "", try_process, discovery);
	free_one = discovery->last;
	discovery->last = discovery->now;
	discovery->now = free_one;
}

/* The whole life of the discoverer. Kinds that this host has not are passed over. */
static void __attribute__((noreturn)) discover(void)
{
	struct discovery discovery = {0};
	const struct target_ops *ops;
	char byte = 0;

	prctl(PR_SET_NAME, DISCOVERER_NAME);
	for (size_t i = 0; (ops = target_kind(i)); i++)
		if (ops->monitor)
			discovery.kinds[discovery.n++] = ops->monitor;
	for (unsigned looks = 0; recv(STDOUT_FILENO, &byte, 1, 0) == 1; looks++) {
		if (looks % ANEW == 0)
			discovery.last.n = 0;
		for (size_t i = 0; (ops = target_kind(i)); i++)
			if (ops->list && !ops->monitor)
				error_free((ops->list_names ?: ops->list)(ops, put_found, NULL));
		find_processes(&discovery);
		if (write(STDOUT_FILENO, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

void agent_discover(struct agent *agent, uint64_t now_ns)
{
	const char byte = 0;

	if (agent->looks && agent->discoverer > 0 &&
	    now_ns - agent->discovered_ns > DISCOVER_LONG_NS)
		kill(agent->discoverer, SIGKILL);
	if (agent->looks || now_ns < agent->discover_ns)
		return;
	agent->discovered_ns = now_ns;
	agent->discover_ns = now_ns + AGENT_DISCOVER_NS;
	agent->n_found = 0;
	if (!agent->discoverer && agent_start_at_socket(&agent->discoverer, &agent->finds)) {
		/* Nothing of the agent's is needed there. */
		free(agent->packet);
		discover();
	}
	agent->discoverer_cpu_ns = agent_process_cpu_ns(agent->discoverer);
	agent->looks =
		agent->finds >= 0 && send(agent->finds, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* Where there are many processes, they are looked through less often. */
static void plan_discovery(struct agent *agent)
{
	const uint64_t took_ns = agent_process_cpu_ns(agent->discoverer) - agent->discoverer_cpu_ns;
	const double most = agent->args.max_cpu / 3;
	uint64_t rest_ns = took_ns * DISCOVER_SHARE;

	if (most > 0 && most < 1.0 / DISCOVER_SHARE)
		rest_ns = (uint64_t)((double)took_ns / most);
	if (rest_ns > DISCOVER_MOST_NS)
		rest_ns = DISCOVER_MOST_NS;
	if (rest_ns > AGENT_DISCOVER_NS && agent->discover_ns)
		agent->discover_ns = agent->discovered_ns + rest_ns;
}

static struct error *end_look(struct agent *agent)
{
	if (!agent->looks)
		return NULL;
	agent->looks = false;
	plan_discovery(agent);
	return agent_take_finds(agent);
}

/* What the discoverer did not end is not taken: guests would be missing. */
static void lose_discoverer(struct agent *agent)
{
	close(agent->finds);
	agent->finds = -1;
	agent->looks = false;
	if (agent->discoverer > 0)
		kill(agent->discoverer, SIGKILL);
}

struct error *agent_read_finds(struct agent *agent)
{
	/* Those that are too many are read, and left out. */
	for (size_t i = 0; i < GUESTS_MAX; i++) {
		ssize_t got;

		TRY(ARRAY_RESERVE(&agent->found, &agent->room_found, agent->n_found + 1));
		got = recv(agent->finds, &agent->found[agent->n_found], sizeof(*agent->found),
			   MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return NULL;
		if (got == 1)
			return end_look(agent);
		if (got != (ssize_t)sizeof(*agent->found)) {
			lose_discoverer(agent);
			return NULL;
		}
		agent->n_found += agent->n_found < GUESTS_MAX;
	}
	return NULL;
}

void agent_end_discovery(struct agent *agent)
{
	agent->discoverer = 0;
	if (agent->finds >= 0)
		lose_discoverer(agent);
}
