/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recording/file.h"
#include "recording/format.h"

#define FLUSH_NS UINT64_C(1000000000)

struct recording_writer {
	struct recording_file file;
	struct encoder encoder;
	struct ids *texts;    /* of source locations, by pointer */
	struct bytes stretch; /* records since the last check; not yet in the file */
	uint64_t flushed_ns;  /* time of the last tick when it was last written */
	bool packs;	      /* stretches are compressed, and written only when they are long */
	bool broken;	      /* a write failed: the file ends there, whatever follows */
};

static struct error *check_usable(const struct recording_writer *writer)
{
	if (writer->broken)
		return error_new(ERR_OUTPUT, "cannot write to %s any more", writer->file.name);
	return NULL;
}

/* Closes the stretch with a check and writes it to the file. */
static struct error *write_stretch(struct recording_writer *writer)
{
	struct bytes *stretch = &writer->stretch;
	struct error *err;

	writer->flushed_ns = writer->encoder.time_ns;
	if (stretch->len == 0)
		return NULL;
	err = writer->packs ? encode_packed(stretch) : NULL;
	if (!err)
		err = encode_check(stretch);
	if (!err)
		err = recording_file_write(&writer->file, stretch->data, stretch->len);
	writer->broken = err != NULL;
	stretch->len = 0;
	return err;
}

static struct error *write_if_long(struct recording_writer *writer)
{
	return writer->stretch.len >= STRETCH_WRITE ? write_stretch(writer) : NULL;
}

static void writer_free(struct recording_writer *writer)
{
	encoder_free(&writer->encoder);
	ids_free(writer->texts);
	bytes_free(&writer->stretch);
	free(writer);
}

static struct error *put_head(struct recording_writer *writer, const struct recording_info *info)
{
	struct bytes json = {0};
	struct error *err;

	err = encode_head(&writer->stretch);
	if (!err)
		err = recording_info_write(info, &json);
	if (!err)
		err = encode_json(&json, RECORD_INFO, &writer->stretch);
	bytes_free(&json);
	return err;
}

bool recording_begins(const void *data, size_t len)
{
	return len >= RECORDING_MAGIC_LEN && !memcmp(data, RECORDING_MAGIC, RECORDING_MAGIC_LEN);
}

struct error *recording_create(const char *path, const struct recording_info *info,
			       const struct stacks *stacks, struct recording_writer **out)
{
	struct recording_writer *writer;
	struct error *err;

	if (info->vcpus > RECORDING_MAX_VCPUS)
		return error_new(ERR_GUEST, "the guest has %u vCPUs, a recording at most %u",
				 info->vcpus, RECORDING_MAX_VCPUS);
	if (!isfinite(info->rate_hz) || info->rate_hz < 0)
		return error_new(ERR_FAILED, "a recording's rate must be a number, not below 0");
	writer = calloc(1, sizeof(*writer));
	if (!writer)
		return error_no_memory();
	err = encoder_init(&writer->encoder, stacks, info->vcpus);
	if (!err)
		err = ids_new(&writer->texts);
	if (!err)
		err = put_head(writer, info);
	if (!err)
		err = recording_file_create(path, &writer->file);
	if (err) {
		writer_free(writer);
		return err;
	}
	err = write_stretch(writer);
	if (err) {
		recording_abandon(writer);
		return err;
	}
	*out = writer;
	return NULL;
}

void recording_pack(struct recording_writer *writer, uint64_t period_ns)
{
	writer->packs = true;
	encoder_coarsen(&writer->encoder, period_ns);
}

static struct error *put_nodes(struct recording_writer *writer, uint32_t last)
{
	struct error *err = NULL;

	while (writer->encoder.nodes <= last && !err) {
		err = encode_nodes(&writer->encoder, last, &writer->stretch);
		if (!err)
			err = write_if_long(writer);
	}
	return err;
}

struct error *recording_tick(struct recording_writer *writer, const struct tick *tick)
{
	struct error *err = check_usable(writer);
	uint32_t newest;

	if (err)
		return err;
	if (!encode_allows(&writer->encoder, tick, &newest))
		return error_new(ERR_FAILED, "a sample does not fit the recording: time, vCPU, "
					     "state, stack or thread is out of range or order");
	err = put_nodes(writer, newest);
	if (!err)
		err = encode_tick(&writer->encoder, tick, &writer->stretch);
	if (err)
		return err;
	if (!writer->packs && tick->time_ns - writer->flushed_ns >= FLUSH_NS)
		return write_stretch(writer);
	return write_if_long(writer);
}

struct error *recording_thread(struct recording_writer *writer,
			       const struct recorded_thread *thread)
{
	struct error *err = check_usable(writer);

	if (!err && writer->encoder.threads == RECORDED_THREADS_MAX)
		err = error_new(ERR_FAILED, "a recording has at most %u threads",
				RECORDED_THREADS_MAX);
	if (!err)
		err = encode_thread(&writer->encoder, thread, &writer->stretch);
	return err ? err : write_if_long(writer);
}

struct error *recording_name(struct recording_writer *writer, uint64_t addr, uint8_t kind,
			     const char *name, uint64_t offset)
{
	struct error *err = check_usable(writer);

	if (!err && kind >= FRAME_KINDS)
		err = error_new(ERR_FAILED, "a name for a frame of kind %u, which there is not",
				kind);
	if (!err)
		err = encode_name(addr, kind, name, offset, &writer->stretch);
	return err ? err : write_if_long(writer);
}

struct error *recording_locations(struct recording_writer *writer, uint64_t addr, uint8_t kind,
				  const struct source_frame *frames, size_t n)
{
	struct error *err = check_usable(writer);

	if (!err && (kind >= FRAME_KINDS || !n || n > SOURCE_DEPTH))
		err = error_new(ERR_FAILED, "places in the source that cannot be");
	if (!err)
		err = encode_locations(writer->texts, addr, kind, frames, n, &writer->stretch);
	return err ? err : write_if_long(writer);
}

struct error *recording_flush(struct recording_writer *writer)
{
	struct error *err = check_usable(writer);

	return err ? err : write_stretch(writer);
}

/* Appends the end and writes it all out. */
static struct error *finish(struct recording_writer *writer, const struct recording_end *end)
{
	struct bytes json = {0};
	struct error *err = NULL;

	if (end)
		err = recording_end_write(end, &json);
	if (end && !err)
		err = encode_json(&json, RECORD_END, &writer->stretch);
	bytes_free(&json);
	return error_first(err, write_stretch(writer));
}

struct error *recording_close(struct recording_writer *writer, const struct recording_end *end)
{
	/* The call that broke the writer has returned its error. */
	struct error *err = writer->broken ? NULL : finish(writer, end);

	err = error_first(err, recording_file_close(&writer->file));
	writer_free(writer);
	return err;
}

void recording_abandon(struct recording_writer *writer)
{
	error_free(recording_file_close(&writer->file));
	writer_free(writer);
}
