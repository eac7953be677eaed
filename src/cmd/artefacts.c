/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/artefacts.h"

#include <stdlib.h>

#include "cmd/load.h"
#include "output/flamegraph.h"
#include "output/output.h"

struct artefacts {
	const char *stem;
	const char *recording;
	struct load_options options;
	struct loaded loaded;
	struct symbols *symbols;
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
	return symbols_write_nm(a->symbols, out);
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

static struct error *write_all(struct artefacts *a)
{
	struct error *err = put(a, ".raw", write_raw);

	if (!err && a->symbols)
		err = put(a, ".syms", write_symbols);
	if (!err)
		err = put(a, ".resolved.raw", write_resolved);
	if (!err)
		err = put(a, ".folded", write_folded);
	if (!err)
		err = put(a, ".svg", write_svg);
	return err;
}

struct error *artefacts_write(const char *stem, const char *recording, const char *image,
			      bool quiet)
{
	struct artefacts a = {.stem = stem, .recording = recording, .quiet = quiet};
	struct error *err = NULL;

	load_defaults(&a.options);
	a.options.path = recording;
	if (*image) {
		err = symbols_load(image, &a.symbols);
		if (err && !quiet)
			say("no symbol table: %s", err->text);
		error_free(err);
		err = NULL;
	}
	err = load(&a.options, &a.loaded);
	if (!err)
		err = namer_new(NULL, NULL, &a.addresses);
	if (!err)
		err = write_all(&a);
	if (!err && a.loaded.warning && !quiet)
		say("warning: %s", a.loaded.warning);
	namer_free(a.addresses);
	unload(&a.loaded);
	symbols_free(a.symbols);
	return err;
}
