/* SPDX-License-Identifier: BSD-3-Clause */
/* Page table bits that are the same for all granules (DDI 0487, D8.3 and TCR_EL1). */
#pragma once

/* Accessed and shared. */
#define PAGE   0x703
#define BLOCK  0x701
#define DEVICE 0x405
#define TABLE  0x3

#define MEMORY 0x40000000

/* Cached and shared walks, none by TTBR1, physical addresses of 36 bits. */
#define TCR(bits, granule) \
	((64 - (bits)) | 1 << 8 | 1 << 10 | 3 << 12 | (granule) << 14 | 1 << 23 | 1 << 32)
#define GRANULE_4K  0
#define GRANULE_64K 1
#define GRANULE_16K 2
