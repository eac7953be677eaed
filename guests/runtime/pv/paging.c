/* SPDX-License-Identifier: BSD-3-Clause */
/* A PV guest sees its page tables but cannot write them: Xen checks and makes each change. */
#include "guest.h"
#include "platform.h"

#include "hypercall.h"
#include "machine.h"
#include "paging.h"

#define PRESENT	    0x1
#define WRITABLE    0x2
#define USER	    0x4
#define ENTRIES	    512
#define WINDOW_SLOT (WINDOW >> 39)

typedef uint64_t page_table[ENTRIES] __attribute__((aligned(4096)));

static page_table second_table_4;
static page_table tables_3[SPACES], tables_2[SPACES], tables_1[SPACES];

static uint64_t entry_for(const void *page)
{
	return machine_frame_of(page) << 12 | PRESENT | WRITABLE | USER;
}

/* Maps a page read-only: Xen accepts no page table that has a writable mapping. */
static void make_read_only(const void *table)
{
	HYPERCALL3(__HYPERVISOR_update_va_mapping, table,
		   machine_frame_of(table) << 12 | PRESENT | USER, UVMF_INVLPG);
}

static bool set_entry(const uint64_t *entry, uint64_t value)
{
	struct mmu_update update = {.val = value};

	update.ptr = machine_frame_of(entry) << 12 | ((unsigned long)entry & 4095);
	return HYPERCALL4(__HYPERVISOR_mmu_update, &update, 1, 0, DOMID_SELF) == 0;
}

static void extended_operation(struct mmuext_op operation)
{
	HYPERCALL4(__HYPERVISOR_mmuext_op, &operation, 1, 0, DOMID_SELF);
}

void paging_init(void)
{
	const uint64_t *root = boot_page_tables();

	for (unsigned int i = 0; i < SPACES; i++) {
		tables_2[i][0] = entry_for(tables_1[i]);
		tables_3[i][0] = entry_for(tables_2[i]);
		make_read_only(tables_1[i]);
		make_read_only(tables_2[i]);
		make_read_only(tables_3[i]);
	}
	second_table_4[0] = root[0];
	second_table_4[WINDOW_SLOT] = entry_for(tables_3[1]);
	make_read_only(second_table_4);
	extended_operation((struct mmuext_op){.cmd = MMUEXT_PIN_L4_TABLE,
					      .arg1.mfn = machine_frame_of(second_table_4)});
	set_entry(&root[WINDOW_SLOT], entry_for(tables_3[0]));
}

void paging_map(unsigned int space, unsigned int page, const void *frame)
{
	set_entry(&tables_1[space][page], frame ? entry_for(frame) : 0);
	extended_operation((struct mmuext_op){.cmd = MMUEXT_INVLPG_LOCAL,
					      .arg1.linear_addr = WINDOW + page * 4096ul});
}

void paging_use(unsigned int space)
{
	const void *root = space ? second_table_4 : boot_page_tables();

	extended_operation(
		(struct mmuext_op){.cmd = MMUEXT_NEW_BASEPTR, .arg1.mfn = machine_frame_of(root)});
}

void paging_drop(void *page)
{
	__builtin_memset(page, 0, sizeof(page_table));
	HYPERCALL3(__HYPERVISOR_update_va_mapping, page, 0, UVMF_INVLPG);
}

static const uint64_t *table(unsigned int space, enum paging_level level)
{
	switch (level) {
	case PAGING_1:
		return tables_1[space];
	case PAGING_2:
		return tables_2[space];
	case PAGING_3:
		return tables_3[space];
	default:
		return space ? second_table_4 : boot_page_tables();
	}
}

/* Not writable: Xen allows no writable mapping of a page table. */
uint64_t paging_entry(unsigned int space, enum paging_level level)
{
	const uint64_t *its_table = table(space, level);
	uint64_t entry = entry_for(its_table);

	return level == PAGING_4 ? entry & ~(uint64_t)WRITABLE : entry;
}

bool paging_write(unsigned int space, enum paging_level level, unsigned int index, uint64_t entry)
{
	return set_entry(&table(space, level)[index], entry);
}
