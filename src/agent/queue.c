/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/owned.h"

/* No guest's directory: '%' is followed by two digits there. */
#define DIRECTORY "%queue"

#define FILE_MAX (QUEUE_NAME_MAX + 16)

static const char *const endings[] = {
	[QUEUE_OPEN] = ".open", [QUEUE_READY] = ".ready", [QUEUE_SENDING] = ".sending"};

static void file_name(const char *name, enum queue_state state, char out[FILE_MAX])
{
	snprintf(out, FILE_MAX, "%s%s", name, endings[state]);
}

static int open_queue(int store)
{
	return store_open_directory(store, DIRECTORY);
}

static bool make_name(const char *guest, int64_t at_s, char name[QUEUE_NAME_MAX])
{
	char moment[STORE_MOMENT];

	store_put_moment(at_s, moment);
	return *moment && snprintf(name, QUEUE_NAME_MAX, "%s.%s", moment, guest) < QUEUE_NAME_MAX;
}

struct error *queue_begin(int store, const char *guest, int64_t now_s, int segment,
			  char name[QUEUE_NAME_MAX])
{
	char from[32], to[FILE_MAX];
	CLOSED int queue = -1;

	snprintf(from, sizeof(from), "/proc/self/fd/%d", segment);
	if (!mkdirat(store, DIRECTORY, 0700) || errno == EEXIST)
		queue = open_queue(store);
	for (int i = 0; queue >= 0 && i < STORE_BEGIN_TRIES; i++) {
		if (!make_name(guest, now_s + i, name))
			break;
		file_name(name, QUEUE_OPEN, to);
		if (!linkat(AT_FDCWD, from, queue, to, AT_SYMLINK_FOLLOW))
			return NULL;
		if (errno != EEXIST)
			break;
	}
	*name = '\0';
	return error_errno(ERR_OUTPUT, errno, "cannot queue a recording of %s to be pushed", guest);
}

struct error *queue_move(int store, const char *name, enum queue_state from, enum queue_state to)
{
	char old[FILE_MAX], new[FILE_MAX];
	CLOSED const int queue = open_queue(store);

	file_name(name, from, old);
	file_name(name, to, new);
	if (queue < 0 || renameat(queue, old, queue, new))
		return error_errno(ERR_OUTPUT, errno, "cannot rename %s in the queue", name);
	return NULL;
}

void queue_remove(int store, const char *name, enum queue_state state)
{
	CLOSED const int queue = open_queue(store);
	char path[FILE_MAX];

	file_name(name, state, path);
	if (queue >= 0)
		unlinkat(queue, path, 0);
}

int queue_open(int store, const char *name, enum queue_state state)
{
	CLOSED const int queue = open_queue(store);
	char path[FILE_MAX];

	file_name(name, state, path);
	return queue < 0 ? -1 : openat(queue, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

/* The name without the ending, if that is the state's. */
static bool parse_name(const char *file, enum queue_state state, char name[QUEUE_NAME_MAX])
{
	const char *ending = strrchr(file, '.');
	const size_t len = ending ? (size_t)(ending - file) : 0;

	if (!len || len >= QUEUE_NAME_MAX || strcmp(ending, endings[state]))
		return false;
	memcpy(name, file, len);
	name[len] = '\0';
	return true;
}

static int by_name(const void *left, const void *right)
{
	const struct queued *a = left, *b = right;

	return strcmp(a->name, b->name);
}

static struct error *add(struct queue_list *list, int queue, const char *file,
			 enum queue_state state)
{
	struct queued one;

	if (!parse_name(file, state, one.name) || !store_is_file(queue, file, &one.bytes))
		return NULL;
	TRY(ARRAY_RESERVE(&list->at, &list->room, list->n + 1));
	list->at[list->n++] = one;
	list->bytes += one.bytes;
	return NULL;
}

static struct error *list_state(int store, enum queue_state state, struct queue_list *list)
{
	DIR *directory = store_read_directory(store, DIRECTORY);
	struct error *err = NULL;

	*list = (struct queue_list){0};
	if (!directory)
		return errno == ENOENT ? NULL
				       : error_errno(ERR_INPUT, errno, "cannot read the queue");
	for (const struct dirent *entry; !err && (entry = readdir(directory));)
		err = add(list, dirfd(directory), entry->d_name, state);
	closedir(directory);
	if (list->n)
		qsort(list->at, list->n, sizeof(*list->at), by_name);
	return err;
}

struct error *queue_list(int store, struct queue_list *list)
{
	return list_state(store, QUEUE_READY, list);
}

static struct error *recover(int store, enum queue_state state, size_t *n)
{
	struct queue_list list;
	struct error *err = list_state(store, state, &list);

	*n = list.n;
	for (size_t i = 0; i < list.n && !err; i++)
		err = queue_move(store, list.at[i].name, state, QUEUE_READY);
	free(list.at);
	return err;
}

struct error *queue_recover(int store, size_t *again)
{
	size_t cut;

	TRY(recover(store, QUEUE_SENDING, again));
	return recover(store, QUEUE_OPEN, &cut);
}
