/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/intern.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "import/import.h"

#define ENDING	  ".uniprof"
#define MOMENT	  "%Y%m%dT%H%M%SZ"
#define FILE_ROOM (2 * STORE_MOMENT + sizeof(ENDING))
#define JOINING	  ".joining"
#define HOUR_S	  3600

/* Minutes of an hour are joined so long after its end: the last has been written by then. */
#define JOIN_AFTER_S (2 * STORE_SEGMENT_S)

/* Bytes of a name that stay, where a number follows them. */
#define NAME_KEPT (STORE_GUEST_MAX - 24)

void store_put_moment(int64_t at_s, char text[STORE_MOMENT])
{
	const time_t at = (time_t)at_s;
	struct tm tm;

	if (!gmtime_r(&at, &tm) || !strftime(text, STORE_MOMENT, MOMENT, &tm))
		*text = '\0';
}

static void file_name(const struct store_segment *segment, char text[FILE_ROOM])
{
	char start[STORE_MOMENT], last[STORE_MOMENT];

	store_put_moment(segment->start_s, start);
	store_put_moment(segment->last_s, last);
	snprintf(text, FILE_ROOM, "%s%s%s" ENDING, start, segment->joined ? "-" : "",
		 segment->joined ? last : "");
}

/* Takes a moment from *text, which is moved behind it. */
static bool take_moment_s(const char **text, int64_t *at_s)
{
	struct tm tm = {0};
	const char *end = strptime(*text, MOMENT, &tm);

	if (!end)
		return false;
	*text = end;
	*at_s = (int64_t)timegm(&tm);
	return true;
}

/* Only names that file_name makes are segments. */
static bool parse_name(const char *name, struct store_segment *segment)
{
	char canonical[FILE_ROOM];
	const char *at = name;

	if (!take_moment_s(&at, &segment->start_s))
		return false;
	segment->last_s = segment->start_s;
	segment->joined = *at == '-';
	if (segment->joined && (at++, !take_moment_s(&at, &segment->last_s)))
		return false;
	file_name(segment, canonical);
	return segment->last_s >= segment->start_s && !strcmp(name, canonical);
}

static bool is_plain(unsigned char c, size_t at)
{
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
		return true;
	return at && strchr("-.+@:,=", c) && c;
}

void store_guest(const char *kind, const char *name, const char *id, char out[STORE_GUEST_MAX])
{
	char made[80];
	size_t len = 0;

	if (!*name) {
		snprintf(made, sizeof(made), "%.32s-%.40s", kind, id);
		name = made;
	}
	for (size_t i = 0; name[i]; i++) {
		if (len > NAME_KEPT) {
			snprintf(out + len, STORE_GUEST_MAX - len, "%%%016" PRIx64,
				 hash_bytes(HASH_BEGIN, name, strlen(name)));
			return;
		}
		if (is_plain((unsigned char)name[i], i))
			out[len++] = name[i];
		else
			len += (size_t)sprintf(out + len, "%%%02X", (unsigned char)name[i]);
	}
	out[len] = '\0';
}

char *store_path(const char *store, const struct store_segment *segment)
{
	char name[FILE_ROOM], *path;

	file_name(segment, name);
	return asprintf(&path, "%s/%s/%s", store, segment->guest, name) < 0 ? NULL : path;
}

bool store_covers(const struct store_segment *segment, uint64_t from_ns, uint64_t to_ns)
{
	const int64_t from_s = (int64_t)(from_ns / NS_PER_S), to_s = (int64_t)(to_ns / NS_PER_S);

	return !segment->superseded && segment->last_s + STORE_SEGMENT_S >= from_s &&
	       (!to_ns || segment->start_s <= to_s);
}

bool store_is_file(int directory, const char *name, uint64_t *bytes)
{
	struct stat st;

	if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return false;
	*bytes = (uint64_t)st.st_blocks * 512;
	return true;
}

static struct error *add(struct store_segments *out, int directory, const char *guest,
			 const char *name)
{
	struct store_segment segment = {.guest = guest};

	if (!parse_name(name, &segment) || !store_is_file(directory, name, &segment.bytes))
		return NULL;
	TRY(ARRAY_RESERVE(&out->at, &out->room, out->n + 1));
	out->at[out->n++] = segment;
	return NULL;
}

int store_open_directory(int store, const char *name)
{
	return openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

DIR *store_read_directory(int store, const char *name)
{
	CLOSED int fd = store_open_directory(store, name);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	if (directory)
		fd = -1;
	return directory;
}

static struct error *list_guest(int store, const char *name, struct store_segments *out)
{
	DIR *directory = store_read_directory(store, name);
	const char *guest;
	struct error *err;

	if (!directory)
		return errno == EACCES ? error_errno(ERR_INPUT, errno, "cannot read %s", name)
				       : NULL;
	err = pool_intern(out->guests, name, strlen(name), &guest);
	for (const struct dirent *entry; !err && (entry = readdir(directory));)
		err = add(out, dirfd(directory), guest, entry->d_name);
	closedir(directory);
	return err;
}

static struct error *list_all(int store, struct store_segments *out)
{
	DIR *directory = store_read_directory(store, ".");
	struct error *err = NULL;

	if (!directory)
		return error_errno(ERR_INPUT, errno, "cannot read the store");
	for (const struct dirent *entry; !err && (entry = readdir(directory));)
		if (entry->d_name[0] != '.')
			err = list_guest(store, entry->d_name, out);
	closedir(directory);
	return err;
}

/* A joined segment comes before the minutes that it stands for. */
static int by_guest_and_time(const void *left, const void *right)
{
	const struct store_segment *a = left, *b = right;

	if (a->guest != b->guest)
		return strcmp(a->guest, b->guest);
	if (a->start_s != b->start_s)
		return a->start_s < b->start_s ? -1 : 1;
	if (a->joined != b->joined)
		return a->joined ? -1 : 1;
	return (a->last_s < b->last_s) - (a->last_s > b->last_s);
}

static void sort(struct store_segments *segments)
{
	const struct store_segment *cover = NULL;

	if (segments->n)
		qsort(segments->at, segments->n, sizeof(*segments->at), by_guest_and_time);
	for (size_t i = 0; i < segments->n; i++) {
		struct store_segment *segment = &segments->at[i];

		segment->superseded =
			cover && cover->guest == segment->guest && segment->last_s <= cover->last_s;
		if (segment->joined && !segment->superseded)
			cover = segment;
	}
}

struct error *store_list(const char *store, const char *guest, struct store_segments *out)
{
	CLOSED const int fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	*out = (struct store_segments){0};
	if (fd < 0)
		return error_errno(ERR_INPUT, errno, "cannot read %s", store);
	TRY(pool_new(&out->guests));
	TRY(guest ? list_guest(fd, guest, out) : list_all(fd, out));
	sort(out);
	return NULL;
}

void store_segments_free(struct store_segments *segments)
{
	free(segments->at);
	pool_free(segments->guests);
	*segments = (struct store_segments){0};
}

struct error *store_open(const char *path, int *store)
{
	CLOSED int fd = -1;

	if (mkdir(path, 0700) && errno != EEXIST)
		return error_errno(ERR_OUTPUT, errno, "cannot make directory %s", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(ERR_OUTPUT, errno, "cannot use directory %s", path);
	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return error_new(ERR_OUTPUT, "another uniprof agent writes to %s", path);
	*store = fd;
	fd = -1;
	return NULL;
}

/* The guest's directory, made if need be; -1 with errno. */
static int make_guest(int store, const char *guest)
{
	if (mkdirat(store, guest, 0700) && errno != EEXIST)
		return -1;
	return store_open_directory(store, guest);
}

struct error *store_begin(int store, const char *guest, int64_t now_s, int *fd)
{
	CLOSED const int directory = make_guest(store, guest);

	*fd = -1;
	for (int i = 0; directory >= 0 && i < STORE_BEGIN_TRIES; i++) {
		const struct store_segment segment = {.start_s = now_s + i, .last_s = now_s + i};
		char name[FILE_ROOM];

		file_name(&segment, name);
		*fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (*fd >= 0)
			return NULL;
		if (errno != EEXIST)
			break;
	}
	return error_errno(ERR_OUTPUT, errno, "cannot write to %s", guest);
}

static bool may_be_written(const struct store_segment *segment, int64_t now_s)
{
	return segment->last_s + STORE_SEGMENT_S >= now_s;
}

/* The guest that has most of those that stay and are not being written: its oldest; segments->n: none. */
static size_t oldest_of_largest(const struct store_segments *segments, int64_t now_s,
				const bool *remove)
{
	size_t best = segments->n;
	uint64_t most = 0;

	for (size_t i = 0; i < segments->n;) {
		const char *guest = segments->at[i].guest;
		size_t oldest = segments->n;
		uint64_t bytes = 0;

		for (; i < segments->n && segments->at[i].guest == guest; i++) {
			if (remove[i])
				continue;
			bytes += segments->at[i].bytes;
			if (oldest == segments->n && !may_be_written(&segments->at[i], now_s))
				oldest = i;
		}
		if (oldest < segments->n && bytes > most) {
			most = bytes;
			best = oldest;
		}
	}
	return best;
}

void store_choose_old(const struct store_segments *segments, const struct store_limits *limits,
		      int64_t now_s, bool *remove)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < segments->n; i++) {
		const struct store_segment *segment = &segments->at[i];

		remove[i] = !may_be_written(segment, now_s) &&
			    (segment->superseded ||
			     (limits->age_s &&
			      segment->last_s + STORE_SEGMENT_S + (int64_t)limits->age_s < now_s));
		bytes += remove[i] ? 0 : segment->bytes;
	}
	while (limits->bytes && bytes > limits->bytes) {
		const size_t i = oldest_of_largest(segments, now_s, remove);

		if (i == segments->n)
			return;
		remove[i] = true;
		bytes -= segments->at[i].bytes;
	}
}

static bool joins(const struct store_segment *segment, int64_t now_s)
{
	const int64_t end_s = (segment->start_s / HOUR_S + 1) * HOUR_S;

	return !segment->joined && !segment->superseded && end_s + JOIN_AFTER_S < now_s;
}

bool store_choose_join(const struct store_segments *segments, int64_t now_s, size_t *first,
		       size_t *n)
{
	for (size_t i = 0; i < segments->n; i++) {
		const struct store_segment *begin = &segments->at[i];

		if (!joins(begin, now_s))
			continue;
		*first = i;
		*n = 1;
		while (*n < STORE_JOIN_MAX && i + *n < segments->n &&
		       begin[*n].guest == begin->guest && joins(&begin[*n], now_s) &&
		       begin[*n].start_s / HOUR_S == begin->start_s / HOUR_S)
			++*n;
		return true;
	}
	return false;
}

void store_remove(int store, const struct store_segment *segment)
{
	CLOSED const int directory = store_open_directory(store, segment->guest);
	char name[FILE_ROOM];

	if (directory < 0)
		return;
	file_name(segment, name);
	unlinkat(directory, name, 0);
	unlinkat(store, segment->guest, AT_REMOVEDIR);
}

void store_keep(int store, const struct store_segment *segment)
{
	struct store_segment kept = *segment;
	CLOSED const int directory = store_open_directory(store, segment->guest);
	char from[FILE_ROOM], to[FILE_ROOM];

	kept.joined = true;
	file_name(segment, from);
	file_name(&kept, to);
	if (directory >= 0 && renameat(directory, from, directory, to))
		unlinkat(directory, from, 0);
}

struct error *store_join_begin(int store, const char *guest, int *fd)
{
	CLOSED const int directory = make_guest(store, guest);

	*fd = -1;
	if (directory >= 0) {
		unlinkat(directory, JOINING, 0);
		*fd = openat(directory, JOINING, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	}
	return *fd >= 0 ? NULL : error_errno(ERR_OUTPUT, errno, "cannot write to %s", guest);
}

struct error *store_joined(int store, const struct store_segment *first, size_t n, int fd)
{
	const struct store_segment whole = {.guest = first->guest,
					    .start_s = first->start_s,
					    .last_s = first[n - 1].last_s,
					    .joined = true};
	CLOSED const int directory = store_open_directory(store, first->guest);
	char name[FILE_ROOM];

	file_name(&whole, name);
	/* On the disk before it stands for others: the machine may go down in between. */
	if (directory < 0 || fsync(fd) || renameat(directory, JOINING, directory, name) ||
	    fsync(directory))
		return error_errno(ERR_OUTPUT, errno, "cannot write to %s", first->guest);
	for (size_t i = 0; i < n; i++)
		store_remove(store, &first[i]);
	return NULL;
}

/* The segments of a guest called so; *out has none if there is no such guest. */
static struct error *find_guest(const char *store, const char *name, struct store_segments *out)
{
	const char *colon = strchr(name, ':');
	char guest[STORE_GUEST_MAX];

	store_guest("", name, "", guest);
	TRY(store_list(store, guest, out));
	if (out->n || !colon || !colon[1])
		return NULL;
	store_segments_free(out);
	store_guest("", colon + 1, "", guest);
	return store_list(store, guest, out);
}

bool store_has(const char *store, const char *guest)
{
	ENDED_BY(store_segments_free) struct store_segments segments = {0};
	struct error *err = find_guest(store, guest, &segments);
	const bool found = !err && segments.n;

	error_free(err);
	return found;
}

static struct error *nothing_found(const struct store_query *query,
				   const struct store_segments *segments)
{
	char first[STORE_MOMENT], last[STORE_MOMENT];

	if (!segments->n)
		return error_new(ERR_INPUT, "there is no file %s, and no guest of that name in %s",
				 query->guest, query->store);
	store_put_moment(segments->at[0].start_s, first);
	store_put_moment(segments->at[segments->n - 1].last_s, last);
	return error_new(ERR_INPUT, "nothing was recorded of %s in that time, but from %s to %s",
			 query->guest, first, last);
}

/* The paths of all segments that hold some of the stretch; in *n, how many. */
static struct error *choose_paths(const struct store_query *query,
				  const struct store_segments *segments, char **paths, size_t *n)
{
	for (size_t i = 0; i < segments->n; i++) {
		if (!store_covers(&segments->at[i], query->from_unix_ns, query->to_unix_ns))
			continue;
		paths[*n] = store_path(query->store, &segments->at[i]);
		if (!paths[*n])
			return error_no_memory();
		++*n;
	}
	return *n ? NULL : nothing_found(query, segments);
}

/* All may be open at the same time. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* A list of them in memory, to be read under query->as. */
static struct error *preopen_list(const struct store_query *query, char *const *paths, size_t n)
{
	const struct segments set = {.paths = paths,
				     .n = n,
				     .from_unix_ns = query->from_unix_ns,
				     .to_unix_ns = query->to_unix_ns};
	const int fd = memfd_create("segments", MFD_CLOEXEC);
	const int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
	struct error *err;

	err = out ? source_list(&set, out)
		  : error_errno(ERR_FAILED, errno, "cannot list the recordings of that time");
	if (out && fclose(out) && !err)
		err = error_errno(ERR_FAILED, errno, "cannot list the recordings of that time");
	for (size_t i = 0; i < n && !err; i++)
		err = preopen_input(paths[i]);
	if (!err)
		return preopen_adopt(query->as, fd);
	if (fd >= 0)
		close(fd);
	return err;
}

/* A recording is a list of one; what is on it has another name than the list. */
static struct error *preopen_file(const struct store_query *query)
{
	const char *path = query->guest;
	FREED char *other = NULL;

	if (asprintf(&other, "%s%s", *path == '/' ? "/" : "./", path) < 0) {
		other = NULL;
		return error_no_memory();
	}
	return preopen_list(query, &other, 1);
}

struct error *store_preopen(const struct store_query *query)
{
	ENDED_BY(store_segments_free) struct store_segments segments = {0};
	struct error *err = NULL;
	char **paths;
	size_t n = 0;

	raise_descriptors();
	if (!access(query->guest, F_OK) && !store_has(query->store, query->guest))
		return preopen_file(query);
	err = find_guest(query->store, query->guest, &segments);
	paths = err ? NULL : calloc(segments.n + 1, sizeof(*paths));
	if (!err && !paths)
		err = error_no_memory();
	if (!err)
		err = choose_paths(query, &segments, paths, &n);
	if (!err)
		err = preopen_list(query, paths, n);
	for (size_t i = 0; i < n; i++)
		free(paths[i]);
	free(paths);
	return err;
}
