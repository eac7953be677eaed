/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/monitor.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/host/proc.h"

static const char *next_word(const char *word, const char *end)
{
	word += strlen(word) + 1;
	return word < end ? word : NULL;
}

/* "-name web", "-name guest=web,debug-threads=on", "--name web", Firecracker's "--id web" */
static void take_name(const char *value, char *name, size_t size)
{
	const char *guest = strstr(value, "guest=");

	if (guest == value || (guest && guest[-1] == ','))
		value = guest + strlen("guest=");
	snprintf(name, size, "%.*s", (int)strcspn(value, ","), value);
}

/* The last value of one of these options; NULL: there is none. */
static const char *value_of(const char *words, const char *end, const char *const *options)
{
	const char *last = NULL;

	for (const char *word = words; word; word = next_word(word, end))
		for (size_t i = 0; options[i]; i++)
			if (!strcmp(word, options[i]))
				last = next_word(word, end) ?: last;
	return last;
}

void monitor_name(pid_t pid, char *name, size_t size)
{
	static const char *const names[] = {"-name", "--name", "--id", NULL};
	static const char *const kernels[] = {"-kernel", "--kernel", NULL};
	const char *end, *value;
	char *words = proc_words(pid, &end);

	proc_comm(pid, name, size);
	if ((value = value_of(words, end, names)))
		take_name(value, name, size);
	else if ((value = value_of(words, end, kernels)) && *basename(value))
		snprintf(name, size, "%s", basename(value));
	free(words);
}

static bool is_elf(const char *path)
{
	char magic[SELFMAG] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return false;
	if (read(fd, magic, sizeof(magic)) != (ssize_t)sizeof(magic))
		magic[0] = '\0';
	close(fd);
	return !memcmp(magic, ELFMAG, SELFMAG);
}

void monitor_image(pid_t pid, char *path, size_t size)
{
	const char *end;
	char *words = proc_words(pid, &end), full[2 * PATH_MAX];
	const char *word = words ? next_word(words, end) : NULL;
	char directory[PATH_MAX], root[PATH_MAX];

	*path = '\0';
	proc_link(pid, "cwd", -1, directory, sizeof(directory));
	/* In a jail (chroot(2)), /x is below the jail's root. */
	proc_link(pid, "root", -1, root, sizeof(root));
	if (!strcmp(root, "/"))
		*root = '\0';
	for (; word; word = next_word(word, end)) {
		/* "--kernel=FILE" as well as "-kernel FILE". */
		const char *file = *word == '-' && strchr(word, '=') ? strchr(word, '=') + 1 : word;

		if (!*file || *file == '-')
			continue;
		snprintf(full, sizeof(full), "%s%s%s", *file == '/' ? root : directory,
			 *file == '/' ? "" : "/", file);
		if (strlen(full) < size && is_elf(full))
			strcpy(path, full);
	}
	free(words);
}

struct monitor_search {
	const char *name;
	monitor_vcpus *vcpus;
	pid_t pid;
	unsigned matches;
};

static bool match(void *ctx, int pid)
{
	struct monitor_search *search = ctx;
	char name[256];

	if (!search->vcpus(pid))
		return true;
	monitor_name(pid, name, sizeof(name));
	if (!strcmp(name, search->name)) {
		search->pid = pid;
		search->matches++;
	}
	return true;
}

struct error *monitor_find(const char *name, const char *scheme, monitor_vcpus *vcpus, pid_t *pid)
{
	struct monitor_search search = {.name = name, .vcpus = vcpus};

	*pid = proc_parse_pid(name);
	if (*pid)
		return NULL;
	proc_numbers(0, "", match, &search);
	*pid = search.pid;
	if (search.matches == 1)
		return NULL;
	return error_new(ERR_GUEST,
			 search.matches ? "%u guests are called \"%s\"; say which by the process "
					  "id of its monitor, as %s:PID"
					: "none of the guests that can be seen (%u) is called "
					  "\"%s\"; `uniprof list` shows what there is (%s)",
			 search.matches, name, scheme);
}

struct monitor_listing {
	const struct monitor_kind *kind;
	void (*each)(void *ctx, const struct target_listing *entry);
	void *ctx;
};

static bool list_process(const struct monitor_listing *listing, int pid)
{
	char name[256], id[16], note[64];
	struct target_listing entry = {.scheme = listing->kind->scheme,
				       .name = name,
				       .id = id,
				       .type = listing->kind->scheme,
				       .pid = pid,
				       .vcpus = listing->kind->vcpus(pid)};
	const pid_t tracer = entry.vcpus ? proc_tracer(pid) : 0;

	if (!entry.vcpus)
		return true;
	listing->kind->name(pid, name, sizeof(name));
	snprintf(id, sizeof(id), "%d", pid);
	snprintf(note, sizeof(note), "traced by process %d", (int)tracer);
	entry.note = tracer > 0 ? note : NULL;
	listing->kind->way(pid, &entry);
	listing->each(listing->ctx, &entry);
	return true;
}

/* Most processes of a host can be threads of its kernel, which are no guests. */
static bool list_one(void *ctx, int pid)
{
	return !proc_has_program(pid) || list_process(ctx, pid);
}

struct error *monitor_list(const struct monitor_kind *kind,
			   void (*each)(void *ctx, const struct target_listing *entry), void *ctx)
{
	struct monitor_listing listing = {kind, each, ctx};

	if (!proc_numbers(0, "", list_one, &listing))
		return error_new(ERR_DENIED, "/proc cannot be read");
	return NULL;
}

void socket_bound(int fd, unsigned ms)
{
	const struct timeval bound = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
}

uint64_t socket_deadline(uint64_t conversation_ns, unsigned ms)
{
	const uint64_t own_ns = clock_now_ns() + ms * UINT64_C(1000000);

	return conversation_ns && conversation_ns < own_ns ? conversation_ns : own_ns;
}

bool socket_wait(int fd, uint64_t until_ns)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	uint64_t now;
	int n;

	do {
		now = clock_now_ns();
		n = poll(&ready, 1, now < until_ns ? (int)((until_ns - now) / 1000000) + 1 : 0);
	} while (n < 0 && errno == EINTR && now < until_ns);
	return n == 1;
}

static ssize_t read_until(int fd, char *text, size_t room, uint64_t until_ns)
{
	ssize_t got = -1;

	errno = EINTR;
	while (got < 0 && (errno == EINTR || errno == EAGAIN) && clock_now_ns() < until_ns)
		got = read(fd, text, room);
	return got;
}

/* The text that comes first. */
static const char *first_of(const char *got, size_t len, const char *const *texts)
{
	const char *first = NULL, *found = NULL;

	for (; *texts; texts++) {
		const char *at = memmem(got, len, *texts, strlen(*texts));

		if (at && (!first || at < first)) {
			first = at;
			found = *texts;
		}
	}
	return found;
}

static size_t longest_of(const char *const *texts)
{
	size_t longest = 0;

	for (; *texts; texts++)
		longest = strlen(*texts) > longest ? strlen(*texts) : longest;
	return longest;
}

const char *socket_wait_for(int fd, const char *const *texts, uint64_t until_ns, bool *open)
{
	const size_t len = longest_of(texts);
	const char *found;
	char got[4096];
	size_t kept = 0;
	ssize_t more;

	assert(len && len < sizeof(got));
	while ((more = read_until(fd, got + kept, sizeof(got) - kept, until_ns)) > 0) {
		kept += (size_t)more;
		found = first_of(got, kept, texts);
		if (found)
			return found;
		/* The end may be a text's beginning. */
		if (kept >= len) {
			memmove(got, got + kept - (len - 1), len - 1);
			kept = len - 1;
		}
	}
	*open = more < 0 && (errno == EINTR || errno == EAGAIN);
	return NULL;
}
