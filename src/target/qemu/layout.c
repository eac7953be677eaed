/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 15

/* CS and SS tell their descriptors' privilege in their low bits (SDM vol. 3, 3.4.2). */
#define RPL 3u

#define EFER_LMA (1ull << 10)

/* Is always set (SDM vol. 3, 2.5): that it is shows that the layout is right. */
#define CR0_ET (1ull << 4)

/* The value of an attribute within a tag that ends at `end`; "" if it is not there. */
static void attribute(const char *tag, const char *end, const char *key, char *value, size_t size)
{
	const size_t len = strlen(key);

	*value = '\0';
	for (const char *at = tag; at + len + 2 < end; at++) {
		if (at[0] != ' ' || strncmp(at + 1, key, len) || strncmp(at + 1 + len, "=\"", 2))
			continue;
		at += len + 3;
		snprintf(value, size, "%.*s", (int)strcspn(at, "\""), at);
		return;
	}
}

static struct gdb_register *by_name(struct gdb_layout *layout, const char *name)
{
	static const char gp64[][4] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
				       "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
	static const char gp32[][4] = {"eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"};
	struct {
		const char *name;
		struct gdb_register *at;
	} others[] = {
		{"rip", &layout->rip}, {"eip", &layout->rip}, {"eflags", &layout->eflags},
		{"cs", &layout->cs},   {"ss", &layout->ss},   {"cr0", &layout->cr0},
		{"cr3", &layout->cr3}, {"cr4", &layout->cr4}, {"efer", &layout->efer},
	};

	for (size_t i = 0; i < sizeof(gp64) / sizeof(*gp64); i++)
		if (!strcmp(name, gp64[i]))
			return &layout->gp[i];
	for (size_t i = 0; i < sizeof(gp32) / sizeof(*gp32); i++)
		if (!strcmp(name, gp32[i]))
			return &layout->gp[i];
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (!strcmp(name, others[i].name))
			return others[i].at;
	return NULL;
}

static size_t add_tag(struct gdb_layout *layout, const char *tag, const char *end, size_t next)
{
	char name[NAME_MAX_LEN + 1], bits[8];
	struct gdb_register *reg;
	size_t size;

	attribute(tag, end, "name", name, sizeof(name));
	attribute(tag, end, "bitsize", bits, sizeof(bits));
	size = strtoul(bits, NULL, 10) / 8;
	if (size >= GDB_PACKET_MAX || next + size >= GDB_PACKET_MAX)
		return next;
	reg = by_name(layout, name);
	if (reg && size <= 8)
		*reg = (struct gdb_register){(uint16_t)next, (uint16_t)size};
	return next + size;
}

size_t gdb_layout_add(struct gdb_layout *layout, const char *xml, size_t next)
{
	const char *tag = xml, *end;

	while ((tag = strchr(tag, '<'))) {
		/* QEMU has registers in comments. */
		const bool comment = !strncmp(tag, "<!--", 4);

		end = comment ? strstr(tag, "-->") : strchr(tag, '>');
		if (!end)
			break;
		if (!comment && !strncmp(tag, "<reg ", 5))
			next = add_tag(layout, tag, end, next);
		tag = end;
	}
	return next;
}

struct error *gdb_layout_ask(struct gdb *gdb, struct gdb_layout *layout)
{
	char *top = gdb_features(gdb, "target.xml"), *at = top, annex[101];
	size_t next = 0;

	memset(layout, 0, sizeof(*layout));
	if (top)
		next = gdb_layout_add(layout, top, next);
	while (at && (at = strstr(at, "<xi:include href=\""))) {
		char *xml;

		at += strlen("<xi:include href=\"");
		snprintf(annex, sizeof(annex), "%.*s", (int)strcspn(at, "\""), at);
		xml = gdb_features(gdb, annex);
		if (xml)
			next = gdb_layout_add(layout, xml, next);
		free(xml);
	}
	free(top);
	if (!layout->rip.size || !layout->cr3.size || !layout->gp[4].size)
		return error_new(ERR_GUEST, "QEMU's gdb stub tells no registers of an x86 guest "
					    "(other instruction sets cannot be profiled yet)");
	return NULL;
}

/* Little-endian, as all that x86 guests have. */
static uint64_t value_of(const struct gdb *gdb, const struct gdb_register *reg, bool *whole)
{
	uint64_t value = 0;

	*whole = gdb_bytes(gdb, reg->at, &value, reg->size) && *whole;
	return value;
}

bool gdb_layout_take(const struct gdb *gdb, const struct gdb_layout *layout, struct x86_regs *regs)
{
	bool whole = true;
	uint64_t cs;

	memset(regs, 0, sizeof(*regs));
	for (size_t i = 0; i < 16; i++)
		regs->gp[i] = value_of(gdb, &layout->gp[i], &whole);
	regs->rip = value_of(gdb, &layout->rip, &whole);
	regs->rflags = value_of(gdb, &layout->eflags, &whole);
	regs->cr0 = value_of(gdb, &layout->cr0, &whole);
	regs->cr3 = value_of(gdb, &layout->cr3, &whole);
	regs->cr4 = value_of(gdb, &layout->cr4, &whole);
	regs->efer = value_of(gdb, &layout->efer, &whole);
	cs = value_of(gdb, &layout->cs, &whole);
	regs->cpl = cs & RPL;
	/*
	 * The stub does not tell descriptors. In long mode it gives registers of 32
	 * bits to code of 32 bits; flat segments are taken for granted there.
	 */
	regs->cs_long = regs->efer & EFER_LMA && layout->rip.size == 8;
	return whole && regs->cr0 & CR0_ET;
}
