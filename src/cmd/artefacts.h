/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_ARTEFACTS_H
#define UNIPROF_CMD_ARTEFACTS_H

#include "cmd/cmd.h"

/*
 * Writes everything that `run` makes of a recording, each as STEM with an
 * ending: .raw, .syms, .resolved.raw, .folded, .svg. `image` is the file with
 * the guest's symbols, "" if there is none: then there are no names either.
 */
struct error *artefacts_write(const char *stem, const char *recording, const char *image,
			      bool quiet);

#endif
