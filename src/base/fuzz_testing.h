/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Frame of a libFuzzer target: X_fuzz.c includes this and defines fuzz_one.
 * An input that takes too much CPU time is a finding like a fault.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_one(const uint8_t *data, size_t size);

/* Inputs take less than ten milliseconds, sanitizers included. */
#define FUZZ_CPU_NS UINT64_C(1000000000)

/* As assert(), in whatever build. */
#define need(good) fuzz_need(good, #good, __LINE__)

static inline void fuzz_need(bool good, const char *text, int line)
{
	if (good)
		return;
	fprintf(stderr, "line %d: not so: %s\n", line, text);
	abort();
}

static inline void done(struct error *err)
{
	need(!err);
}

static inline uint64_t fuzz_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint64_t began_ns = fuzz_cpu_ns();

	fuzz_one(data, size);
	need(fuzz_cpu_ns() - began_ns < FUZZ_CPU_NS);
	return 0;
}

/* A file in memory. */
struct fuzz_file {
	int fd;
	char path[32];
};

static inline struct fuzz_file fuzz_file_new(const void *data, size_t size)
{
	struct fuzz_file file = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};

	need(file.fd >= 0 && write(file.fd, data, size) == (ssize_t)size);
	snprintf(file.path, sizeof(file.path), "/proc/self/fd/%d", file.fd);
	return file;
}

/* Numbers from the front of an input; 0 once it is through. */
struct fuzz_input {
	const uint8_t *at, *end;
};

static inline uint64_t fuzz_number(struct fuzz_input *in, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes && in->at < in->end; i++)
		value |= (uint64_t)*in->at++ << 8 * i;
	return value;
}

static inline size_t fuzz_left(const struct fuzz_input *in)
{
	return (size_t)(in->end - in->at);
}

/* Damages bytes as the input says: where, how much, and what is there then. */
static inline void fuzz_damage(struct fuzz_input *in, uint8_t *bytes, size_t len)
{
	while (len && fuzz_left(in)) {
		const size_t at = fuzz_number(in, 3) % len;
		const size_t width = (size_t)1 << (fuzz_number(in, 1) & 3);
		const uint64_t value = fuzz_number(in, width);

		memcpy(bytes + at, &value, width < len - at ? width : len - at);
	}
}

/* A heap block of its own, so that AddressSanitizer sees reads behind the end; free() it. */
static inline uint8_t *fuzz_copy(const void *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	need(copy != NULL);
	if (size)
		memcpy(copy, data, size);
	return copy;
}
