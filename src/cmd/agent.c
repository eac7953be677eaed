/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The resident profiler. One process for each guest samples it, as `record`
 * does, and can write to nothing but its socket; this one appends what comes
 * there to the store, and starts, ends and restarts them. Guests are looked
 * for, and minutes joined, in processes of their own.
 */

#include "cmd/agent.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"

#define DEFAULT_RATE_HZ 19
#define DEFAULT_DISK	(2ull << 30)
#define DEFAULT_AGE_NS	(7 * 86400 * NS_PER_S)
#define DEFAULT_MEMORY	(16ull << 20)

#define DEFAULT_QUEUE	  (256ull << 20)
#define DEFAULT_WITHIN_NS (30 * NS_PER_S)

#define CONFIG_MAX (64u << 10) /* bytes */

#define WAKE_MS		 250
#define DISCOVER_NS	 (3 * NS_PER_S)
#define DISCOVER_MOST_NS (60 * NS_PER_S)
#define DISCOVER_SHARE	 300 /* one in so many parts of a CPU is what looking for guests may take */
#define DISCOVER_LONG_NS (20 * NS_PER_S)
#define END_NS		 (5 * NS_PER_S)

static struct error *take_pattern(const struct option_row *row, const char *value, void *options)
{
	struct patterns *patterns = (struct patterns *)(void *)((char *)options + row->at);

	if (patterns->n == PATTERNS_MAX)
		return option_error(row, value, "too many patterns");
	patterns->at[patterns->n++] = value;
	return NULL;
}

#define AT(field) offsetof(struct agent_args, field)

static const struct option_row command_options[] = {
	{"config", "FILE", 0, take_text, AT(config),
	 .text = "take settings from FILE: lines like max-disk = 10G; options given here win",
	 .more = "See\n.Sx CONFIGURATION .", .values = OPTION_FILE},
	{"check", NULL, 0, take_true, AT(check),
	 .text = "tell what is wrong with the settings, line by line, and do nothing else"},
	{0}};

static const struct option_row settings[] = {
	{"store", "DIR", 0, take_text, AT(store),
	 .text = "where the recordings are kept (default " STORE_DEFAULT ")",
	 .values = OPTION_DIRECTORY},
	{"frequency", "N", 'F', take_rate, AT(session.sampler.rate_hz),
	 .text = "samples per second of each guest, 0.1 to 10000 (default 19)"},
	{"max-disk", "SIZE", 0, take_bytes, AT(max_disk), 1 << 20, UINT64_MAX >> 12,
	 .text = "disk space that recordings take at most (default 2G)",
	 .more = "The guest that has most loses its oldest first."},
	{"max-age", "T", 0, take_duration, AT(max_age_ns),
	 .text = "how long recordings are kept (default 7d)"},
	{"include", "PATTERN", 0, take_pattern, AT(include),
	 .text = "only guests of this name, or KIND:NAME: web-*, xen:*; may be given again",
	 .more = "Patterns are those of shells,\n.Xr glob 7 .", .repeats = true},
	{"exclude", "PATTERN", 0, take_pattern, AT(exclude),
	 .text = "no guests of this name, or KIND:NAME; may be given again", .repeats = true},
	{"max-overhead", "PERCENT", 0, take_percent, AT(session.sampler.max_overhead),
	 .text = "pause a guest for at most so much of the time, by sampling less often"},
	{"max-pause", "T", 0, take_duration, AT(session.sampler.max_pause_ns),
	 .text = "hold a guest no longer than T in one piece; give stacks up instead"},
	{"max-memory", "SIZE", 0, take_bytes, AT(session.sampler.max_memory), MEMORY_MIN,
	 MEMORY_MAX,
	 .text = "memory that different stacks of a guest and minute may take (default 16M)"},
	{"verbose", NULL, 'v', take_true, AT(session.verbose), .text = "say what is done"},
	{"metrics", "FILE", 0, take_text, AT(metrics),
	 .text = "write counters about the agent to FILE every 15 s, in OpenMetrics' text",
	 .more = "For the textfile directory of node_exporter, where its name ends with\n"
		 ".Pa .prom .\nEach time another file takes its place.",
	 .values = OPTION_FILE},
	{"push", "URL", 0, take_text, AT(push.url),
	 .text = "send each recording to this receiver, as uniprof push does",
	 .more = "Those that are not delivered wait in the store."},
	{"push-within", "T", 0, take_duration, AT(push_within_ns),
	 .text = "send a minute at a moment by chance, so long after its end at most (default 30s)",
	 .more = "So the agents of many hosts do not all send when a minute begins."},
	{"max-queue", "SIZE", 0, take_bytes, AT(max_queue), 1 << 20, UINT64_MAX >> 12,
	 .text = "disk space of recordings that wait to be sent (default 256M)",
	 .more = "Where they take more, the oldest are dropped, and that is said."},
	{0}};

static const struct option_group options_of_agent[] = {{command_options, 0},
						       {settings, 0},
						       {push_options, AT(push)},
						       {0}};

static void args_defaults(struct agent_args *args)
{
	*args = (struct agent_args){.store = STORE_DEFAULT,
				    .max_disk = DEFAULT_DISK,
				    .max_age_ns = DEFAULT_AGE_NS,
				    .push_within_ns = DEFAULT_WITHIN_NS,
				    .max_queue = DEFAULT_QUEUE};
	push_defaults(&args->push);
	session_defaults(&args->session);
	args->session.sampler.rate_hz = DEFAULT_RATE_HZ;
	args->session.sampler.max_memory = DEFAULT_MEMORY;
	args->session.parallel = true;
}

static void args_free(struct agent_args *args)
{
	push_args_free(&args->push);
	free(args->config_text);
}

static struct error *parse_words(int argc, char **argv, struct agent_args *args)
{
	int first;
	struct error *err = options_parse(&verb_agent, argc, argv, args, &first);

	if (!err && first != argc)
		err = cmd_usage_error(&verb_agent,
				      "agent takes no arguments: --include chooses guests");
	return err;
}

/* Tells each error of the file; the one that is returned counts them. */
static struct error *parse_config(struct agent_args *args, struct option_file *file)
{
	struct error *err = cmd_read_text(file->path, CONFIG_MAX, &args->config_text);
	bool more = !err;
	unsigned wrong = 0;

	file->rest = args->config_text;
	while (more) {
		struct error *line = option_file_next(file, verb_agent.settings, args, &more);

		if (line)
			cmd_say("%s", line->text);
		wrong += line != NULL;
		error_free(line);
	}
	if (wrong)
		err = error_new(ERR_USAGE, "%s has %u error%s", file->path, wrong,
				wrong == 1 ? "" : "s");
	return err;
}

/* The file's settings, and those of the command line, which win. */
static struct error *parse_both(int argc, char **argv, struct agent_args *args)
{
	struct option_file file = {.path = args->config};
	const struct agent_args words = *args;
	struct error *err;

	args_defaults(args);
	err = parse_config(args, &file);
	if (words.include.n)
		args->include.n = 0;
	if (words.exclude.n)
		args->exclude.n = 0;
	if (!err)
		err = parse_words(argc, argv, args);
	if (err || !args->push.url || words.push.url)
		return err;
	err = push_prepare(&args->push);
	return err ? error_prefix(err, "%s:%u", file.path,
				  option_file_line(&file, verb_agent.settings, "push"))
		   : NULL;
}

/* Settings are whole and checked after success; to be freed in any case. */
static struct error *parse(int argc, char **argv, struct agent_args *args)
{
	struct error *err;

	args_defaults(args);
	err = parse_words(argc, argv, args);
	if (!err && args->config)
		err = parse_both(argc, argv, args);
	if (!err && args->push.url && !*args->push.full_url)
		err = push_prepare(&args->push);
	return err;
}

static bool matches(const struct patterns *patterns, const struct found *found)
{
	char both[sizeof(found->kind) + sizeof(found->name)];

	snprintf(both, sizeof(both), "%s:%s", found->kind, found->name);
	for (size_t i = 0; i < patterns->n; i++)
		if (!fnmatch(patterns->at[i], found->name, 0) || !fnmatch(patterns->at[i], both, 0))
			return true;
	return false;
}

static bool is_wanted(const struct agent_args *args, const struct found *found)
{
	return (!args->include.n || matches(&args->include, found)) &&
	       !matches(&args->exclude, found);
}

/* sd_notify(3), without its library: a datagram to the socket that systemd names. */
static void notify(const struct agent *agent, const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const size_t len = path ? strlen(path) : 0;

	if (agent->notify < 0 || !len || len >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, len);
	if (*path == '@')
		to.sun_path[0] = '\0';
	(void)!sendto(agent->notify, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
		      (struct sockaddr *)&to,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

static void feed_watchdog(struct agent *agent, uint64_t now_ns)
{
	if (!agent->feed_ns || now_ns - agent->fed_ns < agent->feed_ns)
		return;
	agent->fed_ns = now_ns;
	notify(agent, "WATCHDOG=1");
}

/* Discovery */

static void put_found(void *ctx, const struct target_listing *entry)
{
	struct found found = {0};

	if (entry->note)
		return;
	snprintf(found.kind, sizeof(found.kind), "%s", entry->scheme);
	snprintf(found.id, sizeof(found.id), "%s", entry->id);
	snprintf(found.name, sizeof(found.name), "%s", entry->name);
	(void)!write(STDOUT_FILENO, &found, sizeof(found));
}

/* Kinds that this host has not are passed over. */
static void discover(void)
{
	const struct target_ops *ops;

	for (size_t i = 0; (ops = target_kind(i)); i++)
		if (ops->list)
			error_free(ops->list(put_found, NULL));
	_exit(0);
}

static void begin_discovery(struct agent *agent, uint64_t now_ns)
{
	int ends[2];

	if (agent->discoverer || now_ns < agent->discover_ns || pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return;
	agent->discovered_ns = now_ns;
	agent->discover_ns = now_ns + DISCOVER_NS;
	agent->n_found = 0;
	agent->discoverer = agent_start_process(ends[1]);
	if (!agent->discoverer) {
		fcntl(STDOUT_FILENO, F_SETFL, 0);
		discover();
	}
	close(ends[1]);
	agent->finds = ends[0];
	if (agent->discoverer < 0) {
		close(agent->finds);
		agent->finds = -1;
		agent->discoverer = 0;
	}
}

static struct guest *find_guest(struct agent *agent, const struct found *found)
{
	for (size_t i = 0; i < agent->n; i++)
		if (!strcmp(agent->guests[i].found.kind, found->kind) &&
		    !strcmp(agent->guests[i].found.id, found->id))
			return &agent->guests[i];
	return NULL;
}

/* Two guests of one name have a directory each; one that comes again has its own. */
static void name_directory(struct agent *agent, struct guest *guest)
{
	char both[sizeof(guest->found.name) + sizeof(guest->found.id)];

	store_guest(guest->found.kind, guest->found.name, guest->found.id, guest->directory);
	for (size_t i = 0; i < agent->n; i++) {
		if (!agent->guests[i].listed ||
		    strcmp(agent->guests[i].directory, guest->directory))
			continue;
		snprintf(both, sizeof(both), "%s-%s", guest->found.name, guest->found.id);
		store_guest(guest->found.kind, both, guest->found.id, guest->directory);
		return;
	}
}

static struct error *add_guest(struct agent *agent, const struct found *found)
{
	struct guest guest = {.found = *found, .listed = true, .from = -1, .segment = -1};
	struct error *err;

	if (agent->n == GUESTS_MAX)
		return NULL;
	name_directory(agent, &guest);
	err = ARRAY_RESERVE(&agent->guests, &agent->room, agent->n + 1);
	if (err)
		return err;
	guest.totals = mmap(NULL, sizeof(*guest.totals), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guest.totals == MAP_FAILED)
		guest.totals = NULL;
	agent->guests[agent->n++] = guest;
	return NULL;
}

/* Takes what was found; guests that are not there any more go when their samplers have ended. */
static struct error *end_discovery(struct agent *agent, bool whole)
{
	struct error *err = NULL;
	size_t kept = 0;

	if (!whole)
		return NULL;
	for (size_t i = 0; i < agent->n; i++)
		agent->guests[i].listed = false;
	for (size_t i = 0; i < agent->n_found; i++) {
		struct guest *guest = find_guest(agent, &agent->found[i]);

		if (guest)
			guest->listed = true;
	}
	for (size_t i = 0; i < agent->n_found && !err; i++)
		if (!find_guest(agent, &agent->found[i]) &&
		    is_wanted(&agent->args, &agent->found[i]))
			err = add_guest(agent, &agent->found[i]);
	for (size_t i = 0; i < agent->n; i++)
		if (agent->guests[i].listed || agent->guests[i].from >= 0)
			agent->guests[kept++] = agent->guests[i];
		else if (agent->guests[i].totals)
			munmap(agent->guests[i].totals, sizeof(*agent->guests[i].totals));
	agent->n = kept;
	return err;
}

static struct error *read_finds(struct agent *agent)
{
	ssize_t got = 1;
	struct error *err = NULL;

	while (!err && got > 0 && agent->n_found < GUESTS_MAX) {
		err = ARRAY_RESERVE(&agent->found, &agent->room_found, agent->n_found + 1);
		got = err ? 0
			  : read(agent->finds, &agent->found[agent->n_found],
				 sizeof(*agent->found));
		agent->n_found += got == (ssize_t)sizeof(*agent->found);
	}
	if (err || got)
		return err;
	close(agent->finds);
	agent->finds = -1;
	return NULL;
}

static uint64_t cpu_ns(const struct rusage *usage)
{
	return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * NS_PER_US;
}

/* Where there are many processes, they are looked through less often. */
static void plan_discovery(struct agent *agent, uint64_t took_ns)
{
	uint64_t rest_ns = took_ns * DISCOVER_SHARE;

	if (rest_ns > DISCOVER_MOST_NS)
		rest_ns = DISCOVER_MOST_NS;
	if (rest_ns > DISCOVER_NS)
		agent->discover_ns = agent->discovered_ns + rest_ns;
}

static void collect(struct agent *agent)
{
	struct rusage usage;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
		if (pid == agent->discoverer) {
			agent->discoverer = 0;
			plan_discovery(agent, cpu_ns(&usage));
			agent_tell_store(agent, agent->finds >= 0 ? read_finds(agent) : NULL);
			agent_tell_store(agent, end_discovery(agent, WIFEXITED(status)));
		} else if (pid == agent->joiner) {
			agent_end_join(agent, status);
		} else if (pid == agent->pushing.pusher) {
			agent->pushing.pusher = 0;
		}
		for (size_t i = 0; i < agent->n; i++)
			if (agent->guests[i].pid == pid)
				agent->guests[i].pid = 0;
	}
}

/* The loop */

/* Waits for what comes, and takes it. */
static struct error *wait_and_read(struct agent *agent)
{
	struct pollfd events[GUESTS_MAX + 2];
	struct error *err = NULL;
	const size_t n = agent->n;

	for (size_t i = 0; i < n; i++)
		events[i] = (struct pollfd){.fd = agent->guests[i].from, .events = POLLIN};
	events[n] = (struct pollfd){.fd = agent->finds, .events = POLLIN};
	events[n + 1] = (struct pollfd){.fd = agent->pushing.to, .events = POLLIN};
	if (poll(events, n + 2, WAKE_MS) > 0) {
		for (size_t i = 0; i < n; i++)
			if (events[i].revents && agent->guests[i].from >= 0)
				agent_read_sampler(agent, &agent->guests[i]);
		if (events[n].revents)
			err = read_finds(agent);
		if (events[n + 1].revents)
			agent_read_pusher(agent);
	}
	collect(agent);
	return err;
}

static void signal_all(const struct agent *agent, int number)
{
	for (size_t i = 0; i < agent->n; i++)
		if (agent->guests[i].pid > 0)
			kill(agent->guests[i].pid, number);
	if (agent->discoverer > 0)
		kill(agent->discoverer, SIGKILL);
	if (agent->joiner > 0)
		kill(agent->joiner, SIGKILL);
}

static bool is_any_sampled(const struct agent *agent)
{
	for (size_t i = 0; i < agent->n; i++)
		if (agent->guests[i].from >= 0)
			return true;
	return false;
}

/* Lets samplers end their recordings; one that does not is killed, and its guard lets its guest go. */
static void end_all(struct agent *agent)
{
	const uint64_t until_ns = clock_now_ns() + END_NS;

	notify(agent, "STOPPING=1");
	signal_all(agent, SIGTERM);
	/* An answer that is on its way is waited for: else the recording would be sent again. */
	while ((is_any_sampled(agent) || *agent->pushing.sending) && clock_now_ns() < until_ns)
		error_free(wait_and_read(agent));
	signal_all(agent, SIGKILL);
	agent_measure(agent, 0);
}

static struct error *serve(struct agent *agent)
{
	struct error *err = NULL;

	notify(agent, "READY=1");
	while (!*agent->stop && !err) {
		const uint64_t now_ns = clock_now_ns();

		begin_discovery(agent, now_ns);
		for (size_t i = 0; i < agent->n; i++)
			agent_start_sampler(agent, &agent->guests[i], now_ns);
		agent_tidy(agent, now_ns);
		agent_push(agent, now_ns);
		agent_measure(agent, now_ns);
		feed_watchdog(agent, now_ns);
		err = wait_and_read(agent);
		if (agent->discoverer && clock_now_ns() - agent->discovered_ns > DISCOVER_LONG_NS)
			kill(agent->discoverer, SIGKILL);
	}
	end_all(agent);
	return err;
}

/* Half of what systemd waits for, so that one that comes late is early enough. */
static uint64_t feed_ns(void)
{
	const char *text = getenv("WATCHDOG_USEC");

	return text ? strtoull(text, NULL, 10) * NS_PER_US / 2 : 0;
}

static void agent_free(struct agent *agent)
{
	agent_end_push(agent);
	store_segments_free(&agent->segments);
	args_free(&agent->args);
	free(agent->packet);
	free(agent->guests);
	free(agent->found);
	if (agent->notify >= 0)
		close(agent->notify);
	if (agent->store >= 0)
		close(agent->store);
}

static struct error *run_agent(struct agent *agent)
{
	struct error *err = store_open(agent->args.store, &agent->store);

	if (!err)
		err = agent_begin_push(agent);
	if (err)
		return err;
	agent->stop = cmd_catch_signals();
	signal(SIGPIPE, SIG_IGN);
	agent->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	agent->feed_ns = feed_ns();
	agent->packet = malloc(AGENT_PACKET_MAX);
	return agent->packet ? serve(agent) : error_no_memory();
}

static struct error *agent_run(int argc, char **argv, int *status)
{
	struct agent agent = {
		.store = -1, .notify = -1, .finds = -1, .joined = -1, .pushing.to = -1};
	struct error *err = parse(argc, argv, &agent.args);

	if (!err && agent.args.check)
		puts("no errors");
	else if (!err)
		err = run_agent(&agent);
	agent_free(&agent);
	return err;
}

const struct verb verb_agent = {
	.name = "agent",
	.summary = "sample all guests of this host, always, and keep the last days",
	.arguments = "[options]",
	.about = "Samples every guest of this host from when it comes to when it goes, and keeps "
		 "recordings of\n"
		 "the last days: `uniprof report --last 10m web`. Runs in the foreground, until "
		 "SIGINT or SIGTERM.\n",
	.options = options_of_agent,
	.settings = options_of_agent + 1,
	.takes = TAKES_NOTHING,
	.run = agent_run,
};
