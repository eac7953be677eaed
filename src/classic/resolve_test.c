/* SPDX-License-Identifier: BSD-3-Clause */
#include "classic/resolve.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbol/names/table.h"

#define BLOCK (1u << 17)

static const char table[] = "1000 T f\n1010 T g\n2000 T operator+\n2100 T 123\n";

static struct images *images_from(const char *text)
{
	struct symbols *symbols;
	struct images *images;

	assert_null(nm_read("test", strdup(text), strlen(text), &symbols));
	assert_null(images_new(&images));
	assert_null(images_add_tables(images, "test", symbols, NULL));
	return images;
}

static char *contents(int fd, size_t *len)
{
	char *text;

	*len = (size_t)lseek(fd, 0, SEEK_END);
	text = malloc(*len + 1);
	assert_int_equal(pread(fd, text, *len, 0), *len);
	text[*len] = '\0';
	return text;
}

static char *resolve_fd(const struct images *images, int in, size_t *len,
			struct resolve_result *result)
{
	int out = memfd_create("out", 0);
	char *text;

	assert_null(resolve_trace(images, in, "in", out, NULL, result));
	text = contents(out, len);
	close(out);
	return text;
}

static char *resolve(const char *names, const char *trace, size_t trace_len, size_t *len)
{
	struct images *images = images_from(names);
	struct resolve_result result;
	int in = memfd_create("in", 0);
	char *text;

	assert_int_equal(write(in, trace, trace_len), trace_len);
	lseek(in, 0, SEEK_SET);
	text = resolve_fd(images, in, len, &result);
	close(in);
	images_free(images);
	return text;
}

static void check(const char *trace, const char *expected)
{
	size_t len;
	char *text = resolve(table, trace, strlen(trace), &len);

	assert_string_equal(text, expected);
	free(text);
}

static void first_address_is_the_pc_and_the_rest_return(void **state)
{
	check("0x1010\n0x1010\n1\n\n0x1010\n1\n\n", "g\nf+0x10\n1\n\ng\n1\n\n");
}

static void counts_and_empty_lines_end_a_stack(void **state)
{
	check("0x1010\n0\n0x1010\n", "g\n0\ng\n");
	check("0x1010\n\n0x1010\n", "g\n\ng\n");
	check("0x1010\n12345\n0x1010\n", "g\n12345\ng\n");
}

static void resolved_frames_count_as_frames(void **state)
{
	check("main+0x10\n0x1010\n1\n", "main+0x10\nf+0x10\n1\n");
	check("main\n0x1010\n1\n", "main\nf+0x10\n1\n");
}

static void comments_and_foreign_lines_pass(void **state)
{
	check("#a 0x1000\n#b\n\n0x1000\n", "#a 0x1000\n#b\n\nf\n");
	check("0x1000 \n 0x1000\n0xxyz\n0x\n0x1000g\n0X1000\n1000\n",
	      "0x1000 \n 0x1000\n0xxyz\n0x\n0x1000g\n0X1000\n1000\n");
	check("0x11112222333344445\n", "0x11112222333344445\n");
}

static void unknown_addresses_stay_as_they_are(void **state)
{
	check("0xdead0000\n0x00000001\n", "0xdead0000\n0x00000001\n");
}

static void line_ends_stay(void **state)
{
	check("0x1000\r\n0x1010\r\n1\r\n\r\n0x1010\r\n0xdead0000\r\n",
	      "f\r\nf+0x10\r\n1\r\n\r\ng\r\n0xdead0000\r\n");
	check("0x1000\n0x1004", "f\nf+0x4");
	check("0x1010\n1", "g\n1");
	check("", "");
	check("\n", "\n");
	check("0x1000\r", "f\r");
}

static void ambiguous_names_get_an_offset(void **state)
{
	check("0x2000\n1\n\n0x2100\n1\n", "operator++0x0\n1\n\n123+0x0\n1\n");
}

static void addresses_are_counted(void **state)
{
	struct images *images = images_from(table);
	const char trace[] = "0x1000\n0x9\n1\n\n0x1000\n0x9\n1\n\n0x1000\n0x9\n1\n\nf+0x1\n0x8\n";
	struct resolve_result result;
	int in = memfd_create("in", 0);
	size_t len;

	assert_int_equal(write(in, trace, strlen(trace)), strlen(trace));
	lseek(in, 0, SEEK_SET);
	free(resolve_fd(images, in, &len, &result));
	assert_int_equal(result.addresses, 7);
	assert_int_equal(result.unresolved, 4);
	close(in);
	images_free(images);
}

static void long_lines_pass_whole(void **state)
{
	size_t room = 3 * BLOCK, len;

	for (size_t size = BLOCK - 2; size <= BLOCK + 2; size++) {
		char *trace = malloc(room), *text;
		size_t trace_len = size;

		memset(trace, 'x', size);
		memcpy(trace + trace_len, "\n0x1010\n", 8);
		trace_len += 8;
		text = resolve(table, trace, trace_len, &len);
		assert_int_equal(len, size + 1 + 7);
		assert_memory_equal(text, trace, size + 1);
		assert_string_equal(text + size + 1, "f+0x10\n");
		free(text);
		free(trace);
	}
}

/* A name that is larger than all buffers, also where the last line has no newline. */
static void huge_names_are_written_whole(void **state)
{
	size_t size = 2 * BLOCK, len;
	char *names = malloc(size + 64), *text;

	memcpy(names, "1000 T ", 7);
	memset(names + 7, 'n', size);
	names[7 + size] = '\0';
	text = resolve(names, "0x1000\n0x1002", 13, &len);
	assert_int_equal(len, size + 1 + size + 4);
	assert_memory_equal(text, names + 7, size);
	assert_string_equal(text + len - 5, "n+0x2");
	free(text);
	free(names);
}

static void rubbish_comes_out_as_it_went_in(void **state)
{
	size_t size = 5 * BLOCK / 2, len;
	char *trace = malloc(size), *text;
	uint32_t seed = 1;

	for (size_t i = 0; i < size; i++) {
		seed = seed * 1103515245 + 12345;
		trace[i] = (char)(seed >> 16);
	}
	text = resolve(table, trace, size, &len);
	assert_int_equal(len, size);
	assert_memory_equal(text, trace, size);
	free(text);
	free(trace);
}

struct feed {
	int fd;
	const char *bytes;
	size_t len;
};

static void *feed_slowly(void *ctx)
{
	struct feed *feed = ctx;
	uint32_t seed = 7;

	for (size_t at = 0; at < feed->len;) {
		size_t step = 1 + (seed >> 16) % 40;
		ssize_t done;

		seed = seed * 1103515245 + 12345;
		if (step > feed->len - at)
			step = feed->len - at;
		done = write(feed->fd, feed->bytes + at, step);
		if (done < 0)
			break;
		at += (size_t)done;
	}
	close(feed->fd);
	return NULL;
}

/* However the bytes arrive, the same comes out: stacks known already or not, cut anywhere. */
static void result_does_not_depend_on_how_bytes_arrive(void **state)
{
	struct images *images = images_from(table);
	size_t room = 200000, trace_len = 0, whole_len, pieces_len;
	char *trace = malloc(room + 64), *whole, *pieces;
	struct resolve_result result;
	uint32_t seed = 3;
	struct feed feed;
	pthread_t thread;
	int fds[2];

	while (trace_len < room) {
		seed = seed * 1103515245 + 12345;
		trace_len +=
			(size_t)sprintf(trace + trace_len, "0x%x\n%s", 0xff8 + (seed >> 16) % 64,
					(seed >> 28) % 4 ? "" : "1\n\n");
	}
	whole = resolve(table, trace, trace_len, &whole_len);
	assert_int_equal(pipe(fds), 0);
	feed = (struct feed){fds[1], trace, trace_len};
	assert_int_equal(pthread_create(&thread, NULL, feed_slowly, &feed), 0);
	pieces = resolve_fd(images, fds[0], &pieces_len, &result);
	pthread_join(thread, NULL);
	assert_int_equal(whole_len, pieces_len);
	assert_memory_equal(whole, pieces, whole_len);
	close(fds[0]);
	images_free(images);
	free(whole);
	free(pieces);
	free(trace);
}

/* More different stacks and addresses than the caches hold. */
static void caches_that_overflow_forget_and_stay_right(void **state)
{
	enum { STACKS = 600000, DISTINCT = 400000 };
	char *trace = malloc(STACKS * 64ul), *expected = malloc(STACKS * 64ul), *text;
	size_t trace_len = 0, expected_len = 0, len;

	for (unsigned i = 0; i < STACKS; i++) {
		unsigned offset = i % DISTINCT * 7;

		trace_len += (size_t)sprintf(trace + trace_len, "0x%x\n0x%x\n1\n\n",
					     0x1000000 + offset, 0x1000001 + offset);
		expected_len +=
			(size_t)sprintf(expected + expected_len, "last+0x%x\nlast+0x%x\n1\n\n",
					offset + 1, offset + 2);
	}
	text = resolve("ffffff 3fffff0 T last\n", trace, trace_len, &len);
	assert_int_equal(len, expected_len);
	assert_memory_equal(text, expected, len);
	free(text);
	free(trace);
	free(expected);
}

/* Known lines between new ones, whose texts fill the cache several times. */
static void texts_that_overflow_the_cache_are_forgotten(void **state)
{
	enum { LINES = 120000, DISTINCT = 80000, NAME = 900 };
	char *trace = malloc(LINES * 32ul), *names = malloc(NAME + 64), *text, *at;
	size_t trace_len = 0, len;

	at = stpcpy(names, "1010 T g\n10000 T ");
	memset(at, 'n', NAME);
	strcpy(at + NAME, "\n100000 T end\n");
	for (unsigned i = 0; i < LINES; i++)
		trace_len += (size_t)sprintf(trace + trace_len, "0x%x\n0x1018\n",
					     0x10001 + i % DISTINCT);
	text = resolve(names, trace, trace_len, &len);
	at = text;
	for (unsigned i = 0; i < LINES; i++) {
		char end[32];
		int n = sprintf(end, "+0x%x\ng+0x8\n", 1 + i % DISTINCT);

		assert_int_equal(strspn(at, "n"), NAME);
		assert_memory_equal(at + NAME, end, (size_t)n);
		at += NAME + n;
	}
	assert_int_equal(at - text, len);
	free(text);
	free(trace);
	free(names);
}

/* Spellings of one address are lines of their own, each with its end, when they come again too. */
static void lines_that_come_again_keep_their_ends(void **state)
{
	check("0x1018\n0x1018\r\n0x00001018\n0x0000000000001018\n0x0000000000001018\r\n"
	      "0x1018\n0x1018\r\n0x00001018\n0x0000000000001018\n0x0000000000001018\r\n",
	      "g+0x8\ng+0x8\r\ng+0x8\ng+0x8\ng+0x8\r\n"
	      "g+0x8\ng+0x8\r\ng+0x8\ng+0x8\ng+0x8\r\n");
	check("0x1018\n0x10181\n0x1018\n0x1018 \n0x1018\n0x00000000000010180\n0x1018\n",
	      "g+0x8\n0x10181\ng+0x8\n0x1018 \ng+0x8\n0x00000000000010180\ng+0x8\n");
}

/* Zeros behind the digits make another line of it. */
static void lines_with_zero_bytes_are_no_addresses(void **state)
{
	static const char trace[] = "0x1018\n0x1018\0\n0x1018\0\0\n0x1018\n";
	static const char expected[] = "g+0x8\n0x1018\0\n0x1018\0\0\ng+0x8\n";
	size_t len;
	char *text = resolve(table, trace, sizeof(trace) - 1, &len);

	assert_int_equal(len, sizeof(expected) - 1);
	assert_memory_equal(text, expected, len);
	free(text);
}

static void errors_of_reading_and_writing_are_told(void **state)
{
	struct images *images = images_from(table);
	struct resolve_result result;
	int full = open("/dev/full", O_WRONLY), directory = open("/", O_RDONLY);
	int in = memfd_create("in", 0), out = memfd_create("out", 0);
	struct error *err;

	assert_int_equal(write(in, "0x1000\n", 7), 7);
	lseek(in, 0, SEEK_SET);
	err = resolve_trace(images, in, "in", full, NULL, &result);
	assert_non_null(err);
	assert_int_equal(err->kind, ERR_OUTPUT);
	assert_string_equal(err->text, "standard output: cannot write: No space left on device");
	error_free(err);

	err = resolve_trace(images, directory, "trace", out, NULL, &result);
	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_string_equal(err->text, "trace: cannot read the trace: Is a directory");
	error_free(err);
	close(full);
	close(directory);
	close(in);
	close(out);
	images_free(images);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_address_is_the_pc_and_the_rest_return),
		cmocka_unit_test(counts_and_empty_lines_end_a_stack),
		cmocka_unit_test(resolved_frames_count_as_frames),
		cmocka_unit_test(comments_and_foreign_lines_pass),
		cmocka_unit_test(unknown_addresses_stay_as_they_are),
		cmocka_unit_test(line_ends_stay),
		cmocka_unit_test(ambiguous_names_get_an_offset),
		cmocka_unit_test(addresses_are_counted),
		cmocka_unit_test(long_lines_pass_whole),
		cmocka_unit_test(huge_names_are_written_whole),
		cmocka_unit_test(rubbish_comes_out_as_it_went_in),
		cmocka_unit_test(result_does_not_depend_on_how_bytes_arrive),
		cmocka_unit_test(caches_that_overflow_forget_and_stay_right),
		cmocka_unit_test(texts_that_overflow_the_cache_are_forgotten),
		cmocka_unit_test(lines_that_come_again_keep_their_ends),
		cmocka_unit_test(lines_with_zero_bytes_are_no_addresses),
		cmocka_unit_test(errors_of_reading_and_writing_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
