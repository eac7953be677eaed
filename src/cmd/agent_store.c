/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/agent.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/preopen.h"
#include "import/import.h"

#define TIDY_NS	     (20 * NS_PER_S)
#define JOIN_ALARM_S 120

/* The stretch between two metrics. */
#define METRICS_NS (15 * NS_PER_S)

/* What a sampler writes into a segment, bytes; at once, packets; and how soon it begins the next. */
#define SEGMENT_MAX	 (16u << 20)
#define PACKETS_AT_ONCE	 64
#define SEGMENT_LEAST_NS (NS_PER_S / 2)

/* A sampler that failed is started again after 2, 4, 8 ... 256 seconds; one that lived so long starts at 2. */
#define BACKOFF_MOST 8
#define LIVED_NS     (120 * NS_PER_S)

pid_t agent_start_process(int output)
{
	const pid_t parent = getpid(), pid = fork();
	struct descriptors keep = {0};

	if (pid)
		return pid;
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(0);
	setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
	dup2(output, STDOUT_FILENO);
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		descriptors_add(&keep, fd);
	descriptors_close_others(&keep);
	return 0;
}

static const char *called(const struct guest *guest)
{
	return *guest->found.name ? guest->found.name : guest->found.id;
}

/* In a process of its own: the guest is what it parses. */
static void sample(const struct agent *agent, const struct guest *guest)
{
	struct session_options session = agent->args.session;
	struct sampler_result result = {0};
	struct target *target = NULL;
	struct error *err;
	char *spec;

	session.quiet = !session.verbose;
	session.verbose = false;
	session.sampler.stop = agent->stop;
	err = asprintf(&spec, "%s:%s", guest->found.kind, guest->found.id) < 0
		      ? error_no_memory()
		      : target_open(spec, NULL, &target);
	if (!err)
		err = session_confine(target, &session);
	/* Whoever gives up root loses this. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (!err)
		err = session_record_segments(target, &session, &result, guest->totals);
	target_close(target);
	if (err && (!guest->failures || !session.quiet))
		cmd_say("%s: %s", called(guest), err->text);
	exit(err ? (int)err->kind : 0);
}

void agent_start_sampler(struct agent *agent, struct guest *guest, uint64_t now_ns)
{
	const int room = 2 * (int)AGENT_PACKET_MAX;
	int ends[2];

	if (guest->from >= 0 || !guest->listed || now_ns < guest->retry_ns ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return;
	/* The size of a packet is bounded by this; as well as can be. */
	setsockopt(ends[1], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	guest->pid = agent_start_process(ends[1]);
	if (!guest->pid)
		sample(agent, guest);
	close(ends[1]);
	guest->started_ns = now_ns;
	guest->starts++;
	guest->from = ends[0];
	if (guest->pid < 0)
		guest->pid = 0;
	if (agent->args.session.verbose)
		cmd_say("%s: sampling %s:%s into %s", called(guest), guest->found.kind,
			guest->found.id, guest->directory);
}

static void end_segment(struct agent *agent, struct guest *guest)
{
	if (guest->segment >= 0)
		close(guest->segment);
	guest->segment = -1;
	agent_release_segment(agent, guest);
}

/* A sampler that does what none does has been taken over. */
static void distrust(struct agent *agent, struct guest *guest, const char *why)
{
	cmd_say("%s: its sampler %s, and is ended", called(guest), why);
	end_segment(agent, guest);
	if (guest->pid > 0)
		kill(guest->pid, SIGKILL);
}

void agent_tell_store(struct agent *agent, struct error *err)
{
	if (err && !agent->full)
		cmd_say("%s", err->text);
	agent->full = agent->full || err;
	if (err)
		agent->tidied_ns = 0;
	error_free(err);
}

static void begin_segment(struct agent *agent, struct guest *guest)
{
	const uint64_t now_ns = clock_now_ns();
	const int64_t now_s = (int64_t)(clock_unix_ns() / NS_PER_S);

	end_segment(agent, guest);
	if (guest->begun_ns && now_ns - guest->begun_ns < SEGMENT_LEAST_NS) {
		distrust(agent, guest, "begins too many recordings");
		return;
	}
	guest->begun_ns = now_ns;
	guest->bytes = 0;
	agent_tell_store(agent,
			 store_begin(agent->store, guest->directory, now_s, &guest->segment));
	agent_queue_segment(agent, guest, now_s);
}

static void append(struct agent *agent, struct guest *guest, size_t len)
{
	size_t done = 0;

	guest->bytes += len;
	guest->written += len;
	if (guest->bytes > SEGMENT_MAX) {
		distrust(agent, guest, "writes too much");
		return;
	}
	while (guest->segment >= 0 && done < len) {
		const ssize_t now = write(guest->segment, agent->packet + done, len - done);

		if (now < 0 && errno == EINTR)
			continue;
		if (now <= 0) {
			agent_tell_store(agent, error_errno(ERR_OUTPUT, errno, "cannot write to %s",
							    guest->directory));
			end_segment(agent, guest);
			return;
		}
		done += (size_t)now;
		agent->full = false;
	}
}

/* Its sampler has ended, or lets go of its socket. */
static void end_sampler(struct agent *agent, struct guest *guest, uint64_t now_ns)
{
	const bool lived = now_ns - guest->started_ns > LIVED_NS;

	end_segment(agent, guest);
	close(guest->from);
	guest->from = -1;
	guest->failures = lived ? 1 : guest->failures + 1;
	if (guest->failures > BACKOFF_MOST)
		guest->failures = BACKOFF_MOST;
	guest->retry_ns = now_ns + (NS_PER_S << guest->failures);
}

void agent_read_sampler(struct agent *agent, struct guest *guest)
{
	for (int i = 0; i < PACKETS_AT_ONCE && guest->from >= 0; i++) {
		const ssize_t got = recv(guest->from, agent->packet, AGENT_PACKET_MAX,
					 MSG_DONTWAIT | MSG_TRUNC);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			end_sampler(agent, guest, clock_now_ns());
			return;
		}
		if ((size_t)got > AGENT_PACKET_MAX)
			distrust(agent, guest, "writes too much at once");
		else if (recording_begins(agent->packet, (size_t)got))
			begin_segment(agent, guest);
		if ((size_t)got <= AGENT_PACKET_MAX)
			append(agent, guest, (size_t)got);
	}
}

/* Joining: minutes of an hour that is over become one segment */

/* In a process of its own: samplers wrote what it parses. Its status: how many it has taken. */
static void join(const struct agent *agent)
{
	const struct store_segment *first = &agent->segments.at[agent->join_first];
	char *paths[STORE_JOIN_MAX];
	const struct segments set = {.paths = paths, .n = agent->join_n};
	struct error *err = NULL;
	size_t taken = 0;

	alarm(JOIN_ALARM_S);
	for (size_t i = 0; i < set.n && !err; i++) {
		paths[i] = store_path(agent->args.store, &first[i]);
		err = paths[i] ? preopen_input(paths[i]) : error_no_memory();
	}
	if (!err) {
		cmd_confine_reader();
		err = segments_join(&set, "-", &taken);
	}
	if (err && agent->args.session.verbose)
		cmd_say("%s: %s", first->guest, err->text);
	_exit(err ? 0 : (int)taken);
}

static void begin_join(struct agent *agent)
{
	const struct store_segment *first = &agent->segments.at[agent->join_first];

	if (agent->join_n == 1) {
		store_keep(agent->store, first);
		return;
	}
	agent_tell_store(agent, store_join_begin(agent->store, first->guest, &agent->joined));
	if (agent->joined < 0)
		return;
	agent->joiner = agent_start_process(agent->joined);
	if (!agent->joiner)
		join(agent);
	if (agent->joiner < 0) {
		close(agent->joined);
		agent->joiner = 0;
	}
}

void agent_end_join(struct agent *agent, int status)
{
	const size_t taken = WIFEXITED(status) ? (size_t)WEXITSTATUS(status) : 0;
	const struct store_segment *first = &agent->segments.at[agent->join_first];

	if (taken && taken <= agent->join_n)
		agent_tell_store(agent, store_joined(agent->store, first, taken, agent->joined));
	else
		store_keep(agent->store, first);
	close(agent->joined);
	agent->joiner = 0;
	/* There may be more. */
	agent->tidied_ns = 0;
}

/* Removes what is too old or too much, and joins minutes of one hour. */
void agent_tidy(struct agent *agent, uint64_t now_ns)
{
	const int64_t now_s = (int64_t)(clock_unix_ns() / NS_PER_S);
	const struct store_limits limits = {.bytes = agent->args.max_disk,
					    .age_s = agent->args.max_age_ns / NS_PER_S};
	struct error *err;
	bool *remove;

	if (agent->joiner || (agent->tidied_ns && now_ns - agent->tidied_ns < TIDY_NS))
		return;
	agent->tidied_ns = now_ns;
	store_segments_free(&agent->segments);
	err = store_list(agent->args.store, NULL, &agent->segments);
	remove = err ? NULL : calloc(agent->segments.n + 1, sizeof(*remove));
	if (remove)
		store_choose_old(&agent->segments, &limits, now_s, remove);
	for (size_t i = 0; remove && i < agent->segments.n; i++) {
		if (!remove[i])
			continue;
		store_remove(agent->store, &agent->segments.at[i]);
		agent->segments.at[i].superseded = true;
	}
	free(remove);
	if (!err && store_choose_join(&agent->segments, now_s, &agent->join_first, &agent->join_n))
		begin_join(agent);
	agent_tell_store(agent, err);
}

/* Metrics */

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
		const void *at = (const char *)guest->totals + counter->at;

		if (guest->totals)
			put_of_guest(counter->name, guest,
				     (double)*(const uint64_t *)at * counter->factor, out);
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
