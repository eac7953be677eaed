/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/unwind.h"

const char *unwind_end_text(enum unwind_end end)
{
	static const char *const text[UNWIND_ENDS] = {
		[UNWIND_OUTERMOST] = "whole",	   [UNWIND_FRAMES] = "too many frames",
		[UNWIND_BYTES] = "stack too long", [UNWIND_BROKEN] = "broken chain",
		[UNWIND_LOOP] = "looping chain",   [UNWIND_NO_STACK] = "no stack",
		[UNWIND_NO_ROOM] = "no room",
	};

	return end < UNWIND_ENDS ? text[end] : "unknown";
}

const char *unwind_method_text(enum unwind_method method)
{
	static const char *const text[UNWIND_METHODS] = {
		[UNWIND_AUTO] = "auto",
		[UNWIND_FP] = "fp",
		[UNWIND_CFI] = "cfi",
		[UNWIND_SCAN] = "scan",
	};

	return method < UNWIND_METHODS ? text[method] : "unknown";
}
