/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * executed.so, a plugin for QEMU: -plugin executed.so,counts=PATH. Counts the instructions of each CPU
 * of an emulated machine whose CPUs take turns. PATH holds the counts, 8 bytes a CPU in this
 * machine's byte order, and is up to date at any time. A block that ends early counts as whole.
 */
#include "qemu_api.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CPUS   64
#define OPTION "counts="

int qemu_plugin_version = 1;

/* QEMU hands callbacks no pointer to what all of them share. */
static uint64_t *executed;

static void on_executed(unsigned int vcpu, void *instructions)
{
	if (vcpu < CPUS)
		executed[vcpu] += (uintptr_t)instructions;
}

static void on_translated(uint64_t id, struct qemu_plugin_tb *block)
{
	qemu_plugin_register_vcpu_tb_exec_cb(block, on_executed, QEMU_PLUGIN_CB_NO_REGS,
					     (void *)qemu_plugin_tb_n_insns(block));
}

static uint64_t *map_counts(const char *path)
{
	const size_t size = CPUS * sizeof(*executed);
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	void *counts = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (!ftruncate(fd, (off_t)size))
		counts = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return counts == MAP_FAILED ? NULL : counts;
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], OPTION, strlen(OPTION)) != 0)
		return -1;
	executed = map_counts(argv[0] + strlen(OPTION));
	if (!executed)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	return 0;
}
