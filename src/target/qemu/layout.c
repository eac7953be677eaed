/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/gdb/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 15

#define ARCHITECTURE "<architecture>"

static const struct gdb_machine *const machines[] = {&gdb_x86_64, &gdb_i386, &gdb_aarch64,
						     &gdb_arm};

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

/* Is it one of "a|b"? */
static bool is_called(const char *names, const char *name)
{
	const size_t len = strlen(name);

	for (; *names; names += strcspn(names, "|"), names += *names == '|')
		if (strcspn(names, "|") == len && !strncmp(names, name, len))
			return true;
	return false;
}

static struct gdb_register *by_name(struct gdb_layout *layout, const char *name)
{
	for (unsigned i = 0; layout->machine && layout->machine->registers[i]; i++)
		if (is_called(layout->machine->registers[i], name))
			return &layout->at[i];
	return NULL;
}

static void add_tag(struct gdb_layout *layout, const char *tag, const char *end,
		    struct gdb_place *place)
{
	char name[NAME_MAX_LEN + 1], bits[8], number[8];
	struct gdb_register *reg;
	size_t size;

	attribute(tag, end, "name", name, sizeof(name));
	attribute(tag, end, "bitsize", bits, sizeof(bits));
	attribute(tag, end, "regnum", number, sizeof(number));
	if (*number)
		place->number = strtoul(number, NULL, 10);
	size = strtoul(bits, NULL, 10) / 8;
	if (size >= GDB_PACKET_MAX || place->byte + size >= GDB_PACKET_MAX ||
	    place->number > UINT16_MAX)
		return;
	reg = by_name(layout, name);
	if (reg && size <= 8)
		*reg = (struct gdb_register){(uint16_t)place->byte, (uint16_t)size,
					     (uint16_t)place->number};
	place->byte += size;
	place->number++;
}

static void find_machine(struct gdb_layout *layout, const char *xml)
{
	const char *name = strstr(xml, ARCHITECTURE);
	size_t len;

	if (!name || layout->machine)
		return;
	name += strlen(ARCHITECTURE);
	len = strcspn(name, "<");
	for (size_t i = 0; i < sizeof(machines) / sizeof(*machines); i++)
		if (strlen(machines[i]->name) == len && !strncmp(machines[i]->name, name, len))
			layout->machine = machines[i];
}

void gdb_layout_add(struct gdb_layout *layout, const char *xml, struct gdb_place *place)
{
	const char *tag = xml, *end;

	find_machine(layout, xml);
	while ((tag = strchr(tag, '<'))) {
		/* QEMU has registers in comments. */
		const bool comment = !strncmp(tag, "<!--", 4);

		end = comment ? strstr(tag, "-->") : strchr(tag, '>');
		if (!end)
			break;
		if (!comment && !strncmp(tag, "<reg ", 5))
			add_tag(layout, tag, end, place);
		tag = end;
	}
}

static bool is_whole(const struct gdb_layout *layout)
{
	if (!layout->machine)
		return false;
	for (unsigned i = 0; i < layout->machine->needed; i++)
		if (!layout->at[i].size)
			return false;
	return true;
}

struct error *gdb_layout_ask(struct gdb *gdb, struct gdb_layout *layout)
{
	char *top = gdb_features(gdb, "target.xml"), *at = top, annex[101];
	struct gdb_place place = {0};

	memset(layout, 0, sizeof(*layout));
	if (top)
		gdb_layout_add(layout, top, &place);
	while (at && (at = strstr(at, "<xi:include href=\""))) {
		char *xml;

		at += strlen("<xi:include href=\"");
		snprintf(annex, sizeof(annex), "%.*s", (int)strcspn(at, "\""), at);
		xml = gdb_features(gdb, annex);
		if (xml)
			gdb_layout_add(layout, xml, &place);
		free(xml);
	}
	free(top);
	if (!is_whole(layout))
		return error_new(ERR_GUEST, "QEMU's gdb stub tells no registers of an x86 or Arm "
					    "guest (other instruction sets cannot be profiled)");
	layout->together = gdb_ask(gdb, "g") ? gdb->len / 2 : 0;
	return NULL;
}

static bool is_alone(const struct gdb_layout *layout, unsigned i)
{
	return layout->at[i].size &&
	       (size_t)layout->at[i].at + layout->at[i].size > layout->together;
}

void gdb_layout_request(const struct gdb_layout *layout, struct gdb *gdb)
{
	char request[16];

	gdb_batch_add(gdb, "g");
	for (unsigned i = 0; layout->machine->registers[i]; i++) {
		if (!is_alone(layout, i))
			continue;
		snprintf(request, sizeof(request), "p%x", layout->at[i].number);
		gdb_batch_add(gdb, request);
	}
}

bool gdb_layout_take(const struct gdb_layout *layout, struct gdb *gdb, struct regs *regs)
{
	uint64_t value[GDB_REGISTERS_MAX] = {0};
	bool whole = gdb_batch_next(gdb);

	/* Little-endian, as all guests of these machines are. */
	for (unsigned i = 0; layout->machine->registers[i]; i++)
		if (!is_alone(layout, i))
			whole = gdb_bytes(gdb, layout->at[i].at, &value[i], layout->at[i].size) &&
				whole;
	for (unsigned i = 0; layout->machine->registers[i]; i++)
		if (is_alone(layout, i))
			whole = gdb_batch_next(gdb) &&
				gdb_bytes(gdb, 0, &value[i], layout->at[i].size) && whole;
	return whole && layout->machine->take(value, regs);
}
