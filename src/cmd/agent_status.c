/* SPDX-License-Identifier: BSD-3-Clause */

/* What samplers are told, within the bound on CPU time; and counters of the agent: for others to collect, and for --status. */

#include "cmd/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "capture/sampler.h"
#include "symbol/names/display_name.h"

/* The stretch between two metrics. */
#define METRICS_NS (15 * NS_PER_S)

/* Bytes of an answer at most, those who may wait for one, and how long they do. */
#define ANSWER_MAX (4u << 20)
#define ASKED_MAX  8
#define ASK_S	   10

/* Counters of a guest. */
static const struct counter {
	const char *name, *help;
	size_t at;     /* bytes */
	double factor; /* of what is told */
	bool own;      /* of struct guest; else of its totals */
} counters[] = {
	{"ticks", "moments at which the vCPUs were sampled", offsetof(struct session_totals, ticks),
	 1, false},
	{"missed", "samples that were due and not taken", offsetof(struct session_totals, missed),
	 1, false},
	{"failed", "samples that failed", offsetof(struct session_totals, failed), 1, false},
	{"incomplete_stacks", "stacks that were not read or kept whole",
	 offsetof(struct session_totals, incomplete), 1, false},
	{"paused_seconds", "time that the guest stood still for samples",
	 offsetof(struct session_totals, paused_ns), 1 / (double)NS_PER_S, false},
	{"recorded_bytes", "bytes of recordings", offsetof(struct guest, written), 1, true},
	{"sampler_starts", "processes that were started to sample it",
	 offsetof(struct guest, starts), 1, true},
};

static void put_head(const char *name, const char *type, const char *help, FILE *out)
{
	fprintf(out, "# TYPE uniprof_%s %s\n# HELP uniprof_%s %s\n", name, type, name, help);
}

static void put_counter(const struct agent *agent, const struct counter *counter, FILE *out)
{
	put_head(counter->name, "counter", counter->help, out);
	for (size_t i = 0; i < agent->n; i++) {
		const struct guest *guest = &agent->guests[i];
		const void *of = counter->own ? (const void *)guest : &guest->shared->totals;
		const void *at = (const char *)of + counter->at;

		/* Names of directories need no escapes, and are all different. */
		fprintf(out, "uniprof_%s_total{guest=\"%s\",kind=\"%s\"} %.16g\n", counter->name,
			guest->directory, guest->found.kind,
			(double)*(const uint64_t *)at * counter->factor);
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

/* Status */

uint64_t agent_process_cpu_ns(pid_t pid)
{
	struct timespec at;
	clockid_t clock;

	if (pid <= 0 || clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &at))
		return 0;
	return (uint64_t)at.tv_sec * NS_PER_S + (uint64_t)at.tv_nsec;
}

/* CPU time of all processes of the agent, of those that have ended, too. */
static uint64_t cpu_ns_of_all(const struct agent *agent)
{
	uint64_t sum = agent->ended_cpu_ns + agent_process_cpu_ns(getpid());

	for (size_t i = 0; i < agent->n; i++)
		sum += agent_process_cpu_ns(agent->guests[i].pid);
	return sum + agent_process_cpu_ns(agent->discoverer) + agent_process_cpu_ns(agent->joiner) +
	       agent_process_cpu_ns(agent->pushing.pusher);
}

/* Bound on CPU time: how often it is looked at, how long what is not sampling is averaged, and rates are not raised. */
#define FIT_NS	  (5 * NS_PER_S)
#define OTHERS_NS (60 * NS_PER_S)
#define RAISE_NS  (60 * NS_PER_S)

/* Share of a CPU that the guest's sampler took since it was last measured; below 0: not known. What its start takes is left out. */
static double measure_sampler(struct guest *guest, uint64_t now_ns, double elapsed_ns)
{
	const pid_t pid = now_ns - guest->started_ns < FIT_NS ? 0 : guest->pid;
	const uint64_t ns = agent_process_cpu_ns(pid);
	const double share = pid && pid == guest->measured && ns >= guest->cpu_ns
				     ? (double)(ns - guest->cpu_ns) / elapsed_ns
				     : -1;

	guest->measured = pid;
	guest->cpu_ns = ns;
	return share;
}

/* Measures all processes; false: there is nothing yet to compare with. */
static bool measure_cpu(struct agent *agent, uint64_t now_ns, struct rate_share *shares)
{
	struct cpu_use *cpu = &agent->cpu;
	const uint64_t ns = cpu_ns_of_all(agent), at_ns = cpu->at_ns;
	const double elapsed_ns = (double)(now_ns - at_ns);
	double others;

	cpu->share = ns > cpu->ns ? (double)(ns - cpu->ns) / elapsed_ns : 0;
	cpu->ns = ns;
	cpu->at_ns = now_ns;
	others = cpu->share;
	for (size_t i = 0; i < agent->n; i++) {
		struct guest *guest = &agent->guests[i];

		shares[i] = (struct rate_share){guest->rate_hz,
						measure_sampler(guest, now_ns, elapsed_ns)};
		others -= shares[i].cpu > 0 ? shares[i].cpu : 0;
	}
	if (others < 0)
		others = 0;
	cpu->others += (others - cpu->others) *
		       (elapsed_ns < (double)OTHERS_NS ? elapsed_ns / (double)OTHERS_NS : 1);
	return at_ns != 0;
}

/* Equal shares of the memory for stacks; but a sampler needs some. */
static uint64_t memory_share(uint64_t all, size_t guests)
{
	const uint64_t share = guests ? all / guests : all;

	return share < MEMORY_MIN ? MEMORY_MIN : share;
}

/* The sampler could write whatever it wants to what is shared: nothing is read there. */
static void instruct(struct guest *guest, const struct sampler_options *told, double max_cpu,
		     bool changed)
{
	struct sampler_options own = *told;

	if (max_cpu <= 0 || guest->lowered_hz >= told->rate_hz)
		guest->lowered_hz = 0;
	if (guest->lowered_hz > 0) {
		own.rate_hz = guest->lowered_hz;
		own.wanted_rate_hz = told->rate_hz;
		own.max_cpu = max_cpu;
	}
	changed = changed || own.rate_hz != guest->rate_hz;
	guest->rate_hz = own.rate_hz;
	guest->shared->sampler = own;
	if (changed)
		atomic_fetch_add_explicit(&guest->shared->changes, 1, memory_order_release);
}

void agent_instruct(struct agent *agent)
{
	const struct sampler_options *wanted = &agent->args.session.sampler;
	const struct sampler_options told = {
		.rate_hz = wanted->rate_hz,
		.max_overhead = wanted->max_overhead,
		.max_pause_ns = wanted->max_pause_ns,
		.max_memory = memory_share(wanted->max_memory, agent->n),
	};
	const bool changed = told.rate_hz != agent->told.rate_hz ||
			     told.max_overhead != agent->told.max_overhead ||
			     told.max_pause_ns != agent->told.max_pause_ns;

	agent->told = told;
	for (size_t i = 0; i < agent->n; i++)
		instruct(&agent->guests[i], &told, agent->args.max_cpu, changed);
}

/* Samples per second of the guest that is sampled least often. */
static double lowest_rate(const struct agent *agent)
{
	double lowest = agent->told.rate_hz;

	for (size_t i = 0; i < agent->n; i++)
		lowest = agent->guests[i].rate_hz < lowest ? agent->guests[i].rate_hz : lowest;
	return lowest;
}

/* Tells in the journal that rates are lowered, and when none is any more. */
static void tell_rates(struct agent *agent)
{
	const double lowest = lowest_rate(agent), wanted = agent->told.rate_hz;
	const bool lowers = lowest < wanted;

	if (lowers && !agent->cpu.lowers)
		cmd_say("--max-cpu %.4g: guests are sampled less often than %.4g times a second, "
			"%.3g times at the least",
			100 * agent->args.max_cpu, wanted, lowest);
	else if (!lowers && agent->cpu.lowers)
		cmd_say("--max-cpu %.4g: all guests are sampled %.4g times a second again",
			100 * agent->args.max_cpu, wanted);
	agent->cpu.lowers = lowers;
}

void agent_fit_rates(struct agent *agent, uint64_t now_ns)
{
	struct rate_limits limits = {.wanted_hz = agent->told.rate_hz,
				     .least_hz = RATE_MIN,
				     .max_cpu = agent->args.max_cpu,
				     .may_raise = now_ns - agent->cpu.changed_ns >= RAISE_NS};
	FREED struct rate_share *shares = NULL;

	if (limits.max_cpu <= 0)
		agent->cpu = (struct cpu_use){0};
	if (limits.max_cpu <= 0 || now_ns - agent->cpu.at_ns < FIT_NS)
		return;
	shares = calloc(agent->n + 1, sizeof(*shares));
	if (!shares || !measure_cpu(agent, now_ns, shares))
		return;
	limits.others = agent->cpu.others;
	if (!rates_fit(shares, agent->n, &limits))
		return;
	agent->cpu.changed_ns = now_ns;
	for (size_t i = 0; i < agent->n; i++)
		agent->guests[i].lowered_hz = shares[i].rate_hz;
	agent_instruct(agent);
	tell_rates(agent);
}

/* Texts of guests and errors can be anything. */
static json_t *text(const char *string)
{
	FREED char *sanitized = *string ? sanitize_new(string) : NULL;

	return sanitized ? json_string(sanitized) : json_null();
}

static const char *state_of(const struct guest *guest)
{
	if (guest->from >= 0)
		return guest->end_ns ? "ends" : "sampled";
	return "waits";
}

static json_t *of_guest(const struct agent *agent, const struct guest *guest)
{
	const struct session_totals *totals = &guest->shared->totals;

	return json_pack(
		"{s:s, s:o, s:o, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o, s:I}",
		"kind", guest->found.kind, "id", text(guest->found.id), "name",
		text(guest->found.name), "directory", guest->directory, "state", state_of(guest),
		"rate_hz", guest->rate_hz, "ticks", (json_int_t)totals->ticks, "missed",
		(json_int_t)totals->missed, "failed", (json_int_t)totals->failed,
		"incomplete_stacks", (json_int_t)totals->incomplete, "paused_seconds",
		(double)totals->paused_ns / (double)NS_PER_S, "recorded_bytes",
		(json_int_t)guest->written, "sampler_starts", (json_int_t)guest->starts,
		"last_error", text(guest->error), "last_error_unix_s", (json_int_t)guest->error_s);
}

static json_t *of_agent(const struct agent *agent)
{
	const bool bounded = agent->args.max_cpu > 0;
	json_t *guests = json_array();

	for (size_t i = 0; i < agent->n; i++)
		json_array_append_new(guests, of_guest(agent, &agent->guests[i]));
	return json_pack("{s:s, s:i, s:I, s:f, s:f, s:o, s:o, s:f, s:I, s:I, s:o}", "tool",
			 "uniprof " UNIPROF_VERSION, "pid", (int)getpid(), "begun_unix_ns",
			 (json_int_t)agent->begun_unix_ns, "wanted_rate_hz",
			 agent->args.session.sampler.rate_hz, "rate_hz", lowest_rate(agent),
			 "max_cpu", bounded ? json_real(agent->args.max_cpu) : json_null(),
			 "cpu_share", bounded ? json_real(agent->cpu.share) : json_null(),
			 "cpu_seconds", (double)cpu_ns_of_all(agent) / (double)NS_PER_S,
			 "disk_bytes", (json_int_t)agent->disk_bytes, "max_disk_bytes",
			 (json_int_t)agent->args.max_disk, "guests", guests);
}

/* By the store's descriptor: paths of sockets are short. No guest's directory has such a name. */
static struct sockaddr_un address_in(int store)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%%status", store);
	return address;
}

void agent_open_status(struct agent *agent)
{
	const struct sockaddr_un address = address_in(agent->store);

	unlink(address.sun_path);
	agent->asked = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (agent->asked >= 0 &&
	    !bind(agent->asked, (const struct sockaddr *)&address, sizeof(address)) &&
	    !listen(agent->asked, ASKED_MAX))
		return;
	cmd_say("warning: --status will find no agent: %s", strerror(errno));
	agent_close_status(agent);
}

void agent_close_status(struct agent *agent)
{
	const struct sockaddr_un address = address_in(agent->store);

	if (agent->asked < 0)
		return;
	unlink(address.sun_path);
	close(agent->asked);
	agent->asked = -1;
}

void agent_tell_status(struct agent *agent)
{
	CLOSED int to = accept4(agent->asked, NULL, NULL, SOCK_CLOEXEC);
	CLOSED int file = to < 0 ? -1 : memfd_create("status", MFD_CLOEXEC);
	json_auto_t *status = file < 0 ? NULL : of_agent(agent);

	if (status && !json_dumpfd(status, file, JSON_INDENT(1)))
		agent_give(to, file);
}

/* Asking */

static struct error *read_answer(int file, char **answer)
{
	struct stat st;
	size_t len;

	if (fstat(file, &st) || st.st_size <= 0 || st.st_size > ANSWER_MAX)
		return error_new(ERR_INPUT, "the agent's answer is too long");
	len = (size_t)st.st_size;
	*answer = calloc(1, len + 1);
	if (!*answer)
		return error_no_memory();
	if (pread(file, *answer, len, 0) != (ssize_t)len)
		return error_errno(ERR_INPUT, errno, "cannot read the agent's answer");
	return NULL;
}

/* The agent's answer, whole; the caller frees it. */
static struct error *ask(int store, char **answer)
{
	const struct timeval patience = {.tv_sec = ASK_S};
	const struct sockaddr_un address = address_in(store);
	CLOSED int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CLOSED int file = -1;

	if (to < 0 || connect(to, (const struct sockaddr *)&address, sizeof(address)))
		return error_errno(ERR_INPUT, errno, "no agent runs there that can be asked");
	setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	file = agent_receive(to);
	return file < 0 ? error_new(ERR_INPUT, "the agent does not answer")
			: read_answer(file, answer);
}

static double number_of(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key)) ?: "";
}

static void print_guest(const json_t *guest)
{
	const char *name = text_of(guest, "name"), *error = text_of(guest, "last_error");

	printf("%-6s %-8s %8.4g %9.0f %7.0f %7.0f %9.3f %10.1f  ", text_of(guest, "kind"),
	       text_of(guest, "state"), number_of(guest, "rate_hz"), number_of(guest, "ticks"),
	       number_of(guest, "missed"), number_of(guest, "failed"),
	       number_of(guest, "paused_seconds"), number_of(guest, "recorded_bytes") / 1024);
	sanitize_print(*name ? name : text_of(guest, "id"), stdout);
	if (*error) {
		fputs("  (", stdout);
		sanitize_print(error, stdout);
		putchar(')');
	}
	putchar('\n');
}

static void print_status(const json_t *status)
{
	const json_t *guests = json_object_get(status, "guests");
	const double seconds =
		((double)clock_unix_ns() - number_of(status, "begun_unix_ns")) / (double)NS_PER_S;

	printf("agent %.0f: %zu guests at %.4g samples/s each", number_of(status, "pid"),
	       json_array_size(guests), number_of(status, "wanted_rate_hz"));
	if (number_of(status, "rate_hz") < number_of(status, "wanted_rate_hz"))
		printf(" or less, as --max-cpu is %.4g %%", 100 * number_of(status, "max_cpu"));
	if (json_is_number(json_object_get(status, "cpu_share")))
		printf(", %.2f %% of a CPU of late", 100 * number_of(status, "cpu_share"));
	printf(", %.2f %% of a CPU in %.0f s, %.1f of %.0f MiB on the disk\n",
	       seconds > 0 ? 100 * number_of(status, "cpu_seconds") / seconds : 0, seconds,
	       number_of(status, "disk_bytes") / (1 << 20),
	       number_of(status, "max_disk_bytes") / (1 << 20));
	if (json_array_size(guests))
		printf("%-6s %-8s %8s %9s %7s %7s %9s %10s  %s\n", "kind", "state", "rate/s",
		       "samples", "missed", "failed", "paused s", "KiB", "guest");
	for (size_t i = 0; i < json_array_size(guests); i++)
		print_guest(json_array_get(guests, i));
}

struct error *agent_ask_status(const struct agent_args *args)
{
	CLOSED int store = open(args->store, O_PATH | O_DIRECTORY | O_CLOEXEC);
	FREED char *answer = NULL;
	json_auto_t *status = NULL;
	struct error *err;

	if (store < 0)
		return error_errno(ERR_INPUT, errno, "cannot use directory %s", args->store);
	err = ask(store, &answer);
	if (err)
		return error_prefix(err, "%s", args->store);
	status = json_loads(answer, 0, NULL);
	if (!status)
		return error_new(ERR_INPUT, "%s: the agent's answer is no status", args->store);
	if (args->json)
		puts(answer);
	else
		print_status(status);
	return NULL;
}
