/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_KERNEL_IMAGE_H
#define UNIPROF_SYMBOL_KERNEL_IMAGE_H

/*
 * Kernels that are packed. An installed Linux kernel is a bzImage (vmlinuz), which
 * holds the kernel's ELF file in compressed form (Documentation/arch/x86/boot.rst).
 * Any other may be an ELF file that gzip packed: Xen's tools unpack it themselves.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The bytes at the beginning of a file that kernel_image_is needs to see. */
#define KERNEL_IMAGE_HEAD 0x250

/* Do these bytes begin a bzImage with a payload? */
bool kernel_image_is(const void *head, size_t len);

/* True if there is a bzImage at `path`. */
bool kernel_image_at(const char *path);

/*
 * Is there a kernel for arm64 at `path` (Documentation/arch/arm64/booting.rst)?
 * It holds no ELF file.
 */
bool kernel_image_arm64_at(const char *path);

/* Do these bytes begin a bzImage with a payload, or an ELF file that gzip packed? */
bool kernel_image_has_elf(const void *head, size_t len);

/* True if there is an ELF file at `path` that gzip packed, and that is Linux for x86-64. */
bool kernel_image_packs_linux(const char *path);

/*
 * The ELF file inside one of the two; the caller frees *elf. ERR_INPUT when the
 * file is damaged or compressed in a way that is not known here.
 * `path` is for messages.
 */
struct error *kernel_image_unpack(const char *path, const void *file, size_t len, char **elf,
				  size_t *elf_len);

/* Unpacks what is at `path`; *elf is NULL when the file is something else. */
struct error *kernel_image_load(const char *path, char **elf, size_t *elf_len);

#endif
