/* SPDX-License-Identifier: BSD-3-Clause */
#include "single.h"

#include <errno.h>

#include <xencall.h>
#include <xen/xen.h>

static bool singly;

void single_calls(bool on)
{
	singly = on;
}

/* Stands before libxencall's function of this name, for all of this program. */
int xencall2(xencall_handle *call, unsigned op, uint64_t arg1, uint64_t arg2)
{
	multicall_entry_t *entry = (void *)(uintptr_t)arg1, *end = entry + arg2;

	if (!singly || op != __HYPERVISOR_multicall)
		return xencall3(call, op, arg1, arg2, 0);
	for (; entry < end; entry++) {
		const int rc = xencall1(call, (unsigned)entry->op, entry->args[0]);

		entry->result = rc < 0 ? (unsigned long)-errno : 0;
	}
	return 0;
}
