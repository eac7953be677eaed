/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Preloaded into uniprof: lets some of its calls to Xen fail, as the variable
 * XEN_FAULT says: "WHAT FROM COUNT". Calls are counted from 1 on.
 *
 *   map        mapping a frame fails: no memory
 *   page       a frame is mapped, but its page reports an error
 *   multicall  refused, nothing done
 *   midway     a multicall with a pause is carried out up to the pause, and fails
 *   context    a multicall is carried out, but the registers are missing
 *   unpause    refused
 *   death      unpause number FROM kills the profiler; the first COUNT of its guard are refused
 *   version    every domctl: what a hypervisor says that speaks another version
 *   withdraw   nothing fails, but before call FROM of any kind the boolean of the policy is cleared
 *              that the variable XEN_SWITCH names; each entry of a multicall is a call, and those
 *              that ask about the host are none
 */

#define __XEN_TOOLS__ 1
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xenctrl.h>
#include <xencall.h>
#include <xenforeignmemory.h>
#include <xen/domctl.h>
#include <xen/xen.h>

/* True if this call, of the kind `what`, is to fail. */
static bool fails(const char *what)
{
	static unsigned long calls;
	const char *fault = getenv("XEN_FAULT");
	unsigned long from, count;
	char name[16];

	if (!fault || sscanf(fault, "%15s %lu %lu", name, &from, &count) != 3)
		abort();
	if (strcmp(name, what))
		return false;
	calls++;
	return calls >= from && calls - from < count;
}

static int refuse(int error)
{
	errno = error;
	return -1;
}

static void *real(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function)
		abort();
	return function;
}

static pid_t profiler;

/* For `withdraw`; opened, and with buffers, before the profiler gives its rights up. */
static struct {
	xc_interface *xc;
	bool busy; /* with the calls of xc */
	unsigned long calls, at;
} policy;

static int set_switch(int value)
{
	const int was = errno;
	int rc;

	policy.busy = true;
	rc = xc_flask_setbool(policy.xc, getenv("XEN_SWITCH"), value, 1);
	policy.busy = false;
	errno = was;
	return rc;
}

static void __attribute__((constructor)) note_profiler(void)
{
	const char *fault = getenv("XEN_FAULT");

	profiler = getpid();
	if (!fault || sscanf(fault, "withdraw %lu", &policy.at) != 1)
		return;
	policy.xc = xc_interface_open(NULL, NULL, 0);
	if (!policy.xc || set_switch(1))
		abort();
}

/* True if the switch is to be turned before one of the next `n` calls of the profiler; `*before`: of these. */
static bool withdraws(uint64_t n, uint64_t *before)
{
	const unsigned long first = policy.calls + 1;

	if (!policy.xc || policy.busy || getpid() != profiler)
		return false;
	policy.calls += n;
	*before = policy.at - first;
	return policy.at >= first && *before < n;
}

static void withdraw_before_a_call(void)
{
	uint64_t before;

	if (withdraws(1, &before) && set_switch(0))
		abort();
}

static bool unpause_fails(void)
{
	static unsigned long calls;
	unsigned long from, count;

	if (sscanf(getenv("XEN_FAULT"), "death %lu %lu", &from, &count) != 2)
		return fails("unpause");
	calls++;
	if (getpid() == profiler && calls == from)
		__builtin_trap();
	return getpid() != profiler && calls <= count;
}

static uint32_t command(unsigned long domctl)
{
	return ((const struct xen_domctl *)domctl)->cmd;
}

int xencall1(xencall_handle *handle, unsigned op, uint64_t arg)
{
	int (*call)(xencall_handle *, unsigned, uint64_t) = real("xencall1");

	if (op != __HYPERVISOR_sysctl)
		withdraw_before_a_call();
	if (op == __HYPERVISOR_domctl && fails("version"))
		return refuse(EACCES);
	if (op == __HYPERVISOR_domctl && command(arg) == XEN_DOMCTL_unpausedomain &&
	    unpause_fails())
		return refuse(EAGAIN);
	return call(handle, op, arg);
}

/* Entries up to the pause, the pause included; 0 if there is none. */
static uint64_t until_pause(const multicall_entry_t *entries, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (command(entries[i].args[0]) == XEN_DOMCTL_pausedomain)
			return i + 1;
	return 0;
}

static void lose_contexts(multicall_entry_t *entries, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t cmd = command(entries[i].args[0]);

		if (cmd == XEN_DOMCTL_getvcpucontext || cmd == XEN_DOMCTL_gethvmcontext_partial)
			entries[i].result = (unsigned long)-EINVAL;
	}
}

int xencall2(xencall_handle *handle, unsigned op, uint64_t arg1, uint64_t arg2)
{
	int (*call)(xencall_handle *, unsigned, uint64_t, uint64_t) = real("xencall2");
	multicall_entry_t *entries = (multicall_entry_t *)(unsigned long)arg1;
	uint64_t some;
	int rc;

	if (op != __HYPERVISOR_multicall) {
		withdraw_before_a_call();
		return call(handle, op, arg1, arg2);
	}
	if (withdraws(arg2, &some)) {
		rc = some ? call(handle, op, arg1, some) : 0;
		if (set_switch(0))
			abort();
		if (rc)
			return rc;
		return call(handle, op, (uint64_t)(unsigned long)(entries + some), arg2 - some);
	}
	if (fails("multicall"))
		return refuse(EFAULT);
	some = until_pause(entries, arg2);
	if (some && fails("midway")) {
		call(handle, op, arg1, some);
		return refuse(EFAULT);
	}
	rc = call(handle, op, arg1, arg2);
	if (fails("context"))
		lose_contexts(entries, arg2);
	return rc;
}

void *xenforeignmemory_map(xenforeignmemory_handle *handle, uint32_t domid, int prot, size_t pages,
			   const xen_pfn_t arr[], int err[])
{
	void *(*map)(xenforeignmemory_handle *, uint32_t, int, size_t, const xen_pfn_t *, int *) =
		real("xenforeignmemory_map");
	void *page;

	withdraw_before_a_call();
	if (fails("map")) {
		errno = ENOMEM;
		return NULL;
	}
	page = map(handle, domid, prot, pages, arr, err);
	if (page && fails("page"))
		err[0] = -ENOMEM;
	return page;
}
