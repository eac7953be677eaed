/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/unwind.h"

const char *unwind_end_text(enum unwind_end end)
{
	static const char *const text[UNWIND_ENDS] = {
		[UNWIND_OUTERMOST] = "whole",	   [UNWIND_FRAMES] = "too many frames",
		[UNWIND_BYTES] = "stack too long", [UNWIND_BROKEN] = "broken chain",
		[UNWIND_LOOP] = "looping chain",   [UNWIND_NO_STACK] = "no stack",
	};

	return end < UNWIND_ENDS ? text[end] : "unknown";
}
