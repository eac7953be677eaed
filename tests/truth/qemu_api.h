/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The used parts of QEMU's interface for TCG plugins, version 1, as its manual ("QEMU TCG
 * Plugins") describes it. Debian packages no header.
 *
 * QEMU calls qemu_plugin_install once. Then, each time it translates a block of guest code, the
 * function that was registered for it, which may ask for calls and additions when the block or one
 * of its instructions runs: in that order for one instruction, and before it.
 */

#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;

/* There is more behind. */
struct qemu_info {
	const char *target_name; /* "x86_64", "aarch64" */
};

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

typedef void (*translated_fn)(uint64_t id, struct qemu_plugin_tb *block);
typedef void (*executed_fn)(unsigned int vcpu, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated_fn function);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, executed_fn function,
					  enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, enum qemu_plugin_op op,
					      void *counter, uint64_t value);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed_fn function,
					    enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn,
						enum qemu_plugin_op op, void *counter,
						uint64_t value);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);

const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

/* To be defined by the plugin. */
extern EXPORTED int qemu_plugin_version;
EXPORTED int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv);
