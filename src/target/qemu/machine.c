/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/qemu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "target/host/proc.h"
#include "target/kvm/vcpus.h"

static void add_vcpu(struct qemu_machine *machine, uint64_t index, pid_t tid)
{
	if (index >= QEMU_VCPUS_MAX)
		return;
	if (machine->vcpus <= index)
		machine->vcpus = (uint32_t)index + 1;
	machine->tid[index] = tid;
}

static void take_vcpu(json_t *vcpu, struct qemu_machine *machine)
{
	const json_int_t index = json_integer_value(json_object_get(vcpu, "cpu-index"));
	const char *target = json_string_value(json_object_get(vcpu, "target")) ?: "";

	machine->x86 = !strcmp(target, "x86_64") || !strcmp(target, "i386");
	if (index >= 0)
		add_vcpu(machine, (uint64_t)index,
			 (pid_t)json_integer_value(json_object_get(vcpu, "thread-id")));
}

struct error *qemu_machine_status(struct qmp *qmp, bool *running, char *status)
{
	json_auto_t *answer = NULL;

	TRY(qmp_execute(qmp, "query-status", NULL, &answer));
	*running = json_is_true(json_object_get(answer, "running"));
	snprintf(status, QEMU_STATUS_MAX, "%s",
		 json_string_value(json_object_get(answer, "status")) ?: "?");
	return NULL;
}

struct error *qemu_machine_ask(struct qmp *qmp, struct qemu_machine *machine)
{
	json_auto_t *vcpus = NULL;
	json_auto_t *kvm = NULL;
	char status[QEMU_STATUS_MAX];
	json_t *vcpu;
	size_t i;

	*machine = (struct qemu_machine){0};
	TRY(qmp_execute(qmp, "query-cpus-fast", NULL, &vcpus));
	json_array_foreach(vcpus, i, vcpu) take_vcpu(vcpu, machine);
	error_free(qmp_execute(qmp, "query-kvm", NULL, &kvm));
	machine->kvm = json_is_true(json_object_get(kvm, "enabled"));
	if (!machine->vcpus)
		return error_new(ERR_GUEST, "QEMU has no vCPUs (yet?)");
	return qemu_machine_status(qmp, &machine->running, status);
}

uint32_t qemu_machine_count(struct qmp *qmp)
{
	json_auto_t *answer = NULL;

	error_free(qmp_execute(qmp, "query-cpus-fast", NULL, &answer));
	return (uint32_t)json_array_size(answer);
}

/* Sends a command to QEMU's human monitor, which is reached by QMP or else by the stub. */
static struct error *say(struct qemu *qemu, const char *line, char **said)
{
	return qemu->qmp ? qmp_human(qemu->qmp, QMP_NO_VCPU, line, said)
			 : gdb_human(qemu->gdb, line, said);
}

struct error *qemu_machine_read(struct qemu *qemu, struct qemu_machine *machine)
{
	FREED char *cpus = NULL;
	FREED char *kvm = NULL;
	char *line, *rest;
	unsigned index;
	int tid;

	*machine = (struct qemu_machine){.running = true};
	TRY(say(qemu, "info cpus", &cpus));
	rest = cpus;
	/* "* CPU #0: thread_id=1234" */
	while ((line = strsep(&rest, "\n")))
		if (sscanf(line, "%*1[* ] CPU #%u: thread_id=%d", &index, &tid) == 2)
			add_vcpu(machine, index, tid);
	TRY(say(qemu, "info kvm", &kvm));
	machine->kvm = strstr(kvm, "enabled");
	if (!machine->vcpus)
		return error_new(ERR_GUEST, "QEMU does not tell of its vCPUs (info cpus)");
	return NULL;
}

bool qemu_machine_has_stub(struct qmp *qmp)
{
	json_auto_t *devices = NULL;
	json_t *device;
	bool found = false;
	size_t i;

	error_free(qmp_execute(qmp, "query-chardev", NULL, &devices));
	json_array_foreach(devices, i, device) found |=
		!strcmp(json_string_value(json_object_get(device, "label")) ?: "", "gdb");
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
static bool find_hva(struct qemu *qemu, struct ram_slot *slot)
{
	FREED char *said = NULL;
	char line[48], *at;

	snprintf(line, sizeof(line), "gpa2hva 0x%" PRIx64, slot->gpa);
	error_free(say(qemu, line, &said));
	at = said ? strstr(said, " is 0x") : NULL;
	slot->hva = at ? strtoull(at + 4, NULL, 16) : 0;
	return slot->hva != 0;
}

/* Adds a slot; joins it to the last one if it continues that in the guest and in the process. */
static void add_slot(struct ram_map *map, const struct ram_slot *slot)
{
	struct ram_slot *last = map->n ? &map->slot[map->n - 1] : NULL;

	if (last && last->gpa + last->size == slot->gpa && last->hva + last->size == slot->hva)
		last->size += slot->size;
	else
		(void)ram_map_add(map, slot->gpa, slot->size, slot->hva);
}

struct error *qemu_machine_ram(struct qemu *qemu, struct ram_map *map)
{
	struct ram_slot slots[4 * RAM_SLOTS_MAX];
	const size_t max = sizeof(slots) / sizeof(*slots);
	FREED char *said = NULL;
	size_t n;

	map->n = 0;
	TRY(say(qemu, "info mtree -f", &said));
	n = qemu_mtree_ranges(said, slots, max);
	for (size_t i = 0; i < n && i < max; i++)
		if (find_hva(qemu, &slots[i]))
			add_slot(map, &slots[i]);
	if (map->n)
		return NULL;
	return error_new(ERR_GUEST, "QEMU does not tell where the guest's memory is "
				    "(info mtree -f, gpa2hva)");
}

/* A QEMU's command line (proc_words). */
struct command {
	char *words; /* NULL: it cannot be read */
	const char *end;
};

static struct command read_command(pid_t pid)
{
	struct command command = {0};

	command.words = proc_words(pid, &command.end);
	return command;
}

/* An option in one of its two spellings, the n-th of that name; NULL: there are not so many. */
static const char *option(const struct command *command, const char *name, unsigned n)
{
	const char *word = command->words;

	for (; word && word < command->end; word += strlen(word) + 1)
		if (*word == '-' && !strcmp(word + 1 + (word[1] == '-'), name) && n-- == 0)
			return word;
	return NULL;
}

/* The value that follows it; NULL: there is none. */
static const char *value_of(const struct command *command, const char *name, unsigned n)
{
	const char *word = option(command, name, n);
	const char *value = word ? word + strlen(word) + 1 : NULL;

	return value && value < command->end ? value : NULL;
}

/* The value of KEY in "a,KEY=value,b"; "" if it is not there. */
static void suboption(const char *value, const char *key, char *out, size_t size)
{
	const size_t len = strlen(key);

	*out = '\0';
	while (value && *value) {
		if (!strncmp(value, key, len) && value[len] == '=') {
			snprintf(out, size, "%.*s", (int)strcspn(value + len + 1, ","),
				 value + len + 1);
			return;
		}
		value = strchr(value, ',');
		value = value ? value + 1 : NULL;
	}
}

/* "-mon chardev=x,mode=control" with "-chardev socket,id=x,path=..." */
static void find_qmp_chardev(const struct command *command, char *path, size_t size)
{
	char wanted[64], id[64], mode[16];
	const char *mon, *chardev;

	for (unsigned i = 0; (mon = value_of(command, "mon", i)); i++) {
		suboption(mon, "mode", mode, sizeof(mode));
		suboption(mon, "chardev", wanted, sizeof(wanted));
		if (strcmp(mode, "control"))
			continue;
		for (unsigned k = 0; (chardev = value_of(command, "chardev", k)); k++) {
			suboption(chardev, "id", id, sizeof(id));
			if (!strncmp(chardev, "socket,", 7) && !strcmp(id, wanted))
				suboption(chardev, "path", path, size);
		}
	}
}

/* As the process sees it, if it is relative. */
static void make_absolute(pid_t pid, char *path, size_t size)
{
	char directory[2048], full[4096];

	if (!*path || *path == '/')
		return;
	proc_link(pid, "cwd", -1, directory, sizeof(directory));
	snprintf(full, sizeof(full), "%s/%s", directory, path);
	snprintf(path, size, "%s", full);
}

static void find_qmp(const struct command *command, pid_t pid, char *path, size_t size)
{
	const char *value = value_of(command, "qmp", 0) ?: value_of(command, "qmp-pretty", 0);

	if (value && !strncmp(value, "unix:", 5))
		snprintf(path, size, "%.*s", (int)strcspn(value + 5, ","), value + 5);
	else
		find_qmp_chardev(command, path, size);
	make_absolute(pid, path, size);
}

/* "-s", "-gdb tcp::1234", "-gdb tcp:localhost:1234,...", "-gdb unix:PATH,server=on" */
static void find_stub(const struct command *command, pid_t pid, char *address, size_t size)
{
	const char *value = value_of(command, "gdb", 0);
	const char *port = value ? strrchr(value, ':') : NULL;
	char path[128];

	if (option(command, "s", 0))
		snprintf(address, size, "127.0.0.1:1234");
	if (value && !strncmp(value, "unix:", 5)) {
		snprintf(path, sizeof(path), "%.*s", (int)strcspn(value + 5, ","), value + 5);
		make_absolute(pid, path, sizeof(path));
		snprintf(address, size, "unix:%s", path);
	} else if (port && !strncmp(value, "tcp:", 4)) {
		snprintf(address, size, "127.0.0.1:%.*s", (int)strcspn(port + 1, ","), port + 1);
	}
}

void qemu_find_sockets(pid_t pid, struct qemu_address *address)
{
	const struct command command = read_command(pid);

	find_qmp(&command, pid, address->qmp, sizeof(address->qmp));
	find_stub(&command, pid, address->gdb, sizeof(address->gdb));
	free(command.words);
}

/* "-enable-kvm", "-accel kvm", "-machine pc,accel=kvm": and nothing else, should there be no KVM. */
static bool wants_kvm(const struct command *command)
{
	const char *accel = value_of(command, "accel", 0);
	const char *machine = value_of(command, "machine", 0) ?: value_of(command, "M", 0);
	char kind[32];

	if (option(command, "enable-kvm", 0))
		return true;
	if (accel)
		return !strncmp(accel, "kvm", 3) && accel[3] != ':' &&
		       !value_of(command, "accel", 1);
	suboption(machine, "accel", kind, sizeof(kind));
	return !strcmp(kind, "kvm");
}

bool qemu_waits_for_kvm(pid_t pid)
{
	const struct command command = read_command(pid);
	const bool wants = wants_kvm(&command);

	free(command.words);
	return wants && !kvm_vcpus_count(pid);
}

uint32_t qemu_is(pid_t pid)
{
	char name[32];

	proc_comm(pid, name, sizeof(name));
	return !strncmp(name, "qemu-system-", strlen("qemu-system-"));
}

uint32_t qemu_vcpus(pid_t pid)
{
	struct command command;
	const char *value;
	unsigned long n = 1;

	if (!qemu_is(pid) || kvm_vcpus_count(pid))
		return 0;
	command = read_command(pid);
	value = value_of(&command, "smp", 0);
	if (value && !strncmp(value, "cpus=", 5))
		value += 5;
	if (value)
		n = strtoul(value, NULL, 10) ?: 1;
	/* It emulates the devices of a domain, whose vCPUs Xen runs. */
	if (option(&command, "xen-domid", 0))
		n = 0;
	free(command.words);
	return n <= QEMU_VCPUS_MAX ? (uint32_t)n : 1;
}
