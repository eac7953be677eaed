/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/preopen.h"
#include "cmd/shared/guest_dump_take.h"
#include "view/json.h"

/* The format grows only by fields; readers ignore those that they do not know. */
#define PS_VERSION 1

struct ps_args {
	struct session_options session;
	const char *output;
	bool threads, maps, json;
};

#define AT(field) offsetof(struct ps_args, field)

static const struct option_row own_options[] = {
	{"threads", NULL, 't', take_true, AT(threads), .text = "a line for each thread"},
	{"maps", NULL, 0, take_true, AT(maps),
	 .text = "also what is mapped in the memory of each process"},
	{"json", NULL, 0, take_true, AT(json), .text = "one JSON object, with all threads"},
	{"symbols", "FILE", 's', take_symbols, AT(session.files),
	 .text = "a file of the guest's code (default: the one that it was started from): a "
		 "unikernel's threads are found by it",
	 .more = "See\n.Sx FILES OF THE GUEST\nof\n.Xr uniprof 1 .", .values = OPTION_FILE},
	{"output", "FILE", 'o', take_text, AT(output),
	 .text = "where to (default: standard output)", .values = OPTION_FILE},
	{"via", "WAY", 0, take_text, AT(session.via),
	 .text = "read the guest that way (`uniprof list --ways` names them), not by the cheapest "
		 "that works"},
	{"no-sandbox", NULL, 0, take_true, AT(session.keep_rights),
	 .text = "keep root's rights, and filter no system calls (for debugging)",
	 .more = "See\n.Sx PRIVILEGES\nof\n.Xr uniprof 1 ."},
	{0}};

static const struct option_group options_of_ps[] = {{own_options, 0}, {0}};

static struct error *parse(int argc, char **argv, struct ps_args *options, int *first)
{
	*options = (struct ps_args){.output = "-"};
	session_defaults(&options->session);
	options->session.quiet = true;
	TRY(options_parse(&verb_ps, argc, argv, options, first));
	return *first + 1 == argc ? NULL
				  : cmd_usage_error(&verb_ps, *first == argc ? "which guest?"
									     : "one guest, please");
}

/* Threads to print. */
struct listed {
	const struct thread_listing *listing;
	const struct guest_dump_thread
		*threads; /* [list.n]: with the mappings of their processes */
	const char *
		*waits_in; /* [list.n]: a function of the kernel; NULL: none, or it is not known */
	const char **container; /* [list.n]: its path; NULL: not known, or not the first thread */
	struct pool *containers;
	bool contained; /* one has another container than the whole system */
};

/* Functions of the schedulers themselves, which every thread waits in. */
static bool is_scheduler(const char *function)
{
	static const char *const prefixes[] = {"schedule",	     "__schedule",
					       "preempt_schedule",   "io_schedule",
					       "schedcoop_schedule", "ukarch_ctx_switch",
					       "uk_sched_yield",     "__arch_switch_threads",
					       "__switch_to"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(function, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* The innermost function of the kernel with a name that is not the scheduler's. */
static struct error *find_wait(struct symbolizer *symbolizer,
			       const struct guest_dump_thread *thread, const char **waits_in)
{
	for (size_t i = 0; thread->read && i < thread->trace.n_frames && !*waits_in; i++) {
		const struct frame *frame = &thread->trace.frames[i];
		const struct location *at;
		size_t n;

		/* The program, below a kernel; all of a unikernel may be there. */
		if (frame->addr < LOWER_HALF && thread->trace.frames[0].addr >= LOWER_HALF)
			break;
		TRY(symbolizer_locate(symbolizer, frame->addr, frame->kind, &at, &n));
		if (at[n - 1].resolved && !is_scheduler(at[n - 1].function))
			*waits_in = at[n - 1].function;
	}
	return NULL;
}

static struct error *find_waits(const struct guest_dump *dump, struct listed *listed)
{
	TRY(ARRAY_NEW(&listed->waits_in, dump->n_threads + 1));
	for (size_t i = 0; i < dump->n_threads; i++)
		TRY(find_wait(dump->symbolizer, &dump->threads[i], &listed->waits_in[i]));
	return NULL;
}

/* Finds the container that a process is in, as its first thread is. */
static struct error *find_container(struct listed *listed, size_t first)
{
	const struct thread_listing *listing = listed->listing;
	char path[GUEST_PATH_MAX + 1];

	if (!guest_threads_container(listing->threads, &listing->memory, &listing->list.at[first],
				     path))
		return NULL;
	listed->contained |= strcmp(path, "/") != 0;
	return pool_intern(listed->containers, path, strlen(path), &listed->container[first]);
}

/* The threads of a process: how many stand behind `first`, itself included. */
static size_t threads_of_process(const struct guest_thread_list *list, size_t first)
{
	size_t end = first;

	while (end < list->n && list->at[end].pid == list->at[first].pid)
		end++;
	return end - first;
}

static struct error *find_containers(struct listed *listed)
{
	const struct guest_thread_list *list = &listed->listing->list;

	TRY(pool_new(&listed->containers));
	listed->container = calloc(list->n + 1, sizeof(*listed->container));
	if (!listed->container)
		return error_no_memory();
	for (size_t i = 0; i < list->n; i += threads_of_process(list, i))
		TRY(find_container(listed, i));
	return NULL;
}

/* False in a system without processes. */
static bool has_process(const struct guest_thread *thread)
{
	return thread->pid != RECORDED_ID_UNKNOWN;
}

/* Sums a process up; its name is its leader's. *waits_in: what its thread waits in that has its state. */
static struct guest_thread process_of(const struct listed *listed, size_t first, size_t n,
				      const char **waits_in)
{
	const struct guest_thread *thread = &listed->listing->list.at[first];
	struct guest_thread process = thread[0];
	size_t chosen = first;

	for (size_t i = 1; i < n; i++) {
		if (process.cpu_ns != THREAD_UNKNOWN)
			process.cpu_ns += thread[i].cpu_ns;
		if (thread[i].state < process.state) {
			process.state = thread[i].state;
			process.cpu = thread[i].cpu;
			chosen = first + i;
		}
	}
	*waits_in = listed->waits_in[chosen];
	return process;
}

static void print_seconds(uint64_t ns, FILE *out)
{
	if (ns == THREAD_UNKNOWN)
		fprintf(out, " %12s", "-");
	else
		fprintf(out, " %12.3f", (double)ns / 1e9);
}

/* "-": it is not known, or there is no memory to clean it. */
static char *container_name(const char *path)
{
	char name[CONTAINER_NAME_ROOM] = "-";

	if (path)
		recorded_container_name(path, name);
	return sanitize_new(name);
}

static void print_container(const char *path, FILE *out)
{
	char *name = container_name(path);

	fprintf(out, "%-24s  ", name ? name : "-");
	free(name);
}

/* One line, for a thread or a process summed up; `first` is the first thread of its process. */
static void print_thread(const struct listed *listed, const struct guest_thread *thread,
			 uint64_t second, const char *waits_in, size_t first, FILE *out)
{
	if (has_process(thread))
		fprintf(out, "%7" PRIu32, thread->pid);
	else
		fprintf(out, "%7s", "-");
	fprintf(out, " %7" PRIu64 "  %-8s ", second, guest_thread_state_name(thread->state));
	if (thread->cpu < 0)
		fprintf(out, "%4s", "-");
	else
		fprintf(out, "%4" PRId64, thread->cpu);
	print_seconds(thread->cpu_ns, out);
	print_seconds(thread->start_ns, out);
	fprintf(out, "  %-24s  ", waits_in ? waits_in : "-");
	if (listed->contained)
		print_container(listed->container[first], out);
	if (thread->kernel)
		fputc('[', out);
	sanitize_print(thread->name, out);
	fputs(thread->kernel ? "]\n" : "\n", out);
}

static void print_running(const struct thread_listing *listing, FILE *out)
{
	for (uint32_t i = 0; i < listing->cpus; i++) {
		const struct guest_thread *thread = &listing->running[i];

		if (!listing->is_running[i])
			continue;
		fprintf(out, "CPU %" PRIu32 ": ", i);
		if (!thread->idle) {
			fprintf(out, "%" PRIu32 " ", thread->tid);
			sanitize_print(thread->name, out);
		}
		fputs(thread->idle ? "idle\n" : "\n", out);
	}
}

/* "r-xp" */
static void access_of(const struct guest_mapping *mapping, char access[5])
{
	access[0] = mapping->readable ? 'r' : '-';
	access[1] = mapping->writable ? 'w' : '-';
	access[2] = mapping->executable ? 'x' : '-';
	access[3] = mapping->shared ? 's' : 'p';
	access[4] = '\0';
}

static void print_mappings(const struct guest_mapping_list *list, FILE *out)
{
	char access[5];

	if (list && list->trouble)
		fprintf(out, "%8s%s\n", "", list->trouble);
	for (size_t i = 0; list && i < list->n; i++) {
		const struct guest_mapping *at = &list->at[i];

		access_of(at, access);
		fprintf(out, "%8s%012" PRIx64 "-%012" PRIx64 " %s %08" PRIx64, "", at->start,
			at->end, access, at->offset);
		if (at->path)
			fputs("  ", out);
		if (at->path)
			sanitize_print(at->path, out);
		fputs(at->deleted ? " (deleted)\n" : "\n", out);
	}
}

static void print_text(const struct listed *listed, bool threads, FILE *out)
{
	const struct guest_thread_list *list = &listed->listing->list;
	size_t n;

	threads |= list->n && !has_process(list->at);

	fprintf(out, "%7s %7s  %-8s %4s %12s %12s  %-24s  ", "PID", threads ? "TID" : "THREADS",
		"STATE", "CPU", "CPU-SECONDS", "STARTED", "WAITS-IN");
	if (listed->contained)
		fprintf(out, "%-24s  ", "CONTAINER");
	fputs("NAME\n", out);
	for (size_t i = 0; i < list->n; i += n) {
		struct guest_thread process;
		const char *waits_in;

		n = threads_of_process(list, i);
		process = process_of(listed, i, n, &waits_in);
		if (!threads)
			print_thread(listed, &process, n, waits_in, i, out);
		for (size_t k = i; threads && k < i + n; k++)
			print_thread(listed, &list->at[k], list->at[k].tid, listed->waits_in[k], i,
				     out);
		print_mappings(listed->threads[i].mappings, out);
	}
	fputc('\n', out);
	print_running(listed->listing, out);
}

static json_t *thread_json(const struct guest_thread *thread, const char *waits_in)
{
	return json_pack("{s:I, s:o, s:s, s:s?, s:I, s:o, s:o, s:o}", "tid",
			 (json_int_t)thread->tid, "name", json_text(thread->name), "state",
			 guest_thread_state_name(thread->state), "waits_in", waits_in, "cpu",
			 (json_int_t)thread->cpu, "start_ns", json_known(thread->start_ns),
			 "cpu_ns", json_known(thread->cpu_ns), "switches",
			 json_known(thread->switches));
}

static json_t *mapping_json(const struct guest_mapping *at)
{
	char access[5];

	access_of(at, access);
	return json_pack("{s:I, s:I, s:s, s:I, s:b, s:o}", "start", json_count(at->start), "end",
			 json_count(at->end), "access", access, "offset", json_count(at->offset),
			 "deleted", at->deleted, "path", json_text(at->path));
}

/* Adds the mappings of a process, if they were asked for and there are some. */
static void add_mappings(const struct guest_mapping_list *list, json_t *to)
{
	json_t *mappings = list ? json_array() : NULL;

	if (!mappings)
		return;
	for (size_t i = 0; i < list->n; i++)
		json_append(&mappings, mapping_json(&list->at[i]));
	json_object_set_new(to, "mappings", mappings);
	if (list->trouble)
		json_object_set_new(to, "trouble", json_string(list->trouble));
}

/* Adds the name and the path of a container that is known. */
static void add_container(const char *path, json_t *to)
{
	char *name = path ? container_name(path) : NULL;

	if (!name)
		return;
	json_object_set_new(to, "container", json_text(name));
	json_object_set_new(to, "cgroup", json_text(path));
	free(name);
}

static json_t *process_json(const struct listed *listed, size_t first, size_t n)
{
	const char *waits_in;
	const struct guest_thread process = process_of(listed, first, n, &waits_in);
	const char *name = has_process(&process)
				   ? process.name
				   : guest_threads_system_name(listed->listing->threads);
	json_t *threads = json_array(), *json;

	for (size_t i = first; i < first + n; i++)
		json_append(&threads,
			    thread_json(&listed->listing->list.at[i], listed->waits_in[i]));
	json = json_pack("{s:o, s:o, s:s, s:s?, s:b, s:o, s:o, s:o}", "pid", json_id(process.pid),
			 "name", json_text(name), "state", guest_thread_state_name(process.state),
			 "waits_in", waits_in, "kernel", process.kernel, "start_ns",
			 json_known(process.start_ns), "cpu_ns", json_known(process.cpu_ns),
			 "threads", threads);
	if (json)
		add_container(listed->container[first], json);
	if (json)
		add_mappings(listed->threads[first].mappings, json);
	return json;
}

static json_t *cpu_json(uint32_t cpu, const struct guest_thread *thread)
{
	return json_pack("{s:I, s:b, s:o, s:I, s:o}", "cpu", (json_int_t)cpu, "idle", thread->idle,
			 "pid", json_id(thread->pid), "tid", (json_int_t)thread->tid, "name",
			 json_text(thread->name));
}

static json_t *cpus_json(const struct thread_listing *listing)
{
	json_t *cpus = json_array();

	for (uint32_t i = 0; i < listing->cpus; i++)
		if (listing->is_running[i])
			json_append(&cpus, cpu_json(i, &listing->running[i]));
	return cpus;
}

static struct error *print_json(const struct listed *listed, FILE *out)
{
	const struct thread_listing *listing = listed->listing;
	const struct guest_thread_list *list = &listing->list;
	const struct target_info *info = &listing->target->info;
	json_t *processes = json_array(), *object;
	size_t n;

	for (size_t i = 0; i < list->n; i += n) {
		n = threads_of_process(list, i);
		json_append(&processes, process_json(listed, i, n));
	}
	object = json_pack("{s:i, s:s, s:o, s:o, s:s, s:o, s:o, s:s?}", "version", PS_VERSION,
			   "target", listing->target->ops->scheme, "id", json_text(info->id),
			   "name", json_text(info->name), "system",
			   guest_threads_system_name(listing->threads), "cpus", cpus_json(listing),
			   "processes", processes, "trouble", list->trouble);
	return json_write(object, JSON_INDENT(2), out);
}

static struct error *print(const struct listed *listed, const struct ps_args *options)
{
	struct error *err = NULL;
	FILE *out;

	TRY(cmd_open_output(options->output, &out));
	if (options->json)
		err = print_json(listed, out);
	else
		print_text(listed, options->threads, out);
	return cmd_close_output(options->output, out, err);
}

static void free_listed(struct listed *listed)
{
	free(listed->waits_in);
	free(listed->container);
	pool_free(listed->containers);
}

static struct error *find_and_print(const struct guest_dump_taken *taken,
				    const struct ps_args *options)
{
	const struct guest_dump *dump = guest_dump_of(taken);
	ENDED_BY(free_listed)
	struct listed listed = {.listing = guest_dump_listing(taken), .threads = dump->threads};

	TRY(find_waits(dump, &listed));
	TRY(find_containers(&listed));
	TRY(print(&listed, options));
	if (dump->trouble)
		cmd_say("warning: %s", dump->trouble);
	return NULL;
}

static struct error *ps(int argc, char **argv, int *status)
{
	struct guest_dump_wanted wanted = {.vcpu = -1, .full_names = true, .threads = true};
	ENDED_BY(target_end) struct target *target = NULL;
	struct guest_dump_taken *taken;
	struct ps_args options;
	struct error *err;
	int first;

	TRY(parse(argc, argv, &options, &first));
	TRY(target_open(argv[first], options.session.via, &target));
	TRY(preopen_output(options.output));
	TRY(session_confine(target, &options.session));
	wanted.mappings = options.maps;
	TRY(guest_dump_take(target, &options.session, &wanted, NULL, &taken));
	err = find_and_print(taken, &options);
	guest_dump_free(taken);
	return err;
}

const struct verb verb_ps = {
	.name = "ps",
	.summary = "processes and threads of a guest, from outside: of Linux, Unikraft, Mini-OS, "
		   "FreeRTOS",
	.arguments = "[options] GUEST",
	.about = "Shows the processes of a guest as they are now, with states, CPU time and names: "
		 "read from\n"
		 "the guest's memory, without an agent in it, and of Linux without files. The "
		 "guest is "
		 "stopped\n"
		 "once, for some microseconds, and runs on while its lists are read.\n",
	.options = options_of_ps,
	.takes = TAKES_GUESTS,
	.run = ps,
};
