/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/target.h"

const char target_features[] = "with Xen (" XEN_INTERFACE ")";

const struct target_ops *target_kind(size_t i)
{
	static const struct target_ops *const kinds[] = {
		&target_xen,	&target_kvm,  &target_qemu, &target_process,
		&target_replay, &target_core, NULL};

	return kinds[i];
}
