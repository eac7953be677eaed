/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for QMP: the input is what a QEMU says (peer_testing.h),
 * to a recording through QMP alone that begins, takes samples and ends.
 */

#include "target/host/peer_testing.h"
#include "target/qemu/qemu.h"

/* The longest time to open a guest, and for a question. */
#define OPEN_NS	    (QEMU_OPEN_MS * UINT64_C(1000000) + NS_PER_S)
#define QUESTION_NS ((QMP_WAIT_MS + 500) * UINT64_C(1000000))

#define SAMPLES 3

static void take_sample(struct qemu *qemu, uint32_t vcpus)
{
	const struct qemu_transport *qmp = &qemu_transport_qmp;
	const struct sample sample = {.vcpus = vcpus};
	const uint64_t began_ns = peer.now_ns;
	struct regs regs;

	(void)qmp->stop(qemu, &sample);
	for (uint32_t i = 0; i < vcpus; i++)
		(void)qmp->take(qemu, i, &regs);
	(void)qmp->go(qemu);
	need(peer.now_ns - began_ns <= (2 + vcpus) * QUESTION_NS);
}

/* Whether it lives, whether vCPUs came, and where its memory is. */
static void ask_for_life(struct qemu *qemu)
{
	const uint64_t began_ns = peer.now_ns;

	(void)guest_ram_frame(qemu->ram, 0x1000);
	qemu->lives = 0;
	(void)qemu_transport_qmp.life(qemu);
	(void)qemu_machine_has_stub(qemu->qmp);
	/* For each stretch of memory, a question. */
	need(peer.now_ns - began_ns <= (5 + 4 * RAM_SLOTS_MAX) * QUESTION_NS);
}

static void use(struct qemu *qemu, const struct qemu_machine *machine)
{
	struct qemu_machine read;

	for (unsigned i = 0; i < SAMPLES; i++) {
		take_sample(qemu, machine->vcpus < 3 ? machine->vcpus : 3);
		ask_for_life(qemu);
	}
	error_free(qemu_machine_read(qemu, &read));
	need(read.vcpus <= QEMU_VCPUS_MAX);
	error_free(qemu_machine_ram(qemu, guest_ram_map(qemu->ram)));
	need(guest_ram_map(qemu->ram)->n <= RAM_SLOTS_MAX);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	static struct qemu_address address = {.qmp = "socket"};
	static struct qemu_machine machine;
	struct qemu qemu = {.transport = &qemu_transport_qmp};
	const uint64_t began_ns = peer.now_ns;
	struct error *err;

	peer_begin((struct fuzz_input){data, data + size});
	done(guest_ram_new(-1, &qemu.ram));
	address.until_ns = began_ns + QEMU_OPEN_MS * UINT64_C(1000000);
	err = qemu_transport_qmp.open(&qemu, &address, &machine);
	need(peer.now_ns - began_ns <= OPEN_NS);
	if (!err) {
		need(machine.vcpus && machine.vcpus <= QEMU_VCPUS_MAX);
		qemu.qmp->deadline_ns = 0;
		use(&qemu, &machine);
	}
	error_free(err);
	qmp_close(qemu.qmp);
	guest_ram_free(qemu.ram);
	peer_end();
}
