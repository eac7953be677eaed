/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/artefacts.h"

#include <stdlib.h>

#include "base/preopen.h"
#include "cmd/load.h"
#include "view/svg/flamegraph.h"
#include "output/output.h"

/* The files' names, behind the stem. */
#define RAW	 ".raw"
#define SYMS	 ".syms"
#define RESOLVED ".resolved.raw"
#define FOLDED	 ".folded"
#define SVG	 ".svg"

struct artefacts {
	const char *stem;
	const char *recording;
	struct load_options options;
	struct loaded loaded;
	const struct images *images;
	struct namer *addresses; /* names nothing */
	bool quiet;
};

/* Writes STEM + ending with `write`. */
static struct error *put(struct artefacts *a, const char *ending,
			 struct error *(*write)(struct artefacts *a, FILE *out))
{
	struct error *err;
	char *path;
	FILE *out;

	if (asprintf(&path, "%s%s", a->stem, ending) < 0)
		return error_no_memory();
	err = open_output(path, &out);
	if (!err)
		err = close_output(path, out, write(a, out));
	if (!err && !a->quiet)
		say("wrote %s", path);
	free(path);
	return err;
}

static struct error *write_format(struct artefacts *a, const struct output_format *format,
				  struct namer *namer, FILE *out)
{
	const struct output_job job = {.path = a->recording,
				       .profile = a->loaded.profile,
				       .filter = &a->options.filter,
				       .namer = namer};

	return format->write(&job, out);
}

static struct error *write_raw(struct artefacts *a, FILE *out)
{
	return write_format(a, &output_raw, a->addresses, out);
}

static struct error *write_resolved(struct artefacts *a, FILE *out)
{
	return write_format(a, &output_raw, a->loaded.namer, out);
}

static struct error *write_folded(struct artefacts *a, FILE *out)
{
	return write_format(a, &output_folded, a->loaded.namer, out);
}

static struct error *write_symbols(struct artefacts *a, FILE *out)
{
	return images_write_nm(a->images, out);
}

static struct error *write_svg(struct artefacts *a, FILE *out)
{
	char *subtitle = load_subtitle(a->loaded.profile);
	const struct flamegraph_options options = {.title = a->stem,
						   .subtitle = subtitle,
						   .warning = a->loaded.warning,
						   .min_width = -1};
	const struct tree_options how = {0};
	struct tree *tree = NULL;
	struct error *err = tree_build(a->loaded.profile, a->loaded.namer, &how, &tree);

	if (!err)
		err = flamegraph_write(tree, &options, out);
	tree_free(tree);
	free(subtitle);
	return err;
}

struct error *artefacts_open(const char *stem)
{
	const char *endings[] = {RAW, SYMS, RESOLVED, FOLDED, SVG};
	struct error *err = NULL;
	char *path;

	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings) && !err; i++) {
		if (asprintf(&path, "%s%s", stem, endings[i]) < 0)
			return error_no_memory();
		err = ahead_output(path);
		free(path);
	}
	return err;
}

static struct error *write_all(struct artefacts *a)
{
	struct error *err = put(a, RAW, write_raw);

	if (!err && images_count(a->images))
		err = put(a, SYMS, write_symbols);
	if (!err)
		err = put(a, RESOLVED, write_resolved);
	if (!err)
		err = put(a, FOLDED, write_folded);
	if (!err)
		err = put(a, SVG, write_svg);
	return err;
}

struct error *artefacts_write(const char *stem, const char *recording, const struct images *images,
			      bool quiet)
{
	struct artefacts a = {.stem = stem,
			      .recording = recording,
			      .images = images,
			      .quiet = quiet};
	struct error *err;

	load_defaults(&a.options);
	a.options.path = recording;
	err = load(&a.options, &a.loaded);
	if (!err)
		err = namer_new(NULL, NULL, &a.addresses);
	if (!err)
		err = write_all(&a);
	if (!err && a.loaded.warning && !quiet)
		say("warning: %s", a.loaded.warning);
	namer_free(a.addresses);
	unload(&a.loaded);
	return err;
}
