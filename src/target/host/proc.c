/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/proc.h"

#include <assert.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/owned.h"

#define PATH_ROOM    96
#define COMMAND_ROOM 65536

int proc_open(pid_t pid, const char *name, int flags)
{
	char path[PATH_ROOM];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return open(path, flags | O_CLOEXEC);
}

ssize_t proc_read(pid_t pid, const char *name, char *text, size_t size)
{
	CLOSED int fd = proc_open(pid, name, O_RDONLY);
	size_t len = 0;
	ssize_t got;

	if (fd < 0)
		return -1;
	while (len < size - 1 && (got = read(fd, text + len, size - 1 - len)) > 0)
		len += (size_t)got;
	text[len] = '\0';
	return (ssize_t)len;
}

/* "pid (comm) state": the name may hold anything. */
char proc_letter(const char *stat)
{
	const char *end = strrchr(stat, ')');

	return end && end[1] == ' ' ? end[2] : '\0';
}

char *proc_words(pid_t pid, const char **end)
{
	char *words = malloc(COMMAND_ROOM);
	const ssize_t len = words ? proc_read(pid, "cmdline", words, COMMAND_ROOM) : 0;

	if (len <= 0) {
		free(words);
		return NULL;
	}
	*end = words + len;
	return words;
}

long proc_status(pid_t pid, const char *key, long otherwise)
{
	const size_t len = strlen(key);
	char text[4096], *rest = text, *line;

	if (proc_read(pid, "status", text, sizeof(text)) < 0)
		return otherwise;
	while ((line = strsep(&rest, "\n")))
		if (!strncmp(line, key, len) && line[len] == ':')
			return strtol(line + len + 1, NULL, 10);
	return otherwise;
}

bool proc_has_memory(pid_t pid)
{
	return proc_status(pid, "VmSize", 0) > 0;
}

void proc_comm(pid_t pid, char *name, size_t size)
{
	if (proc_read(pid, "comm", name, size) < 0)
		*name = '\0';
	name[strcspn(name, "\n")] = '\0';
}

/* "7f00-7f10 rw-p 00000000 08:01 1234   /path": the path begins at a fixed column or not at all. */
static bool parse_map(char *line, struct proc_map *map)
{
	char rights[5] = "";
	int path = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %" SCNu64 " %n", &map->start,
		   &map->end, rights, &map->offset, &map->inode, &path) < 5 ||
	    strlen(rights) != 4)
		return false;
	map->readable = rights[0] == 'r';
	map->writable = rights[1] == 'w';
	map->executable = rights[2] == 'x';
	map->shared = rights[3] == 's';
	map->path = line + path;
	return true;
}

struct error *proc_maps_open(pid_t pid, FILE **out)
{
	char path[PATH_ROOM];

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	*out = fopen(path, "re");
	if (!*out)
		return errno == ENOENT ? error_new(ERR_GUEST, "there is no process %d", (int)pid)
				       : error_errno(ERR_DENIED, errno, "cannot read %s", path);
	return NULL;
}

void proc_maps_read(FILE *maps, bool (*each)(void *ctx, const struct proc_map *map), void *ctx)
{
	FREED char *line = NULL;
	struct proc_map map;
	size_t room = 0;

	rewind(maps);
	while (getline(&line, &room, maps) > 0)
		if (parse_map(line, &map) && !each(ctx, &map))
			break;
}

struct error *proc_maps(pid_t pid, bool (*each)(void *ctx, const struct proc_map *map), void *ctx)
{
	FILE *maps;

	TRY(proc_maps_open(pid, &maps));
	proc_maps_read(maps, each, ctx);
	fclose(maps);
	return NULL;
}

bool proc_numbers(pid_t pid, const char *name, bool (*each)(void *ctx, int number), void *ctx)
{
	char path[PATH_ROOM] = "/proc";
	const struct dirent *entry;
	DIR *dir;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	dir = opendir(path);
	if (!dir)
		return false;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
		    !each(ctx, atoi(entry->d_name)))
			break;
	closedir(dir);
	return true;
}

void proc_link(pid_t pid, const char *name, int number, char *to, size_t size)
{
	char path[PATH_ROOM];
	ssize_t len;

	if (number >= 0)
		snprintf(path, sizeof(path), "/proc/%d/%s/%d", (int)pid, name, number);
	else
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	len = readlink(path, to, size - 1);
	to[len > 0 ? len : 0] = '\0';
}

/* As proc_has_memory(), by one system call. */
static bool has_program(pid_t pid)
{
	char path[PATH_ROOM], program;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return readlink(path, &program, 1) >= 0 || errno != ENOENT;
}

pid_t proc_parse_pid(const char *text)
{
	char *end;
	long value;

	if (*text < '1' || *text > '9')
		return 0;
	errno = 0;
	value = strtol(text, &end, 10);
	return errno || *end || value > INT_MAX ? 0 : (pid_t)value;
}

pid_t proc_group(pid_t tid)
{
	return (pid_t)proc_status(tid, "Tgid", 0);
}

static bool take_tracer(void *ctx, int tid)
{
	pid_t *tracer = ctx;
	const long found = proc_status(tid, "TracerPid", 0);

	*tracer = found && found != getpid() ? (pid_t)found : 0;
	return !*tracer;
}

/* The process that traces a thread of this one, other than we; 0: none, -1: there is no such process. */
static pid_t tracer_of(pid_t pid)
{
	pid_t tracer = 0;

	return proc_numbers(pid, "task", take_tracer, &tracer) ? tracer : -1;
}

/* Documentation/admin-guide/LSM/Yama.rst: 0 all of one's own, 1 descendants, 2 CAP_SYS_PTRACE, 3 none. */
static int yama_scope(void)
{
	CLOSED int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
	char digit = '0';

	return fd >= 0 && read(fd, &digit, 1) == 1 ? digit - '0' : 0;
}

/* True in a user namespace that is not the machine's own (user_namespaces(7)). */
static bool in_nested_namespace(void)
{
	unsigned long inside = 0, outside = 0, n = 0;
	char text[64];

	return proc_read(getpid(), "uid_map", text, sizeof(text)) > 0 &&
	       sscanf(text, "%lu %lu %lu", &inside, &outside, &n) == 3 &&
	       (inside || outside || n != UINT32_MAX);
}

/* 1: the process is in another user namespace than ours; 0: in ours; -1: unknown. */
static int in_other_namespace(pid_t pid)
{
	char its[64], own[64];

	proc_link(pid, "ns/user", -1, its, sizeof(its));
	proc_link(getpid(), "ns/user", -1, own, sizeof(own));
	return *its && *own ? strcmp(its, own) != 0 : -1;
}

static struct error *for_lack_of_rights(pid_t pid, long uid)
{
	const int scope = yama_scope();

	if (geteuid() != 0 && uid != (long)geteuid())
		return error_new(ERR_DENIED,
				 "process %d belongs to user %ld: run uniprof as root, or as that "
				 "user",
				 (int)pid, uid);
	if (scope == 3)
		return error_new(ERR_DENIED,
				 "no process may be traced on this machine until it is rebooted "
				 "(kernel.yama.ptrace_scope is 3), not even by root");
	if (geteuid() != 0 && scope)
		return error_new(ERR_DENIED,
				 "only root may trace process %d (kernel.yama.ptrace_scope is %d): "
				 "run uniprof as root, or set it to 0",
				 (int)pid, scope);
	if (in_other_namespace(pid) == 1 || (in_other_namespace(pid) < 0 && in_nested_namespace()))
		return error_new(ERR_DENIED,
				 "process %d cannot be traced from this user namespace: run "
				 "uniprof outside of all of them, as root",
				 (int)pid);
	if (geteuid() != 0)
		return error_new(ERR_DENIED,
				 "process %d has made itself unreadable for others (set-user-ID, "
				 "or not dumpable): run uniprof as root",
				 (int)pid);
	return error_new(ERR_DENIED,
			 "process %d cannot be traced: the right to (CAP_SYS_PTRACE) is missing, "
			 "as it is in most containers; run uniprof outside, or start the "
			 "container with --cap-add=SYS_PTRACE",
			 (int)pid);
}

struct error *proc_cannot_trace(pid_t pid)
{
	const pid_t tracer = tracer_of(pid);
	char name[32];

	if (tracer < 0)
		return error_new(ERR_GUEST, "there is no process %d", (int)pid);
	if (tracer) {
		proc_comm(tracer, name, sizeof(name));
		return error_new(ERR_DENIED,
				 "process %d is already traced by process %d (%s), and only one "
				 "can: end that first",
				 (int)pid, (int)tracer, *name ? name : "?");
	}
	return for_lack_of_rights(pid, proc_status(pid, "Uid", -1));
}

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
	FREED char *words = proc_words(pid, &end);

	proc_comm(pid, name, size);
	if ((value = value_of(words, end, names)))
		take_name(value, name, size);
	else if ((value = value_of(words, end, kernels)) && *basename(value))
		snprintf(name, size, "%s", basename(value));
}

static bool is_elf(const char *path)
{
	CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char magic[SELFMAG];

	return fd >= 0 && read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
	       !memcmp(magic, ELFMAG, SELFMAG);
}

void monitor_image(pid_t pid, char *path, size_t size)
{
	const char *end;
	FREED char *words = proc_words(pid, &end);
	const char *word = words ? next_word(words, end) : NULL;
	char full[2 * PATH_MAX], directory[PATH_MAX], root[PATH_MAX];

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
}

struct name_search {
	const char *name;
	monitor_vcpus *vcpus;
	process_name *name_of;
	pid_t pid;
	unsigned matches;
};

static bool match(void *ctx, int pid)
{
	struct name_search *search = ctx;
	char name[256];

	if (!search->vcpus(pid))
		return true;
	search->name_of(pid, name, sizeof(name));
	if (!strcmp(name, search->name)) {
		search->pid = pid;
		search->matches++;
	}
	return true;
}

unsigned proc_find(const char *name, monitor_vcpus *vcpus, process_name *name_of, pid_t *pid)
{
	struct name_search search = {.name = name, .vcpus = vcpus, .name_of = name_of};

	*pid = proc_parse_pid(name);
	if (*pid)
		return 1;
	proc_numbers(0, "", match, &search);
	*pid = search.pid;
	return search.matches;
}

struct error *monitor_find(const char *name, const char *scheme, monitor_vcpus *vcpus, pid_t *pid)
{
	const unsigned matches = proc_find(name, vcpus, monitor_name, pid);

	if (matches == 1)
		return NULL;
	return error_new(ERR_GUEST,
			 matches ? "%u guests are called \"%s\"; say which by the process "
				   "id of its monitor, as %s:PID"
				 : "none of the guests that can be seen (%u) is called "
				   "\"%s\"; `uniprof list` shows what there is (%s)",
			 matches, name, scheme);
}

bool monitor_list_process(const struct monitor_kind *kind, pid_t pid, target_each *each, void *ctx)
{
	char name[256], id[16], note[64];
	struct target_listing entry = {.scheme = kind->scheme,
				       .name = name,
				       .id = id,
				       .type = kind->scheme,
				       .pid = pid,
				       .vcpus = kind->vcpus(pid)};
	const pid_t tracer = entry.vcpus ? tracer_of(pid) : 0;

	if (!entry.vcpus)
		return false;
	kind->name(pid, name, sizeof(name));
	snprintf(id, sizeof(id), "%d", (int)pid);
	snprintf(note, sizeof(note), "traced by process %d", (int)tracer);
	entry.note = tracer > 0 ? note : NULL;
	kind->way(pid, &entry);
	each(ctx, &entry);
	return true;
}

struct monitor_listing {
	const struct monitor_kind *kind;
	target_each *each;
	void *ctx;
};

/* Most processes of a host can be threads of its kernel, which are no guests. */
static bool list_one(void *ctx, int pid)
{
	const struct monitor_listing *listing = ctx;

	if (has_program(pid))
		(void)monitor_list_process(listing->kind, pid, listing->each, listing->ctx);
	return true;
}

struct error *monitor_list(const struct target_ops *ops, target_each *each, void *ctx)
{
	struct monitor_listing listing = {ops->monitor, each, ctx};

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
