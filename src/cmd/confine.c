/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/confine.h"

#include "base/privilege.h"
#include "cmd/cmd.h"

void confine_sampler(const struct confine_how *how)
{
	struct privilege got = {.kept = true};
	char text[256];

	if (!how->keep)
		privilege_drop((how->role ? how->role : SECCOMP_SAMPLER) |
				       (how->screen ? SECCOMP_SCREEN : 0),
			       &got);
	privilege_lacks(&got, text, sizeof(text));
	if (*text && !how->quiet)
		say("warning: %s", text);
	privilege_describe(&got, text, sizeof(text));
	if (how->verbose)
		say("%s", text);
}

void confine_reader(void)
{
	struct privilege got;
	char text[256];

	if (!privilege_is_special())
		return;
	privilege_drop(SECCOMP_READER, &got);
	privilege_lacks(&got, text, sizeof(text));
	if (*text)
		say("warning: %s", text);
}
