/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for reading recordings. The first byte of the input selects:
 * the other bytes are a whole file, or the records behind a good head; these
 * get a correct checksum, which no fuzzer would find, or are packed, too.
 */

#include "base/fuzz_testing.h"
#include "profile/profile.h"
#include "recording/format.h"

static void make_file(const uint8_t *data, size_t size, struct bytes *out)
{
	static const char json[] = "{\"vcpus\":3,\"tool\":\"x\"}";
	const struct bytes text = {.data = (uint8_t *)json, .len = sizeof(json) - 1};
	struct bytes records = {0};

	done(bytes_reserve(out, size));
	if (!(data[0] & 1)) {
		put_bytes(out, data + 1, size - 1);
		return;
	}
	done(encode_head(out));
	done(encode_json(&text, RECORD_INFO, out));
	done(bytes_reserve(&records, size));
	put_bytes(&records, data + 1, size - 1);
	if (data[0] & 4)
		done(encode_packed(&records));
	done(bytes_reserve(out, records.len));
	put_bytes(out, records.data, records.len);
	bytes_free(&records);
	if (data[0] & 2)
		done(encode_check(out));
}

/* Every number in a profile must be one that others may rely on. */
static void use(const struct profile *profile)
{
	uint64_t samples = 0;

	need(profile->info.vcpus <= RECORDING_MAX_VCPUS);
	for (uint32_t id = 0; id < stacks_count(profile->stacks); id++) {
		const struct stack_node *node = stacks_node(profile->stacks, id);

		need(id == STACK_ROOT || node->parent < id);
		need(node->kind < FRAME_KINDS && node->trust <= TRUST_GUESS);
		samples += profile_cell(&profile->cells, id)->samples;
	}
	need(samples == profile->selected.samples);
	for (size_t i = 0; i < breakdown_count(profile->breakdown); i++)
		need(breakdown_at(profile->breakdown, i)->thread <= profile->n_threads);
	for (size_t i = 0; i < profile->n_threads; i++)
		need(strlen(profile->threads[i].name) <= RECORDED_THREAD_NAME_MAX &&
		     strlen(profile->threads[i].process) <= RECORDED_THREAD_NAME_MAX);
	need(profile->pauses.n <= profile->ticks);
	for (size_t i = 0; i < profile->n_names; i++)
		need(profile_name(profile, profile->names[i].addr, profile->names[i].kind) ==
		     &profile->names[i]);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	const struct profile_filter all = {.vcpu = -1, .divide = true};
	struct profile *profile;
	struct bytes bytes = {0};
	struct fuzz_file file;
	struct error *err;

	if (size == 0)
		return;
	make_file(data, size, &bytes);
	file = fuzz_file_new(bytes.data, bytes.len);
	err = profile_load(file.path, &all, &profile);
	if (!err) {
		use(profile);
		profile_free(profile);
	} else {
		need(err->kind == ERR_INPUT);
	}
	error_free(err);
	bytes_free(&bytes);
	close(file.fd);
}
