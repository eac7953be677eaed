/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for a Linux kernel in a guest's memory, with unwind tables,
 * BTF and modules. The first byte of the input chooses layouts; the rest
 * damages the memory: the kernel's, then that of modules.
 */

#include <elf.h>

#include "base/fuzz_testing.h"
#include "symbol/kernel/kernel_fixture.h"
#include "symbol/kernel/kernel.h"
#include "unwind/tables/unwind_table.h"

/* Steps for the names (capture/image_locator.h); reading the rest has steps of its own. */
#define STEPS (UINT64_C(1) << 26)

/* Offsets of the kernel's data from START. */
enum { BTF = 0x20000, ORC_IP = 0x22000, ORC = 0x23000, NOTES = 0x24000, LIST = 0x25000 };

#define ORCS 64u

#define MODULES_START 0xffffffffc0100000ull
#define MODULES_SIZE  0x4000u
#define MODULES	      3u
/* Addresses of module i: its struct, symbols, names, unwind tables and code. */
#define MODULE(i)  (MODULES_START + 0x1000 * (uint64_t)(i))
#define TABLE(i)   (MODULE(i) + 0x200)
#define SYMBOLS(i) (MODULE(i) + 0x300)
#define STRINGS(i) (MODULE(i) + 0x400)
#define IP(i)	   (MODULE(i) + 0x500)
#define RULES(i)   (MODULE(i) + 0x600)
#define CODE(i)	   (MODULES_START + 0x100000 + 0x10000 * (uint64_t)(i))
#define CODE_SIZE  0x200u

/* Offsets in struct module as its BTF tells them. */
enum { AT_LIST = 8, AT_NAME = 24, AT_TEXT = 80, AT_KALLSYMS = 96, AT_ARCH = 104 };

struct guest {
	struct kernel kernel;
	uint8_t modules[MODULES_SIZE];
	uint64_t reads;
	unsigned taken;
};

static size_t read_guest(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct guest *guest = ctx;
	const uint64_t at = va - MODULES_START;

	guest->reads++;
	if (at >= MODULES_SIZE)
		return read_kernel(&guest->kernel, va, buf, len);
	if (len > MODULES_SIZE - at)
		len = MODULES_SIZE - at;
	memcpy(buf, guest->modules + at, len);
	return len;
}

static void put_btf(struct guest *guest, bool recent)
{
	struct btf_made made;
	size_t len;

	btf_begin(&made);
	btf_type(&made, "int", BTF_INT, 0, 4);
	btf_put(&made, 32);
	btf_type(&made, "mod_kallsyms", BTF_STRUCT, 3, 24); /* 2 */
	btf_member(&made, "symtab", 1, 0);
	btf_member(&made, "num_symtab", 1, 64);
	btf_member(&made, "strtab", 1, 128);
	btf_type(&made, "layout", BTF_STRUCT, 3, 16); /* 3 */
	btf_member(&made, "base", 1, 0);
	btf_member(&made, recent ? "size" : "text_size", 1, 64);
	btf_member(&made, "other", 1, 96);
	btf_type(&made, "", BTF_ARRAY, 0, 0); /* 4 */
	btf_put(&made, 3);
	btf_put(&made, 1);
	btf_put(&made, 4);
	btf_type(&made, "arch", BTF_STRUCT, 3, 24); /* 5 */
	btf_member(&made, "num_orcs", 1, 0);
	btf_member(&made, "orc_unwind_ip", 1, 64);
	btf_member(&made, "orc_unwind", 1, 128);
	btf_type(&made, "module", BTF_STRUCT, 6, 200); /* 6 */
	btf_member(&made, "state", 1, 0);
	btf_member(&made, "list", 1, 8 * AT_LIST);
	btf_member(&made, "name", 1, 8 * AT_NAME);
	btf_member(&made, recent ? "mem" : "core_layout", recent ? 4 : 3, 8 * AT_TEXT);
	btf_member(&made, "kallsyms", 2, 8 * AT_KALLSYMS);
	btf_member(&made, "arch", 5, 8 * AT_ARCH);
	len = btf_finish(&made);
	memcpy(guest->kernel.bytes + BTF, made.bytes, len);
}

static void put_rules(uint8_t *addresses, uint8_t *rules, uint32_t n, int64_t first)
{
	for (uint32_t i = 0; i < n; i++) {
		/* The first layout, and the second. */
		const uint8_t rule[] = {(uint8_t)(8 * i), 0, 0xf0, 0xff, 0x15, (uint8_t)(i & 7)};
		const int32_t offset = (int32_t)(first + 12 * (int64_t)i);

		memcpy(addresses + 4 * i, &offset, 4);
		memcpy(rules + sizeof(rule) * i, rule, sizeof(rule));
	}
}

static void put_word(struct guest *guest, uint64_t va, uint64_t value)
{
	memcpy(guest->modules + (va - MODULES_START), &value, 8);
}

static void put_module(struct guest *guest, unsigned i)
{
	static const char strings[] = "\0first\0second\0elsewhere";
	uint8_t *bytes = guest->modules;

	put_word(guest, MODULE(i) + AT_LIST,
		 i + 1 < MODULES ? MODULE(i + 1) + AT_LIST : START + LIST);
	memcpy(bytes + (MODULE(i) - MODULES_START) + AT_NAME, "mod", 3);
	put_word(guest, MODULE(i) + AT_TEXT, CODE(i));
	put_word(guest, MODULE(i) + AT_TEXT + 8, CODE_SIZE);
	put_word(guest, MODULE(i) + AT_KALLSYMS, TABLE(i));
	put_word(guest, TABLE(i), SYMBOLS(i));
	put_word(guest, TABLE(i) + 8, 4);
	put_word(guest, TABLE(i) + 16, STRINGS(i));
	memcpy(bytes + (STRINGS(i) - MODULES_START), strings, sizeof(strings));
	for (unsigned k = 1; k < 4; k++) {
		const Elf64_Sym symbol = {.st_name = k * 6 - 5,
					  .st_info = ELF64_ST_INFO(k - 1, STT_FUNC),
					  .st_value = CODE(i) + (k - 1) * 0x100,
					  .st_size = 0x100};

		memcpy(bytes + (SYMBOLS(i) - MODULES_START) + k * sizeof(symbol), &symbol,
		       sizeof(symbol));
	}
	put_rules(bytes + (IP(i) - MODULES_START), bytes + (RULES(i) - MODULES_START), 4,
		  (int64_t)(CODE(i) - IP(i)));
	put_word(guest, MODULE(i) + AT_ARCH, 4);
	put_word(guest, MODULE(i) + AT_ARCH + 8, IP(i));
	put_word(guest, MODULE(i) + AT_ARCH + 16, RULES(i));
}

/* Bit 0: as since Linux 6.4; bits 1 and 2: the layout of the table of symbols. */
static struct guest *make(unsigned how)
{
	static const struct kernel_name last[] = {
		{"T_text", 0x9d00},
		{"T_etext", 0x1e000},
		{"T_einittext", 0x1f000},
		{"D__start_BTF", BTF},
		{"D__stop_BTF", BTF + 0x400},
		{"D__start_orc_unwind_ip", ORC_IP},
		{"D__stop_orc_unwind_ip", ORC_IP + 4 * ORCS},
		{"D__start_orc_unwind", ORC},
		{"D__stop_orc_unwind", ORC + 6 * ORCS},
		{"D__start_notes", NOTES},
		{"D__stop_notes", NOTES + 24},
		{"Dmodules", LIST},
		{"D__start_orc_header", LIST + 0x100},
	};
	static const uint8_t note[] = {4,   0,	 0,   0, 8, 0, 0, 0, 3, 0, 0, 0,
				       'G', 'N', 'U', 0, 1, 2, 3, 4, 5, 6, 7, 8};
	struct guest *guest = calloc(1, sizeof(*guest));
	const uint64_t first = MODULE(0) + AT_LIST;

	need(guest != NULL);
	guest->kernel.last = last;
	guest->kernel.n_last = sizeof(last) / sizeof(*last) - !(how & 1);
	kernel_put(&guest->kernel, (enum layout)(how / 2 % 3), false);
	put_btf(guest, how & 1);
	put_rules(guest->kernel.bytes + ORC_IP, guest->kernel.bytes + ORC, ORCS,
		  -(ORC_IP - 0x9d00));
	memcpy(guest->kernel.bytes + NOTES, note, sizeof(note));
	memcpy(guest->kernel.bytes + LIST, &first, 8);
	for (unsigned i = 0; i < MODULES; i++)
		put_module(guest, i);
	return guest;
}

static bool is_known(void *ctx, uint64_t start, uint64_t end)
{
	return start == CODE(1);
}

static struct error *take(void *ctx, struct kernel_module *module)
{
	struct guest *guest = ctx;

	need(++guest->taken <= 1024 && strlen(module->name) <= MODULE_NAME_MAX);
	symbols_free(module->symbols);
	unwind_table_free(module->table);
	return NULL;
}

static void read_modules(struct guest *guest, const struct kernel_modules *modules)
{
	struct budget budget = {.left = STEPS};
	const struct guest_memory memory = {guest, read_guest, &budget};

	done(kernel_modules_read(&memory, modules, guest, is_known, take));
}

static void use(struct guest *guest, struct kernel_memory *found)
{
	need(found->end > found->start && symbols_count(found->symbols) <= NAMES);
	for (uint32_t i = 1; found->table && i < found->table->n; i++)
		need(found->table->row[i].start > found->table->row[i - 1].start);
	read_modules(guest, &found->modules);
	symbols_free(found->symbols);
	unwind_table_free(found->table);
	kallsyms_free(found->names);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	static struct guest *made[6], guest;
	struct fuzz_input in = {data, data + size}, of_modules;
	const unsigned how = (unsigned)fuzz_number(&in, 1);
	const size_t kernels = fuzz_number(&in, 1) % (fuzz_left(&in) + 1);
	struct budget budget = {.left = STEPS};
	const struct guest_memory memory = {&guest, read_guest, &budget};
	const struct regs regs = {.isa = how & 0x40 ? ISA_ARM : ISA_X86, .word = 8};
	struct kernel_memory found;
	bool is_found;

	if (!made[how % 6])
		made[how % 6] = make(how % 6);
	guest = *made[how % 6];
	of_modules = (struct fuzz_input){in.at + kernels, in.end};
	in.end = of_modules.at;
	fuzz_damage(&in, guest.kernel.bytes, SIZE);
	fuzz_damage(&of_modules, guest.modules, MODULES_SIZE);
	done(kernel_memory_find(&memory, kernel_space(&regs), START + 0x9d00, &found, &is_found));
	if (is_found)
		use(&guest, &found);
}
