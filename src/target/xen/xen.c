/* SPDX-License-Identifier: BSD-3-Clause */
#define __XEN_TOOLS__ 1
#include "target/xen/xen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <xen/sched.h>
#include <xenctrl.h>
#include <xenstore.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/owned.h"

/*
 * The toolstack's information on a domain: its name (xenstore), its type and
 * the file it was started from (the configuration that xl keeps). `store` is
 * NULL where there is no xenstore.
 */

#define DOMID_UNKNOWN UINT32_MAX

/* File in which libxl keeps a domain's configuration (libxl__userdata_path). */
#define USERDATA "/var/lib/xen/userdata-d.%u.%s.libxl-json"

/* Returns the entry's value, which the caller frees; NULL if there is no such entry. */
static char *read_entry(struct xs_handle *store, uint32_t domid, const char *entry)
{
	char path[64];
	unsigned len;

	if (!store)
		return NULL;
	snprintf(path, sizeof(path), "/local/domain/%u/%s", domid, entry);
	return xs_read(store, XBT_NULL, path, &len);
}

/* Fills `name` ("" if the domain has none); false if this domain may not read it. */
static bool guest_name(struct xs_handle *store, uint32_t domid, char *name, size_t size)
{
	char *value;
	bool hidden;

	errno = 0;
	value = read_entry(store, domid, "name");
	hidden = !value && errno == EACCES;
	snprintf(name, size, "%s", value ? value : "");
	free(value);
	return !hidden;
}

/* "control_d": this kernel runs on Xen in the domain that controls the others. */
static bool is_control_domain(void)
{
	FILE *file = fopen("/proc/xen/capabilities", "re");
	char word[32] = "";

	if (!file)
		return false;
	if (!fgets(word, sizeof(word), file))
		*word = '\0';
	fclose(file);
	return !strncmp(word, "control_d", strlen("control_d"));
}

/* The domain that this is; DOMID_UNKNOWN: xenstore does not tell. */
static uint32_t own_domid(struct xs_handle *store)
{
	unsigned len;
	FREED char *value = store ? xs_read(store, XBT_NULL, "domid", &len) : NULL;

	if (is_control_domain())
		return 0;
	return value ? (uint32_t)strtoul(value, NULL, 10) : DOMID_UNKNOWN;
}

/* Leaves `to` as it is where the section has no such text. */
static void take_string(const json_t *config, const char *section, const char *key, char *to,
			size_t size)
{
	const char *text =
		json_string_value(json_object_get(json_object_get(config, section), key));

	if (text && strlen(text) < size)
		strcpy(to, text);
}

/* Fills type ("pv", "pvh", "hvm") and image (path of the kernel) from xl's own record of the domain. */
static void guest_config(struct xs_handle *store, uint32_t domid, struct target_info *info)
{
	FREED char *vm = read_entry(store, domid, "vm");
	char path[128];
	const char *uuid;
	json_t *config;

	if (!vm)
		return;
	uuid = strrchr(vm, '/');
	snprintf(path, sizeof(path), USERDATA, domid, uuid ? uuid + 1 : vm);
	config = json_load_file(path, JSON_DISABLE_EOF_CHECK, NULL);
	take_string(config, "c_info", "type", info->type, sizeof(info->type));
	take_string(config, "b_info", "kernel", info->image, sizeof(info->image));
	json_decref(config);
}

/* False: this domain may not read its name, which is "". */
static bool describe(struct xs_handle *store, const struct xen_domain *domain,
		     struct target_info *info)
{
	snprintf(info->id, sizeof(info->id), "%u", domain->domid);
	snprintf(info->type, sizeof(info->type), "%s", domain->hvm ? "hvm" : "pv");
	return guest_name(store, domain->domid, info->name, sizeof(info->name));
}

/* Characters that a shell does not interpret. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"

/* Opens devices for the guard to undo pauses with. */
static struct error *undo_open(struct xen_undo *undo, const struct xen_domain *domain,
			       const char *name)
{
	struct descriptors before;

	undo->domain = *domain;
	if (strspn(name, PLAIN "-") == strlen(name) && *name != '-')
		snprintf(undo->name, sizeof(undo->name), "%s", name);
	descriptors_collect(&before);
	TRY(xen_if_open_devices(&undo->xi));
	descriptors_collect(&undo->devices);
	descriptors_subtract(&undo->devices, &before);
	return NULL;
}

struct error *xen_undo_refused(const struct xen_undo *undo, int rc)
{
	char id[16];

	snprintf(id, sizeof(id), "%u", undo->domain.domid);
	return error_new(ERR_DENIED,
			 "domain %s stands still: Xen refuses to let it run on (%s); it is asked "
			 "again and again, and `xl unpause %s` in dom0 frees the domain",
			 id, strerror(-rc), *undo->name ? undo->name : id);
}

static void guard_keeps(void *ctx, struct descriptors *keep)
{
	*keep = ((struct xen_undo *)ctx)->devices;
	descriptors_add(keep, STDERR_FILENO);
}

static bool guard_prepare(void *ctx)
{
	struct xen_undo *undo = ctx;
	struct error *err = xen_if_begin(undo->xi) ?: xen_if_attach(undo->xi, &undo->domain, 1);
	const bool ready = !err;

	error_free(err);
	return ready;
}

/*
 * Pauses are counted, and the count cannot be read: a domain that is paused in
 * a moment when we may have paused it is taken to be paused by us.
 */
static struct error *undo_pause(void *ctx, enum guard_phase phase)
{
	struct xen_undo *undo = ctx;
	struct xen_domain now;
	int rc = xen_if_domain(undo->xi, undo->domain.domid, &now);

	/* A Xen that does not tell about the domain may still let it go. */
	if (rc == -ESRCH || (!rc && !now.paused))
		return NULL;
	rc = xen_if_go(undo->xi);
	return !rc || rc == -ESRCH || rc == -EINVAL ? NULL : xen_undo_refused(undo, rc);
}

static const struct guard_ops guard_ops = {.holds = GUARD_MAYBE,
					   .keeps = guard_keeps,
					   .prepare = guard_prepare,
					   .undo = undo_pause};

#define PAUSE_POLL_NS 1000000u

static const char names_hidden[] =
	"names of other domains cannot be read here: use the id, or let dom0 allow it by "
	"`xenstore-chmod /local/domain/ID/name n0 rID rOWN` (docs/flask.md)";

static void xen_close(struct target *target)
{
	struct xen_target *xt = (struct xen_target *)target;

	guard_stop(xt->guard);
	xen_if_close(xt->undo.xi);
	xen_frames_free(xt->frames);
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

/* The error for a name that no domain was found by. */
static struct error *not_found(const char *name, bool hidden)
{
	if (!hidden)
		return error_new(
			ERR_GUEST,
			"there is no domain called \"%s\"; `uniprof list` shows what there is",
			name);
	return error_new(ERR_GUEST, "no domain whose name can be read is called \"%s\": %s", name,
			 names_hidden);
}

static struct error *is_own(uint32_t domid)
{
	return error_new(ERR_GUEST,
			 "domain %u is the one that uniprof runs in; it cannot pause itself",
			 domid);
}

static struct error *find_by_name(struct xen_target *xt, struct xs_handle *store, uint32_t own,
				  const char *name)
{
	char its_name[256];
	uint32_t next = 0;
	bool hidden = false;
	int rc;

	if (!store)
		return error_new(ERR_DENIED,
				 "cannot look up domain \"%s\": no xenstore answers; use its id",
				 name);
	while ((rc = xen_if_next_domain(xt->xi, next, &xt->domain)) != -ESRCH) {
		next = xt->domain.domid + 1;
		hidden |= !guest_name(store, xt->domain.domid, its_name, sizeof(its_name));
		if (!strcmp(its_name, name) && xt->domain.domid == own)
			return is_own(own);
		if (!strcmp(its_name, name))
			return rc ? xen_if_refusal(xt->xi, xt->domain.domid) : NULL;
		if (rc && !xen_if_state(xt->xi)->has_policy)
			return xen_if_refusal(xt->xi, xt->domain.domid);
	}
	return not_found(name, hidden);
}

/*
 * Finds a domain by id, or by name: one whose name is a number is found by its
 * id first, as xl does. Never this domain, whether a policy lets it ask about
 * itself or not.
 */
static struct error *find_domain(struct xen_target *xt, struct xs_handle *store, uint32_t own,
				 const char *name)
{
	uint32_t domid;
	int rc;

	if (!parse_domid(name, &domid))
		return find_by_name(xt, store, own, name);
	if (domid == own)
		return is_own(own);
	rc = xen_if_domain(xt->xi, domid, &xt->domain);
	if (rc == -ESRCH)
		return error_new(ERR_GUEST,
				 "there is no domain %u; `uniprof list` shows what there is",
				 domid);
	if (rc && xen_if_refused(xt->xi, domid))
		return xen_if_refusal(xt->xi, domid);
	return rc ? error_errno(ERR_FAILED, -rc, "cannot look up domain %u", domid) : NULL;
}

const void *xen_first_context(struct xen_target *xt)
{
	uint32_t first = xen_first_online(xt);
	const struct xen_batch batch = {.contexts = {1, &first}};
	const struct xen_vcpu *vcpu = &xt->vcpus.now[first];

	return !xen_if_batch(xt->xi, &batch, xt->vcpus.now) && !vcpu->status ? vcpu->context : NULL;
}

static struct error *prepare(struct xen_target *xt, struct xs_handle *store)
{
	struct target_info *info = &xt->base.info;
	struct xen_scheduler scheduler;

	info->vcpus = xen_if_vcpus(xt->xi, xt->domain.domid);
	if (info->vcpus)
		xt->context = xen_context_kind(xt->xi, &xt->domain);
	TRY(xen_refusal(xt));
	if (!info->vcpus)
		return error_new(ERR_GUEST, "domain %u has no vCPUs (yet?)", xt->domain.domid);
	describe(store, &xt->domain, info);
	guest_config(store, xt->domain.domid, info);
	snprintf(info->host, sizeof(info->host), "Xen %u.%u, %s", xen_if_state(xt->xi)->major,
		 xen_if_state(xt->xi)->minor, xen_if_name);
	xen_if_scheduler(xt->xi, &scheduler);
	snprintf(info->scheduler, sizeof(info->scheduler), "%s", scheduler.name);
	info->rate_limit_us = scheduler.rate_limit_us;

	xt->fit = 1;
	TRY(xen_vcpus_new(&xt->vcpus, info->vcpus));
	TRY(xen_if_attach(xt->xi, &xt->domain, info->vcpus));
	TRY(xen_frames_new(xt->xi, &xt->frames));
	if (xen_vcpus_refresh(&xt->vcpus, xt->xi)) {
		TRY(xen_refusal(xt));
		return error_new(ERR_GUEST, "domain %u does not tell about its vCPUs",
				 xt->domain.domid);
	}
	/* Some architectures show in their registers alone. */
	info->arch = xen_context_arch(xt->context, xen_first_context(xt));
	xt->base.copies_pieces = true;
	xt->base.copies_threads = info->arch == &arch_x86_64 || info->arch == &arch_arm64;
	xt->base.copies_program_frames = info->arch == &arch_x86_64;
	xt->base.follows_tables = true;
	return NULL;
}

static struct error *start_guard(struct xen_target *xt)
{
	TRY(undo_open(&xt->undo, &xt->domain, xt->base.info.name));
	TRY(guard_start(&guard_ops, &xt->undo, &xt->guard));
	xt->guard_page = guard_page(xt->guard);
	return NULL;
}

static struct error *open_domain(struct xen_target *xt, struct xs_handle *store, const char *name)
{
	TRY(find_domain(xt, store, own_domid(store), name));
	if (xt->domain.dying)
		return error_new(ERR_GUEST, "domain %u is being destroyed", xt->domain.domid);
	return prepare(xt, store);
}

struct error *xen_open_unguarded(const char *name, struct xen_target **out)
{
	struct xen_target *xt;
	struct xs_handle *store;
	struct error *err;

	TRY(ARRAY_NEW(&xt, 1));
	*out = xt;
	xt->base.ops = &target_xen;
	TRY(xen_if_open(&xt->xi));
	store = xs_open(XS_OPEN_READONLY);
	err = open_domain(xt, store, name);
	if (store)
		xs_close(store);
	return err;
}

static struct error *xen_open(const char *name, const char *via, struct target **out)
{
	struct xen_target *xt = NULL;
	struct error *err = xen_open_unguarded(name, &xt);

	if (!err)
		err = start_guard(xt);
	if (!err)
		err = xen_check_rights(xt);
	if (!err)
		*out = &xt->base;
	else if (xt)
		xen_close(&xt->base);
	return err;
}

/* Another profiler's pause is over in no time; one that lasts is the administrator's. */
static bool paused_for_long(struct xen_target *xt)
{
	struct xen_domain domain;

	for (int i = 0; i < 3; i++) {
		clock_sleep_until(clock_now_ns() + PAUSE_POLL_NS);
		if (xen_if_domain(xt->xi, xt->domain.domid, &domain) || !domain.paused)
			return false;
	}
	return true;
}

static bool guard_failed(struct xen_target *xt)
{
	return !xt->guard || !guard_check(xt->guard);
}

enum target_life xen_domain_life(const struct xen_target *xt, struct xen_domain *domain)
{
	const int rc = xen_if_domain(xt->xi, xt->domain.domid, domain);

	if (rc == -ESRCH || (!rc && domain->dying))
		return LIFE_GONE;
	/* The next sample reports why Xen tells nothing of the domain. */
	if (rc)
		*domain = xt->domain;
	/* A domain is suspended while it is saved or migrated, and may come back. */
	if (!rc && domain->shutdown && domain->reason != SHUTDOWN_suspend)
		return domain->reason == SHUTDOWN_crash ? LIFE_CRASHED : LIFE_SHUT_DOWN;
	return LIFE_RUNS;
}

static enum target_life xen_life(struct target *target)
{
	struct xen_target *xt = (struct xen_target *)target;
	struct xen_domain domain;
	const enum target_life life = xen_domain_life(xt, &domain);

	if (life != LIFE_RUNS)
		return life;
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

/* Reason why the domain cannot be profiled, as far as getdomaininfo tells; NULL: it can. */
static const char *obstacle(const struct xen_domain *domain, uint32_t own)
{
	if (domain->domid == own)
		return "the domain that uniprof runs in";
	if (domain->dying)
		return "being destroyed";
	if (domain->shutdown)
		return domain->reason == SHUTDOWN_crash ? "crashed" : "shut down";
	return NULL;
}

struct domain_listing {
	struct xen_if *xi;
	struct xs_handle *store;
	uint32_t own;
	bool names; /* and nothing else that takes longer */
	target_each *each;
	void *ctx;
};

static void list_domain(const struct domain_listing *listing, const struct xen_domain *domain)
{
	struct target_info info = {0};
	struct target_listing entry = {
		.scheme = "xen", .name = info.name, .id = info.id, .type = info.type, .way = ways};
	struct error *refusal = NULL;

	if (!describe(listing->store, domain, &info))
		entry.nameless = names_hidden;
	if (!listing->names)
		guest_config(listing->store, domain->domid, &info);
	if (!listing->names || xen_if_state(listing->xi)->has_policy)
		entry.vcpus = xen_if_vcpus(listing->xi, domain->domid);
	entry.note = obstacle(domain, listing->own);
	entry.paused = domain->paused;
	if (!entry.note && xen_if_refused(listing->xi, domain->domid))
		refusal = xen_if_refusal(listing->xi, domain->domid);
	if (refusal)
		entry.note = refusal->text;
	listing->each(listing->ctx, &entry);
	error_free(refusal);
}

/* Without a policy, Xen tells of all domains or of none. */
static struct error *list_domains(const struct domain_listing *listing)
{
	struct xen_domain domain;
	uint32_t next = 0;
	int rc;

	while ((rc = xen_if_next_domain(listing->xi, next, &domain)) != -ESRCH) {
		if (rc && !xen_if_state(listing->xi)->has_policy)
			return xen_if_refusal(listing->xi, domain.domid);
		list_domain(listing, &domain);
		next = domain.domid + 1;
	}
	return NULL;
}

static struct error *list_all(struct domain_listing *listing)
{
	struct error *err;

	/*
	 * A machine without Xen has no domains, which is no error; of a kernel on Xen
	 * whose hypercall device is missing, opening says what to do.
	 */
	if (access("/dev/xen", F_OK) && access("/proc/xen", F_OK))
		return NULL;
	err = xen_if_open(&listing->xi);
	if (!err) {
		listing->store = xs_open(XS_OPEN_READONLY);
		listing->own = own_domid(listing->store);
		err = list_domains(listing);
	}
	if (listing->store)
		xs_close(listing->store);
	xen_if_close(listing->xi);
	return err;
}

static struct error *xen_list(const struct target_ops *ops, target_each *each, void *ctx)
{
	return list_all(&(struct domain_listing){.each = each, .ctx = ctx});
}

static struct error *xen_list_names(const struct target_ops *ops, target_each *each, void *ctx)
{
	return list_all(&(struct domain_listing){.names = true, .each = each, .ctx = ctx});
}

const char target_features[] = "with Xen (" XEN_INTERFACE ")";

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
	.kernel_mmu = xen_kernel_mmu,
	.list = xen_list,
	.list_names = xen_list_names,
	.inside = xen_inside,
};
