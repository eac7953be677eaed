/* SPDX-License-Identifier: BSD-3-Clause */
/* Machine addresses of a PV guest's pages. */
#pragma once

/* Address where the builder maps the guest's memory; 0 unless the guest was built for another. */
#ifndef VIRT_BASE
#define VIRT_BASE 0
#endif

#ifndef __ASSEMBLER__
#include <stdint.h>

#include <xen/xen.h>

/* The machine frame behind an address of the guest's initial mapping. */
xen_pfn_t machine_frame_of(const void *address);
/* The top level of the page tables that Xen's domain builder made. */
const uint64_t *boot_page_tables(void);
/* Makes this the page table entry of an address that has one. */
void map_page(void *address, uint64_t entry);
/* platform.shared, for writing. */
struct shared_info *shared_info_of_guest(void);
#endif
