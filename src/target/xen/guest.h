/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_GUEST_H
#define UNIPROF_TARGET_XEN_GUEST_H

/*
 * What the toolstack knows about a domain: its name (xenstore), its type and
 * the file it was started from (the configuration that xl keeps).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xen_store;

/* NULL when there is no xenstore; all functions below accept that. */
struct xen_store *xen_store_open(void);
void xen_store_close(struct xen_store *store);

/* Fills `name` ("" if the domain has none). */
void xen_guest_name(struct xen_store *store, uint32_t domid, char *name, size_t size);

/*
 * Fills `type` ("pv", "pvh", "hvm") and `image` (path of the kernel) from xl's
 * own record of the domain; leaves untouched what it does not tell.
 */
void xen_guest_config(struct xen_store *store, uint32_t domid, char *type, size_t type_size,
		      char *image, size_t image_size);

#endif
