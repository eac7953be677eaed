/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void take_vcpu(json_t *vcpu, struct qemu_machine *machine)
{
	const json_int_t index = json_integer_value(json_object_get(vcpu, "cpu-index"));
	const char *target = json_string_value(json_object_get(vcpu, "target")) ?: "";

	machine->x86 = !strcmp(target, "x86_64") || !strcmp(target, "i386");
	if (index < 0 || index >= QEMU_VCPUS_MAX)
		return;
	if (machine->vcpus <= index)
		machine->vcpus = (uint32_t)index + 1;
	machine->tid[index] = (pid_t)json_integer_value(json_object_get(vcpu, "thread-id"));
}

struct error *qemu_machine_status(struct qmp *qmp, bool *running, char *status, size_t size)
{
	json_t *answer = NULL;
	struct error *err = qmp_execute(qmp, "query-status", NULL, &answer);

	if (err)
		return err;
	*running = json_is_true(json_object_get(answer, "running"));
	snprintf(status, size, "%s", json_string_value(json_object_get(answer, "status")) ?: "?");
	json_decref(answer);
	return NULL;
}

struct error *qemu_machine_ask(struct qmp *qmp, struct qemu_machine *machine)
{
	json_t *answer = NULL, *vcpu;
	size_t i;
	struct error *err = qmp_execute(qmp, "query-cpus-fast", NULL, &answer);

	*machine = (struct qemu_machine){0};
	if (err)
		return err;
	json_array_foreach(answer, i, vcpu) take_vcpu(vcpu, machine);
	json_decref(answer);
	answer = NULL;
	error_free(qmp_execute(qmp, "query-kvm", NULL, &answer));
	machine->kvm = json_is_true(json_object_get(answer, "enabled"));
	json_decref(answer);
	if (!machine->vcpus)
		return error_new(ERR_GUEST, "QEMU has no vCPUs (yet?)");
	return qemu_machine_status(qmp, &machine->running, machine->status,
				   sizeof(machine->status));
}

uint32_t qemu_machine_count(struct qmp *qmp)
{
	json_t *answer = NULL;
	uint32_t n;

	error_free(qmp_execute(qmp, "query-cpus-fast", NULL, &answer));
	n = (uint32_t)json_array_size(answer);
	json_decref(answer);
	return n;
}

/* "* CPU #0: thread_id=1234" */
static void take_vcpu_line(const char *line, struct qemu_machine *machine)
{
	unsigned index;
	int tid;

	if (sscanf(line, "%*1[* ] CPU #%u: thread_id=%d", &index, &tid) != 2 ||
	    index >= QEMU_VCPUS_MAX)
		return;
	if (machine->vcpus <= index)
		machine->vcpus = index + 1;
	machine->tid[index] = tid;
}

struct error *qemu_machine_read(const struct qemu_console *console, struct qemu_machine *machine)
{
	char *said = NULL;
	struct error *err = console->say(console->ctx, "info cpus", &said);

	*machine = (struct qemu_machine){.running = true};
	for (const char *line = said; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		take_vcpu_line(line, machine);
	}
	free(said);
	if (err)
		return err;
	err = console->say(console->ctx, "info kvm", &said);
	machine->kvm = said && strstr(said, "enabled");
	free(said);
	if (!err && !machine->vcpus)
		err = error_new(ERR_GUEST, "QEMU does not tell of its vCPUs (info cpus)");
	return err;
}

bool qemu_machine_has_stub(struct qmp *qmp)
{
	json_t *devices = NULL, *device;
	bool found = false;
	size_t i;

	error_free(qmp_execute(qmp, "query-chardev", NULL, &devices));
	json_array_foreach(devices, i, device) found |=
		!strcmp(json_string_value(json_object_get(device, "label")) ?: "", "gdb");
	json_decref(devices);
	return found;
}

/* "  0000000000000000-000000000009ffff (prio 0, ram): pc.ram" */
static bool take_range(const char *line, struct ram_slot *slot)
{
	char type[8] = "";
	uint64_t start, last;

	if (sscanf(line, " %" SCNx64 "-%" SCNx64 " (prio %*d, %7[a-z/])", &start, &last, type) !=
		    3 ||
	    (strcmp(type, "ram") && strcmp(type, "rom")) || last < start)
		return false;
	*slot = (struct ram_slot){start, last - start + 1, 0};
	return slot->size && !(slot->gpa & (FRAME_SIZE - 1)) && !(slot->size & (FRAME_SIZE - 1));
}

size_t qemu_mtree_ranges(const char *text, struct ram_slot *slots, size_t max)
{
	bool ours = false;
	size_t n = 0;

	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		struct ram_slot slot;

		line += *line == '\n';
		if (!strncmp(line, "FlatView", 8)) {
			if (n)
				break;
			ours = false;
		}
		ours = ours || !strncmp(line, " AS \"memory\"", 12);
		if (!ours || !take_range(line, &slot))
			continue;
		if (n < max)
			slots[n] = slot;
		n++;
	}
	return n;
}

/* "Host virtual address for 0x0 (pc.ram) is 0x7f5e5be00000" */
static bool find_hva(const struct qemu_console *console, struct ram_slot *slot)
{
	char line[48], *said = NULL, *at;

	snprintf(line, sizeof(line), "gpa2hva 0x%" PRIx64, slot->gpa);
	error_free(console->say(console->ctx, line, &said));
	at = said ? strstr(said, " is 0x") : NULL;
	slot->hva = at ? strtoull(at + 4, NULL, 16) : 0;
	free(said);
	return slot->hva != 0;
}

/* One that goes on where the one before ended, here and there, becomes part of it. */
static void add_slot(struct ram_map *map, const struct ram_slot *slot)
{
	struct ram_slot *last = map->n ? &map->slot[map->n - 1] : NULL;

	if (last && last->gpa + last->size == slot->gpa && last->hva + last->size == slot->hva)
		last->size += slot->size;
	else
		(void)ram_map_add(map, slot->gpa, slot->size, slot->hva);
}

struct error *qemu_machine_ram(const struct qemu_console *console, struct ram_map *map)
{
	struct ram_slot slots[4 * RAM_SLOTS_MAX];
	char *said = NULL;
	struct error *err = console->say(console->ctx, "info mtree -f", &said);
	size_t n = err ? 0 : qemu_mtree_ranges(said, slots, sizeof(slots) / sizeof(*slots));

	free(said);
	if (n > sizeof(slots) / sizeof(*slots))
		n = sizeof(slots) / sizeof(*slots);
	map->n = 0;
	for (size_t i = 0; i < n; i++)
		if (find_hva(console, &slots[i]))
			add_slot(map, &slots[i]);
	if (!err && !map->n)
		err = error_new(ERR_GUEST, "QEMU does not tell where the guest's memory is "
					   "(info mtree -f, gpa2hva)");
	return err;
}
