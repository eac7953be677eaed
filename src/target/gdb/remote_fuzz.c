/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for gdb stubs: a byte, and what one says (peer_testing.h),
 * to a recording that begins, takes samples and ends; or, if the byte is not 0,
 * to the first questions that QEMU's own stubs are asked.
 */

#include "target/gdb/client.h"
#include "target/host/peer_testing.h"
#include "target/target.h"

/* The longest that a guest may be held: to open it, and for a sample, a read or the end. */
#define OPEN_NS (3 * NS_PER_S)
#define STOP_NS (4 * NS_PER_S)

/* By so much a conversation may miss its deadline: a piece that comes just then is read. */
#define LATE_NS (NS_PER_S / 10)

#define SAMPLES 3

static void take_sample(struct target *target, struct sample *sample)
{
	const uint64_t began_ns = peer.now_ns;
	struct error *err = target->ops->sample(target, sample);
	uint8_t bytes[256];

	for (uint32_t i = 0; !err && i < sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		need(!vcpu->online || vcpu->stack.len <= vcpu->request.want);
		if (vcpu->online)
			need(target->ops->read(target, &vcpu->regs, vcpu->regs.pc, bytes,
					       sizeof(bytes)) <= sizeof(bytes));
	}
	error_free(err);
	(void)target->ops->life(target);
	need(peer.now_ns - began_ns <= 3 * STOP_NS);
}

static void use(struct target *target)
{
	struct sample *sample = NULL;
	uint64_t began_ns;

	need(target->info.arch && target->info.vcpus);
	done(sample_new(target->info.vcpus < 20 ? target->info.vcpus : 20, 4096, &sample));
	for (unsigned i = 0; i < SAMPLES; i++)
		take_sample(target, sample);
	sample_free(sample);
	began_ns = peer.now_ns;
	target->ops->close(target);
	need(peer.now_ns - began_ns <= STOP_NS);
}

static struct error *connect_client(bool ours, struct gdb **gdb)
{
	const uint64_t until_ns = peer.now_ns + OPEN_NS;
	bool halted;

	if (ours)
		return gdb_open("stub", false, until_ns, gdb);
	TRY(gdb_prepare("unix:stub", "the stub", gdb));
	(*gdb)->deadline_ns = until_ns;
	return gdb_connect(*gdb, &halted);
}

static void talk(bool ours)
{
	const uint64_t began_ns = peer.now_ns;
	struct gdb *gdb = NULL;
	struct error *err = connect_client(ours, &gdb);
	char *said = NULL;

	if (!err)
		err = gdb_human(gdb, "info cpus", &said);
	need(peer.now_ns - began_ns <= OPEN_NS + LATE_NS);
	if (!err)
		(void)(gdb_continue(gdb) && gdb_heard(gdb));
	if (!err)
		(void)gdb_was_stopped(gdb);
	error_free(err);
	free(said);
	gdb_close(gdb);
}

static void record(void)
{
	const uint64_t began_ns = peer.now_ns;
	struct target *target = NULL;
	struct error *err;

	err = target_gdb.open("unix:stub", NULL, &target);
	need(!err == !!target);
	need(peer.now_ns - began_ns <= OPEN_NS + LATE_NS);
	error_free(err);
	if (target)
		use(target);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	const unsigned how = (unsigned)fuzz_number(&in, 1);

	peer_begin(in);
	if (how)
		talk(how & 1);
	else
		record();
	peer_end();
}
