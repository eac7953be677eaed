/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/session.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/owned.h"
#include "cmd/cmd.h"
#include "profile/profile.h"
#include "recording/recording.h"
#include "recording/stacks.h"
#include "symbol/images/images.h"
#include "symbol/names/display_name.h"
#include "symbol/names/symbolizer.h"

static struct error *put_sources(struct recording_writer *writer, const struct frame *frame,
				 const struct location *at, size_t n)
{
	struct source_frame sources[SOURCE_DEPTH];

	if (n == 1 && !at->line)
		return NULL;
	for (size_t i = 0; i < n; i++)
		sources[i] = (struct source_frame){.function = at[i].inlined ? at[i].symbol : NULL,
						   .file = at[i].file,
						   .line = at[i].line};
	return recording_locations(writer, frame->addr, frame->kind, sources, n);
}

/* One symbol for more code than a function has: said once, and nothing else if it is. */
static void tell_far(const struct location *last, uint64_t offset, char **trouble)
{
	if (!*trouble && offset > QUALITY_FAR &&
	    asprintf(trouble,
		     "%.100s names code more than 64 KiB behind its start: other symbols are "
		     "missing (-s FILE gives them, also afterwards)",
		     last->function) < 0)
		*trouble = NULL;
}

static struct error *put(struct recording_writer *writer, struct symbolizer *symbolizer,
			 const struct frame *frame, char **trouble)
{
	const struct location *at, *last;
	uint64_t offset;
	size_t n;

	TRY(symbolizer_locate(symbolizer, frame->addr, frame->kind, &at, &n));
	last = &at[n - 1];
	if (!last->resolved)
		return NULL;
	offset = location_offset(last, frame->addr);
	tell_far(last, offset, trouble);
	TRY(recording_name(writer, frame->addr, frame->kind, last->symbol, offset));
	return put_sources(writer, frame, at, n);
}

/* A guest that is held for a larger share of the time is another guest. */
#define PAUSED_MUCH 0.05

struct session {
	const struct session_options *options;
	const char *path;
	struct target *target;
	struct stacks *stacks;
	struct stand_ins *stand_ins; /* functions of an interpreter; NULL: not wanted */
	struct images *images;
	struct images *host_images; /* NULL: the host's side is not wanted */
	struct image_locator *locator;
	struct recording_info info;
	struct recording_writer *writer; /* NULL: before the first sample */
	uint64_t told_ns;		 /* when a line of progress was last printed */
	uint64_t ticked_ns;		 /* time of the last tick */
	struct error *unwritten;	 /* what was sampled since could not be; NULL: it was */
	struct session_totals *totals;	 /* NULL: not wanted */
	bool terminal;
	bool segment; /* one of many recordings of the guest: in short, and without a summary */
	struct progress_line progress_line; /* for what is done after sampling */
};

/*
 * Puts the names and source lines of all addresses into the recording, each
 * once: it can then be read without the images. If something could not be found
 * out, *trouble is a sentence that says so, else NULL; the caller frees it.
 */
static struct error *session_names(struct session *session, char **trouble)
{
	struct progress_sink *progress =
		session->terminal ? &session->progress_line.progress : NULL;
	const struct symbolizer_options naming = {.no_demangle = true,
						  .no_source = session->segment,
						  .stand_ins = session->stand_ins};
	struct symbolizer *symbolizer = NULL;
	FREED struct frame *frames = NULL;
	size_t n;
	struct error *err = distinct_frames(session->stacks, &frames, &n);

	*trouble = NULL;
	if (!err)
		err = symbolizer_new(session->images, NULL, &symbolizer);
	if (!err) {
		symbolizer_set(symbolizer, &naming);
		err = symbolizer_prepare(symbolizer, frames, n);
	}
	for (size_t i = 0; i < n && !err; i++) {
		if (i % PROGRESS_STEP == 0)
			progress_at(progress, "finding names", i, n);
		err = put(session->writer, symbolizer, &frames[i], trouble);
	}
	progress_end(progress);
	if (symbolizer && symbolizer_trouble(symbolizer) && !*trouble)
		*trouble = strdup(symbolizer_trouble(symbolizer));
	symbolizer_free(symbolizer);
	return err;
}

char *session_default_path(const struct target *target, const char *ending)
{
	const char *name = *target->info.name ? target->info.name : target->info.id;
	FREED char *sanitized = sanitize_new(*name ? name : "guest");
	char *path;

	if (!sanitized || asprintf(&path, "%s%s", sanitized, ending) < 0)
		return NULL;
	for (char *c = path; (c = strchr(c, '/'));)
		*c = '_';
	if (*path == '.' || *path == '-')
		*path = '_';
	return path;
}

/*
 * Lists the placed images for a recording; and a build id that was seen in the
 * guest, if there is one. The strings are the images' own; free the list itself
 * with free(out->at).
 */
static struct error *list_images(const struct session *session, struct recorded_images *out)
{
	uint64_t seen_va;
	const char *seen = image_locator_seen(session->locator, &seen_va);
	const size_t n = images_count(session->images);

	*out = (struct recorded_images){.at = calloc(n + 2, sizeof(*out->at)), .n = n};
	if (!out->at)
		return error_no_memory();
	for (size_t i = 0; i < n; i++) {
		const struct image *image = images_get(session->images, i);
		const char *id = image->file->build_id;

		out->at[i] = (struct recorded_image){.path = image->file->path,
						     .build_id = *id ? (char *)id : NULL,
						     .start = image->start,
						     .end = image->end,
						     .slide = image->slide,
						     .checked = image->checked};
	}
	if (seen)
		out->at[out->n++] =
			(struct recorded_image){.build_id = (char *)seen,
						.start = seen_va,
						.end = seen_va + CODE_NOTE_HEAD + strlen(seen) / 2,
						.checked = true};
	return NULL;
}

/* True if the same files are at the same addresses. */
static bool same_images(const struct recorded_images *a, const struct recorded_images *b)
{
	bool equal = a->n == b->n;

	for (size_t i = 0; i < a->n && equal; i++)
		equal = a->at[i].path == b->at[i].path && a->at[i].start == b->at[i].start &&
			a->at[i].slide == b->at[i].slide && a->at[i].checked == b->at[i].checked;
	return equal;
}

/* Creates the recording at the first sample: images are located only then. */
static struct error *begin(struct session *session)
{
	TRY(list_images(session, &session->info.images));
	return recording_create(session->path, &session->info, session->stacks, &session->writer);
}

static void tell_news(struct session *session)
{
	struct target_news *news = &session->target->news;

	for (unsigned i = 0; i < news->n && !session->options->quiet; i++)
		cmd_say("%s%s", session->terminal ? "\r\033[K" : "", news->text[i]);
	news->n = 0;
}

static struct error *on_tick(void *ctx, const struct tick *tick)
{
	struct session *session = ctx;
	struct error *err = session->writer ? NULL : begin(session);

	tell_news(session);
	if (session->totals) {
		session->totals->ticks++;
		session->totals->paused_ns += tick->paused_ns;
	}
	session->ticked_ns = tick->time_ns;
	return err ? err : recording_tick(session->writer, tick);
}

static struct error *on_thread(void *ctx, const struct recorded_thread *thread)
{
	struct session *session = ctx;

	if (!session->writer)
		TRY(begin(session));
	return recording_thread(session->writer, thread);
}

static void on_missed(void *ctx, uint64_t periods, uint64_t late_ns)
{
	cmd_say("%" PRIu64 " deadline%s missed, %.6f s behind", periods, periods == 1 ? "" : "s",
		(double)late_ns / 1e9);
}

/* On a terminal one line that changes; elsewhere, when asked to say more, a line a second. */
static void tell_progress(struct session *session, uint64_t elapsed_ns, uint64_t ticks)
{
	uint64_t all = session->options->sampler.duration_ns;
	char of[32] = "";

	if (all)
		snprintf(of, sizeof(of), " of %g s", (double)all / 1e9);
	if (session->terminal) {
		fprintf(stderr, "\r\033[K%.1f s%s, %" PRIu64 " samples", (double)elapsed_ns / 1e9,
			of, ticks);
		fflush(stderr);
	} else if (elapsed_ns >= session->told_ns + NS_PER_S) {
		session->told_ns = elapsed_ns;
		cmd_say("%.0f s%s, %" PRIu64 " samples", (double)elapsed_ns / 1e9, of, ticks);
	}
}

/* While the guest stands still no tick writes what was sampled before. */
static void on_progress(void *ctx, uint64_t elapsed_ns, uint64_t ticks)
{
	struct session *session = ctx;

	if (session->writer && !session->unwritten && elapsed_ns >= session->ticked_ns + NS_PER_S)
		session->unwritten = recording_flush(session->writer);
	if (session->terminal || session->options->verbose)
		tell_progress(session, elapsed_ns, ticks);
}

/* Borrows all strings. */
static void describe(struct session *session)
{
	const struct session_options *options = session->options;
	const struct target_info *guest = &session->target->info;
	struct recording_info *info = &session->info;
	struct image_file *first =
		images_files(session->images) ? images_file(session->images, 0) : NULL;

	*info = (struct recording_info){
		.tool = "uniprof " UNIPROF_VERSION,
		.target = (char *)session->target->ops->scheme,
		.guest_name = (char *)guest->name,
		.guest_id = (char *)guest->id,
		.guest_type = (char *)guest->type,
		.host = (char *)guest->host,
		.arch = (char *)guest->arch->name,
		.unwind = (char *)unwind_method_text(options->sampler.method),
		.vcpus = guest->vcpus,
		.rate_hz = options->sampler.rate_hz,
		.wanted_rate_hz = options->sampler.wanted_rate_hz,
		.max_cpu = options->sampler.max_cpu,
		.duration_ns = options->sampler.duration_ns,
		.start_unix_ns = clock_unix_ns(),
		.jitter = !options->sampler.no_jitter,
	};
	if (guest->rate_limit_us) {
		info->scheduler = (char *)guest->scheduler;
		info->rate_limit_us = guest->rate_limit_us;
	}
	if (first)
		info->image = first->path;
	else if (*guest->image)
		info->image = (char *)guest->image;
	if (first && *first->build_id)
		info->build_id = first->build_id;
}

/* Missing names are a warning: no reason to lose the recording. */
static struct error *record_names(struct session *session)
{
	FREED char *trouble = NULL;
	struct error *err = session_names(session, &trouble);

	if (trouble && !session->options->quiet)
		cmd_say("warning: %s", trouble);
	return err;
}

/* What would have kept pauses short and was refused; NULL: nothing. */
static const char *lacked(const struct sampler_result *result)
{
	if (result->no_priority && result->no_lock)
		return "real-time priority and locked memory";
	return result->no_priority ? "real-time priority"
	       : result->no_lock   ? "locked memory"
				   : NULL;
}

static struct error *finish(struct session *session, const struct sampler_result *result,
			    struct error *err)
{
	struct recording_end end = {
		.elapsed_ns = result->elapsed_ns,
		.missed = result->missed,
		.retakes = result->retakes,
		.failed = result->failed,
		.given_up = result->given_up,
		.waiting = result->waiting,
		.unproven = result->unproven,
		.lacked = (char *)lacked(result),
		.max_overhead = result->max_overhead,
		.reason = (char *)(err ? err->text : sampler_outcome_text(result->outcome)),
	};
	struct recorded_images last = {0};

	tell_news(session);
	if (err && err->kind == ERR_OUTPUT) {
		recording_abandon(session->writer);
		return err;
	}
	err = error_first(err,
			  host_exits_record(session->target, session->images, session->stand_ins,
					    session->stacks, session->writer));
	err = error_first(err, record_names(session));
	err = error_first(err, list_images(session, &last));
	if (!same_images(&last, &session->info.images))
		end.images = last;
	err = error_first(err, recording_close(session->writer, &end));
	free(last.at);
	return err;
}

/* Destination of the samples for messages: the file, or the guest if its recording is temporary. */
static const char *told_as(const struct session *session)
{
	const struct target_info *info = &session->target->info;

	if (session->options->together)
		return *info->name ? info->name : info->id;
	return strcmp(session->path, "-") ? session->path : "standard output";
}

static void tell_waits(const struct session *session, const struct sampler_result *result)
{
	if (!session->options->waits)
		return;
	if (!result->waiting)
		cmd_say("warning: --threads: no thread was seen that does not run: the guest runs "
			"no system whose threads are known, or its kernel was not seen for long "
			"enough");
	else
		cmd_say("%" PRIu64 " samples of threads that do not run; %" PRIu64
			" more ran while they were read, and were left out",
			result->waiting, result->unproven);
	if (result->lost_turns)
		cmd_say("the guest's list of threads led nowhere %" PRIu64
			" times: threads behind may have been seen less often",
			result->lost_turns);
}

static void summary(const struct session *session, const struct sampler_result *result)
{
	const char *way = session->target->way;
	double seconds = (double)result->elapsed_ns / 1e9;
	const double paused =
		result->elapsed_ns ? (double)result->paused_ns / (double)result->elapsed_ns : 0;

	cmd_say("%s: %" PRIu64
		" samples in %.1f s%s%s, guest paused for %.3f %% of the time, %" PRIu64
		" deadline%s missed%s",
		told_as(session), result->ticks, seconds, way ? " via " : "", way ?: "",
		100.0 * paused, result->missed, result->missed == 1 ? "" : "s",
		result->failed ? ", some samples failed" : "");
	if (paused > PAUSED_MUCH && result->max_overhead <= 0)
		cmd_say("warning: the guest was held for %.0f %% of the time, and ran slower by "
			"that; --max-overhead %g samples less often",
			100 * paused, 100 * PAUSED_MUCH);
	if (lacked(result) && session->options->verbose)
		cmd_say("%s was refused: pauses may be longer while other programs run",
			lacked(result));
	if (result->no_room)
		cmd_say("%" PRIu64
			" stacks were not kept whole: there were more different ones than "
			"memory for them (--max-memory)",
			result->no_room);
	if (*result->runtime && session->options->verbose)
		cmd_say("%s: %" PRIu64 " stacks have its functions, %" PRIu64 " do not",
			result->runtime, result->merged.merged, result->merged.unproven);
	tell_waits(session, result);
	if (result->given_up)
		cmd_say("%" PRIu64
			" stacks were given up so as not to hold the guest for longer than %g us",
			result->given_up, (double)session->options->sampler.max_pause_ns / 1e3);
	if (result->slowed)
		cmd_say("%" PRIu64
			" samples were put off so as not to pause the guest for more than %g %% of "
			"the time%s",
			result->slowed, 100 * result->max_overhead,
			session->options->sampler.max_overhead > 0
				? ""
				: " (--max-overhead 100 lifts this bound)");
}

/* Samples, and finds out where the images are. */
static struct error *sample(struct session *session, struct sampler_result *result)
{
	const struct session_options *options = session->options;
	struct target *target = session->target;
	const struct image_locator_notes notes = {.ctx = (void *)options, .note = session_note};
	const struct sampler_sink sink = {
		.ctx = session,
		.tick = on_tick,
		.thread = on_thread,
		.missed = options->print_missed ? on_missed : NULL,
		.progress = on_progress,
	};
	struct sampler_options sampler = options->sampler;
	struct error *err;

	/* Further segments go on with what the locator has found. */
	if (!session->locator)
		TRY(image_locator_new(target, session->images, &notes, &session->locator));
	target->always_pause = options->always_pause;
	sampler.images = session->images;
	sampler.locator = session->locator;
	sampler.threads = true;
	sampler.stand_ins = session->stand_ins;
	sampler.host_images = session->host_images;
	sampler.waits = options->waits ? options->thread_budget : 0;
	err = sampler_run(target, session->stacks, &sampler, &sink, result);
	return err || session->segment ? err : image_locator_end(session->locator);
}

static struct error *record(struct session *session, struct sampler_result *result)
{
	struct error *err;

	TRY(stacks_new(&session->stacks));
	describe(session);
	session->writer = NULL;
	session->ticked_ns = 0;
	err = sample(session, result);
	if (!session->segment)
		err = error_first(err, session_load_jit_names(session->target, session->options,
							      session->images, session->locator));
	err = error_first(session->unwritten, err);
	if (!err && !session->writer)
		err = begin(session);
	/* An error before the first sample leaves no recording. */
	if (session->writer)
		err = finish(session, result, err);
	if (session->terminal)
		fputs("\r\033[K", stderr);
	tell_news(session);
	if (session->writer && !session->options->quiet && !session->segment)
		summary(session, result);
	free(session->info.images.at);
	stacks_free(session->stacks);
	return err;
}

/* ERR_USAGE if the options ask for what this target cannot do. */
static struct error *check(const struct target *target, const struct session_options *options)
{
	if (!options->waits || strcmp(target->ops->scheme, "gdb") != 0)
		return NULL;
	return error_new(ERR_USAGE, "--threads: a gdb stub lets no memory be read while the guest "
				    "runs: name the guest as qemu:, kvm: or xen:");
}

struct error *session_record(struct target *target, const struct session_options *options,
			     const char *path, struct sampler_result *result,
			     struct images **images)
{
	struct session session = {.options = options,
				  .path = path,
				  .target = target,
				  .terminal = !options->quiet && !options->parallel &&
					      isatty(STDERR_FILENO)};
	struct error *err;

	*result = (struct sampler_result){0};
	progress_line_init(&session.progress_line, "uniprof");
	if (target->advice && !options->quiet)
		cmd_say("via %s: %s", target->way, target->advice);
	if (options->verbose)
		cmd_say("%s guest %s \"%s\" with %u vCPUs on %s%s%s", target->info.type,
			target->info.id, target->info.name, target->info.vcpus - target->info.spare,
			target->info.host, *target->info.image ? ", started from " : "",
			target->info.image);
	err = check(target, options);
	if (!err)
		err = session_load_images(target, options, &session.images);
	/* Segments have none: the next session's numbers would be other functions'. */
	if (!err && (!options->no_python || target->sees_host))
		err = stand_ins_new(&session.stand_ins);
	if (!err)
		err = session_load_host_images(target, options, &session.host_images);
	if (!err)
		err = record(&session, result);
	image_locator_free(session.locator);
	images_free(session.host_images);
	stand_ins_free(session.stand_ins);
	if (images)
		*images = session.images;
	else
		images_free(session.images);
	return err;
}

/* Until the next minute of the wall clock begins; one that is nearly over goes with the next. */
static uint64_t segment_ns(void)
{
	const uint64_t minute = 60 * NS_PER_S, left = minute - clock_unix_ns() % minute;

	return left < minute / 12 ? left + minute : left;
}

/* Takes what is to be done from now on; whatever changes meanwhile is taken by the next segment. */
static void follow(struct session_shared *shared, struct sampler_options *sampler)
{
	sampler->changes = &shared->changes;
	sampler->change = atomic_load_explicit(&shared->changes, memory_order_acquire);
	sampler->rate_hz = shared->sampler.rate_hz;
	sampler->wanted_rate_hz = shared->sampler.wanted_rate_hz;
	sampler->max_cpu = shared->sampler.max_cpu;
	sampler->max_overhead = shared->sampler.max_overhead;
	sampler->max_pause_ns = shared->sampler.max_pause_ns;
	sampler->max_memory = shared->sampler.max_memory;
}

/* Tables of which little is used take little, and what a minute took is given back; else glibc soon keeps all in the heap. */
#define LARGE_BYTES (128 << 10)
#ifdef M_MMAP_THRESHOLD
static void map_large_blocks(void)
{
	mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
}
#else
static void map_large_blocks(void)
{
}
#endif

struct error *session_record_segments(struct target *target, const struct session_options *options,
				      struct sampler_result *result, struct session_shared *shared)
{
	struct session_options each = *options;
	struct session session = {.options = &each,
				  .path = "-",
				  .target = target,
				  .totals = &shared->totals,
				  .segment = true};
	struct error *err;

	map_large_blocks();
	err = session_load_images(target, options, &session.images);
	*result = (struct sampler_result){.outcome = SAMPLED_TIME};
	while (!err && result->outcome == SAMPLED_TIME) {
		follow(shared, &each.sampler);
		each.sampler.duration_ns = segment_ns();
		err = record(&session, result);
		shared->totals.missed += result->missed;
		shared->totals.failed += result->failed;
		shared->totals.incomplete += result->given_up + result->no_room;
	}
	image_locator_free(session.locator);
	images_free(session.images);
	return err;
}
