/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Prints what a symbolizer says about addresses of a file, which come in hex on
 * standard input, as `addr2line -a -f -i` does: the address, then for each
 * function its name and FILE:LINE. With -n, only how fast it was, as JSON.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "symbol/images/file.h"
#include "symbol/names/symbolizer.h"

static void must(struct error *err)
{
	if (!err)
		return;
	fprintf(stderr, "locate: %s\n", err->text);
	exit(1);
}

static size_t read_addresses(struct frame **out)
{
	struct frame *list = NULL;
	size_t n = 0, room = 0;
	uint64_t addr;

	while (scanf("%" SCNx64, &addr) == 1) {
		if (n == room) {
			room = 2 * room + 1024;
			list = reallocarray(list, room, sizeof(*list));
			if (!list)
				exit(1);
		}
		list[n++] = (struct frame){.addr = addr, .kind = FRAME_PC};
	}
	*out = list;
	return n;
}

static void print(const struct location *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("%s\n%s:%" PRIu32 "\n", at[i].function, at[i].file ? at[i].file : "??",
		       at[i].line);
}

static double seconds(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

/* CPU time of this process and of the children that it has waited for. */
static double cpu_seconds(void)
{
	struct rusage own, children;

	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &children);
	return seconds(&own.ru_utime) + seconds(&own.ru_stime) + seconds(&children.ru_utime) +
	       seconds(&children.ru_stime);
}

static void print_speed(size_t n, size_t functions, uint64_t load_ns, uint64_t ns, bool source,
			double cpu_s)
{
	printf("{\"source\":%s,\"addresses\":%zu,\"functions\":%zu,\"load_s\":%.3f,\"resolve_s\":%."
	       "3f,"
	       "\"ns_per_address\":%.0f,\"cpu_s\":%.3f}\n",
	       source ? "true" : "false", n, functions, (double)load_ns / 1e9, (double)ns / 1e9,
	       n ? (double)ns / (double)n : 0, cpu_s);
}

int main(int argc, char **argv)
{
	struct symbolizer_options options = {0};
	struct image_spec spec = {.names = true, .needs_names = true};
	struct images *images;
	struct symbolizer *symbolizer;
	struct frame *frames;
	bool quiet = false;
	size_t i, n, functions = 0;
	uint64_t start, loaded, resolved;
	double cpu_s;

	for (int arg = 1; arg < argc - 1; arg++) {
		options.no_demangle |= !strcmp(argv[arg], "--no-demangle");
		options.no_inline |= !strcmp(argv[arg], "--no-inline");
		options.no_source |= !strcmp(argv[arg], "--no-source");
		quiet |= !strcmp(argv[arg], "-n");
	}
	spec.path = argv[argc - 1];
	n = read_addresses(&frames);
	cpu_s = cpu_seconds();
	start = clock_now_ns();
	must(debuginfod_preopen(spec.path));
	must(images_new(&images));
	must(images_load(images, &spec, &i));
	must(images_map(images, i, 0, false));
	must(symbolizer_new(images, NULL, &symbolizer));
	symbolizer_set(symbolizer, &options);
	loaded = clock_now_ns();
	must(symbolizer_prepare(symbolizer, frames, n));
	for (i = 0; i < n; i++) {
		const struct location *at;
		size_t depth;

		must(symbolizer_locate(symbolizer, frames[i].addr, FRAME_PC, &at, &depth));
		functions += depth;
		if (quiet)
			continue;
		printf("0x%016" PRIx64 "\n", frames[i].addr);
		print(at, depth);
	}
	resolved = clock_now_ns();
	if (symbolizer_trouble(symbolizer))
		fprintf(stderr, "locate: %s\n", symbolizer_trouble(symbolizer));
	symbolizer_free(symbolizer);
	images_free(images);
	free(frames);
	if (quiet)
		print_speed(n, functions, loaded - start, resolved - loaded, !options.no_source,
			    cpu_seconds() - cpu_s);
	return 0;
}
