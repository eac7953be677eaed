/* SPDX-License-Identifier: BSD-3-Clause */

/* Built in place of the target where Xen's libraries are missing or left out. */

#include "target/target.h"

const char target_features[] =
	"without Xen (its libraries were not there, or left out, when it was built)";

static struct error *no_open(const char *name, const char *via, struct target **out)
{
	return error_new(ERR_DENIED,
			 "this uniprof was built without Xen's libraries (see uniprof -V)");
}

const struct target_ops target_xen = {
	.scheme = "xen",
	.open = no_open,
};
