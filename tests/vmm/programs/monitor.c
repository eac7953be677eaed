/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A virtual machine monitor of a hundred lines: runs an ELF file by KVM, in
 * user mode of a guest of 64 bits, on as many vCPUs as asked for.
 *
 *   monitor FILE [VCPUS] [seccomp|divided|scattered|kernel]
 *
 * A line of numbers every tenth of a second tells how far the guest has come:
 * pieces of work by all vCPUs, and how often KVM_RUN was interrupted. A signal
 * SIGUSR1 to a vCPU's thread is counted in the third number; the fourth is what
 * KVM was last seen to be asked to leave in struct kvm_run. `seccomp`:
 * vCPUs' threads may use only the system calls that they need. `divided`: the
 * guest's code is not for writing, so that its memory is several mappings.
 * `scattered`: its first part is behind the rest in the monitor. `kernel`: in
 * kernel mode instead, so that it can change its page tables. A signal SIGUSR2
 * plugs in more memory, to which the guest moves its stacks, and a vCPU that
 * never begins. A byte that the guest writes to port 0x10 is work for the
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

#define MEMORY	   (64ul << 20)
#define FIRST	   (2ul << 20) /* first of the scattered memory: all but stacks */
#define VCPUS_MAX  8
#define LEAVES_MAX 256
#define ROOT	   0x2000u
#define DONE	   0x9000u
#define FRESH	   (32ul << 20)
#define FRESH_SIZE (16ul << 20)
#define WORK_PORT  0x10
#define FRESH_PORT 0x11
#define WORK	   2000
#define STACKS	   0x400000u
#define STACK	   0x10000u

/*
 * Address and size of the memory that is plugged in, and the word that tells
 * the guest of stacks there.
 */
#define MORE	   0x20000000u
#define MORE_SIZE  (16ul << 20)
#define MORE_STACK 0x9100u

/* Present, writable, for user mode; and a large page (Intel SDM vol. 3, 4.5). */
#define TABLE 7u
#define LARGE 0x87u

static uint8_t *memory;
static uint64_t entry;
static int kvm, vm;
static size_t run_size;
static bool locked, divided, scattered, in_kernel;
static atomic_ulong interrupted, signals, asked;
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
		uint8_t *place = memory + segment[i].p_vaddr;

		if (segment[i].p_type != PT_LOAD)
			continue;
		memcpy(place, (const uint8_t *)head + segment[i].p_offset, segment[i].p_filesz);
		if (divided && mprotect(place, segment[i].p_filesz, PROT_READ))
			err(1, "mprotect");
	}
	entry = head->e_entry;
}

/* The first GiB, each address at itself. */
static void make_tables(void)
{
	uint64_t *table = (uint64_t *)(memory + ROOT);

	table[0] = (ROOT + 0x1000) | TABLE;
	table[512] = (ROOT + 0x2000) | TABLE;
	for (uint64_t i = 0; i < 512; i++)
		table[1024 + i] = i << 21 | LARGE;
}

static void make_segments(struct kvm_sregs *sregs)
{
	const uint8_t level = in_kernel ? 0 : 3;
	const struct kvm_segment code = {.limit = 0xffffffff,
					 .selector = 0x18 | level,
					 .present = 1,
					 .type = 11,
					 .dpl = level,
					 .s = 1,
					 .l = 1,
					 .g = 1};
	struct kvm_segment data = code;

	data.type = 3;
	data.selector = 0x20 | level;
	data.l = 0;
	data.db = 1;
	sregs->cs = code;
	sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = data;
	sregs->cr0 = 0x80050033;
	sregs->cr3 = ROOT;
	sregs->cr4 = 0x620;
	sregs->efer = 0x500;
}

/* Offers the guest what KVM can: without long mode in CPUID, KVM of Linux 6.12.117 refuses EFER.LME. */
static void set_cpuid(int vcpu)
{
	struct kvm_cpuid2 *leaves =
		calloc(1, sizeof(*leaves) + LEAVES_MAX * sizeof(*leaves->entries));

	if (!leaves)
		err(1, "memory");
	leaves->nent = LEAVES_MAX;
	if (ioctl(kvm, KVM_GET_SUPPORTED_CPUID, leaves) || ioctl(vcpu, KVM_SET_CPUID2, leaves))
		err(1, "CPUID");
	free(leaves);
}

static void start_at(int vcpu, unsigned id)
{
	struct kvm_regs regs = {.rip = entry, .rflags = 2, .rdi = id};
	struct kvm_sregs sregs;

	/* As if called by nobody: a return address and a frame record of zeros. */
	regs.rsp = STACKS + STACK * (id + 1) - 24;
	if (ioctl(vcpu, KVM_GET_SREGS, &sregs))
		err(1, "KVM_GET_SREGS");
	make_segments(&sregs);
	if (ioctl(vcpu, KVM_SET_SREGS, &sregs))
		err(1, "KVM_SET_SREGS");
	if (ioctl(vcpu, KVM_SET_REGS, &regs))
		err(1, "KVM_SET_REGS");
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

static void work(void)
{
	for (volatile unsigned i = 0; i < WORK; i++)
		;
}

/* What the guest has asked for; false: it is nothing that there is. */
static bool serve(const struct kvm_run *page)
{
	if (page->exit_reason != KVM_EXIT_IO || page->io.direction != KVM_EXIT_IO_OUT)
		return false;
	if (page->io.port == WORK_PORT)
		work();
	else if (page->io.port != FRESH_PORT || madvise(memory + FRESH, FRESH_SIZE, MADV_DONTNEED))
		return false;
	return true;
}

static void *run(void *arg)
{
	const unsigned id = (unsigned)(uintptr_t)arg;
	int vcpu = ioctl(vm, KVM_CREATE_VCPU, id);
	struct kvm_run *page;

	if (vcpu < 0)
		err(1, "KVM_CREATE_VCPU");
	page = share_page(vcpu);
	set_cpuid(vcpu);
	start_at(vcpu, id);
	if (locked)
		lock_up();
	for (;;) {
		if (!ioctl(vcpu, KVM_RUN, 0)) {
			if (!serve(page))
				errx(1, "vCPU %u left the guest: exit %u", id, page->exit_reason);
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
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, region))
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
	volatile uint64_t *stacks = (volatile uint64_t *)(memory + MORE_STACK);
	int vcpu;

	add_region(&region, take_memory(MORE_SIZE));
	for (unsigned i = 0; i < vcpus; i++)
		stacks[i] = MORE + STACK * (i + 1);
	vcpu = ioctl(vm, KVM_CREATE_VCPU, vcpus);
	if (vcpu < 0)
		err(1, "KVM_CREATE_VCPU");
	(void)share_page(vcpu);
}

static void make_machine(void)
{
	struct kvm_userspace_memory_region region = {.memory_size = MEMORY};

	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0)
		err(1, "KVM");
	memory = take_memory(MEMORY);
	/* Each page of the guest's is then one of the host's; kernels without large pages refuse. */
	(void)madvise(memory + FRESH, FRESH_SIZE, MADV_NOHUGEPAGE);
	if (scattered) {
		region.slot = 1;
		region.guest_phys_addr = FIRST;
		region.memory_size = MEMORY - FIRST;
		add_region(&region, memory);
		region = (struct kvm_userspace_memory_region){.memory_size = FIRST};
		memory += MEMORY - FIRST;
	}
	add_region(&region, memory);
	run_size = (size_t)ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
}

int main(int argc, char **argv)
{
	const unsigned vcpus = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
	const struct sigaction counting = {.sa_handler = count_signal};
	const struct sigaction growing = {.sa_handler = ask_to_grow};
	const volatile uint64_t *done;

	if (argc < 2 || vcpus < 1 || vcpus > VCPUS_MAX)
		errx(2, "usage: monitor FILE [VCPUS] [seccomp|divided|scattered|kernel]");
	locked = argc > 3 && !strcmp(argv[3], "seccomp");
	divided = argc > 3 && !strcmp(argv[3], "divided");
	scattered = argc > 3 && !strcmp(argv[3], "scattered");
	in_kernel = argc > 3 && !strcmp(argv[3], "kernel");
	make_machine();
	make_tables();
	load(argv[1]);
	sigaction(SIGUSR1, &counting, NULL);
	sigaction(SIGUSR2, &growing, NULL);
	done = (const volatile uint64_t *)(memory + DONE);
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	printf("0 0 0 0\n");
	for (uintptr_t i = 0; i < vcpus; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, run, (void *)i))
			errx(1, "no thread");
	}
	for (;;) {
		uint64_t sum = 0;

		usleep(100000);
		if (atomic_exchange(&grow, false))
			plug_in(vcpus);
		for (unsigned i = 0; i < vcpus; i++)
			sum += done[i];
		printf("%lu %lu %lu %lu\n", (unsigned long)sum, (unsigned long)interrupted,
		       (unsigned long)signals, (unsigned long)asked);
	}
}
