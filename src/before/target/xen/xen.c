/* SPDX-License-Identifier: BSD-3-Clause */
#define __XEN_TOOLS__ 1
#include "target/xen/xen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xenctrl.h>
#include <xen/sched.h>

#include "base/clock.h"
#include "target/xen/guest.h"
#include "target/xen/vcpu_regs.h"

#define PAUSE_LOOK_NS 1000000u

static void xen_close(struct target *target)
{
	struct xen_target *xt = (struct xen_target *)target;

	guard_stop(xt->guard);
	xen_undo_close(&xt->undo);
	free(xt->trails);
	frames_free(xt->frames);
	xen_if_close(xt->xi);
	xen_vcpus_free(&xt->vcpus);
	free(xt);
}

static bool parse_domid(const char *name, uint32_t *domid)
{
	char *end;
	unsigned long value;

	if (*name < '0' || *name > '9')
		return false;
	value = strtoul(name, &end, 10);
	if (*end || value >= DOMID_FIRST_RESERVED)
		return false;
	*domid = (uint32_t)value;
	return true;
}

/* By id, or by name: a domain whose name is a number is found by its id first, as xl does. */
static struct error *find_domain(struct xen_target *xt, struct xen_store *store, const char *name)
{
	char its_name[256];
	uint32_t domid, next = 0;

	if (parse_domid(name, &domid)) {
		if (xen_if_domain(xt->xi, domid, &xt->domain) && xt->domain.domid == domid)
			return NULL;
		return error_new(ERR_GUEST,
				 "there is no domain %u; `uniprof list` shows what there is",
				 domid);
	}
	if (!store)
		return error_new(ERR_DENIED,
				 "cannot look up domain \"%s\": no xenstore answers; use its id",
				 name);
	while (xen_if_domain(xt->xi, next, &xt->domain)) {
		xen_guest_name(store, xt->domain.domid, its_name, sizeof(its_name));
		if (!strcmp(its_name, name))
			return NULL;
		next = xt->domain.domid + 1;
	}
	return error_new(ERR_GUEST,
			 "there is no domain called \"%s\"; `uniprof list` shows what there is",
			 name);
}

static struct error *check_domain(const struct xen_target *xt)
{
	if (xt->domain.domid == 0)
		return error_new(
			ERR_GUEST,
			"domain 0 is the one that uniprof runs in; it cannot pause itself");
	if (xt->domain.dying)
		return error_new(ERR_GUEST, "domain %u is being destroyed", xt->domain.domid);
	return NULL;
}

/* Some architectures show in their registers alone. */
static const struct arch *arch_of(struct xen_target *xt)
{
	const uint32_t first = xt->vcpus.online.n ? xt->vcpus.online.id[0] : 0;
	const struct xen_batch batch = {.contexts = &first, .n_contexts = 1};
	const struct xen_vcpu *vcpu = &xt->vcpus.now[first];
	const bool known = !xen_if_batch(xt->xi, &batch, xt->vcpus.now) && !vcpu->status;

	return xen_context_arch(xt->context, known ? vcpu->context : NULL);
}

static struct error *prepare(struct xen_target *xt, struct xen_store *store)
{
	struct target_info *info = &xt->base.info;
	unsigned major, minor;
	struct error *err;

	info->vcpus = xen_if_vcpus(xt->xi, xt->domain.domid);
	if (!info->vcpus)
		return error_new(ERR_GUEST, "domain %u has no vCPUs (yet?)", xt->domain.domid);
	xt->context = xen_context_kind(xt->xi, &xt->domain);
	snprintf(info->id, sizeof(info->id), "%u", xt->domain.domid);
	snprintf(info->type, sizeof(info->type), "%s", xt->domain.hvm ? "hvm" : "pv");
	xen_guest_name(store, xt->domain.domid, info->name, sizeof(info->name));
	xen_guest_config(store, xt->domain.domid, info->type, sizeof(info->type), info->image,
			 sizeof(info->image));
	xen_if_version(xt->xi, &major, &minor);
	snprintf(info->host, sizeof(info->host), "Xen %u.%u, %s", major, minor, xen_if_name);

	xt->fit = 1;
	err = xen_vcpus_new(&xt->vcpus, info->vcpus);
	if (err)
		return err;
	err = xen_if_attach(xt->xi, &xt->domain, info->vcpus);
	if (!err)
		err = frames_new(xt->xi, &xt->frames);
	xt->trails = calloc(info->vcpus, sizeof(*xt->trails));
	if (!err && !xt->trails)
		err = error_no_memory();
	if (!err && xen_vcpus_refresh(&xt->vcpus, xt->xi))
		err = error_new(ERR_GUEST, "domain %u does not tell about its vCPUs",
				xt->domain.domid);
	if (err)
		return err;
	info->arch = arch_of(xt);
	err = xen_undo_open(&xt->undo, &xt->domain);
	if (!err)
		err = guard_start(&xen_guard_ops, &xt->undo, &xt->guard);
	if (!err)
		xt->guard_page = guard_page(xt->guard);
	return err;
}

static struct error *xen_open(const char *name, struct target **out)
{
	struct xen_target *xt = calloc(1, sizeof(*xt));
	struct xen_store *store = NULL;
	struct error *err;

	if (!xt)
		return error_no_memory();
	xt->base.ops = &target_xen;
	err = xen_if_open(&xt->xi);
	if (!err) {
		store = xen_store_open();
		err = find_domain(xt, store, name);
	}
	if (!err)
		err = check_domain(xt);
	if (!err)
		err = prepare(xt, store);
	xen_store_close(store);
	if (err) {
		xen_close(&xt->base);
		return err;
	}
	*out = &xt->base;
	return NULL;
}

/* Another profiler's pause is over in no time; one that lasts is the administrator's. */
static bool paused_for_long(struct xen_target *xt)
{
	struct xen_domain domain;

	for (int i = 0; i < 3; i++) {
		clock_sleep_until(clock_now_ns() + PAUSE_LOOK_NS);
		if (!xen_if_domain(xt->xi, xt->domain.domid, &domain) || !domain.paused)
			return false;
	}
	return true;
}

static bool guard_failed(struct xen_target *xt)
{
	struct error *err = guard_check(xt->guard);
	bool failed = err != NULL;

	error_free(err);
	return failed;
}

static enum target_life xen_life(struct target *target)
{
	struct xen_target *xt = (struct xen_target *)target;
	struct xen_domain domain;

	if (!xen_if_domain(xt->xi, xt->domain.domid, &domain) || domain.domid != xt->domain.domid ||
	    domain.dying)
		return LIFE_GONE;
	/* Suspended is how a domain stands while it is saved or migrated: it may come back. */
	if (domain.shutdown && domain.reason != SHUTDOWN_suspend)
		return domain.reason == SHUTDOWN_crash ? LIFE_CRASHED : LIFE_SHUT_DOWN;
	if (guard_failed(xt))
		return LIFE_UNGUARDED;
	(void)xen_vcpus_refresh(&xt->vcpus, xt->xi);
	return domain.paused && paused_for_long(xt) ? LIFE_PAUSED : LIFE_RUNS;
}

static const struct target_way ways[] = {
	{"hypercalls", "15 us",
	 "Xen pauses the domain; a vCPU that waits or sleeps is read without"},
	{0},
};

static void list_domain(struct xen_if *xi, struct xen_store *store, const struct xen_domain *domain,
			void (*each)(void *ctx, const struct target_listing *entry), void *ctx)
{
	char name[256], id[16], type[16], image[4096];
	struct target_listing entry = {
		.scheme = "xen", .name = name, .id = id, .type = type, .way = ways};

	snprintf(id, sizeof(id), "%u", domain->domid);
	snprintf(type, sizeof(type), "%s", domain->hvm ? "hvm" : "pv");
	xen_guest_name(store, domain->domid, name, sizeof(name));
	xen_guest_config(store, domain->domid, type, sizeof(type), image, sizeof(image));
	entry.vcpus = xen_if_vcpus(xi, domain->domid);
	if (domain->domid == 0)
		entry.note = "the domain that uniprof runs in";
	else if (domain->dying)
		entry.note = "being destroyed";
	else if (domain->shutdown)
		entry.note = domain->reason == SHUTDOWN_crash ? "crashed" : "shut down";
	entry.paused = domain->paused;
	each(ctx, &entry);
}

/* What a kernel that runs on Xen has; without the one for hypercalls there, opening says what to do. */
static bool is_xen_host(void)
{
	return !access("/dev/xen", F_OK) || !access("/proc/xen", F_OK);
}

static struct error *xen_list(void (*each)(void *ctx, const struct target_listing *entry),
			      void *ctx)
{
	struct xen_domain domain;
	struct xen_store *store;
	struct xen_if *xi;
	uint32_t next = 0;
	struct error *err;

	/* On a machine without Xen there are no domains, which is nothing to complain of. */
	if (!is_xen_host())
		return NULL;
	err = xen_if_open(&xi);
	if (err)
		return err;
	store = xen_store_open();
	while (xen_if_domain(xi, next, &domain)) {
		list_domain(xi, store, &domain, each, ctx);
		next = domain.domid + 1;
	}
	xen_store_close(store);
	xen_if_close(xi);
	return NULL;
}

const struct target_ops target_xen = {
	.scheme = "xen",
	.ways = ways,
	.open = xen_open,
	.close = xen_close,
	.sample = xen_sample,
	.snapshot = xen_snapshot,
	.life = xen_life,
	.read = xen_read,
	.registers = xen_registers,
	.list = xen_list,
};
