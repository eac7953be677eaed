/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * perf.data, for perf report, perf script and what else reads it. It holds
 * addresses, and where which file was, by build id; perf finds the names in
 * those files. The guest's processes and threads are told where they are known;
 * else the guest is a process, and its vCPUs are threads. All of its code
 * counts as a program's: perf would take a kernel for that of the host.
 * Processes begin as forks of the guest, and so have its images.
 * Layout: linux/tools/perf/Documentation/perf.data-file-format.txt and
 * linux/perf_event.h.
 */

#include "format/tables.h"

#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "symbol/names/display_name.h"

#define MAGIC	    "PERFILE2"
#define HEADER_SIZE 104
#define ATTR_SIZE   PERF_ATTR_SIZE_VER7
/* The attribute, and where its ids are: none. */
#define ATTR_ENTRY (ATTR_SIZE + 16)
#define DATA_START (HEADER_SIZE + ATTR_ENTRY)
/* Bits of the sections behind the data, which stand in their order (perf/util/header.h). */
enum feature {
	FEATURE_BUILD_ID = 2,
	FEATURE_ARCH = 6,
	FEATURE_NRCPUS = 7,
	FEATURE_EVENT_DESC = 12,
	FEATURE_SAMPLE_TIME = 21,
};

/* perf's texts in them have room for a multiple of so many bytes. */
#define TEXT_ALIGN 64

#define SAMPLE_FIELDS                                                            \
	(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | \
	 PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN)

/* A record's length has 16 bits: deeper stacks are cut to their innermost frames. */
#define MAX_CHAIN 8000

/* perf's own buffer for a file name: PATH_MAX of Linux. */
#define NAME_SIZE 4096

#define BUILD_ID_BYTES 20

/* Record headers, as they are in the file; numbers are the host's. */
struct sample_record {
	struct perf_event_header header;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time;
	uint32_t cpu, reserved;
	uint64_t period, n_chain;
};

/* Behind all records that are no samples. */
struct sample_id {
	uint32_t pid, tid;
	uint64_t time;
	uint32_t cpu, reserved;
};

struct comm_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	char comm[16];
	struct sample_id id;
};

struct fork_record {
	struct perf_event_header header;
	uint32_t pid, ppid, tid, ptid;
	uint64_t time;
	struct sample_id id;
};

struct mmap_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t start, len, offset;
	uint32_t major, minor;
	uint64_t inode, generation;
	uint32_t prot, flags;
};

/* An entry of the section of build ids. */
struct build_id_record {
	struct perf_event_header header;
	int32_t pid;
	uint8_t build_id[24];
};

/* Threads, as perf, which goes by their IDs, knows them up to a sample. */
struct told {
	struct ids *pids, *tids; /* numbers of those that were told */
	bool *threads;		 /* [n_threads + 1]: its ID has its name now */
	uint32_t *of_tid;	 /* by the ID's number: the thread that has its name now */
	size_t of_tid_room;
};

struct perf_data {
	const struct format_job *job;
	struct location_table *table;
	struct told told;
	uint64_t told_size; /* bytes of all records that tell of threads */
	bool counting;
	uint32_t pid;
	uint64_t first_ns, last_ns; /* of the samples that were written */
	bool any;
	FILE *out;
};

/*
 * Some names mean no file to perf, which would then look into one of the host's:
 * the vDSO or /tmp/perf-PID.map (perf/util/map.c). The prefix keeps the file.
 */
static const char *prefix_of(const char *path)
{
	static const char *const special[] = {"//anon", "/anon_hugepage", "/dev/zero", "/SYSV"};

	if (path[0] != '/')
		return "./"; /* "[vdso]", "[heap]" */
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if (!strncmp(path, special[i], strlen(special[i])))
			return "/.";
	return "";
}

/* Writes an image's file name and zeros behind it, up to a multiple of 8 bytes; returns how many. NULL: only counts. */
static size_t put_name(const struct location_image *image, FILE *out)
{
	const char *path = image->path;
	char name[NAME_SIZE] = "";
	size_t len;

	snprintf(name, sizeof(name), "%s%.*s", prefix_of(path),
		 (int)sanitize_cut(path, NAME_SIZE - 3), path);
	len = (strlen(name) + 8) & ~(size_t)7;
	if (out)
		fwrite(name, 1, len, out);
	return len;
}

static size_t chain_of(const struct perf_data *d, uint32_t stack)
{
	size_t n = stacks_depth(d->job->profile->stacks, stack);

	return n < MAX_CHAIN ? n : MAX_CHAIN;
}

/* The chain begins with a marker that says whose addresses follow. */
static size_t sample_size(const struct perf_data *d, uint32_t stack)
{
	return sizeof(struct sample_record) + 8 * (1 + chain_of(d, stack));
}

static size_t mmap_size(const struct location_image *image)
{
	return sizeof(struct mmap_record) + put_name(image, NULL) + sizeof(struct sample_id);
}

static void put_comm(const struct perf_data *d, const char *name, size_t len,
		     const struct sample_id *id)
{
	struct comm_record record = {.header = {PERF_RECORD_COMM, 0, sizeof(record)},
				     .pid = id->pid,
				     .tid = id->tid,
				     .id = *id};

	memcpy(record.comm, name,
	       sanitize_cut(name, len < sizeof(record.comm) ? len : sizeof(record.comm) - 1));
	fwrite(&record, sizeof(record), 1, d->out);
}

/* A process that begins with the guest's images. */
static void put_fork(const struct perf_data *d, const struct sample_id *id)
{
	const struct fork_record record = {.header = {PERF_RECORD_FORK, 0, sizeof(record)},
					   .pid = id->pid,
					   .tid = id->pid,
					   .ppid = d->pid,
					   .ptid = d->pid,
					   .time = id->time,
					   .id = *id};

	fwrite(&record, sizeof(record), 1, d->out);
}

static void put_mmap(const struct perf_data *d, const struct location_image *image)
{
	const struct sample_id id = {.pid = d->pid, .tid = d->pid};
	struct mmap_record record = {.header = {PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER,
						(uint16_t)mmap_size(image)},
				     .pid = d->pid,
				     .tid = d->pid,
				     .start = image->start,
				     .len = image->end - image->start,
				     .offset = image->offset,
				     .prot = 5 /* PROT_READ | PROT_EXEC of Linux */,
				     .flags = 2 /* MAP_PRIVATE */};

	fwrite(&record, sizeof(record), 1, d->out);
	put_name(image, d->out);
	fwrite(&id, sizeof(id), 1, d->out);
}

/* The thread that perf is told of; NULL: the guest's vCPU. */
static const struct recorded_thread *thread_of(const struct perf_data *d,
					       const struct sample *sample)
{
	const struct recorded_thread *thread = sample_thread(d->job, sample->thread);

	return thread && thread->pid != RECORDED_ID_UNKNOWN && thread->tid != RECORDED_ID_UNKNOWN
		       ? thread
		       : NULL;
}

/* Nobody was told yet; end_telling is due, also after an error. */
static struct error *begin_telling(struct perf_data *d)
{
	TRY(ARRAY_NEW(&d->told.threads, d->job->profile->n_threads + 1));
	TRY(ids_new(&d->told.pids));
	return ids_new(&d->told.tids);
}

static void end_telling(struct perf_data *d)
{
	ids_free(d->told.pids);
	ids_free(d->told.tids);
	free(d->told.threads);
	free(d->told.of_tid);
	d->told = (struct told){0};
}

/* The thread of this number is told now: another of the same ID no longer is. *first: of its process. */
static struct error *note_told(struct told *told, const struct recorded_thread *thread,
			       uint32_t number, bool *first)
{
	uint32_t id;
	bool added;

	TRY(ids_get(told->pids, thread->pid, 0, &id, first));
	TRY(ids_get(told->tids, thread->pid, thread->tid, &id, &added));
	TRY(ARRAY_RESERVE(&told->of_tid, &told->of_tid_room, id + (size_t)1));
	/* Idle threads all have number 0, and nobody tells them apart by it. */
	if (!added && thread->tid)
		told->threads[told->of_tid[id]] = false;
	told->of_tid[id] = number;
	told->threads[number] = true;
	return NULL;
}

/* Adds a record of a name, or counts its bytes alone. */
static struct error *tell_name(struct perf_data *d, const char *text, struct sample_id id)
{
	const char *name;

	TRY(symbolizer_intern(d->job->symbolizer, *text ? text : "?", &name));
	/* Idle threads all have number 0: "swapper/0", "swapper/1" are called by what they share. */
	if (!d->counting)
		put_comm(d, name, id.tid ? strlen(name) : strcspn(name, "/"), &id);
	d->told_size += sizeof(struct comm_record);
	return NULL;
}

/* ... of all that must stand before a sample of a thread. */
static struct error *tell_thread(void *ctx, const struct sample *sample)
{
	struct perf_data *d = ctx;
	const struct recorded_thread *thread = thread_of(d, sample);
	struct sample_id id = {.time = sample->time_ns, .cpu = sample->vcpu};
	bool fork = false;

	if (!thread || d->told.threads[sample->thread])
		return NULL;
	TRY(note_told(&d->told, thread, sample->thread, &fork));
	id.pid = id.tid = thread->pid;
	if (fork) {
		if (!d->counting)
			put_fork(d, &id);
		d->told_size += sizeof(struct fork_record);
		if (thread->tid != thread->pid)
			TRY(tell_name(d, thread->process, id));
	}
	id.tid = thread->tid;
	return thread->tid || fork ? tell_name(d, thread->name, id) : NULL;
}

/* The header says how long all records are, and threads may change their names time and again. */
static struct error *count_threads(struct perf_data *d)
{
	struct error *err;

	if (!d->job->profile->n_threads)
		return NULL;
	err = begin_telling(d);
	d->counting = true;
	if (!err)
		err = samples_read(d->job, tell_thread, d);
	d->counting = false;
	end_telling(d);
	return err;
}

/* Writes the addresses of the innermost frames. */
static void put_chain(const struct perf_data *d, uint32_t stack, size_t n)
{
	const struct stacks *stacks = d->job->profile->stacks;
	uint64_t addrs[64];

	while (n) {
		const size_t part = n < 64 ? n : 64;

		for (size_t i = 0; i < part; i++) {
			const struct stack_node *node = stacks_node(stacks, stack);

			addrs[i] = node->addr;
			stack = node->parent;
		}
		fwrite_unlocked(addrs, sizeof(*addrs), part, d->out);
		n -= part;
	}
}

static struct error *put_sample(void *ctx, const struct sample *sample)
{
	struct perf_data *d = ctx;
	const struct stacks *stacks = d->job->profile->stacks;
	const struct sample_ids ids = sample_ids(thread_of(d, sample), d->pid, sample->vcpu);
	const uint64_t context = PERF_CONTEXT_USER;
	const size_t n = chain_of(d, sample->stack);
	struct sample_record record = {.header = {PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
						  (uint16_t)sample_size(d, sample->stack)},
				       .ip = stacks_node(stacks, sample->stack)->addr,
				       .pid = ids.pid,
				       .tid = ids.tid,
				       .time = sample->time_ns,
				       .cpu = sample->vcpu,
				       .period = sample->weight_ns * sample->times,
				       .n_chain = n + 1};

	TRY(tell_thread(d, sample));
	d->first_ns = d->any ? d->first_ns : sample->time_ns;
	d->last_ns = sample->time_ns;
	d->any = true;
	fwrite(&record, sizeof(record), 1, d->out);
	fwrite(&context, sizeof(context), 1, d->out);
	put_chain(d, sample->stack, n);
	return NULL;
}

/* All records, so that the header can say where they end before they are written. */
static uint64_t data_size(const struct perf_data *d)
{
	const struct profile *profile = d->job->profile;
	uint32_t n = stacks_count(profile->stacks);
	uint64_t size = (uint64_t)profile->info.vcpus * sizeof(struct comm_record) + d->told_size;

	for (uint32_t i = 0; i < d->table->n_images; i++)
		size += mmap_size(&d->table->images[i]);
	for (uint32_t id = 0; id < n; id++)
		if (profile_cell(&profile->cells, id)->samples)
			size += profile_cell(&profile->cells, id)->samples * sample_size(d, id);
	return size;
}

static void put_u64(uint64_t value, FILE *out)
{
	fwrite(&value, sizeof(value), 1, out);
}

static struct perf_event_attr attribute_of(const struct perf_data *d)
{
	double hz = d->job->profile->info.rate_hz;

	return (struct perf_event_attr){.type = PERF_TYPE_SOFTWARE,
					.size = ATTR_SIZE,
					.config = PERF_COUNT_SW_CPU_CLOCK,
					.sample_period = hz > 0 ? (uint64_t)(1e9 / hz) : 1,
					.sample_type = SAMPLE_FIELDS,
					.sample_id_all = 1,
					.mmap = 1,
					.mmap2 = 1,
					.comm = 1,
					.task = 1};
}

static void put_attribute(const struct perf_data *d)
{
	const struct perf_event_attr attr = attribute_of(d);

	fwrite(&attr, ATTR_SIZE, 1, d->out);
	put_u64(0, d->out);
	put_u64(0, d->out);
}

/* As uname calls it; NULL: not known. perf chooses its disassembler by it. */
static const char *machine_of(const struct perf_data *d)
{
	static const char *const names[][2] = {
		{"x86_64", "x86_64"}, {"x86_32", "i686"},     {"arm64", "aarch64"},
		{"arm32", "armv7l"},  {"riscv64", "riscv64"},
	};
	const char *arch = d->job->profile->info.arch;

	for (size_t i = 0; arch && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(arch, names[i][0]))
			return names[i][1];
	return NULL;
}

/* No feature tells of this machine: the guest was sampled elsewhere. */
static uint64_t features_of(const struct perf_data *d)
{
	return UINT64_C(1) << FEATURE_BUILD_ID | (uint64_t)(machine_of(d) != NULL) << FEATURE_ARCH |
	       UINT64_C(1) << FEATURE_NRCPUS | UINT64_C(1) << FEATURE_EVENT_DESC |
	       UINT64_C(1) << FEATURE_SAMPLE_TIME;
}

static void put_header(const struct perf_data *d, uint64_t size)
{
	fwrite(MAGIC, 8, 1, d->out);
	put_u64(HEADER_SIZE, d->out);
	put_u64(ATTR_ENTRY, d->out);
	put_u64(HEADER_SIZE, d->out); /* attributes: where, and how long */
	put_u64(ATTR_ENTRY, d->out);
	put_u64(DATA_START, d->out); /* data */
	put_u64(size, d->out);
	put_u64(0, d->out); /* event types: none any more */
	put_u64(0, d->out);
	put_u64(features_of(d), d->out);
	for (int i = 0; i < 3; i++)
		put_u64(0, d->out);
	put_attribute(d);
}

static unsigned digit(char c)
{
	return c >= '0' && c <= '9' ? (unsigned)(c - '0') : ((unsigned)c | 0x20) - 'a' + 10;
}

/* False for a build id that perf cannot hold. */
static bool read_build_id(const char *hex, uint8_t out[BUILD_ID_BYTES])
{
	size_t len = hex ? strlen(hex) : 0;

	if (!len || len % 2 || len > 2 * BUILD_ID_BYTES)
		return false;
	for (size_t i = 0; i < len / 2; i++)
		out[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
	return true;
}

/*
 * Writes them, or only counts: bytes of their section. A wrong build id would cost all names:
 * images without one are not in the list.
 */
static uint64_t put_build_ids(const struct perf_data *d, bool count)
{
	uint8_t id[BUILD_ID_BYTES];
	uint64_t size = 0;

	for (uint32_t i = 0; i < d->table->n_images; i++) {
		const struct location_image *image = &d->table->images[i];
		struct build_id_record record = {.header = {0, PERF_RECORD_MISC_USER,
							    (uint16_t)(sizeof(record) +
								       put_name(image, NULL))},
						 .pid = (int32_t)d->pid};

		if (!read_build_id(image->build_id, id))
			continue;
		size += record.header.size;
		if (count)
			continue;
		memcpy(record.build_id, id, strlen(image->build_id) / 2);
		/* Its length stands behind it (perf_record_header_build_id). */
		record.build_id[BUILD_ID_BYTES] = (uint8_t)(strlen(image->build_id) / 2);
		record.header.misc |= PERF_RECORD_MISC_EXT_RESERVED;
		fwrite(&record, sizeof(record), 1, d->out);
		put_name(image, d->out);
	}
	return size;
}

static void put_u32(uint32_t value, FILE *out)
{
	fwrite(&value, sizeof(value), 1, out);
}

/* Its length, and the text with zeros behind it. Ours are shorter than TEXT_ALIGN. */
static void put_text(const char *text, FILE *out)
{
	char room[TEXT_ALIGN] = {0};

	memcpy(room, text, sanitize_cut(text, TEXT_ALIGN - 1));
	put_u32(TEXT_ALIGN, out);
	fwrite(room, sizeof(room), 1, out);
}

#define TEXT_SIZE	(4 + (uint64_t)TEXT_ALIGN)
#define EVENT_DESC_SIZE (4 + 4 + (uint64_t)ATTR_SIZE + 4 + TEXT_SIZE)

/* One event, which has no ids. */
static void put_event_desc(const struct perf_data *d)
{
	const struct perf_event_attr attr = attribute_of(d);

	put_u32(1, d->out);
	put_u32(ATTR_SIZE, d->out);
	fwrite(&attr, ATTR_SIZE, 1, d->out);
	put_u32(0, d->out);
	put_text("cpu-clock", d->out);
}

static void put_features(const struct perf_data *d, uint64_t at)
{
	const uint32_t vcpus = d->job->profile->info.vcpus;
	const struct {
		enum feature feature;
		uint64_t size;
	} sections[] = {{FEATURE_BUILD_ID, put_build_ids(d, true)},
			{FEATURE_ARCH, TEXT_SIZE},
			{FEATURE_NRCPUS, 8},
			{FEATURE_EVENT_DESC, EVENT_DESC_SIZE},
			{FEATURE_SAMPLE_TIME, 16}};
	const uint64_t features = features_of(d);

	at += 16 * (uint64_t)__builtin_popcountll(features);
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		if (!(features >> sections[i].feature & 1))
			continue;
		put_u64(at, d->out);
		put_u64(sections[i].size, d->out);
		at += sections[i].size;
	}
	put_build_ids(d, false);
	if (machine_of(d))
		put_text(machine_of(d), d->out);
	put_u32(vcpus, d->out); /* on-line, and in all */
	put_u32(vcpus, d->out);
	put_event_desc(d);
	put_u64(d->first_ns, d->out);
	put_u64(d->last_ns, d->out);
}

static struct error *put_all(struct perf_data *d)
{
	/* Without texts: only nodes of stacks are asked for ahead. */
	const struct frame_texts nodes = {.stacks = d->job->profile->stacks};
	const char *name;
	uint64_t size;

	TRY(location_table_new(d->job, &d->table));
	TRY(count_threads(d));
	TRY(format_guest_name(d->job, &name));
	TRY(begin_telling(d));
	size = data_size(d);
	put_header(d, size);
	for (uint32_t i = 0; i < d->job->profile->info.vcpus; i++)
		put_comm(d, name, strlen(name),
			 &(struct sample_id){.pid = d->pid, .tid = d->pid + i});
	for (uint32_t i = 0; i < d->table->n_images; i++)
		put_mmap(d, &d->table->images[i]);
	TRY(samples_read_ahead(d->job, &nodes, put_sample, d));
	put_features(d, DATA_START + size);
	return NULL;
}

static struct error *write_perf_data(const struct format_job *job, FILE *out)
{
	struct perf_data d = {.job = job, .out = out, .pid = format_guest_pid(job)};
	struct error *err;

	if (format_is_imported(job) && (job->profile->n_names || job->profile->info.timeless))
		return error_new(ERR_USAGE, "perf.data holds addresses, but this profile has only "
					    "names; --format=perf-script holds names");
	err = put_all(&d);
	end_telling(&d);
	location_table_free(d.table);
	return err;
}

const struct format format_perf_data = {.name = "perf.data",
					.ending = ".data",
					.write = write_perf_data};
