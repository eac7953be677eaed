/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/core/dump.h"

#include <stdlib.h>

#include "recording/recording.h"

struct error *dump_new_vcpus(struct dump *dump, uint64_t vcpus)
{
	if (!vcpus || vcpus > RECORDING_MAX_VCPUS)
		return error_new(ERR_INPUT, "%llu vCPUs cannot be", (unsigned long long)vcpus);
	dump->vcpu = calloc(vcpus, sizeof(*dump->vcpu));
	if (!dump->vcpu)
		return error_no_memory();
	dump->vcpus = (uint32_t)vcpus;
	return NULL;
}

struct error *dump_open(const char *path, struct dump *dump)
{
	struct error *err;

	*dump = (struct dump){.elf.fd = -1};
	err = elf_core_open(path, &dump->elf);
	if (err)
		return err;
	err = dump_is_xen(dump) ? dump_read_xen(dump) : dump_read_qemu(dump);
	if (err)
		return error_prefix(err, "%s", path);
	frame_map_sort(&dump->frames);
	return NULL;
}

void dump_free(struct dump *dump)
{
	elf_core_close(&dump->elf);
	frame_map_free(&dump->frames);
	free(dump->vcpu);
}

bool dump_frame(const struct dump *dump, uint64_t gfn, void *bytes)
{
	uint64_t at;

	return frame_map_find(&dump->frames, gfn, &at) &&
	       elf_core_read(&dump->elf, at, bytes, FRAME_SIZE);
}
