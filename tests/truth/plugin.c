/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exact.so, a plugin for QEMU: -plugin exact.so,socket=PATH. Counts each instruction of one guest
 * image, wherever it runs, on its own or as a domU of the emulated Xen; for a machine with one CPU.
 *
 * A client of the socket sends lines and gets "ok" or "no" for each:
 *	image DIRECTORY		from now on count this image (code.h), from nothing
 *	write FILE		write what was counted (follow.h); the guest must not run meanwhile
 *
 * An instruction is the guest's if the image has the same bytes at its address, and Xen's if it lies
 * in the part of the address space that is Xen's own.
 */
#include "qemu_api.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "code.h"
#include "follow.h"
#include "processor.h"

int qemu_plugin_version = 1;

/* One requested image; blocks translated under an older one count for nothing any more. */
struct watch {
	struct code *code;
	struct follow *follow;
};

/* Event data of one instruction or block; never freed, as translated code is not. */
struct site {
	struct watch *watch;
	const struct function *function, *callee;
};

/* QEMU hands callbacks no pointer: their common state has to be global. */
static const struct processor *processor;
static struct counters counters;
static struct watch *current;
static char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];

static struct site *site_new(const struct function *function, const struct function *callee)
{
	struct site *site = malloc(sizeof(*site));

	if (!site)
		abort();
	*site = (struct site){current, function, callee};
	return site;
}

static void on_call(unsigned int vcpu, void *data)
{
	const struct site *site = data;

	if (site->watch == current)
		follow_call(site->watch->follow, site->function, site->callee);
}

static void on_call_indirect(unsigned int vcpu, void *data)
{
	const struct site *site = data;

	if (site->watch == current)
		follow_call_indirect(site->watch->follow, site->function);
}

static void on_return(unsigned int vcpu, void *data)
{
	const struct site *site = data;

	if (site->watch == current)
		follow_return(site->watch->follow, site->function);
}

static void on_return_interrupt(unsigned int vcpu, void *data)
{
	const struct site *site = data;

	if (site->watch == current)
		follow_return_interrupt(site->watch->follow, site->function);
}

static void on_enter(unsigned int vcpu, void *data)
{
	const struct site *site = data;

	if (site->watch == current)
		follow_enter(site->watch->follow, site->function);
}

static void on_other(unsigned int vcpu, void *data)
{
	if (current)
		follow_other(current->follow);
}

static void watch_insn(struct qemu_plugin_insn *insn, const struct code *code)
{
	static const executed_fn on[] = {[INSN_CALL] = on_call,
					 [INSN_CALL_INDIRECT] = on_call_indirect,
					 [INSN_RETURN] = on_return,
					 [INSN_RETURN_INTERRUPT] = on_return_interrupt};
	uint64_t address = qemu_plugin_insn_vaddr(insn), target = 0;
	enum insn_kind kind = processor->classify(address, qemu_plugin_insn_data(insn),
						  qemu_plugin_insn_size(insn), &target);
	const struct function *callee = code_function(code, target);

	if (kind == INSN_CALL && !callee)
		kind = INSN_CALL_INDIRECT;
	if (kind != INSN_OTHER)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on[kind], QEMU_PLUGIN_CB_NO_REGS,
						       site_new(code_function(code, address),
								callee));
	qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64,
						   &counters.guest, 1);
}

static bool is_guests(const struct qemu_plugin_insn *insn)
{
	return current && code_has(current->code, qemu_plugin_insn_vaddr(insn),
				   qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
}

static void watch_block(struct qemu_plugin_tb *block, size_t n)
{
	uint64_t start = qemu_plugin_tb_vaddr(block);
	const struct function *function = code_function(current->code, start);

	if (function->start == start || function->kind == FUNCTION_WRITTEN)
		qemu_plugin_register_vcpu_tb_exec_cb(block, on_enter, QEMU_PLUGIN_CB_NO_REGS,
						     site_new(function, NULL));
	for (size_t i = 0; i < n; i++)
		watch_insn(qemu_plugin_tb_get_insn(block, i), current->code);
}

/* Each for itself: what reads or writes a device ends its block early, and is translated again. */
static void count_xen(struct qemu_plugin_tb *block, size_t n)
{
	for (size_t i = 0; i < n; i++)
		qemu_plugin_register_vcpu_insn_exec_inline(qemu_plugin_tb_get_insn(block, i),
							   QEMU_PLUGIN_INLINE_ADD_U64,
							   &counters.xen, 1);
}

static void on_translated(uint64_t id, struct qemu_plugin_tb *block)
{
	size_t n = qemu_plugin_tb_n_insns(block), own = 0;
	uint64_t start = qemu_plugin_tb_vaddr(block);
	bool xen = start >= processor->xen_start && start < processor->xen_end;

	while (own < n && is_guests(qemu_plugin_tb_get_insn(block, own)))
		own++;
	if (own == n)
		watch_block(block, n);
	else if (xen)
		count_xen(block, n);
	else
		qemu_plugin_register_vcpu_tb_exec_cb(block, on_other, QEMU_PLUGIN_CB_NO_REGS, NULL);
}

static bool watch_image(const char *directory)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return false;
	watch->code = code_load(directory);
	watch->follow = follow_new(&counters);
	if (!watch->code || !watch->follow)
		return false;
	__atomic_store_n(&current, watch, __ATOMIC_RELEASE);
	return true;
}

static bool write_file(const char *path)
{
	FILE *file = current ? fopen(path, "w") : NULL;

	if (!file)
		return false;
	follow_write(current->follow, file);
	return fclose(file) == 0;
}

static bool obey(char *line)
{
	char *argument = strchr(line, ' ');

	line[strcspn(line, "\n")] = '\0';
	if (!argument)
		return false;
	*argument++ = '\0';
	if (!strcmp(line, "image"))
		return watch_image(argument);
	return !strcmp(line, "write") && write_file(argument);
}

static void *serve(void *listening)
{
	int connection = accept((int)(intptr_t)listening, NULL, NULL);
	FILE *in = connection < 0 ? NULL : fdopen(connection, "r");
	char line[4096];

	while (in && fgets(line, sizeof(line), in))
		if (write(connection, obey(line) ? "ok\n" : "no\n", 3) != 3)
			break;
	return NULL;
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1))
		return -1;
	return fd;
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
	pthread_t thread;
	int fd;

	processor = processor_find(info->target_name);
	if (!processor || argc != 1 || sscanf(argv[0], "socket=%107s", socket_path) != 1)
		return -1;
	fd = listen_at(socket_path);
	if (fd < 0 || pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd))
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	return 0;
}
