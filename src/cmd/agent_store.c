/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Guests and the store. One process for each guest samples it, as `record` does,
 * and can write to nothing but its socket; what comes there is appended to the
 * store. Minutes are joined in a process of their own.
 */

#include "cmd/agent.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/preopen.h"
#include "import/import.h"

#define TIDY_NS	     (20 * NS_PER_S)
#define JOIN_ALARM_S 120

/* What a sampler writes into a segment, bytes; at once, packets; and how soon it begins the next. */
#define SEGMENT_MAX	 (16u << 20)
#define PACKETS_AT_ONCE	 64
#define SEGMENT_LEAST_NS (NS_PER_S / 2)

/* A sampler that failed is started again after 2, 4, 8 ... 256 seconds; one that lived so long starts at 2. */
#define BACKOFF_MOST 8
#define LIVED_NS     (120 * NS_PER_S)

/* A domain that is being made, or that goes, has no name for a moment. */
#define WHEN_FOUND_AGAIN UINT64_MAX

/*
 * Starts a process of ours: it ends with us, and has none of our files but
 * standard error, and `output` as its standard output. As fork(2).
 */
static pid_t start_process(int output)
{
	const pid_t parent = getpid(), pid = fork();
	struct descriptors keep = {0};
	sigset_t none;

	if (pid)
		return pid;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
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

bool agent_start_at_socket(pid_t *pid, int *end)
{
	int ends[2];

	*pid = 0;
	*end = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return false;
	*pid = start_process(ends[1]);
	if (!*pid)
		return true;
	close(ends[1]);
	if (*pid > 0) {
		*end = ends[0];
		return false;
	}
	close(ends[0]);
	*pid = 0;
	return false;
}

static const char *called(const struct guest *guest)
{
	return *guest->found.name ? guest->found.name : guest->found.id;
}

/* In a process of its own: the guest is what it parses. */
static void sample(struct agent *agent, const struct guest *guest)
{
	const int room = 2 * (int)AGENT_PACKET_MAX;
	struct session_options session = agent->args.session;
	struct sampler_result result = {0};
	struct target *target = NULL;
	struct error *err;
	char *spec;

	/* The size of a packet is bounded by this; as well as can be. */
	setsockopt(STDOUT_FILENO, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	/* Its guard locks a copy of all memory. */
	free(agent->packet);
	store_segments_free(&agent->segments);
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
		err = session_record_segments(target, &session, &result, guest->shared);
	target_close(target);
	if (err)
		snprintf(guest->shared->failure, sizeof(guest->shared->failure), "%s", err->text);
	if (err && (!guest->failures || !session.quiet))
		cmd_say("%s: %s", called(guest), err->text);
	exit(err ? (int)err->kind : 0);
}

static void note_error(struct guest *guest, const char *text)
{
	snprintf(guest->error, sizeof(guest->error), "%s", text);
	guest->error_s = (int64_t)(clock_unix_ns() / NS_PER_S);
}

static void end_segment(struct agent *agent, struct guest *guest)
{
	owned_close(&guest->segment);
	guest->segment = -1;
	agent_release_segment(agent, guest);
}

/* A sampler that does what none does has been taken over. */
static void distrust(struct agent *agent, struct guest *guest, const char *why)
{
	char text[64];

	snprintf(text, sizeof(text), "its sampler %s, and is ended", why);
	note_error(guest, text);
	cmd_say("%s: %s", called(guest), text);
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

/*
 * Its sampler has ended, or lets go of its socket. The guest may be gone, or come again by
 * another id: it is looked for before it has another sampler.
 */
static void end_sampler(struct agent *agent, struct guest *guest, uint64_t now_ns)
{
	const bool lived = now_ns - guest->started_ns > LIVED_NS;

	/* It could write whatever it wants there. */
	guest->shared->failure[sizeof(guest->shared->failure) - 1] = '\0';
	if (*guest->shared->failure)
		note_error(guest, guest->shared->failure);
	*guest->shared->failure = '\0';
	end_segment(agent, guest);
	owned_close(&guest->from);
	guest->from = -1;
	guest->end_ns = 0;
	guest->failures = lived ? 1 : guest->failures + 1;
	if (guest->failures > BACKOFF_MOST)
		guest->failures = BACKOFF_MOST;
	guest->retry_ns = now_ns + (NS_PER_S << guest->failures);
	guest->listed = false;
	if (agent->discover_ns > now_ns + AGENT_DISCOVER_NS)
		agent->discover_ns = now_ns + AGENT_DISCOVER_NS;
}

static void start_sampler(struct agent *agent, struct guest *guest, uint64_t now_ns)
{
	guest->started_ns = now_ns;
	guest->starts++;
	if (agent_start_at_socket(&guest->pid, &guest->from))
		sample(agent, guest);
	if (agent->args.session.verbose)
		cmd_say("%s: sampling %s:%s into %s", called(guest), guest->found.kind,
			guest->found.id, guest->directory);
	/* No process could be started: that is tried again as if it had ended. */
	if (guest->from < 0)
		end_sampler(agent, guest, now_ns);
}

void agent_keep_sampler(struct agent *agent, struct guest *guest, uint64_t now_ns)
{
	if (guest->from < 0 && guest->listed && now_ns >= guest->retry_ns)
		start_sampler(agent, guest, now_ns);
	else if (guest->end_ns && now_ns >= guest->end_ns && guest->pid > 0)
		kill(guest->pid, SIGKILL);
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

/* Guests that were found */

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

	if (!*found->name)
		guest.retry_ns = WHEN_FOUND_AGAIN;
	if (agent->n == GUESTS_MAX)
		return NULL;
	name_directory(agent, &guest);
	TRY(ARRAY_RESERVE(&agent->guests, &agent->room, agent->n + 1));
	guest.shared = mmap(NULL, sizeof(*guest.shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guest.shared == MAP_FAILED)
		return error_no_memory();
	agent->guests[agent->n++] = guest;
	return NULL;
}

/* Lets its sampler, if it has one, end its recording. */
static void end_soon(struct guest *guest, uint64_t now_ns)
{
	if (guest->pid > 0)
		kill(guest->pid, SIGTERM);
	guest->end_ns = guest->from >= 0 ? now_ns + AGENT_END_NS : 0;
}

void agent_choose_again(struct agent *agent, uint64_t now_ns)
{
	for (size_t i = 0; i < agent->n; i++) {
		struct guest *guest = &agent->guests[i];

		guest->retry_ns = 0;
		if (agent_wants(&agent->args, &guest->found))
			continue;
		guest->listed = false;
		end_soon(guest, now_ns);
	}
	agent->discover_ns = 0;
	agent_instruct(agent);
}

/* The sampler ends its recording, and another begins one by the new name. */
static void rename_guest(struct agent *agent, struct guest *guest, const struct found *found)
{
	guest->listed = false;
	guest->found = *found;
	name_directory(agent, guest);
	guest->listed = agent_wants(&agent->args, found);
	guest->failures = 0;
	guest->retry_ns = 0;
	end_soon(guest, clock_now_ns());
}

/* Those that are new, or have another name. */
static struct error *take_new(struct agent *agent, const struct found *found)
{
	struct guest *guest = find_guest(agent, found);

	if (!guest)
		return agent_wants(&agent->args, found) ? add_guest(agent, found) : NULL;
	/* One that is going may have lost its name already. */
	if (*found->name && strcmp(guest->found.name, found->name) != 0)
		rename_guest(agent, guest, found);
	else if (guest->retry_ns == WHEN_FOUND_AGAIN)
		guest->retry_ns = 0;
	return NULL;
}

/* Guests that are not there any more go when their samplers have ended. */
struct error *agent_take_finds(struct agent *agent)
{
	struct error *err = NULL;
	size_t kept = 0;

	for (size_t i = 0; i < agent->n; i++)
		agent->guests[i].listed = false;
	for (size_t i = 0; i < agent->n_found; i++) {
		struct guest *guest = find_guest(agent, &agent->found[i]);

		if (guest)
			guest->listed = agent_wants(&agent->args, &agent->found[i]);
	}
	for (size_t i = 0; i < agent->n_found && !err; i++)
		err = take_new(agent, &agent->found[i]);
	for (size_t i = 0; i < agent->n; i++)
		if (agent->guests[i].listed || agent->guests[i].from >= 0)
			agent->guests[kept++] = agent->guests[i];
		else
			munmap(agent->guests[i].shared, sizeof(*agent->guests[i].shared));
	agent->n = kept;
	agent_instruct(agent);
	return err;
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
	agent->joiner = start_process(agent->joined);
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

void agent_tidy(struct agent *agent, uint64_t now_ns)
{
	const int64_t now_s = (int64_t)(clock_unix_ns() / NS_PER_S);
	const struct store_limits limits = {.bytes = agent->args.max_disk,
					    .age_s = agent->args.max_age_ns / NS_PER_S};
	FREED bool *remove = NULL;
	struct error *err;

	if (agent->joiner || (agent->tidied_ns && now_ns - agent->tidied_ns < TIDY_NS))
		return;
	agent->tidied_ns = now_ns;
	store_segments_free(&agent->segments);
	err = store_list(agent->args.store, NULL, &agent->segments);
	agent->disk_bytes = 0;
	for (size_t i = 0; !err && i < agent->segments.n; i++)
		agent->disk_bytes += agent->segments.at[i].bytes;
	remove = err ? NULL : calloc(agent->segments.n + 1, sizeof(*remove));
	if (remove)
		store_choose_old(&agent->segments, &limits, now_s, remove);
	for (size_t i = 0; remove && i < agent->segments.n; i++) {
		if (!remove[i])
			continue;
		store_remove(agent->store, &agent->segments.at[i]);
		agent->disk_bytes -= agent->segments.at[i].bytes;
		agent->segments.at[i].superseded = true;
	}
	if (!err && store_choose_join(&agent->segments, now_s, &agent->join_first, &agent->join_n))
		begin_join(agent);
	agent_tell_store(agent, err);
}
