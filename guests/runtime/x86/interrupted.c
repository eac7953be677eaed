/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"
#include "platform.h"

/* Set by CALL_INTERRUPTING (interrupt.h): rip, cs, rflags, rsp, ss; and rbp. */
const uint64_t *interrupted_frame;
uint64_t interrupted_fp;

struct interrupted timer_interrupted(void)
{
	return (struct interrupted){.pc = interrupted_frame[0],
				    .sp = interrupted_frame[3],
				    .fp = interrupted_fp,
				    .flags = interrupted_frame[2]};
}
