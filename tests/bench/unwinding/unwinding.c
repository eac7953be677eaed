/* SPDX-License-Identifier: BSD-3-Clause */
/* Times unwinders side by side on the same recorded stacks, and counts where they agree. */
#include <err.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recorded.h"
#include "unwind/tables/cfi.h"

#define STACKS	 500
#define ROUNDS	 5 /* the best one counts */
#define ROUND_NS 200000000ull

static const struct contender *const contenders[] = {&contender_table, &contender_rows,
						     &contender_fp, &contender_libdwfl,
						     &contender_libunwind};
#define CONTENDERS (sizeof(contenders) / sizeof(*contenders))

struct figures {
	double ns;	    /* a frame */
	double frames;	    /* a stack */
	unsigned same, all; /* stacks, compared with those of the tables */
};

/* CPU time: others may work on this machine too. */
static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Walks all stacks again and again for a while; ns a frame. */
static double time_round(const struct contender *contender, void *self,
			 const struct recording *recording)
{
	uint64_t start = cpu_ns(), elapsed, frames = 0;
	struct chain chain;

	do {
		for (size_t i = 0; i < recording->n; i++) {
			contender->walk(self, &recording->stack[i], &chain);
			frames += chain.n;
		}
		elapsed = cpu_ns() - start;
	} while (elapsed < ROUND_NS);
	return (double)elapsed / (double)frames;
}

static void measure(const struct contender *contender, const struct recording *recording,
		    const struct chain *expected, struct figures *figures)
{
	void *self = contender->begin(recording);
	struct chain chain;

	*figures = (struct figures){.all = (unsigned)recording->n};
	for (size_t i = 0; i < recording->n; i++) {
		contender->walk(self, &recording->stack[i], &chain);
		figures->frames += (double)chain.n / (double)recording->n;
		figures->same += chain.n == expected[i].n && !memcmp(chain.addr, expected[i].addr,
								     chain.n * sizeof(*chain.addr));
	}
	for (int i = 0; i < ROUNDS; i++) {
		double ns = time_round(contender, self, recording);

		if (!i || ns < figures->ns)
			figures->ns = ns;
	}
	contender->end(self);
}

/* Rows a second of the largest table there is to compile here. */
static double compile_rate(const struct recording *recording, uint32_t *most)
{
	double best = 0;

	*most = 0;
	for (size_t i = 0; i < recording->n_modules; i++) {
		for (int round = 0; round < ROUNDS; round++) {
			uint64_t start = cpu_ns();
			struct unwind_table *rows;
			double rate;

			if (cfi_load(recording->module[i].path, &rows) || !rows)
				continue;
			rate = rows->n * 1e9 / (double)(cpu_ns() - start);
			if (rows->n > *most || (rows->n == *most && rate > best)) {
				*most = rows->n;
				best = rate;
			}
			unwind_table_free(rows);
		}
	}
	return best;
}

static void print(const struct figures figures[CONTENDERS], double rate, uint32_t rows, bool json)
{
	for (size_t i = 0; i < CONTENDERS; i++) {
		const struct figures *f = &figures[i];

		if (json)
			printf("{\"unwinder\":\"%s\",\"ns_per_frame\":%.1f,\"frames\":%.1f,"
			       "\"stacks\":%u,\"same\":%u}\n",
			       contenders[i]->name, f->ns, f->frames, f->all, f->same);
		else
			printf("%-10s %8.1f ns a frame, %5.1f times that of rows; %.1f frames, %u "
			       "of "
			       "%u stacks like the table's\n",
			       contenders[i]->name, f->ns, f->ns / figures[1].ns, f->frames,
			       f->same, f->all);
	}
	printf(json ? "{\"compiled_rows\":%u,\"rows_per_second\":%.0f}\n"
		    : "compiled: %u rows, %.0f a second\n",
	       rows, rate);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, 'j'}, {0}};
	struct recording recording = {0};
	struct figures figures[CONTENDERS];
	struct chain *expected;
	bool json = false;
	uint32_t rows;
	double rate;
	void *self;
	int option;

	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (option != 'j')
			errx(2, "usage: %s [--json]", argv[0]);
		json = true;
	}
	record_stacks(&recording, STACKS);
	expected = calloc(recording.n, sizeof(*expected));
	if (!expected)
		err(1, "memory");
	self = contenders[0]->begin(&recording);
	for (size_t i = 0; i < recording.n; i++)
		contenders[0]->walk(self, &recording.stack[i], &expected[i]);
	contenders[0]->end(self);
	for (size_t i = 0; i < CONTENDERS; i++)
		measure(contenders[i], &recording, expected, &figures[i]);
	rate = compile_rate(&recording, &rows);
	print(figures, rate, rows, json);
	free(expected);
	free(recording.stack);
	return 0;
}
