/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * For tests of recordings: a recording as bytes in memory, and what a reader
 * delivers as text, a line for each call of the visitor, so that two readings
 * can be compared.
 */

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "profile/profile.h"
#include "recording/format.h"
#include "recording/recording.h"

/* A file that has no name but can be opened by one. */
struct memory_file {
	int fd;
	char path[32];
};

static inline struct memory_file memory_file_new(void)
{
	struct memory_file file = {.fd = memfd_create("recording", MFD_CLOEXEC)};

	assert_true(file.fd >= 0);
	snprintf(file.path, sizeof(file.path), "/proc/self/fd/%d", file.fd);
	return file;
}

static inline void memory_file_set(struct memory_file *file, const void *data, size_t len)
{
	assert_int_equal(ftruncate(file->fd, 0), 0);
	assert_int_equal(pwrite(file->fd, data, len, 0), (ssize_t)len);
}

/* The contents; the caller frees. */
static inline uint8_t *memory_file_get(const struct memory_file *file, size_t *len)
{
	off_t size = lseek(file->fd, 0, SEEK_END);
	uint8_t *data = malloc((size_t)size + 1);

	assert_non_null(data);
	assert_int_equal(pread(file->fd, data, (size_t)size, 0), size);
	*len = (size_t)size;
	return data;
}

#define assert_success(call)                                         \
	do {                                                         \
		struct error *assert_err = (call);                   \
		if (assert_err)                                      \
			fail_msg("%s: %s", #call, assert_err->text); \
	} while (0)

#define assert_fails(call, wanted_kind, part)                                               \
	do {                                                                                \
		struct error *assert_err = (call);                                          \
		assert_non_null(assert_err);                                                \
		if (!strstr(assert_err->text, part) || assert_err->kind != (wanted_kind))   \
			fail_msg("%s: (%d) %s", #call, assert_err->kind, assert_err->text); \
		error_free(assert_err);                                                     \
	} while (0)

struct heard {
	struct stacks *stacks;
	FILE *log;
	char *text; /* the log, once closed */
	size_t len;
	uint64_t ticks;
	uint32_t threads;
	bool cut;
};

static inline struct error *hear_info(void *ctx, const struct recording_info *info)
{
	struct heard *heard = ctx;

	fprintf(heard->log, "info %s %s %s %u %.17g\n", info->tool ? info->tool : "-",
		info->guest_name ? info->guest_name : "-", info->image ? info->image : "-",
		info->vcpus, info->rate_hz);
	return NULL;
}

/* Follows every id down to the root, so that one out of range is noticed. */
static inline struct error *hear_tick(void *ctx, const struct tick *tick)
{
	struct heard *heard = ctx;

	heard->ticks++;
	fprintf(heard->log, "tick %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", tick->time_ns,
		tick->weight_ns, tick->paused_ns);
	for (uint32_t i = 0; i < tick->n; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		assert_true(entry->vcpu < RECORDING_MAX_VCPUS);
		assert_true(entry->state < VCPU_STATES && entry->end < UNWIND_ENDS);
		assert_true(entry->stack < stacks_count(heard->stacks));
		fprintf(heard->log, " %u %u %u", entry->vcpu, entry->state, entry->end);
		for (uint32_t id = entry->stack; id != STACK_ROOT;) {
			const struct stack_node *node = stacks_node(heard->stacks, id);

			assert_true(node->parent < id);
			assert_true(node->kind < FRAME_KINDS && node->trust <= TRUST_GUESS);
			fprintf(heard->log, " %" PRIx64 "%c%c", node->addr, "prPR"[node->kind],
				"s?"[node->trust]);
			id = node->parent;
		}
		if (entry->ran_ns)
			fprintf(heard->log, " cpu %" PRIu64, entry->ran_ns);
		assert_true(entry->thread <= heard->threads);
		if (entry->thread)
			fprintf(heard->log, " thread %u", entry->thread);
		fputc('\n', heard->log);
	}
	for (uint32_t i = tick->n; i < tick->n + tick->waits; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		assert_true(entry->vcpu == NO_VCPU && entry->stack < stacks_count(heard->stacks));
		assert_in_range(entry->state, WAIT_QUEUED, SAMPLE_STATES - 1);
		assert_in_range(entry->thread, 1, heard->threads);
		fprintf(heard->log, " waits %u %u %u %" PRIu64 " %" PRIx64 "\n", entry->thread,
			entry->state, entry->end, entry->weight_ns,
			stacks_node(heard->stacks, entry->stack)->addr);
	}
	return NULL;
}

static inline struct error *hear_thread(void *ctx, uint32_t number,
					const struct recorded_thread *thread)
{
	struct heard *heard = ctx;

	assert_int_equal(number, ++heard->threads);
	assert_true(strlen(thread->name) <= RECORDED_THREAD_NAME_MAX);
	assert_true(strlen(thread->process) <= RECORDED_THREAD_NAME_MAX);
	fprintf(heard->log, "thread %u %u %u %" PRIu64 "%s%s <%s> <%s>", number, thread->pid,
		thread->tid, thread->start_ns, thread->kernel ? " kernel" : "",
		thread->idle ? " idle" : "", thread->name, thread->process);
	if (thread->container)
		fprintf(heard->log, " in <%s>", thread->container);
	fputc('\n', heard->log);
	return NULL;
}

static inline struct error *hear_name(void *ctx, uint64_t addr, uint8_t kind, const char *name,
				      uint64_t offset)
{
	struct heard *heard = ctx;

	fprintf(heard->log, "name %" PRIx64 " %u %s %" PRIu64 "\n", addr, kind, name, offset);
	return NULL;
}

static inline struct error *hear_end(void *ctx, const struct recording_end *end)
{
	struct heard *heard = ctx;

	fprintf(heard->log, "end %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
		end->elapsed_ns, end->missed, end->retakes, end->failed,
		end->reason ? end->reason : "-");
	return NULL;
}

/* Reads a recording; whatever comes of it, heard_free the result. */
static inline struct error *hear(const char *path, struct heard *heard)
{
	struct recording_visitor visitor = {
		.ctx = heard,
		.info = hear_info,
		.tick = hear_tick,
		.thread = hear_thread,
		.name = hear_name,
		.end = hear_end,
	};
	struct error *err;

	*heard = (struct heard){0};
	heard->log = open_memstream(&heard->text, &heard->len);
	assert_non_null(heard->log);
	assert_null(stacks_new(&heard->stacks));
	err = recording_read(path, heard->stacks, &visitor, &heard->cut);
	assert_int_equal(fclose(heard->log), 0);
	return err;
}

static inline void heard_free(struct heard *heard)
{
	stacks_free(heard->stacks);
	free(heard->text);
}

/* The head, and the info of a guest with `vcpus`. */
static inline void begin(struct bytes *out, uint32_t vcpus)
{
	char json[32];
	struct bytes text = {.data = (uint8_t *)json};

	text.len = (size_t)snprintf(json, sizeof(json), "{\"vcpus\":%u}", vcpus);
	assert_success(encode_head(out));
	assert_success(encode_json(&text, RECORD_INFO, out));
}

static inline void put_record(struct bytes *out, unsigned type, const void *payload, size_t len)
{
	assert_success(bytes_reserve(out, len + RECORD_HEAD_MAX));
	put_varint(out, len);
	out->data[out->len++] = (uint8_t)type;
	put_bytes(out, payload, len);
}

/* Closes the stretch that began at `start`. */
static inline void put_check(struct bytes *out, size_t start)
{
	struct bytes stretch = {0};

	assert_success(bytes_reserve(&stretch, out->len - start + CHECK_RECORD));
	put_bytes(&stretch, out->data + start, out->len - start);
	assert_success(encode_check(&stretch));
	assert_success(bytes_reserve(out, CHECK_RECORD));
	put_bytes(out, stretch.data + stretch.len - CHECK_RECORD, CHECK_RECORD);
	bytes_free(&stretch);
}

static inline struct error *hear_bytes(const struct bytes *bytes, struct heard *heard)
{
	struct memory_file file = memory_file_new();
	struct error *err;

	memory_file_set(&file, bytes->data, bytes->len);
	err = hear(file.path, heard);
	close(file.fd);
	return err;
}

/* A payload and its length. */
#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
#define TEXT(text) (const uint8_t *)(text), sizeof(text) - 1
