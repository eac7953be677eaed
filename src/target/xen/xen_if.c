/* SPDX-License-Identifier: BSD-3-Clause */
#define __XEN_TOOLS__ 1
#include "target/xen/xen_if.h"

#include <errno.h>

#include <xen/domctl.h>
#include <xenctrl.h>

static void ignore_message(struct xentoollog_logger *logger, xentoollog_level level, int errnoval,
			   const char *context, const char *format, va_list al)
{
}

static void ignore_progress(struct xentoollog_logger *logger, const char *context,
			    const char *doing_what, int percent, unsigned long done,
			    unsigned long total)
{
}

static void ignore_destroy(struct xentoollog_logger *logger)
{
}

xentoollog_logger xen_if_quiet_log = {
	.vmessage = ignore_message,
	.progress = ignore_progress,
	.destroy = ignore_destroy,
};

struct xen_domain xen_domain_from_flags(uint32_t domid, uint32_t flags)
{
	return (struct xen_domain){
		.domid = domid,
		.hvm = flags & XEN_DOMINF_hvm_guest,
		.dying = flags & XEN_DOMINF_dying,
		.shutdown = flags & XEN_DOMINF_shutdown,
		.paused = flags & XEN_DOMINF_paused,
		.reason = (flags >> XEN_DOMINF_shutdownshift) & XEN_DOMINF_shutdownmask,
	};
}

int xen_if_note(struct xen_if *xi, uint32_t domid, const char *permission, int rc)
{
	struct xen_if_state *state = (struct xen_if_state *)xi;

	if (rc == -EACCES || rc == -EPERM) {
		state->refused = permission;
		state->refused_domid = domid;
	}
	return rc;
}

/* In place of a permission: Xen maps memory of others for this kind of domain in no case. */
static const char no_foreign_memory[] = "memory of other domains";

/* Xen without a policy may have other reasons for EACCES. */
void xen_if_note_map(struct xen_if *xi, uint32_t domid, bool writable, int rc)
{
	const struct xen_if_state *state = xen_if_state(xi);

	if (rc == -EPERM && state->translated)
		(void)xen_if_note(xi, domid, no_foreign_memory, rc);
	else if (rc == -EACCES && state->has_policy)
		(void)xen_if_note(xi, domid,
				  writable || state->translated ? "mmu { map_read map_write }"
								: "mmu { map_read }",
				  rc);
}

const char *xen_if_refused(const struct xen_if *xi, uint32_t domid)
{
	return xen_if_state(xi)->refused_domid == domid ? xen_if_state(xi)->refused : NULL;
}

struct error *xen_if_refusal(const struct xen_if *xi, uint32_t domid)
{
	if (xen_if_refused(xi, domid) == no_foreign_memory)
		return error_new(ERR_DENIED,
				 "Xen lets PVH and HVM domains map no memory of others, so domain "
				 "%u cannot be profiled from here; run uniprof in a PV domain",
				 domid);
	if (!xen_if_state(xi)->has_policy)
		return error_new(
			ERR_DENIED,
			"Xen lets only its control domain profile domain %u; run uniprof there",
			domid);
	return error_new(ERR_DENIED,
			 "Xen's policy (Flask) does not let uniprof's domain profile domain %u: it "
			 "does not grant \"%s\"; docs/flask.md tells how to",
			 domid, xen_if_refused(xi, domid));
}

struct error *xen_if_open(struct xen_if **out)
{
	TRY(xen_if_open_devices(out));
	return xen_if_begin(*out);
}
