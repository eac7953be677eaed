/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/push.h"

#include <stddef.h>

const char push_feature[] = "without push";

struct error *push_open(const struct push_target *target, struct push **out)
{
	*out = NULL;
	return error_new(ERR_FAILED, "this uniprof was built without libcurl: it cannot push");
}

void push_send(struct push *push, const struct push_request *request, struct push_answer *answer)
{
	*answer = (struct push_answer){.outcome = PUSH_BLOCKED};
}

void push_close(struct push *push)
{
}
