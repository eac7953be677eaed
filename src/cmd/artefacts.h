/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_ARTEFACTS_H
#define UNIPROF_CMD_ARTEFACTS_H

#include "cmd/cmd.h"
#include "symbol/images/images.h"

/* Opens them all ahead (base/ahead.h). */
struct error *artefacts_open(const char *stem);

/*
 * Writes everything that `run` makes of a recording, each as STEM with an
 * ending: .raw, .syms, .resolved.raw, .folded, .svg. `images` are those that
 * were found in the guest; .syms is their functions by the guest's addresses.
 */
struct error *artefacts_write(const char *stem, const char *recording, const struct images *images,
			      bool quiet);

#endif
