/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a PV guest's pages lie in the machine. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

#include <xen/xen.h>

/* The machine frame behind an address of the guest's initial mapping. */
xen_pfn_t machine_frame_of(const void *address);
/* The top level of the page tables that Xen's domain builder made. */
const uint64_t *boot_page_tables(void);

#endif
