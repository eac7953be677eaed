/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/load.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "agent/store.h"
#include "base/clock.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "base/privilege.h"
#include "cmd/cmd.h"
#include "cmd/shared/image_args.h"
#include "cmd/shared/option.h"
#include "format/format.h"
#include "import/import.h"
#include "profile/profile.h"
#include "recording/stacks.h"
#include "symbol/images/file.h"

void load_defaults(struct load_options *options)
{
	memset(options, 0, sizeof(*options));
	options->filter = PROFILE_ON_CPU;
	options->naming.unnamed = UNNAMED_IMAGE;
	progress_line_init(&options->progress_line, "uniprof");
	options->filter.progress = &options->progress_line.progress;
}

static bool state_by_name(const char *name, size_t len, unsigned *states)
{
	for (unsigned i = 0; i < SAMPLE_STATES; i++) {
		const char *text = sample_state_text(i);

		if (strlen(text) == len && !strncmp(text, name, len)) {
			*states |= 1u << i;
			return true;
		}
	}
	return false;
}

/* "running,blocked", "on-cpu" (running), "off-cpu" (of threads), "all" (of vCPUs) */
static struct error *take_states(const struct option_row *row, const char *text, void *to)
{
	struct load_options *options = to;
	unsigned *states = &options->filter.states;
	const char *part = text;

	options->state_given = true;
	*states = 0;
	if (!strcmp(text, "all"))
		return NULL;
	if (!strcmp(text, "on-cpu"))
		part = "running";
	if (!strcmp(text, "off-cpu"))
		part = "queued,sleeping,disk,stopped";
	for (;;) {
		size_t len = strcspn(part, ",");

		if (!state_by_name(part, len, states))
			return option_error(
				row, text,
				"the states of vCPUs are running, runnable, blocked, or "
				"all; of threads that do not run queued, sleeping, "
				"disk, stopped, or off-cpu");
		if (!part[len])
			return NULL;
		part += len + 1;
	}
}

/* "7" or "2-3" at *text, which is moved behind it. */
static bool parse_range(const char **text, uint64_t *first, uint64_t *last)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	*first = *last = strtoull(*text, &end, 10);
	if (*end == '-') {
		if (end[1] < '0' || end[1] > '9')
			return false;
		*last = strtoull(end + 1, &end, 10);
	}
	*text = end;
	return *first <= *last && *last < RECORDING_MAX_VCPUS;
}

/* "0,2-3" */
static struct error *take_vcpus(const struct option_row *row, const char *text, void *to)
{
	struct load_options *options = to;
	const char *at = text;

	options->filter.vcpus = memset(options->vcpus, 0, sizeof(options->vcpus));
	for (;;) {
		uint64_t first, last;

		if (!parse_range(&at, &first, &last) || (*at && *at != ','))
			return option_error(row, text, "vCPUs are named like 0,2-3, up to %d",
					    RECORDING_MAX_VCPUS - 1);
		for (uint64_t i = first; i <= last; i++)
			options->vcpus[i] = true;
		if (!*at++)
			return NULL;
	}
}

/* "1,234": kept as text. */
static struct error *take_numbers(const struct option_row *row, const char *text, void *to)
{
	const char *at = text;

	do {
		const size_t digits = strspn(at, "0123456789");

		at += digits;
		if (!digits || (*at && *at != ','))
			return option_error(row, text, "it is numbers with commas: 1,234");
	} while (*at++);
	return take_text(row, text, to);
}

/* Of the wall clock, or since the start. */
static struct error *take_bound(const struct option_row *row, const char *value, void *to)
{
	struct load_window *window = &((struct load_options *)to)->window;
	int64_t at_s;

	if (!option_wall_clock(value, 0, &at_s))
		return take_moment(row, value, to);
	*(strcmp(row->name, "from") ? &window->to : &window->from) = value;
	return NULL;
}

static struct error *take_addresses(const struct option_row *row, const char *value, void *to)
{
	((struct load_options *)to)->naming.unnamed = UNNAMED_OFFSET;
	return NULL;
}

static struct error *take_outer(const struct option_row *row, const char *value, void *to)
{
	static const enum group_key keys[] = {GROUP_CONTAINER, GROUP_PROCESS, GROUP_THREAD};
	struct outer_options *options = to;
	const int i = option_word(row, value);

	if (i < 0)
		return option_error(row, value, "it is container, process, thread or exit");
	*options = i < (int)(sizeof(keys) / sizeof(*keys))
			   ? (struct outer_options){.by = value, .key = keys[i]}
			   : (struct outer_options){.exits = true};
	return NULL;
}

const struct option_row load_outer_options[] = {
	{"by", "KEY", 0, take_outer,
	 .text = "the containers, processes or threads of a Linux guest stand around their "
		 "functions: container, process or thread; or, with exit, the reasons for which "
		 "virtual CPUs have left the guest "
		 "around the functions that caused it, each exit counted once (record --host)",
	 .values = "container process thread exit"},
	{0}};

const struct option_row load_source_options[] = {
	{"source-dir", "DIR", 0, take_text, offsetof(struct source_text_options, directory),
	 .text = "where the sources are whose lines are shown",
	 .more = "The end of each path that the compiler was told is looked for below\n.Ar DIR .\n"
		 "A report also looks where the compiler saw them; a page, which is passed on to "
		 "others, does not: its lines have a text only by this option.",
	 .values = OPTION_DIRECTORY},
	{0}};

#define AT(field) offsetof(struct load_options, field)

const struct option_row load_options[] = {
	{"output", "FILE", 'o', take_text, AT(output),
	 .text = "where to (default: standard output)", .values = OPTION_FILE},
	{"symbols", "FILE", 's', take_symbols, AT(files),
	 .text = "names of functions: ELF, vmlinuz, nm -n, kallsyms or System.map; more than one "
		 "if need be, as FILE@0xADDRESS if moved (default: the names that the recording "
		 "carries)",
	 .more = "A file that is in the recording by its build id goes where it was; one that is "
		 "there by another build id is refused.",
	 .values = OPTION_FILE},
	{"debug-dir", "DIR", 0, take_debug_dir,
	 .text = "where debug files are that were taken out of those that follow",
	 .values = OPTION_DIRECTORY},
	{"sysroot", "DIR", 0, take_sysroot,
	 .text = "the root directory of a Linux guest, as a mounted image or a copy: programs get "
		 "names and lines from the files below it that they ran",
	 .more = "They are found by their paths in the guest, and have to have the build ids that "
		 "the recording tells.",
	 .values = OPTION_DIRECTORY},
	{"state", "LIST", 0, take_states,
	 .text = "of vCPUs: running (the default), runnable, blocked, or all; of threads that do "
		 "not run (record --threads): queued, sleeping, disk, stopped, or off-cpu",
	 .more = ".Li runnable\nvirtual CPUs wanted a CPU and had none (those of Xen's HVM guests "
		 "may have waited for the device model instead, which Xen does not tell),\n"
		 ".Li blocked\n"
		 "ones were idle; several are separated by commas.\n.Li queued\nthreads wanted a "
		 "virtual CPU and had none,\n.Li disk\nones slept so that no signal would wake "
		 "them;\n.Li off-cpu\nis all four of them.\nThey count as the time that they "
		 "waited.",
	 .values = "running runnable blocked all queued sleeping disk stopped off-cpu"},
	{"vcpu", "LIST", 0, take_vcpus, .text = "only these vCPUs: 0,2-3",
	 .more = "All of them must have been recorded."},
	{"comm", "LIST", 0, take_text, AT(filter.comm),
	 .text = "only threads of these names, or of processes of these names: nginx,sh"},
	{"pid", "LIST", 0, take_numbers, AT(filter.pid),
	 .text = "only threads of these processes: 1,234"},
	{"tid", "LIST", 0, take_numbers, AT(filter.tid), .text = "only these threads: 1,234"},
	{"container", "LIST", 0, take_text, AT(filter.container),
	 .text = "only threads in these containers (control groups of Linux), as reports name "
		 "them, or by their paths: nginx.service,docker:0123456789ab"},
	{"from", "T", 0, take_bound, AT(filter.from_ns),
	 .text = "only what comes after so much of the recording: 2.5 (seconds), 500ms, 1m; or "
		 "after a moment: 14:00, 2026-11-21T14:00, yesterday",
	 .more = "Moments are of local time, or with a Z behind them of UTC.\n"
		 "With one, or with\n.Fl -last ,\n"
		 "a guest that\n.Cm uniprof agent\nsamples can be named instead of a recording."},
	{"to", "T", 0, take_bound, AT(filter.to_ns),
	 .text = "only what comes before so much of the recording, or before a moment"},
	{"last", "T", 0, take_duration, AT(window.last_ns),
	 .text = "only the last so much, up to now: 10m, 2h, 1d", .more = "See\n.Fl -from ."},
	{"store", "DIR", 0, take_text, AT(window.store),
	 .text = "where uniprof agent keeps its recordings (default " STORE_DEFAULT ")",
	 .values = OPTION_DIRECTORY},
	{"weight", "WHAT", 0, take_word, AT(filter.weight), WEIGHT_BY_CPU,
	 .text = "a sample counts as: cpu, the CPU time that the vCPU has used since the last (the "
		 "default where that is known and only running vCPUs are shown); time, the time "
		 "that it stands for; samples, one of many; latency, CPU time divided by the vCPUs "
		 "that run at that moment: what holds the guest up where it runs on one",
	 .more = "No sample counts as more than four times the median distance between samples; "
		 "time beyond that is \"not sampled\", and told in the head.",
	 .values = "cpu time samples latency"},
	{"no-inline", NULL, 0, take_true, AT(naming.no_inline),
	 .text = "count functions that were inlined as part of those around them",
	 .more = "By default they are frames of their own, where debugging information tells of "
		 "them."},
	{"addresses", NULL, 0, take_addresses,
	 .text = "code without a name as FILE+0xOFFSET instead of as one [FILE]"},
	{"no-demangle", NULL, 0, take_true, AT(naming.no_demangle),
	 .text = "names as the compiler wrote them into the file",
	 .more = "By default those of C++, Rust, D and OCaml are shown as they are in the source."},
	{0}};

double load_truncated_share(const struct profile *profile)
{
	const uint64_t all = profile->selected.samples;
	const uint64_t good = profile->ends[UNWIND_OUTERMOST] + profile->ends[UNWIND_NO_ROOM];

	return all ? 1 - (double)good / (double)all : 0;
}

uint64_t load_cut_short(const struct profile *profile)
{
	uint64_t cut = 0;

	for (int i = 0; i < UNWIND_ENDS; i++)
		if (i != UNWIND_OUTERMOST && i != UNWIND_BROKEN && i != UNWIND_NO_ROOM)
			cut += profile->ends[i];
	return cut;
}

/* Appends a sentence to the warning. */
PRINTF_LIKE(2, 3)
static struct error *warn(struct loaded *loaded, const char *format, ...)
{
	const char *before = loaded->warning;
	FREED char *text = NULL;
	char *both;
	va_list args;
	int len;

	va_start(args, format);
	len = vasprintf(&text, format, args);
	va_end(args);
	if (len < 0 || asprintf(&both, "%s%s%s", before ?: "", before ? "; " : "", text) < 0)
		return error_no_memory();
	loaded->sentences++;
	free(loaded->warning);
	loaded->warning = both;
	return NULL;
}

/*
 * Counts samples of stacks in which any frame has no name, and not so much as
 * an image, and samples whose own code has none, or a symbol far before it.
 */
static struct error *count_names(const struct loaded *loaded, struct quality *quality)
{
	const struct profile *profile = loaded->profile;
	uint32_t n = stacks_count(profile->stacks);
	FREED bool *nameless = NULL;

	TRY(ARRAY_NEW(&nameless, n));
	/* A node's parent comes before it. */
	for (uint32_t i = 1; i < n; i++) {
		const struct stack_node *node = stacks_node(profile->stacks, i);
		const uint64_t samples = profile_cell(&profile->cells, i)->samples;
		const struct location *at;
		size_t n_at;

		if (i % PROGRESS_STEP == 0)
			progress_at(loaded->progress, "finding names", i, n);
		TRY(symbolizer_locate_node(loaded->symbolizer, profile->stacks, i, &at, &n_at));
		at += n_at - 1;
		nameless[i] = nameless[node->parent] || !(at->resolved || at->in_image);
		quality->nameless += nameless[i] ? samples : 0;
		quality->nameless_leaf += at->resolved ? 0 : samples;
		if (samples && location_offset(at, node->addr) > QUALITY_FAR) {
			quality->far_leaf += samples;
			quality->far_name = at->function;
		}
	}
	return NULL;
}

/* Part of a command that the user may type: nothing else is taken from a file. */
static bool is_scheduler(const char *name)
{
	return name && (!strcmp(name, "credit2") || !strcmp(name, "credit"));
}

static double share_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

/* Fewer samples that came with a yield are chance, as on a host that is busy itself. */
#define AT_YIELDS_LEAST 10

static struct error *add_warnings(struct loaded *loaded)
{
	const struct profile *profile = loaded->profile;
	struct quality quality = {.stacks = profile->selected.samples};
	FREED char *text = NULL;

	TRY(count_names(loaded, &quality));
	loaded->nameless_share = share_of(quality.nameless_leaf, quality.stacks);
	quality.broken = profile->ends[UNWIND_BROKEN];
	quality.truncated = load_cut_short(profile);
	quality.no_room = profile->ends[UNWIND_NO_ROOM];
	if (!import_is_target(profile->info.target)) {
		/* vCPUs of one tick are one draw. */
		quality.ticks = profile->ticks < quality.stacks ? profile->ticks : quality.stacks;
		quality.draws = profile_draws(profile);
		quality.max_overhead = profile->cut ? 0 : profile->end.max_overhead;
		quality.stopped = share_of(profile->paused_ns, profile_elapsed_ns(profile));
		if (is_scheduler(profile->info.scheduler)) {
			quality.at_yields = profile->at_yields < AT_YIELDS_LEAST
						    ? 0
						    : share_of(profile->at_yields, profile->ran);
			quality.scheduler = profile->info.scheduler;
		}
	}
	if (profile->cut)
		TRY(warn(loaded, "the recording stops in the middle: its writer was killed"));
	if (profile->end.unread)
		TRY(warn(loaded,
			 "%" PRIu64 " of the recordings of that time could not be read whole: they "
			 "are left out, from there on",
			 profile->end.unread));
	if (loaded->sentences < QUALITY_SENTENCES)
		TRY(quality_warning(&quality, QUALITY_SENTENCES - loaded->sentences, &text));
	return text ? warn(loaded, "%s", text) : NULL;
}

/* The window by the wall clock; a day that is not said is that of its start. */
struct error *load_find_window(const struct load_window *window, uint64_t *from_unix_ns,
			       uint64_t *to_unix_ns)
{
	int64_t from_s = 0, to_s = 0;

	if (window->last_ns && (window->from || window->to))
		return error_new(ERR_USAGE, "--last goes up to now: not with --from and --to");
	if (window->from)
		(void)option_wall_clock(window->from, 0, &from_s);
	if (window->to)
		(void)option_wall_clock(window->to, from_s, &to_s);
	if (window->to && to_s <= from_s)
		return error_new(ERR_USAGE, "--to %s: that is not after --from", window->to);
	*from_unix_ns = (uint64_t)from_s * NS_PER_S;
	*to_unix_ns = (uint64_t)to_s * NS_PER_S;
	if (window->last_ns) {
		*to_unix_ns = clock_unix_ns();
		*from_unix_ns = *to_unix_ns - window->last_ns;
	}
	return NULL;
}

struct error *load_preopen(const struct load_options *options, const char *as, uint64_t earlier_ns)
{
	const struct load_window *window = &options->window;
	struct store_query query = {.store = window->store ?: STORE_DEFAULT,
				    .guest = options->path,
				    .as = as};

	if (!window->last_ns && !window->from && !window->to) {
		if (strcmp(options->path, "-") && access(options->path, F_OK) &&
		    store_has(query.store, options->path))
			return error_new(ERR_INPUT,
					 "there is no file %s; to see the guest of that name, add "
					 "--last 10m, or --from and --to",
					 options->path);
		return preopen_input(options->path);
	}
	TRY(load_find_window(window, &query.from_unix_ns, &query.to_unix_ns));
	if (query.from_unix_ns)
		query.from_unix_ns -= earlier_ns;
	if (query.to_unix_ns)
		query.to_unix_ns -= earlier_ns;
	return store_preopen(&query);
}

struct error *load_confine(const struct load_options *options)
{
	TRY(load_preopen(options, options->path, 0));
	TRY(symbol_cache_preopen());
	if (privilege_is_special())
		TRY(preopen_output(options->output));
	cmd_confine_reader();
	return NULL;
}

/* All names at once. */
static struct error *prepare(struct loaded *loaded)
{
	const char *trouble;

	TRY(symbolizer_prepare_stacks(loaded->symbolizer, loaded->profile->stacks));
	trouble = symbolizer_trouble(loaded->symbolizer);
	return trouble ? warn(loaded, "%s", trouble) : NULL;
}

/* A vCPU that was never recorded is a wrong --vcpu, not an empty result. */
static struct error *check_vcpus(const struct profile_filter *filter, const struct profile *profile)
{
	for (uint32_t i = 0; filter->vcpus && i < RECORDING_MAX_VCPUS; i++)
		if (filter->vcpus[i] && !profile->seen[i])
			return error_new(ERR_USAGE,
					 "--vcpu: nothing was recorded of vCPU %" PRIu32
					 " (the guest has %" PRIu32 ", numbered from 0)",
					 i, profile_vcpus(profile));
	return NULL;
}

/* All would be one row without a name, or nothing. */
struct error *load_check_threads(const struct profile *profile, const char *option)
{
	return profile->n_threads
		       ? NULL
		       : error_new(ERR_USAGE,
				   "%s: the recording tells of no processes: the guest runs no "
				   "Linux that lets uniprof see them, or an older uniprof made it",
				   option);
}

static bool has_waits(const struct profile *profile)
{
	uint64_t samples = 0;

	for (unsigned i = WAIT_QUEUED; i < SAMPLE_STATES; i++)
		samples += profile->states[i].samples;
	return samples;
}

static struct error *check_filter(const struct profile_filter *filter,
				  const struct profile *profile)
{
	const char *option = filter->comm	 ? "--comm"
			     : filter->pid	 ? "--pid"
			     : filter->tid	 ? "--tid"
			     : filter->container ? "--container"
						 : NULL;

	TRY(check_vcpus(filter, profile));
	if (filter->exits && !profile->selected.samples)
		return error_new(ERR_USAGE, "--by exit: the recording has no exits: record --host "
					    "makes one that has");
	if (profile->info.timeless && (filter->from_ns || filter->to_ns))
		return error_new(ERR_USAGE,
				 "the samples of this profile have no times: --from and --to "
				 "choose nothing");
	if (filter->states && !(filter->states & STATES_OF_VCPUS) && !has_waits(profile))
		return error_new(ERR_USAGE,
				 "--state: the recording has no threads that do not run: "
				 "record --threads makes one that has");
	return option ? load_check_threads(profile, option) : NULL;
}

struct error *load_recording(const struct load_options *options, struct loaded *out)
{
	const bool to_stdout = !options->output || !strcmp(options->output, "-");
	struct error *err;

	memset(out, 0, sizeof(*out));
	out->progress = options->filter.progress;
	err = profile_load(options->path, &options->filter, &out->profile);
	if (!err)
		err = check_filter(&options->filter, out->profile);
	if (!err)
		load_addresses(&out->profile->info.images);
	if (!err)
		err = load_images(&options->files, out->profile, &out->images, &out->warning);
	out->sentences = out->warning != NULL;
	if (!err)
		err = symbolizer_new(out->images, out->profile, &out->symbolizer);
	if (!err)
		symbolizer_set(out->symbolizer, &options->naming);
	if (!err)
		err = prepare(out);
	if (!err)
		err = add_warnings(out);
	progress_end(out->progress);
	/* Progress must not come between lines of output on the same terminal. */
	if (out->progress && to_stdout)
		out->progress->silent = isatty(STDOUT_FILENO);
	if (err)
		load_free(out);
	return err;
}

struct error *load_outer(const struct outer_options *options, const struct loaded *loaded,
			 struct group_outer *ctx, struct tree_outer *out)
{
	if (!options->by)
		return NULL;
	*ctx = (struct group_outer){loaded->profile, loaded->symbolizer, options->key};
	*out = (struct tree_outer){group_outer_name, ctx};
	return load_check_threads(loaded->profile, "--by");
}

void load_free(struct loaded *loaded)
{
	progress_end(loaded->progress);
	symbolizer_free(loaded->symbolizer);
	images_free(loaded->images);
	profile_free(loaded->profile);
	free(loaded->warning);
	memset(loaded, 0, sizeof(*loaded));
}
