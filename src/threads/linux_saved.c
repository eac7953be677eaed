/* SPDX-License-Identifier: BSD-3-Clause */

/* Linux: registers of threads that do not run, in the kernel and in their programs. */

#include "threads/linux.h"

#include <string.h>

/* arch/x86/include/asm/ptrace.h: struct pt_regs, the same for programs (user_regs_struct). Words, and its size. */
enum { PT_R15, PT_R14, PT_R13, PT_R12, PT_BP, PT_BX, PT_R11, PT_R10, PT_R9, PT_R8, PT_AX, PT_CX };
enum {
	PT_DX = PT_CX + 1,
	PT_SI,
	PT_DI,
	PT_ORIG_AX,
	PT_IP,
	PT_CS,
	PT_FLAGS,
	PT_SP,
	PT_SS,
	PT_WORDS
};
#define WORD 8u

/* arch/arm64/include/asm/ptrace.h: the same for programs (user_pt_regs); more stands behind it. */
enum { ARM_PT_SP = 31, ARM_PT_PC, ARM_PT_STATE, ARM_PT_WORDS };
/* PSTATE.M and nRW (DDI 0487, C5.2.20): 0 in a program of 64 bits. */
#define ARM_MODE 0x1fu
#define ARM_FP	 29u

/* What a kernel may have at the end of a stack. */
#define ENTERED_MAX 512u

/* arch/x86/include/asm/segment.h: the segment of code of 32 bits; Xen's for PV guests (xen/arch-x86/xen-x86_64.h). */
#define USER32_CS     0x23u
#define XEN_USER32_CS 0xe023u

/* The registers of the psABI's DWARF numbers. */
static const uint8_t by_dwarf[] = {PT_AX, PT_DX, PT_CX,	 PT_BX,	 PT_SI,	 PT_DI,	 PT_BP,	 PT_SP,
				   PT_R8, PT_R9, PT_R10, PT_R11, PT_R12, PT_R13, PT_R14, PT_R15};

/* A thread that has ended has no stack any more. */
static bool may_be_saved(const struct guest_thread *thread)
{
	return thread->state != THREAD_RUNNING && thread->state != THREAD_ZOMBIE &&
	       thread->state != THREAD_DEAD;
}

static bool read_saved(const struct linux_threads *own, const struct guest_memory *memory,
		       uint64_t task, struct thread_saved *out)
{
	const struct linux_saved *at = &own->saved;
	uint64_t frame = task;

	if (!guest_memory_get(memory, task + at->sp, &out->sp, WORD))
		return false;
	if (at->framed) {
		frame = out->sp;
		out->sp += at->pc + WORD;
	}
	return guest_memory_get(memory, frame + at->pc, &out->pc, WORD) &&
	       guest_memory_get(memory, frame + at->fp, &out->fp, WORD);
}

/* Of a program of 32 bits only what all have in common. False: it is none. */
static bool set_x86(const uint64_t *words, struct regs *out)
{
	const bool narrow =
		(uint32_t)words[PT_CS] == USER32_CS || (uint32_t)words[PT_CS] == XEN_USER32_CS;

	*out = (struct regs){.pc = words[PT_IP],
			     .sp = words[PT_SP],
			     .fp = words[PT_BP],
			     .flags = words[PT_FLAGS],
			     .word = narrow ? 4 : WORD,
			     .user = true,
			     .isa = ISA_X86};
	for (size_t i = 0; i < sizeof(by_dwarf) && !narrow; i++) {
		out->gp[i] = words[by_dwarf[i]];
		out->gp_valid |= 1u << i;
	}
	return (words[PT_CS] & 3) == 3;
}

static bool set_arm64(const uint64_t *words, struct regs *out)
{
	*out = (struct regs){.pc = words[ARM_PT_PC],
			     .sp = words[ARM_PT_SP],
			     .fp = words[ARM_FP],
			     .flags = words[ARM_PT_STATE],
			     .gp_valid = UINT32_MAX,
			     .word = WORD,
			     .user = true,
			     .isa = ISA_ARM};
	memcpy(out->gp, words, sizeof(out->gp));
	return !(words[ARM_PT_STATE] & ARM_MODE);
}

/*
 * The kernel is entered from a program with an empty stack: the program's
 * registers are what was put there first.
 */
static void read_program(const struct linux_threads *own, const struct guest_memory *memory,
			 const struct guest_thread *thread, struct thread_saved *out)
{
	const struct linux_saved *at = &own->saved;
	uint64_t mm, words[ENTERED_MAX / WORD];

	out->tables = 0;
	if (!at->entered || thread->kernel ||
	    !linux_get_pointer(memory, thread->at + at->mm, &mm) ||
	    !guest_memory_get(memory, out->stack_end - at->entered, words, at->entered) ||
	    !(at->framed ? set_x86 : set_arm64)(words, &out->program) || out->program.pc >> 63 ||
	    out->program.sp >> 63)
		return;
	if (!linux_get_pointer(memory, mm + at->pgd, &out->tables))
		out->tables = 0;
}

bool linux_saved_read(const void *state, const struct guest_memory *memory,
		      struct guest_thread *thread, struct thread_saved *out)
{
	const struct linux_threads *own = state;
	const struct guest_thread before = *thread;
	uint64_t stack;

	if (!own->saved.known || !linux_read_again(own, memory, &before, thread) ||
	    !may_be_saved(thread) ||
	    !linux_get_pointer(memory, before.at + own->at[TASK_STACK], &stack) ||
	    !read_saved(own, memory, before.at, out))
		return false;
	out->stack_end = stack + LINUX_THREAD_SIZE;
	read_program(own, memory, thread, out);
	return out->sp - stack < LINUX_THREAD_SIZE && out->sp % WORD == 0;
}

bool linux_saved_stands(const void *state, const struct guest_memory *memory,
			const struct guest_thread *thread)
{
	struct guest_thread now;

	return linux_read_again(state, memory, thread, &now) && may_be_saved(&now) &&
	       now.switches == thread->switches;
}

/* The orders of pt_regs are part of the ABI: two of its members prove them. */
static void find_program(const struct btf *btf, struct linux_saved *at)
{
	const char *const pc_name = at->framed ? "ip" : "user_regs.pc";
	const char *const sp_name = at->framed ? "sp" : "user_regs.sp";
	const uint32_t pc_at = at->framed ? PT_IP : ARM_PT_PC,
		       sp_at = at->framed ? PT_SP : ARM_PT_SP;
	const uint32_t least = WORD * (at->framed ? PT_WORDS : ARM_PT_WORDS);
	uint32_t pc, sp, size;

	if (btf_offset(btf, "pt_regs", pc_name, &pc) && pc == pc_at * WORD &&
	    btf_offset(btf, "pt_regs", sp_name, &sp) && sp == sp_at * WORD &&
	    btf_size(btf, "pt_regs", &size) && size >= least && size <= ENTERED_MAX &&
	    btf_offset(btf, "task_struct", "mm", &at->mm) && at->mm < LINUX_TASK_MAX &&
	    btf_offset(btf, "mm_struct", "pgd", &at->pgd) && at->pgd < LINUX_TASK_MAX)
		at->entered = size;
}

/* struct inactive_task_frame (arch/x86/include/asm/switch_to.h); struct cpu_context (arch/arm64/include/asm/processor.h). */
void linux_saved_find(const struct btf *btf, struct linux_saved *at)
{
	at->framed = btf_offset(btf, "task_struct", "thread.sp", &at->sp);
	if (at->framed)
		at->known = btf_offset(btf, "inactive_task_frame", "bp", &at->fp) &&
			    btf_offset(btf, "inactive_task_frame", "ret_addr", &at->pc);
	else
		at->known = btf_offset(btf, "task_struct", "thread.cpu_context.sp", &at->sp) &&
			    btf_offset(btf, "task_struct", "thread.cpu_context.fp", &at->fp) &&
			    btf_offset(btf, "task_struct", "thread.cpu_context.pc", &at->pc);
	at->known &= at->sp < LINUX_TASK_MAX && at->fp < LINUX_TASK_MAX && at->pc < LINUX_TASK_MAX;
	at->entered = 0;
	find_program(btf, at);
}
