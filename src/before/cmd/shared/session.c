/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/preopen.h"
#include "base/clock.h"
#include "cmd/confine.h"
#include "cmd/meter.h"
#include "cmd/session_names.h"
#include "symbol/names/display_name.h"
#include "symbol/images/debuginfod.h"
#include "symbol/kernel/image.h"

struct session {
	const struct session_options *options;
	const char *path;
	struct target *target;
	const struct stacks *stacks;
	const struct images *images;
	struct settle *settle;
	struct recording_info info;
	struct recording_writer *writer; /* NULL: before the first sample */
	uint64_t paused_ns;
	uint64_t told_ns; /* when a line of progress was last printed */
	bool terminal;
	struct meter meter; /* for what is done after sampling */
};

struct error *session_confine(const struct target *target, const struct session_options *options)
{
	const struct confine_how how = {.keep = options->keep_rights,
					.verbose = options->verbose,
					.quiet = options->quiet,
					.role = target->role,
					.screen = options->screen};
	struct error *err = ahead_input(target->info.image);

	for (size_t i = 0; i < target->n_files && !err; i++)
		err = ahead_input(target->files[i].path);
	if (!err && !options->files.n && *target->info.image)
		err = debuginfod_ahead(target->info.image);
	if (!err)
		confine_sampler(&how);
	return err;
}

char *session_default_path(const struct target *target, const char *ending)
{
	const char *name = *target->info.name ? target->info.name : target->info.id;
	char *clean = clean_name_new(*name ? name : "guest"), *path;
	int rc;

	if (!clean)
		return NULL;
	rc = asprintf(&path, "%s%s", clean, ending);
	free(clean);
	if (rc < 0)
		return NULL;
	for (char *c = path; (c = strchr(c, '/'));)
		*c = '_';
	if (*path == '.' || *path == '-')
		*path = '_';
	return path;
}

static struct error *places(const struct session *session, struct recorded_images *out)
{
	uint64_t va;
	const char *seen = settle_seen(session->settle, &va);

	return image_places(session->images, seen, va, out);
}

/* Only now it is known where the images are. */
static struct error *begin(struct session *session)
{
	struct error *err = places(session, &session->info.images);

	return err ? err
		   : recording_create(session->path, &session->info, session->stacks,
				      &session->writer);
}

static void tell_news(struct session *session)
{
	if (session->target->news && !session->options->quiet)
		say("%s%s", session->terminal ? "\r\033[K" : "", session->target->news);
	session->target->news = NULL;
}

static struct error *on_tick(void *ctx, const struct tick *tick)
{
	struct session *session = ctx;
	struct error *err = session->writer ? NULL : begin(session);

	session->paused_ns += tick->paused_ns;
	tell_news(session);
	return err ? err : recording_tick(session->writer, tick);
}

void session_note(void *ctx, bool warning, const char *text)
{
	const struct session_options *options = ctx;

	if (warning ? !options->quiet : options->verbose)
		say("%s%s", warning ? "warning: " : "", text);
}

static void on_missed(void *ctx, uint64_t periods, uint64_t late_ns)
{
	say("%" PRIu64 " deadline%s missed, %.6f s behind", periods, periods == 1 ? "" : "s",
	    (double)late_ns / 1e9);
}

/* On a terminal one line that changes; elsewhere, when asked to say more, a line a second. */
static void on_progress(void *ctx, uint64_t elapsed_ns, uint64_t ticks)
{
	struct session *session = ctx;
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
		say("%.0f s%s, %" PRIu64 " samples", (double)elapsed_ns / 1e9, of, ticks);
	}
}

/* Borrows all strings. */
static void describe(const struct target *target, const struct session_options *options,
		     struct images *images, struct recording_info *info)
{
	const struct target_info *guest = &target->info;
	struct image_file *first = images_files(images) ? images_file(images, 0) : NULL;

	*info = (struct recording_info){
		.tool = "uniprof " UNIPROF_VERSION,
		.target = (char *)target->ops->scheme,
		.guest_name = (char *)guest->name,
		.guest_id = (char *)guest->id,
		.guest_type = (char *)guest->type,
		.host = (char *)guest->host,
		.arch = (char *)guest->arch->name,
		.unwind = (char *)unwind_method_text(options->sampler.method),
		.vcpus = guest->vcpus,
		.rate_hz = options->sampler.rate_hz,
		.duration_ns = options->sampler.duration_ns,
		.start_unix_ns = clock_unix_ns(),
		.jitter = !options->sampler.no_jitter,
	};
	if (first)
		info->image = first->path;
	else if (*guest->image)
		info->image = (char *)guest->image;
	if (first && *first->build_id)
		info->build_id = first->build_id;
}

/* What the target knows to be in the guest; a file that cannot be read is done without. */
static struct error *load_mapped_files(const struct target *target,
				       const struct session_options *options, struct images *images)
{
	for (size_t i = 0; i < target->n_files; i++) {
		const struct image_spec spec = {.path = target->files[i].path,
						.has_address = true,
						.address = target->files[i].address,
						.names = true};
		struct error *err = images_load(images, &spec, NULL);

		if (err && options->verbose)
			say("without %s: %s", spec.path, err->text);
		error_free(err);
	}
	return NULL;
}

/* All that a Linux kernel's file tells is in the guest's memory, too, and unpacked. */
static bool is_linux(const struct target_info *info)
{
	if (info->arch == &arch_arm64)
		return kernel_image_arm64_at(info->image);
	return info->arch == &arch_x86_64 && kernel_image_at(info->image);
}

struct error *session_load_images(const struct target *target,
				  const struct session_options *options, struct images **images)
{
	const struct image_spec own = {.path = target->info.image,
				       .names = true,
				       .needs_names = true};
	struct error *err = images_new(images);

	if (!err && !options->keep_rights)
		images_load_apart(*images);
	if (!err)
		err = image_args_load(&options->files, *images);
	if (err) {
		images_free(*images);
		*images = NULL;
	}
	if (err || options->files.n)
		return err;
	if (target->n_files)
		return load_mapped_files(target, options, *images);
	if (!*target->info.image)
		return NULL;
	if (is_linux(&target->info))
		return NULL;
	err = images_load(*images, &own, NULL);
	if (err && !options->quiet)
		say("no names for now: %s (-s FILE gives them, also afterwards)", err->text);
	error_free(err);
	return NULL;
}

/* What could not be found out is told, and no reason to lose the recording. */
static struct error *record_names(struct session *session)
{
	char *trouble;
	struct error *err =
		session_names(session->writer, session->stacks, session->images,
			      session->terminal ? &session->meter.progress : NULL, &trouble);

	if (trouble && !session->options->quiet)
		say("warning: %s", trouble);
	free(trouble);
	return err;
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
		.reason = (char *)(err ? err->text : sampler_outcome_text(result->outcome)),
	};
	struct recorded_images last = {0};

	if (err && err->kind == ERR_OUTPUT) {
		recording_abandon(session->writer);
		return err;
	}
	err = error_first(err, record_names(session));
	err = error_first(err, places(session, &last));
	if (!image_places_equal(&last, &session->info.images))
		end.images = last;
	err = error_first(err, recording_close(session->writer, &end));
	free(last.at);
	return err;
}

/* Where the samples are; of a recording that is not going to stay, whose they are. */
static const char *told_as(const struct session *session)
{
	const struct target_info *info = &session->target->info;

	if (session->options->together)
		return *info->name ? info->name : info->id;
	return strcmp(session->path, "-") ? session->path : "standard output";
}

static void summary(const struct session *session, const struct sampler_result *result)
{
	const char *way = session->target->way;
	double seconds = (double)result->elapsed_ns / 1e9;

	say("%s: %" PRIu64 " samples in %.1f s%s%s, guest paused for %.3f %% of the time, %" PRIu64
	    " deadline%s missed%s",
	    told_as(session), result->ticks, seconds, way ? " via " : "", way ?: "",
	    result->elapsed_ns ? 100.0 * (double)session->paused_ns / (double)result->elapsed_ns
			       : 0,
	    result->missed, result->missed == 1 ? "" : "s",
	    result->failed ? ", some samples failed" : "");
	if (result->no_room)
		say("%" PRIu64 " stacks were not kept whole: there were more different ones than "
		    "memory for them (--max-memory)",
		    result->no_room);
	if (result->given_up)
		say("%" PRIu64 " stacks were given up so as not to hold the guest for longer than "
		    "%g us",
		    result->given_up, (double)session->options->sampler.max_pause_ns / 1e3);
	if (result->slowed)
		say("%" PRIu64
		    " samples were put off so as not to pause the guest for more than %g %% of "
		    "the time",
		    result->slowed, 100 * session->options->sampler.max_overhead);
}

/* Samples, and finds out where the images are. */
static struct error *sample(struct session *session, struct target *target, struct stacks *stacks,
			    struct images *images, struct sampler_result *result)
{
	const struct session_options *options = session->options;
	const struct settle_notes notes = {.ctx = (void *)options, .note = session_note};
	const struct sampler_sink sink = {
		.ctx = session,
		.tick = on_tick,
		.missed = options->print_missed ? on_missed : NULL,
		.progress = session->terminal || options->verbose ? on_progress : NULL,
	};
	struct sampler_options sampler = options->sampler;
	struct error *err = settle_new(target, images, &notes, &session->settle);

	if (err)
		return err;
	target->always_pause = options->always_pause;
	sampler.images = images;
	sampler.settle = session->settle;
	err = sampler_run(target, stacks, &sampler, &sink, result);
	return err ? err : settle_end(session->settle);
}

static struct error *record(struct session *session, struct target *target, struct images *images,
			    struct sampler_result *result)
{
	struct stacks *stacks = NULL;
	struct error *err = stacks_new(&stacks);

	if (err)
		return err;
	describe(target, session->options, images, &session->info);
	session->images = images;
	session->stacks = stacks;
	err = sample(session, target, stacks, images, result);
	if (!err && !session->writer)
		err = begin(session);
	/* An error before the first sample leaves no recording. */
	if (session->writer)
		err = finish(session, result, err);
	if (session->terminal)
		fputs("\r\033[K", stderr);
	tell_news(session);
	if (session->writer && !session->options->quiet)
		summary(session, result);
	free(session->info.images.at);
	settle_free(session->settle);
	stacks_free(stacks);
	return err;
}

struct error *session_record(struct target *target, const struct session_options *options,
			     const char *path, struct sampler_result *result,
			     struct images **images)
{
	struct session session = {.options = options,
				  .path = path,
				  .target = target,
				  .terminal = !options->quiet && !options->several &&
					      isatty(STDERR_FILENO)};
	struct images *own = NULL;
	struct error *err;

	memset(result, 0, sizeof(*result));
	meter_init(&session.meter, "uniprof");
	if (target->advice && !options->quiet)
		say("via %s: %s", target->way, target->advice);
	if (options->verbose)
		say("%s guest %s \"%s\" with %u vCPUs on %s%s%s", target->info.type,
		    target->info.id, target->info.name, target->info.vcpus - target->info.spare,
		    target->info.host, *target->info.image ? ", started from " : "",
		    target->info.image);
	err = session_load_images(target, options, &own);
	if (!err)
		err = record(&session, target, own, result);
	if (images)
		*images = own;
	else
		images_free(own);
	return err;
}
