/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/copy.h"

#include <string.h>

void copy_stack_bytes(uint8_t *to, const uint8_t *from, uint32_t len)
{
	memcpy(to, from, len);
}
