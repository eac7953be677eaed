/* SPDX-License-Identifier: BSD-3-Clause */

/* Counters of the agent: for others to collect, and for --status. */

#include "cmd/agent.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

/* The stretch between two metrics. */
#define METRICS_NS (15 * NS_PER_S)

/* Counters of a guest: in its totals. */
static const struct counter {
	const char *name, *help;
	size_t at;     /* bytes */
	double factor; /* of what is told */
} counters[] = {
	{"ticks", "moments at which the vCPUs were sampled", offsetof(struct session_totals, ticks),
	 1},
	{"missed", "samples that were due and not taken", offsetof(struct session_totals, missed),
	 1},
	{"failed", "samples that failed", offsetof(struct session_totals, failed), 1},
	{"incomplete_stacks", "stacks that were not read or kept whole",
	 offsetof(struct session_totals, incomplete), 1},
	{"paused_seconds", "time that the guest stood still for samples",
	 offsetof(struct session_totals, paused_ns), 1 / (double)NS_PER_S},
};

static void put_head(const char *name, const char *type, const char *help, FILE *out)
{
	fprintf(out, "# TYPE uniprof_%s %s\n# HELP uniprof_%s %s\n", name, type, name, help);
}

/* Names of directories need no escapes, and are all different. */
static void put_of_guest(const char *name, const struct guest *guest, double value, FILE *out)
{
	fprintf(out, "uniprof_%s_total{guest=\"%s\",kind=\"%s\"} %.16g\n", name, guest->directory,
		guest->found.kind, value);
}

static void put_counter(const struct agent *agent, const struct counter *counter, FILE *out)
{
	put_head(counter->name, "counter", counter->help, out);
	for (size_t i = 0; i < agent->n; i++) {
		const struct guest *guest = &agent->guests[i];
		const void *at = (const char *)&guest->shared->totals + counter->at;

		put_of_guest(counter->name, guest, (double)*(const uint64_t *)at * counter->factor,
			     out);
	}
}

static void put_number(const char *name, const char *type, const char *help, uint64_t value,
		       FILE *out)
{
	put_head(name, type, help, out);
	fprintf(out, "uniprof_%s%s %" PRIu64 "\n", name, strcmp(type, "counter") ? "" : "_total",
		value);
}

static void put_push(const struct agent *agent, FILE *out)
{
	const struct pushing *pushing = &agent->pushing;
	struct queue_list queue;

	/* An error of the queue is told by what pushes. */
	error_free(queue_list(agent->store, &queue));
	put_number("push_recordings", "counter", "recordings that the receiver has taken",
		   pushing->pushed, out);
	put_number("push_bytes", "counter", "bytes of their requests", pushing->pushed_bytes, out);
	put_number("push_lost", "counter", "recordings that were refused or dropped",
		   pushing->never, out);
	put_number("push_queue_recordings", "gauge", "recordings that wait", queue.n, out);
	put_number("push_queue_bytes", "gauge", "disk space of these", queue.bytes, out);
	free(queue.at);
}

static void put_metrics(const struct agent *agent, FILE *out)
{
	put_number("guests", "gauge", "guests of this host that are sampled", agent->n, out);
	for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
		put_counter(agent, &counters[i], out);
	put_head("recorded_bytes", "counter", "bytes of recordings", out);
	for (size_t i = 0; i < agent->n; i++)
		put_of_guest("recorded_bytes", &agent->guests[i], (double)agent->guests[i].written,
			     out);
	put_head("sampler_starts", "counter", "processes that were started to sample it", out);
	for (size_t i = 0; i < agent->n; i++)
		put_of_guest("sampler_starts", &agent->guests[i], (double)agent->guests[i].starts,
			     out);
	if (agent->args.push.url)
		put_push(agent, out);
	fputs("# EOF\n", out);
}

/* Another file takes the place of the last: a reader sees either whole. */
static struct error *replace_metrics(const struct agent *agent)
{
	const char *path = agent->args.metrics;
	char next[PATH_MAX];
	FILE *out;
	bool good;
	int error;

	if (snprintf(next, sizeof(next), "%s.new", path) >= (int)sizeof(next))
		return error_new(ERR_OUTPUT, "cannot write %s: its name is too long", path);
	unlink(next);
	out = fopen(next, "wxe");
	if (!out)
		return error_errno(ERR_OUTPUT, errno, "cannot write %s", next);
	put_metrics(agent, out);
	good = !ferror(out);
	good = !fchmod(fileno(out), 0644) && good;
	good = !fclose(out) && good && !rename(next, path);
	error = errno;
	if (good)
		return NULL;
	unlink(next);
	return error_errno(ERR_OUTPUT, error, "cannot write %s", path);
}

void agent_measure(struct agent *agent, uint64_t now_ns)
{
	struct error *err;

	if (!agent->args.metrics ||
	    (now_ns && agent->measured_ns && now_ns - agent->measured_ns < METRICS_NS))
		return;
	agent->measured_ns = now_ns;
	err = replace_metrics(agent);
	if (err && !agent->unmeasured)
		cmd_say("%s", err->text);
	agent->unmeasured = err;
	error_free(err);
}
