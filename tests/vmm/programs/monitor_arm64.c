/* SPDX-License-Identifier: BSD-3-Clause */

/* Of monitor.c: vCPUs of arm64. */

#include <err.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#include "monitor.h"

/* Descriptors (DDI 0487, D8.3): cached and shared; for user mode, too. */
#define TABLE 0x3u
#define BLOCK 0x701u
#define USER  0x40u

/* Addresses of 39 bits by TTBR0_EL1, granules of 4 KiB, cached and shared walks; none by TTBR1_EL1. */
#define TCR   (25u | 1u << 8 | 1u << 10 | 3u << 12 | 1u << 23 | 2ull << 32)
#define MAIR  0xffu
#define SCTLR 0x30d01805u /* what has to be set, caches and translation */

/* PSTATE: all interrupts masked; of EL1 with its own stack pointer. */
#define MASKED 0x3c0u
#define EL1H   5u

#define CORE(member)                                           \
	(KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE | \
	 offsetof(struct kvm_regs, member) / sizeof(uint32_t))
#define SYSTEM(n, m, second) ARM64_SYS_REG(3, 0, n, m, second)

/* A device tree that has a command line, where nothing else is. */
#define TREE	   0x1000u
#define TREE_MAGIC 0xd00dfeedu
#define ARGUMENTS  "scale=100000"

struct tree {
	uint32_t magic, size, structure, strings, reserved, version, compatible, cpu, strings_size,
		structure_size;
	uint64_t none[2];
	uint32_t root, root_name, node;
	char node_name[8];
	uint32_t property, length, name;
	char value[16];
	uint32_t end_node, end_root, end;
	char names[12];
};

static uint32_t big(uint32_t word)
{
	return __builtin_bswap32(word);
}

static void make_device_tree(uint8_t *at)
{
	const struct tree tree = {
		.magic = big(TREE_MAGIC),
		.size = big(sizeof(tree)),
		.structure = big(offsetof(struct tree, root)),
		.strings = big(offsetof(struct tree, names)),
		.reserved = big(offsetof(struct tree, none)),
		.version = big(17),
		.compatible = big(16),
		.strings_size = big(sizeof(tree.names)),
		.structure_size = big(offsetof(struct tree, names) - offsetof(struct tree, root)),
		.root = big(1),
		.node = big(1),
		.node_name = "chosen",
		.property = big(3),
		.length = big(sizeof(ARGUMENTS)),
		.value = ARGUMENTS,
		.end_node = big(2),
		.end_root = big(2),
		.end = big(9),
		.names = "bootargs",
	};

	memcpy(at, &tree, sizeof(tree));
}

void make_tables(const struct machine *machine)
{
	uint64_t *table = (uint64_t *)(machine->memory + ROOT);

	table[0] = (MEMORY_AT + ROOT + 0x1000) | TABLE;
	for (uint64_t i = 0; i < 512; i++)
		table[512 + i] = (MEMORY_AT + (i << 21)) | BLOCK | (machine->in_kernel ? 0 : USER);
	make_device_tree(machine->memory + TREE);
}

static void set(int vcpu, uint64_t id, uint64_t value)
{
	const struct kvm_one_reg reg = {.id = id, .addr = (uintptr_t)&value};

	if (ioctl(vcpu, KVM_SET_ONE_REG, &reg))
		err(1, "KVM_SET_ONE_REG");
}

/* As if called by nobody: x29 and x30 are 0. */
static void start_program(const struct machine *machine, int vcpu, unsigned id)
{
	const uint64_t stack = STACKS + STACK * (id + 1);

	set(vcpu, CORE(regs.regs[0]), id);
	set(vcpu, CORE(regs.sp), stack);
	set(vcpu, CORE(sp_el1), stack);
	set(vcpu, CORE(regs.pstate), machine->in_kernel ? MASKED | EL1H : MASKED);
	set(vcpu, SYSTEM(10, 2, 0), MAIR);
	set(vcpu, SYSTEM(2, 0, 2), TCR);
	set(vcpu, SYSTEM(2, 0, 0), MEMORY_AT + ROOT);
	set(vcpu, SYSTEM(1, 0, 0), SCTLR);
}

void vcpu_prepare(const struct machine *machine, int vcpu, unsigned id)
{
	struct kvm_vcpu_init init;

	if (ioctl(machine->vm, KVM_ARM_PREFERRED_TARGET, &init))
		err(1, "KVM_ARM_PREFERRED_TARGET");
	init.features[0] |= 1u << KVM_ARM_VCPU_PSCI_0_2;
	if (ioctl(vcpu, KVM_ARM_VCPU_INIT, &init))
		err(1, "KVM_ARM_VCPU_INIT");
	set(vcpu, CORE(regs.pc), machine->entry);
	if (machine->is_image)
		set(vcpu, CORE(regs.regs[0]), MEMORY_AT + TREE);
	else
		start_program(machine, vcpu, id);
}

/* A serial port that is always ready, and whose output nobody reads. */
bool vcpu_serve(const struct machine *machine, struct kvm_run *page)
{
	if (!machine->is_image || page->exit_reason != KVM_EXIT_MMIO)
		return false;
	if (!page->mmio.is_write)
		memset(page->mmio.data, 0, sizeof(page->mmio.data));
	return true;
}
