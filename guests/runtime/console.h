/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Puts the bytes (less than the ring holds) into the ring all at once, or loses them: see print. */
void console_write(const char *bytes, size_t length);
/* Waits until all bytes are taken, up to two seconds: the ring's contents die with the domain. */
void console_flush(void);
/* Bytes lost because the ring stayed full. */
uint64_t console_lost(void);
