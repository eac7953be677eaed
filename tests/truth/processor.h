/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Differences between the emulated processors. */

#include <stddef.h>
#include <stdint.h>

enum insn_kind { INSN_OTHER, INSN_CALL, INSN_CALL_INDIRECT, INSN_RETURN, INSN_RETURN_INTERRUPT };

struct processor {
	const char *qemu_name;
	uint64_t xen_start, xen_end; /* addresses at which there is no code but Xen's */

	/*
	 * Classifies an instruction of 64-bit code by its effect on the call
	 * stack; *target for INSN_CALL alone.
	 */
	enum insn_kind (*classify)(uint64_t address, const uint8_t *bytes, size_t size,
				   uint64_t *target);
};

/* NULL: it is not known here. */
const struct processor *processor_find(const char *qemu_name);
