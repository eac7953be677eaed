/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/perf_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "import/import.h"

/* Ranges that the profile tells of, at most, and the longest one. */
#define CLAIMS_MAX 8192u
#define RANGE_MAX  (UINT64_C(1) << 40)

/* Maps that are compared with addresses in all, and generations of processes. */
#define STEPS_MAX     (UINT64_C(1) << 32)
#define ANCESTORS_MAX 16

/* Files that lie where others are go here; between them is a gap. */
#define MOVED	  (IMPORT_ADDR | UINT64_C(0x80) << 48)
#define MOVED_GAP UINT64_C(0x100000)

struct map {
	uint64_t start, end;
	uint64_t delta; /* address in the profile less that in the process */
};

struct process {
	struct map *maps; /* newer ones behind */
	size_t n, room;
	uint32_t parent;     /* its number + 1, whose maps count, too; 0: none */
	uint32_t generation; /* changes with the maps */
};

struct file {
	uint64_t base; /* address in the profile of its first byte, mapped or not */
	bool placed;
};

/* A range of the profile's addresses, in order. */
struct claim {
	uint64_t start, end;
	uint32_t file;
};

struct translated {
	uint64_t addr;
	bool foreign, known;
};

struct perf_maps {
	struct import *import;
	struct row_ids pids, tids, file_ids, build_id_ids, known; /* of these: */
	struct process *processes;
	const char **comms; /* NULL: not told */
	struct file *files;
	const char **build_ids;
	struct translated *translated;
	struct claim *claims;
	size_t n_claims, claims_room;
	uint32_t generations;
	uint64_t steps, next_moved;
};

struct error *perf_maps_new(struct import *import, struct perf_maps **out)
{
	struct perf_maps *m;

	TRY(ARRAY_NEW(&m, 1));
	m->import = import;
	m->next_moved = MOVED;
	*out = m;
	return NULL;
}

void perf_maps_free(struct perf_maps *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; m->processes && i < row_ids_count(&m->pids); i++)
		free(m->processes[i].maps);
	free(m->processes);
	free(m->comms);
	free(m->build_ids);
	free(m->files);
	free(m->translated);
	free(m->claims);
	ids_free(m->pids.ids);
	ids_free(m->tids.ids);
	ids_free(m->file_ids.ids);
	ids_free(m->build_id_ids.ids);
	ids_free(m->known.ids);
	free(m);
}

static struct error *find_process(struct perf_maps *m, uint32_t pid, uint32_t *number)
{
	TRY(ROW_IDS_GET(&m->pids, pid, 0, &m->processes, number));
	if (!m->processes[*number].generation)
		m->processes[*number].generation = ++m->generations;
	return NULL;
}

static struct error *find_comm(struct perf_maps *m, uint32_t tid, const char ***comm)
{
	uint32_t number;

	TRY(ROW_IDS_GET(&m->tids, tid, 0, &m->comms, &number));
	*comm = &m->comms[number];
	return NULL;
}

struct error *perf_maps_build_id(struct perf_maps *m, const char *path, const char *build_id)
{
	uint32_t number;

	TRY(ROW_IDS_GET(&m->build_id_ids, (uintptr_t)path, 0, &m->build_ids, &number));
	m->build_ids[number] = build_id;
	return NULL;
}

/* Code of this name is not the same in each process. */
static bool is_private(const char *path)
{
	static const char *const begins[] = {"//anon", "[heap]",  "[stack",	"/dev/zero",
					     "/SYSV",  "/memfd:", "anon_inode", "/anon_hugepage"};

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (!strncmp(path, begins[i], strlen(begins[i])))
			return true;
	return false;
}

/* Number of the claims that begin before `addr`. */
static size_t claims_before(const struct perf_maps *m, uint64_t addr)
{
	return addr ? ARRAY_UPTO(m->claims, m->n_claims, start, addr - 1) : 0;
}

/* True if the range is free, or this file's; *covered: it need not be claimed. */
static bool may_claim(const struct perf_maps *m, uint64_t start, uint64_t end, uint32_t file,
		      bool *covered)
{
	*covered = false;
	/* Ranges of different files do not overlap: only the nearest ones can. */
	for (size_t i = claims_before(m, end); i > 0; i--) {
		const struct claim *claim = &m->claims[i - 1];

		if (claim->end <= start)
			break;
		if (claim->file != file)
			return false;
		*covered |= claim->start <= start && claim->end >= end;
	}
	return true;
}

/* Claims of one file that touch one another become one, so that none overlap. */
static struct error *claim(struct perf_maps *m, uint64_t start, uint64_t end, uint32_t file)
{
	const size_t behind = claims_before(m, end);
	size_t first = behind;

	TRY(ARRAY_RESERVE(&m->claims, &m->claims_room, m->n_claims + 1));
	while (first > 0 && m->claims[first - 1].end > start) {
		first--;
		start = m->claims[first].start < start ? m->claims[first].start : start;
		end = m->claims[first].end > end ? m->claims[first].end : end;
	}
	memmove(m->claims + first + 1, m->claims + behind,
		(m->n_claims - behind) * sizeof(*m->claims));
	m->claims[first] = (struct claim){start, end, file};
	m->n_claims = m->n_claims - (behind - first) + 1;
	return NULL;
}

/* Chooses the map's address in the profile. */
static struct error *put(struct perf_maps *m, const struct perf_map *map, uint32_t number,
			 const struct import_image *named, uint64_t *start)
{
	struct file *file = &m->files[number];
	struct import_image image = *named;
	uint32_t unused;
	bool covered;

	*start = file->placed ? file->base + map->offset : map->start;
	if (*start > UINT64_MAX - map->len ||
	    !may_claim(m, *start, *start + map->len, number, &covered)) {
		*start = m->next_moved;
		m->next_moved += (map->len + 2 * MOVED_GAP) & ~(MOVED_GAP - 1);
		covered = false;
	}
	if (!file->placed) {
		file->base = *start - map->offset;
		file->placed = true;
	}
	if (covered)
		return NULL;
	TRY(claim(m, *start, *start + map->len, number));
	image.start = *start;
	image.end = *start + map->len;
	image.offset = map->offset;
	return import_image(m->import, &image, &unused);
}

static struct error *find_file(struct perf_maps *m, const struct perf_map *map, uint32_t *number,
			       struct import_image *image)
{
	uint32_t listed;

	*image = (struct import_image){.path = map->path, .build_id = map->build_id};
	if (!image->build_id && row_ids_find(&m->build_id_ids, (uintptr_t)map->path, 0, &listed))
		image->build_id = m->build_ids[listed];
	return ROW_IDS_GET(&m->file_ids, (uintptr_t)map->path,
			   is_private(map->path) ? map->pid : (uintptr_t)image->build_id, &m->files,
			   number);
}

struct error *perf_maps_add(struct perf_maps *m, const struct perf_map *map)
{
	struct import_image image;
	struct process *process;
	uint32_t number, file;
	uint64_t start;

	if (!map->len || map->len > RANGE_MAX || map->start > UINT64_MAX - map->len ||
	    m->n_claims == CLAIMS_MAX)
		return NULL;
	TRY(find_process(m, map->pid, &number));
	TRY(find_file(m, map, &file, &image));
	TRY(put(m, map, file, &image, &start));
	process = &m->processes[number];
	process->generation = ++m->generations;
	TRY(ARRAY_RESERVE(&process->maps, &process->room, process->n + 1));
	process->maps[process->n++] =
		(struct map){map->start, map->start + map->len, start - map->start};
	return NULL;
}

/* From now on the process has the maps of another one, number `parent` - 1, or none. */
static void begin_process(struct perf_maps *m, uint32_t number, uint32_t parent)
{
	m->processes[number].n = 0;
	m->processes[number].parent = parent;
	m->processes[number].generation = ++m->generations;
}

struct error *perf_maps_comm(struct perf_maps *m, uint32_t pid, uint32_t tid, const char *name,
			     bool exec)
{
	const char **comm;
	uint32_t number;

	TRY(find_comm(m, tid, &comm));
	*comm = name;
	if (!exec)
		return NULL;
	TRY(find_process(m, pid, &number));
	begin_process(m, number, 0);
	return NULL;
}

struct error *perf_maps_fork(struct perf_maps *m, uint32_t pid, uint32_t tid, uint32_t parent,
			     uint32_t parent_tid)
{
	const char **comm, *name;
	uint32_t child, from;

	TRY(find_comm(m, parent_tid, &comm));
	name = *comm;
	TRY(find_comm(m, tid, &comm));
	if (!*comm)
		*comm = name;
	if (pid == parent)
		return NULL;
	TRY(find_process(m, parent, &from));
	TRY(find_process(m, pid, &child));
	begin_process(m, child, from + 1);
	return NULL;
}

/* Searches the maps of a process and of those that it came from; NULL: nothing is there. */
static const struct map *search(struct perf_maps *m, uint32_t number, uint64_t addr)
{
	for (unsigned depth = 0; depth < ANCESTORS_MAX; depth++) {
		const struct process *process = &m->processes[number];

		for (size_t i = process->n; i > 0; i--) {
			const struct map *map = &process->maps[i - 1];

			m->steps++;
			if (addr >= map->start && addr < map->end)
				return map;
		}
		if (!process->parent)
			return NULL;
		number = process->parent - 1;
	}
	return NULL;
}

static void translate(struct perf_maps *m, uint32_t number, uint64_t addr, struct translated *out)
{
	const struct map *map = search(m, number, addr);
	const size_t i = claims_before(m, addr + 1);

	*out = (struct translated){.addr = map ? addr + map->delta : addr, .known = true};
	out->foreign = !map && i > 0 && addr < m->claims[i - 1].end;
}

struct error *perf_maps_translate(struct perf_maps *m, uint32_t pid, uint64_t addr, uint64_t *out,
				  bool *foreign)
{
	uint32_t number, id;
	uint64_t generation;

	TRY(find_process(m, pid, &number));
	generation = m->processes[number].generation;
	if (m->processes[number].parent)
		generation |= (uint64_t)m->processes[m->processes[number].parent - 1].generation
			      << 32;
	TRY(ROW_IDS_GET(&m->known, addr, generation, &m->translated, &id));
	if (!m->translated[id].known)
		translate(m, number, addr, &m->translated[id]);
	*out = m->translated[id].addr;
	*foreign = m->translated[id].foreign;
	return m->steps < STEPS_MAX
		       ? NULL
		       : import_damaged(m->import, "its maps of files are too many to follow");
}

struct error *perf_maps_thread(struct perf_maps *m, uint32_t pid, uint32_t tid, uint32_t *number)
{
	struct recorded_thread thread = {.pid = pid, .tid = tid};
	const char **comm;
	char text[16];

	TRY(find_comm(m, tid, &comm));
	thread.name = *comm;
	if (!thread.name) {
		/* As perf calls them. */
		snprintf(text, sizeof(text), tid ? ":%" PRIu32 : "swapper", tid);
		TRY(import_text(m->import, text, strlen(text), &thread.name));
	}
	if (pid != tid) {
		TRY(find_comm(m, pid, &comm));
		thread.process = *comm;
	}
	return import_thread(m->import, &thread, number);
}
