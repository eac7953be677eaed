/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/priority.h"

#include <sys/mman.h>

void priority_raise(struct priority *before)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

	before->locked = mlockall(MCL_CURRENT) == 0;
	before->policy = sched_getscheduler(0);
	before->raised = before->policy >= 0 && !sched_getparam(0, &before->param) &&
			 !sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest);
}

void priority_restore(const struct priority *before)
{
	/* SCHED_RESET_ON_FORK stays: only root could take that back. */
	if (before->raised)
		sched_setscheduler(0, before->policy | SCHED_RESET_ON_FORK, &before->param);
	if (before->locked)
		munlockall();
}
