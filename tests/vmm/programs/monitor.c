/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A virtual machine monitor of a hundred lines: runs an ELF file by KVM, in
 * user mode of a guest of 64 bits, on as many vCPUs as asked for. What differs
 * between processors is in monitor_PROCESSOR.c.
 *
 *   monitor FILE [VCPUS] [seccomp|divided|scattered|kernel|image]
 *
 * A line of numbers every tenth of a second tells how far the guest has come:
 * pieces of work by all vCPUs, and how often KVM_RUN was interrupted. A signal
 * SIGUSR1 to a vCPU's thread is counted in the third number; the fourth is what
 * KVM was last seen to be asked to leave in struct kvm_run. `seccomp`:
 * vCPUs' threads may use only the system calls that they need. `divided`: the
 * guest's code is not for writing, so that its memory is several mappings.
 * `scattered`: its first part is behind the rest in the monitor. `kernel`: in
 * kernel mode instead, so that it can change its page tables. `image`, on arm64:
 * an image of guests/, which begins as on QEMU's virt and has its serial port;
 * what it asks the monitor for is its work. A signal SIGUSR2
 * plugs in more memory, to which the guest moves its stacks, and a vCPU that
 * never begins. On x86, a byte that the guest writes to port 0x10 is work for the
 * monitor; one to port 0x11 takes its memory from 32 to 48 MiB away, which is
 * then fresh again.
 */

#include <elf.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "monitor.h"

#define FIRST (2ul << 20) /* first of the scattered memory: all but stacks */
#define DONE  0x9000u

/*
 * Address and size of the memory that is plugged in, and the word that tells
 * the guest of stacks there.
 */
#define MORE	   0x20000000u
#define MORE_SIZE  (16ul << 20)
#define MORE_STACK 0x9100u

static struct machine machine;
static size_t run_size;
static bool locked, divided, scattered;
static atomic_ulong interrupted, signals, asked, served;
static atomic_bool grow;

static void load(const char *path)
{
	struct stat about;
	const Elf64_Phdr *segment;
	const Elf64_Ehdr *head;
	int fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &about))
		err(1, "%s", path);
	head = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (head == MAP_FAILED)
		err(1, "%s", path);
	segment = (const void *)((const uint8_t *)head + head->e_phoff);
	for (int i = 0; i < head->e_phnum; i++) {
		uint8_t *place = machine.memory + address_in_memory(segment[i].p_vaddr);

		if (segment[i].p_type != PT_LOAD)
			continue;
		memcpy(place, (const uint8_t *)head + segment[i].p_offset, segment[i].p_filesz);
		if (divided && mprotect(place, segment[i].p_filesz, PROT_READ))
			err(1, "mprotect");
	}
	machine.entry = head->e_entry;
}

static void count_signal(int number)
{
	signals++;
}

static void ask_to_grow(int number)
{
	grow = true;
}

/* Filters the system calls of each vCPU's thread, as monitors in the field do. */
static void lock_up(void)
{
	static const int calls[] = {SYS_ioctl,	      SYS_write,      SYS_futex,
				    SYS_rt_sigreturn, SYS_exit_group, SYS_restart_syscall};
	const size_t n = sizeof(calls) / sizeof(*calls);
	struct sock_filter filter[64] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	struct sock_fprog program = {.filter = filter};
	size_t at = 1;

	for (size_t i = 0; i < n; i++)
		filter[at++] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i],
						     (unsigned char)(n - i), 0);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = (unsigned short)at;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		err(1, "seccomp");
}

static struct kvm_run *share_page(int vcpu)
{
	void *page = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);

	if (page == MAP_FAILED)
		err(1, "struct kvm_run");
	return page;
}

static void *run(void *arg)
{
	const unsigned id = (unsigned)(uintptr_t)arg;
	int vcpu = ioctl(machine.vm, KVM_CREATE_VCPU, id);
	struct kvm_run *page;

	if (vcpu < 0)
		err(1, "KVM_CREATE_VCPU");
	page = share_page(vcpu);
	vcpu_prepare(&machine, vcpu, id);
	if (locked)
		lock_up();
	for (;;) {
		if (!ioctl(vcpu, KVM_RUN, 0)) {
			if (!vcpu_serve(&machine, page))
				errx(1, "vCPU %u left the guest: exit %u", id, page->exit_reason);
			served++;
			continue;
		}
		if (errno != EINTR && errno != EAGAIN)
			err(1, "KVM_RUN");
		interrupted++;
		asked = page->kvm_valid_regs;
	}
}

static void add_region(struct kvm_userspace_memory_region *region, const void *from)
{
	region->userspace_addr = (uintptr_t)from;
	region->guest_phys_addr += MEMORY_AT;
	if (ioctl(machine.vm, KVM_SET_USER_MEMORY_REGION, region))
		err(1, "KVM_SET_USER_MEMORY_REGION");
}

static void *take_memory(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		err(1, "memory");
	return at;
}

/* The new vCPU has the next number. */
static void plug_in(unsigned vcpus)
{
	struct kvm_userspace_memory_region region = {.slot = 7,
						     .guest_phys_addr = MORE,
						     .memory_size = MORE_SIZE};
	volatile uint64_t *stacks = (volatile uint64_t *)(machine.memory + MORE_STACK);
	int vcpu;

	add_region(&region, take_memory(MORE_SIZE));
	for (unsigned i = 0; i < vcpus; i++)
		stacks[i] = MORE + STACK * (i + 1);
	vcpu = ioctl(machine.vm, KVM_CREATE_VCPU, vcpus);
	if (vcpu < 0)
		err(1, "KVM_CREATE_VCPU");
	(void)share_page(vcpu);
}

static void make_machine(void)
{
	struct kvm_userspace_memory_region region = {.memory_size = MEMORY};

	machine.kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	machine.vm = machine.kvm < 0 ? -1 : ioctl(machine.kvm, KVM_CREATE_VM, 0);
	if (machine.vm < 0)
		err(1, "KVM");
	machine.memory = take_memory(MEMORY);
	/* Each page of the guest's is then one of the host's; kernels without large pages refuse. */
	(void)madvise(machine.memory + FRESH, FRESH_SIZE, MADV_NOHUGEPAGE);
	if (scattered) {
		region.slot = 1;
		region.guest_phys_addr = FIRST;
		region.memory_size = MEMORY - FIRST;
		add_region(&region, machine.memory);
		region = (struct kvm_userspace_memory_region){.memory_size = FIRST};
		machine.memory += MEMORY - FIRST;
	}
	add_region(&region, machine.memory);
	run_size = (size_t)ioctl(machine.kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
}

int main(int argc, char **argv)
{
	const unsigned vcpus = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
	const struct sigaction counting = {.sa_handler = count_signal};
	const struct sigaction growing = {.sa_handler = ask_to_grow};
	const volatile uint64_t *done;

	if (argc < 2 || vcpus < 1 || vcpus > VCPUS_MAX)
		errx(2, "usage: monitor FILE [VCPUS] [seccomp|divided|scattered|kernel|image]");
	locked = argc > 3 && !strcmp(argv[3], "seccomp");
	divided = argc > 3 && !strcmp(argv[3], "divided");
	scattered = argc > 3 && !strcmp(argv[3], "scattered");
	machine.in_kernel = argc > 3 && !strcmp(argv[3], "kernel");
	machine.is_image = argc > 3 && !strcmp(argv[3], "image");
	make_machine();
	make_tables(&machine);
	load(argv[1]);
	sigaction(SIGUSR1, &counting, NULL);
	sigaction(SIGUSR2, &growing, NULL);
	done = (const volatile uint64_t *)(machine.memory + DONE);
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	printf("0 0 0 0\n");
	for (uintptr_t i = 0; i < vcpus; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, run, (void *)i))
			errx(1, "no thread");
	}
	for (;;) {
		uint64_t sum = machine.is_image ? served : 0;

		usleep(100000);
		if (atomic_exchange(&grow, false))
			plug_in(vcpus);
		for (unsigned i = 0; i < vcpus && !machine.is_image; i++)
			sum += done[i];
		printf("%lu %lu %lu %lu\n", (unsigned long)sum, (unsigned long)interrupted,
		       (unsigned long)signals, (unsigned long)asked);
	}
}
