/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for what xenstore says of domains, and for the configuration
 * that it leads to: the answers are the input's strings, one after the other, of
 * which empty ones are none. The hypervisor has some domains and refuses the rest.
 */

#define __XEN_TOOLS__ 1
#include <errno.h>
#include <stdint.h>

#include <jansson.h>
#include <xen/sched.h>
#include <xenctrl.h>
#include <xenstore.h>

#include "base/fuzz_testing.h"
#include "target/target.h"
#include "target/xen/xen_if.h"

#define DOMAINS 4u

static struct fuzz_input answers;
static unsigned shown, questions;

static const uint8_t *next_answer(size_t *len)
{
	const uint8_t *from = answers.at, *end;

	questions++;
	*len = 0;
	if (!fuzz_left(&answers))
		return NULL;
	end = memchr(from, 0, fuzz_left(&answers));
	*len = (size_t)((end ? end : answers.end) - from);
	answers.at += *len + (end != NULL);
	return *len ? from : NULL;
}

struct xs_handle *xs_open(unsigned long flags)
{
	return (struct xs_handle *)&answers;
}

void xs_close(struct xs_handle *store)
{
}

void *xs_read(struct xs_handle *store, xs_transaction_t transaction, const char *path,
	      unsigned *len)
{
	size_t n;
	const uint8_t *answer = next_answer(&n);

	errno = answer || questions % 2 ? ENOENT : EACCES;
	*len = (unsigned)n;
	return answer ? strndup((const char *)answer, n) : NULL;
}

/* The configuration that xl has written. */
json_t *json_load_file(const char *path, size_t flags, json_error_t *error)
{
	size_t n;
	const uint8_t *answer = next_answer(&n);

	need(strlen(path) < 128);
	return answer ? json_loadb((const char *)answer, n, flags, error) : NULL;
}

/* That this host runs on Xen. */
int access(const char *path, int mode)
{
	return 0;
}

const char xen_if_name[] = "none";
static struct xen_if_state state;

struct error *xen_if_open_devices(struct xen_if **out)
{
	state = (struct xen_if_state){.major = 4, .minor = 17, .has_policy = questions & 1};
	*out = (struct xen_if *)&state;
	return NULL;
}

struct error *xen_if_begin(struct xen_if *xi)
{
	return NULL;
}

void xen_if_close(struct xen_if *xi)
{
}

int xen_if_domain(struct xen_if *xi, uint32_t domid, struct xen_domain *out)
{
	*out = (struct xen_domain){.domid = domid,
				   .hvm = domid & 1,
				   .dying = domid == 2,
				   .shutdown = domid == 3,
				   .reason = SHUTDOWN_crash};
	return domid < DOMAINS ? 0 : xen_if_note(xi, domid, "getdomaininfo", -ESRCH);
}

int xen_if_next_domain(struct xen_if *xi, uint32_t first, struct xen_domain *out)
{
	return xen_if_domain(xi, first, out);
}

/* None: whoever opens a domain goes no further. */
uint32_t xen_if_vcpus(struct xen_if *xi, uint32_t domid)
{
	return 0;
}

bool xen_if_pv32(struct xen_if *xi, uint32_t domid)
{
	return false;
}

void xen_if_scheduler(struct xen_if *xi, struct xen_scheduler *out)
{
	*out = (struct xen_scheduler){0};
}

struct error *xen_if_attach(struct xen_if *xi, const struct xen_domain *domain, uint32_t vcpus)
{
	return NULL;
}

int xen_if_batch(struct xen_if *xi, const struct xen_batch *batch, struct xen_vcpu *vcpus)
{
	return -ESRCH;
}

int xen_if_go(struct xen_if *xi)
{
	return -ESRCH;
}

void *xen_if_map(struct xen_if *xi, int prot, const uint64_t *gfn, size_t n)
{
	return NULL;
}

void xen_if_unmap(struct xen_if *xi, const void *frames, size_t n)
{
}

static void each(void *ctx, const struct target_listing *entry)
{
	need(strlen(entry->name) < 256 && strlen(entry->type) < 16);
	shown++;
}

static void open_domain(const char *name)
{
	struct target *target = NULL;
	struct error *err = target_xen.open(name, NULL, &target);

	need(err && !target);
	error_free(err);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct error *err;

	answers = (struct fuzz_input){data, data + size};
	questions = (unsigned)fuzz_number(&answers, 1);
	shown = 0;
	if (questions & 0x80) {
		open_domain(questions & 0x40 ? "3" : "web");
		return;
	}
	err = target_xen.list(&target_xen, each, NULL);
	need(err || shown == DOMAINS);
	error_free(err);
}
