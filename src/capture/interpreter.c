/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "capture/capture.h"

/* Steps to read the functions of one stack, or the list of threads. */
#define READ_STEPS (1ull << 26)

struct interpreter {
	struct target *target;
	struct runtime *runtime;
	struct runtime_copy *copies; /* of each vCPU */
};

/* All threads of a process see the same memory, whatever their registers. */
static size_t read_process(void *ctx, uint64_t va, void *buf, size_t len)
{
	return target_read(ctx, NULL, va, buf, len);
}

static struct error *find(struct interpreter *interpreter, struct stand_ins *stand_ins)
{
	struct target *target = interpreter->target;
	const struct guest_memory memory = {target, read_process, NULL};
	uint64_t *code = calloc(target->n_files + 1, sizeof(*code));
	struct error *err;

	if (!code)
		return error_no_memory();
	for (size_t i = 0; i < target->n_files; i++)
		code[i] = target->files[i].address;
	err = runtime_new(&memory, code, target->n_files, stand_ins, &interpreter->runtime);
	free(code);
	return err;
}

struct error *interpreter_new(struct target *target, struct stand_ins *stand_ins,
			      struct sample *sample, struct interpreter **out)
{
	struct interpreter *interpreter = calloc(1, sizeof(*interpreter));
	struct error *err;

	*out = NULL;
	if (!interpreter)
		return error_no_memory();
	interpreter->target = target;
	err = find(interpreter, stand_ins);
	if (err || !interpreter->runtime) {
		interpreter_free(interpreter);
		return err;
	}
	interpreter->copies = calloc(sample->vcpus, sizeof(*interpreter->copies));
	if (!interpreter->copies) {
		interpreter_free(interpreter);
		return error_no_memory();
	}
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].runtime = &interpreter->copies[i];
	sample->request.runtime = interpreter->runtime;
	*out = interpreter;
	return NULL;
}

void interpreter_free(struct interpreter *interpreter)
{
	if (!interpreter)
		return;
	runtime_free(interpreter->runtime);
	free(interpreter->copies);
	free(interpreter);
}

void interpreter_refresh(struct interpreter *interpreter)
{
	struct budget budget = {.left = READ_STEPS};
	const struct guest_memory memory = {interpreter->target, read_process, &budget};

	runtime_refresh(interpreter->runtime, &memory, clock_now_ns());
}

struct error *interpreter_merge(struct interpreter *interpreter, const struct vcpu_sample *vcpu,
				struct frame *frames, size_t max, struct unwind_result *out)
{
	struct budget budget = {.left = READ_STEPS};
	const struct guest_memory memory = {interpreter->target, read_process, &budget};
	struct runtime_stack stack = {
		.window = &vcpu->stack, .frames = frames, .n = out->n, .max = max, .end = out->end};
	struct error *err = runtime_merge(interpreter->runtime, &memory, vcpu->runtime, &stack);

	out->n = stack.n;
	out->end = stack.end;
	return err;
}

void interpreter_tell(const struct interpreter *interpreter, struct sampler_result *out)
{
	if (!interpreter)
		return;
	snprintf(out->runtime, sizeof(out->runtime), "%s", runtime_name(interpreter->runtime));
	out->merged = runtime_count(interpreter->runtime);
}
