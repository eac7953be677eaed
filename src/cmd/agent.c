/* SPDX-License-Identifier: BSD-3-Clause */

/* The resident profiler: its settings, and the loop that starts, reads, ends and restarts its processes. */

#include "cmd/agent.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_RATE_HZ 19
#define DEFAULT_DISK	(2ull << 30)
#define DEFAULT_AGE_NS	(7 * 86400 * NS_PER_S)
#define DEFAULT_MEMORY	(64ull << 20)

#define DEFAULT_QUEUE	  (256ull << 20)
#define DEFAULT_WITHIN_NS (30 * NS_PER_S)

#define CONFIG_MAX (64u << 10) /* bytes */

/* The longest sleep: usually, and while a process works whose end only a look tells. */
#define WAKE_NS	     NS_PER_S
#define WAKE_SOON_NS (NS_PER_S / 4)

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
	{"status", NULL, 0, take_true, AT(status),
	 .text = "tell how the agent that runs does: its guests, rates, losses, pauses, bytes, "
		 "errors",
	 .more = "The agent of\n.Fl -store .\nIt goes on meanwhile."},
	{"json", NULL, 0, take_true, AT(json), .text = "tell that in JSON"},
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
	{"max-cpu", "PERCENT", 0, take_percent, AT(max_cpu),
	 .text = "take at most so much of one CPU for all guests together, by sampling less often",
	 .more = "Guests that are expensive to sample are sampled less often first; none less "
		 "often than "
		 "every 10 s.\n"
		 "What is in force is in the recordings, and told by\n.Fl -status ."},
	{"max-pause", "T", 0, take_duration, AT(session.sampler.max_pause_ns),
	 .text = "hold a guest no longer than T in one piece; give stacks up instead"},
	{"max-memory", "SIZE", 0, take_bytes, AT(session.sampler.max_memory), MEMORY_MIN,
	 MEMORY_MAX,
	 .text = "memory that different stacks of a minute may take, shared alike by all guests "
		 "(default 64M)",
	 .more = "Each guest has 1 MiB at least.\nStacks that find no room are kept without their "
		 "innermost frames, which is counted and told."},
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

	TRY(options_parse(&verb_agent, argc, argv, args, &first));
	return first == argc
		       ? NULL
		       : cmd_usage_error(&verb_agent,
					 "agent takes no arguments: --include chooses guests");
}

/* Tells each error of the file; the one that is returned counts them. */
static struct error *parse_config(struct agent_args *args, struct option_file *file)
{
	bool more = true;
	unsigned wrong = 0;

	TRY(cmd_read_text(file->path, CONFIG_MAX, &args->config_text));
	file->rest = args->config_text;
	while (more) {
		struct error *line = option_file_next(file, verb_agent.settings, args, &more);

		if (line)
			cmd_say("%s", line->text);
		wrong += line != NULL;
		error_free(line);
	}
	return wrong ? error_new(ERR_USAGE, "%s has %u error%s", file->path, wrong,
				 wrong == 1 ? "" : "s")
		     : NULL;
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
	if (err || !args->push.url || words.push.url || args->status)
		return err;
	err = push_prepare(&args->push);
	return err ? error_prefix(err, "%s:%u", file.path,
				  option_file_line(&file, verb_agent.settings, "push"))
		   : NULL;
}

/* Settings are whole and checked after success; to be freed in any case. */
static struct error *parse(int argc, char **argv, struct agent_args *args)
{
	args_defaults(args);
	TRY(parse_words(argc, argv, args));
	if (args->config)
		TRY(parse_both(argc, argv, args));
	return args->push.url && !args->status && !*args->push.full_url ? push_prepare(&args->push)
									: NULL;
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

bool agent_wants(const struct agent_args *args, const struct found *found)
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

static uint64_t cpu_ns(const struct rusage *usage)
{
	return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * NS_PER_US;
}

static void collect(struct agent *agent)
{
	struct rusage usage;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
		agent->ended_cpu_ns += cpu_ns(&usage);
		if (pid == agent->discoverer) {
			agent_end_discovery(agent);
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

/* Settings that are whole and checked take the place of those in force. */
static void adopt(struct agent *agent, struct agent_args *next)
{
	const bool own_host = next->push.host == next->push.own_host;
	struct agent_args old = agent->args;

	if (strcmp(next->store, agent->store_path) != 0)
		cmd_say("%s: the store stays %s until the agent is started again", next->config,
			agent->store_path);
	next->store = agent->store_path;
	agent->args = *next;
	if (own_host)
		agent->args.push.host = agent->args.push.own_host;
	args_free(&old);
	agent->measured_ns = 0;
	agent_choose_again(agent, clock_now_ns());
	agent_tell_store(agent, agent_begin_push(agent));
}

/* SIGHUP: takes the settings anew. Broken ones are told, and those in force stay. */
static void reload(struct agent *agent)
{
	struct signalfd_siginfo info;
	struct agent_args next;
	struct error *err;
	char state[64];

	if (read(agent->hangups, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		 (uint64_t)(clock_now_ns() / NS_PER_US));
	notify(agent, state);
	err = parse(agent->argc, agent->argv, &next);
	if (err) {
		cmd_say("%s; the settings stay as they were", err->text);
		args_free(&next);
	} else {
		adopt(agent, &next);
		cmd_say("%s: taken anew", agent->args.config);
	}
	error_free(err);
	notify(agent, "READY=1");
}

/* Without a file there is nothing to take anew: SIGHUP ends the agent, as SIGTERM does. */
static void open_hangups(struct agent *agent)
{
	sigset_t set;

	if (!agent->args.config)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	agent->hangups = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	return b_ns && b_ns < a_ns ? b_ns : a_ns;
}

/* The next moment at which something is due, unless an event comes before. */
static uint64_t next_wake(const struct agent *agent, uint64_t now_ns)
{
	const bool soon = agent->joiner > 0 || agent->pushing.pusher > 0 || agent->args.push.url;
	uint64_t wake_ns = now_ns + (soon ? WAKE_SOON_NS : WAKE_NS);

	if (!agent->looks)
		wake_ns = earlier(wake_ns, agent->discover_ns);
	if (agent->feed_ns)
		wake_ns = earlier(wake_ns, agent->fed_ns + agent->feed_ns);
	for (size_t i = 0; i < agent->n; i++) {
		const struct guest *guest = &agent->guests[i];

		if (guest->from < 0 && guest->listed)
			wake_ns = earlier(wake_ns, guest->retry_ns);
		wake_ns = earlier(wake_ns, guest->end_ns);
	}
	return wake_ns;
}

static int wait_ms(const struct agent *agent)
{
	const uint64_t now_ns = clock_now_ns(), wake_ns = next_wake(agent, now_ns);

	return wake_ns > now_ns ? (int)((wake_ns - now_ns) / (1000 * NS_PER_US)) + 1 : 0;
}

/* Waits for what comes, and takes it. */
static struct error *wait_and_read(struct agent *agent)
{
	struct pollfd events[GUESTS_MAX + 4];
	struct error *err = NULL;
	const size_t n = agent->n;

	for (size_t i = 0; i < n; i++)
		events[i] = (struct pollfd){.fd = agent->guests[i].from, .events = POLLIN};
	events[n] = (struct pollfd){.fd = agent->finds, .events = POLLIN};
	events[n + 1] = (struct pollfd){.fd = agent->pushing.to, .events = POLLIN};
	events[n + 2] = (struct pollfd){.fd = agent->hangups, .events = POLLIN};
	events[n + 3] = (struct pollfd){.fd = agent->asked, .events = POLLIN};
	if (poll(events, n + 4, wait_ms(agent)) > 0) {
		for (size_t i = 0; i < n; i++)
			if (events[i].revents && agent->guests[i].from >= 0)
				agent_read_sampler(agent, &agent->guests[i]);
		if (events[n].revents)
			err = agent_read_finds(agent);
		if (events[n + 1].revents)
			agent_read_pusher(agent);
		if (events[n + 2].revents)
			reload(agent);
		if (events[n + 3].revents)
			agent_tell_status(agent);
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
	const uint64_t until_ns = clock_now_ns() + AGENT_END_NS;

	notify(agent, "STOPPING=1");
	signal_all(agent, SIGTERM);
	/* An answer that is on its way is waited for: else the recording would be sent again. */
	while ((is_any_sampled(agent) || *agent->pushing.sending) && clock_now_ns() < until_ns)
		error_free(wait_and_read(agent));
	signal_all(agent, SIGKILL);
	agent_measure(agent, 0);
	agent_close_status(agent);
}

static struct error *serve(struct agent *agent)
{
	struct error *err = NULL;

	agent_choose_again(agent, clock_now_ns());
	notify(agent, "READY=1");
	while (!*agent->stop && !err) {
		const uint64_t now_ns = clock_now_ns();

		agent_discover(agent, now_ns);
		for (size_t i = 0; i < agent->n; i++)
			agent_keep_sampler(agent, &agent->guests[i], now_ns);
		agent_fit_rates(agent, now_ns);
		agent_tidy(agent, now_ns);
		agent_push(agent, now_ns);
		agent_measure(agent, now_ns);
		feed_watchdog(agent, now_ns);
		err = wait_and_read(agent);
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
	free(agent->store_path);
	owned_close(&agent->hangups);
	owned_close(&agent->notify);
	owned_close(&agent->store);
}

static struct error *run_agent(struct agent *agent)
{
	TRY(store_open(agent->args.store, &agent->store));
	TRY(agent_begin_push(agent));
	agent->stop = cmd_catch_signals();
	open_hangups(agent);
	agent_open_status(agent);
	agent->begun_unix_ns = clock_unix_ns();
	signal(SIGPIPE, SIG_IGN);
	agent->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	agent->feed_ns = feed_ns();
	agent->packet = malloc(AGENT_PACKET_MAX);
	agent->store_path = strdup(agent->args.store);
	return agent->packet && agent->store_path ? serve(agent) : error_no_memory();
}

static struct error *agent_run(int argc, char **argv, int *status)
{
	struct agent agent = {.argc = argc,
			      .argv = argv,
			      .store = -1,
			      .notify = -1,
			      .hangups = -1,
			      .asked = -1,
			      .finds = -1,
			      .joined = -1,
			      .pushing.to = -1};
	struct error *err = parse(argc, argv, &agent.args);

	if (!err && agent.args.check)
		puts("no errors");
	else if (!err && agent.args.status)
		err = agent_ask_status(&agent.args);
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
