/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Prints where the time of threads that run guests of KVM has gone since it was started (kvm_time.bpf.c), each
 * time that a signal SIGUSR1 comes: a line "TID GUEST EXIT MONITOR IDLE WAITS EXITS" for each thread, in ns, and an empty one.
 */

#include <err.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "kvm_time.skel.h"

/* As in kvm_time.bpf.c. */
struct times {
	uint64_t since;
	uint64_t ns[5];
	uint64_t exits;
	uint32_t place, back;
};

static void print(int map)
{
	uint32_t tid, *before = NULL;
	struct times times;

	while (!bpf_map_get_next_key(map, before, &tid)) {
		before = &tid;
		if (bpf_map_lookup_elem(map, &tid, &times))
			continue;
		printf("%u", tid);
		for (int i = 0; i < 5; i++)
			printf(" %llu", (unsigned long long)times.ns[i]);
		printf(" %llu\n", (unsigned long long)times.exits);
	}
	printf("\n");
}

int main(void)
{
	struct kvm_time *program = kvm_time__open_and_load();
	sigset_t asked;
	int got;

	sigemptyset(&asked);
	sigaddset(&asked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &asked, NULL);
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	if (!program || kvm_time__attach(program))
		err(1, "the program for the kernel");
	while (!sigwait(&asked, &got))
		print(bpf_map__fd(program->maps.times));
	return 1;
}
