/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The code behind a function's name, for colours and categories: its kind, the image
 * that it lies in, and the package that its name tells of.
 */

#include "base/owned.h"
#include "profile/profile.h"
#include "symbol/names/symbolizer.h"

enum name_kind { NAME_KERNEL, NAME_USER, NAME_GUEST, NAME_HYPERVISOR, NAME_IDLE, NAME_KINDS };

/* "kernel", "user", ... */
const char *name_kind_text(enum name_kind kind);

/* In the upper half of 64-bit addresses, where kernels with programs are. */
static inline bool addr_is_kernels(uint64_t addr)
{
	return addr >> 63;
}

/*
 * Idle loops and calls of the hypervisor are told by their names, the kernel by its
 * addresses. One address space without a kernel's half is the guest's: a unikernel's,
 * or firmware's. `user`: there is a kernel, or the guest is a process.
 */
enum name_kind name_kind_of(const char *name, bool kernel, bool user);

/* True if the recording is of a process, whose kernel is another's. */
bool recording_is_of_process(const struct recording_info *info);

/* Package, module or prefix: std of std::vector, net/http of net/http.(*conn).serve, tcp of tcp_input. */
const char *name_package(const char *name, size_t *len);

/* The code of all names in some profiles. A name that is in several images has the first one that was met. */
struct name_codes;

/* name_codes_free is due, also after an error. */
struct error *name_codes_new(struct name_codes **out);
void name_codes_free(struct name_codes *codes);
OWNED_POINTER(name_codes)
struct error *name_codes_add(struct name_codes *codes, const struct profile *profile,
			     struct symbolizer *symbolizer);

/* Images by their numbers, 1 first: file names without directories. NULL behind the last. */
const char *name_codes_image(const struct name_codes *codes, uint32_t number);

/* The number of the name's image; 0: not known. */
uint32_t name_codes_image_of(const struct name_codes *codes, const char *name);

/* False if no name can be of that kind. */
bool name_codes_may_have(const struct name_codes *codes, enum name_kind kind);
enum name_kind name_codes_kind_of(const struct name_codes *codes, const char *name);
