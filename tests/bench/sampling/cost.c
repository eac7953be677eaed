/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sample_cost [-n ROUNDS] [-w WAY[,WAY...]] [-i ELF] [-u METHOD] [-b BUSY] [-r] GUEST
 *
 * Runs in dom0. Takes samples of a guest in every way, by turns in random order, and prints
 * one JSON object a line, a line a way, in µs. The guest runs for a while
 * between any two samples; those of uniprof for which fewer than BUSY vCPUs
 * turn out to have run cost less than they should, and are left out. With -r,
 * each sample is taken while the guest is on a CPU.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "figures.h"
#include "running.h"
#include "target/target.h"
#include "way.h"

#define ROUNDS 1000

/*
 * vCPUs that share a CPU take turns of 10 ms (Xen's credit2: CSCHED2_MAX_TIMER), but not strictly
 * one after the other: in two and a half turns for each, most have had one.
 */
#define TURN_NS 25000000u

/* One round in ENOUGH should leave a sample of each way; if not, PATIENCE times as many are run. */
#define ENOUGH	 4
#define PATIENCE 8

struct entry {
	const struct way *way;
	void *state;
	struct figures whole, paused;
	uint64_t frames;
	uint32_t unpaused; /* samples for which the guest was not paused */
};

struct bench {
	struct bench_guest guest;
	struct running *running; /* NULL: it does not matter whether the guest runs */
	struct entry entries[MAX_WAYS];
	uint32_t n, rounds;
};

/* Asks uniprof's own code about the guest, and closes it again. */
static struct error *find_guest(const char *spec, struct bench_guest *guest)
{
	struct target *target;
	struct error *err = target_open(spec, NULL, &target);

	if (err)
		return err;
	guest->spec = spec;
	guest->domid = (uint32_t)strtoul(target->info.id, NULL, 10);
	guest->vcpus = target->info.vcpus;
	guest->hvm = strcmp(target->info.type, "pv") != 0;
	target_close(target);
	return NULL;
}

/* True if the comma-separated list names the way; NULL names all but those that run alone. */
static bool chosen(const char *list, const struct way *way)
{
	const char *name = way->name;
	size_t len = strlen(name);

	for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL) {
		if (!strncmp(list, name, len) && (list[len] == ',' || !list[len]))
			return true;
		if (!strchr(list, ','))
			return false;
	}
	return !way->alone;
}

static struct error *open_ways(struct bench *bench, const char *list)
{
	struct error *err = NULL;

	for (size_t i = 0; all_ways[i] && !err; i++) {
		struct entry *entry = &bench->entries[bench->n];

		if ((all_ways[i]->hvm_only && !bench->guest.hvm) || !chosen(list, all_ways[i]))
			continue;
		bench->n++;
		entry->way = all_ways[i];
		err = figures_new(bench->rounds, &entry->whole);
		if (!err)
			err = figures_new(bench->rounds, &entry->paused);
		if (!err)
			err = entry->way->open(&bench->guest, &entry->state);
	}
	return err;
}

static struct error *take_one(struct bench *bench, struct entry *entry)
{
	struct taken taken = {0};
	struct error *err;

	clock_sleep_until(clock_now_ns() + NAP_NS);
	if (bench->running && !running_wait(bench->running))
		return NULL;
	err = entry->way->take(entry->state, &taken);
	if (err)
		return error_prefix(err, "%s", entry->way->name);
	if (taken.spared)
		return NULL;
	figures_add(&entry->whole, taken.whole_ns);
	figures_add(&entry->paused, taken.paused_ns);
	entry->frames += taken.frames;
	entry->unpaused += taken.paused_ns == 0;
	return NULL;
}

/* Random order: each way runs with the caches that the way before it left. */
static void shuffle(struct bench *bench)
{
	for (uint32_t i = bench->n; i > 1; i--) {
		const uint32_t other = (uint32_t)(random() % i);
		const struct entry entry = bench->entries[i - 1];

		bench->entries[i - 1] = bench->entries[other];
		bench->entries[other] = entry;
	}
}

static struct error *one_round(struct bench *bench, uint32_t round)
{
	struct error *err = NULL;

	if (bench->guest.busy > 1)
		clock_sleep_until(clock_now_ns() + bench->guest.busy * TURN_NS);
	shuffle(bench);
	for (uint32_t i = 0; i < bench->n && !err; i++) {
		struct entry *entry = &bench->entries[i];

		if (entry->whole.n < bench->rounds &&
		    (!entry->way->every || round % entry->way->every == 0))
			err = take_one(bench, entry);
	}
	return err;
}

/* True if too many samples were left out, and more rounds are allowed. */
static bool too_few(const struct bench *bench, uint32_t round)
{
	for (uint32_t i = 0; i < bench->n; i++)
		if (!bench->entries[i].way->every &&
		    bench->entries[i].whole.n < bench->rounds / ENOUGH)
			return round < bench->rounds * PATIENCE;
	return false;
}

static void print(struct entry *entry)
{
	uint32_t n = entry->whole.n;

	printf("{\"way\":\"%s\",\"n\":%u,\"frames\":%.2f,\"unpaused\":%.4f,\"whole\":",
	       entry->way->name, n, n ? (double)entry->frames / n : 0,
	       n ? (double)entry->unpaused / n : 0);
	figures_print(&entry->whole, stdout);
	printf(",\"paused\":");
	figures_print(&entry->paused, stdout);
	printf("}\n");
}

static void close_ways(struct bench *bench)
{
	for (uint32_t i = 0; i < bench->n; i++) {
		bench->entries[i].way->close(bench->entries[i].state);
		figures_free(&bench->entries[i].whole);
		figures_free(&bench->entries[i].paused);
	}
}

static struct error *run(struct bench *bench, const char *spec, const char *list, bool on_cpu)
{
	struct error *err = find_guest(spec, &bench->guest);

	if (!err)
		err = open_ways(bench, list);
	if (!err && on_cpu)
		err = running_open(&bench->guest, &bench->running);
	for (uint32_t round = 0; !err && (round < bench->rounds || too_few(bench, round)); round++)
		err = one_round(bench, round);
	for (uint32_t i = 0; i < bench->n && !err; i++)
		print(&bench->entries[i]);
	close_ways(bench);
	running_close(bench->running);
	return err;
}

static bool find_method(const char *name, enum unwind_method *out)
{
	for (int i = 0; i < UNWIND_METHODS; i++)
		if (!strcmp(name, unwind_method_text(i))) {
			*out = i;
			return true;
		}
	return false;
}

static bool parse(int argc, char **argv, struct bench *bench, const char **list, bool *on_cpu)
{
	int option;
	bool good = true;

	while ((option = getopt(argc, argv, "n:w:i:u:b:r")) != -1) {
		if (option == 'n')
			bench->rounds = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'w')
			*list = optarg;
		else if (option == 'b')
			bench->guest.busy = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'r')
			*on_cpu = true;
		else if (option == 'i')
			bench->guest.image = optarg;
		else
			good = option == 'u' && find_method(optarg, &bench->guest.method) && good;
	}
	return good && optind + 1 == argc;
}

int main(int argc, char **argv)
{
	struct bench bench = {.rounds = ROUNDS};
	const char *list = NULL;
	bool on_cpu = false;
	struct error *err;

	if (!parse(argc, argv, &bench, &list, &on_cpu)) {
		fprintf(stderr,
			"usage: sample_cost [-n ROUNDS] [-w WAY[,WAY...]] [-i ELF] [-u METHOD] "
			"[-b BUSY] [-r] GUEST\n");
		return ERR_USAGE;
	}
	err = run(&bench, argv[optind], list, on_cpu);
	if (err) {
		fprintf(stderr, "sample_cost: %s\n", err->text);
		error_free(err);
		return 1;
	}
	return 0;
}
