/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/image.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "base/preopen.h"

/* Offsets in the boot header (boot.rst, "The Real-Mode Kernel Header"). */
#define BOOT_SETUP_SECTS    0x1f1
#define BOOT_FLAG	    0x1fe
#define BOOT_MAGIC	    0x202
#define BOOT_VERSION	    0x206
#define BOOT_PAYLOAD_OFFSET 0x248
#define BOOT_PAYLOAD_LENGTH 0x24c

/* ... and in that of arm64 (booting.rst, "Call the kernel image"). */
#define ARM64_MAGIC 0x38

#define BOOT_FLAG_VALUE	  0xaa55
#define BOOT_VERSION_2_08 0x208 /* the first with a payload */
#define BOOT_SECTOR	  512

/* No kernel is larger than this when it is unpacked, nor needs more memory to unpack it. */
#define UNPACKED_MAX (512u << 20)

struct packed {
	const uint8_t *bytes;
	size_t len;
	uint8_t *out;
	size_t out_len;
};

/* An unpacker fills `out` wholly; false if the input is damaged. */
struct unpacker {
	const char *magic;
	uint8_t magic_len;
	bool (*unpack)(struct packed *packed);
};

static uint32_t get(const uint8_t *bytes, size_t at, size_t n)
{
	uint32_t value = 0;

	memcpy(&value, bytes + at, n); /* little-endian, as the machines whose kernels these are */
	return value;
}

static bool unpack_gzip(struct packed *packed)
{
	z_stream z = {.next_in = (uint8_t *)packed->bytes,
		      .avail_in = (uInt)packed->len,
		      .next_out = packed->out,
		      .avail_out = (uInt)packed->out_len};
	int rc;

	if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
		return false;
	rc = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	return rc == Z_STREAM_END && z.avail_out == 0;
}

static bool unpack_xz(struct packed *packed)
{
	uint64_t memory = UNPACKED_MAX;
	size_t in = 0, out = 0;

	return lzma_stream_buffer_decode(&memory, 0, NULL, packed->bytes, &in, packed->len,
					 packed->out, &out, packed->out_len) == LZMA_OK &&
	       out == packed->out_len;
}

/* As a stream: what follows the frame is not of its kind. */
static bool unpack_zstd(struct packed *packed)
{
	ZSTD_inBuffer in = {packed->bytes, packed->len, 0};
	ZSTD_outBuffer out = {packed->out, packed->out_len, 0};
	ZSTD_DStream *stream = ZSTD_createDStream();
	size_t left = 1;

	while (stream && left && !ZSTD_isError(left)) {
		size_t done = in.pos + out.pos;

		left = ZSTD_decompressStream(stream, &out, &in);
		if (in.pos + out.pos == done)
			break;
	}
	ZSTD_freeDStream(stream);
	return left == 0 && out.pos == packed->out_len;
}

static const struct unpacker unpackers[] = {
	{"\x1f\x8b", 2, unpack_gzip},
	{"\xfd"
	 "7zXZ",
	 5, unpack_xz},
	{"\x28\xb5\x2f\xfd", 4, unpack_zstd},
};

static const struct unpacker *find_unpacker(const struct packed *packed)
{
	for (size_t i = 0; i < sizeof(unpackers) / sizeof(*unpackers); i++)
		if (packed->len > unpackers[i].magic_len &&
		    !memcmp(packed->bytes, unpackers[i].magic, unpackers[i].magic_len))
			return &unpackers[i];
	return NULL;
}

bool kernel_image_is(const void *head, size_t len)
{
	const uint8_t *bytes = head;

	return len >= KERNEL_IMAGE_HEAD && get(bytes, BOOT_FLAG, 2) == BOOT_FLAG_VALUE &&
	       !memcmp(bytes + BOOT_MAGIC, "HdrS", 4) &&
	       get(bytes, BOOT_VERSION, 2) >= BOOT_VERSION_2_08;
}

static bool read_head(const char *path, uint8_t *head)
{
	int fd = open_to_read(path);
	bool done = fd >= 0 && pread(fd, head, KERNEL_IMAGE_HEAD, 0) == KERNEL_IMAGE_HEAD;

	if (fd >= 0)
		close(fd);
	return done;
}

bool kernel_image_at(const char *path)
{
	uint8_t head[KERNEL_IMAGE_HEAD];

	return read_head(path, head) && kernel_image_is(head, sizeof(head));
}

bool kernel_image_arm64_at(const char *path)
{
	uint8_t head[KERNEL_IMAGE_HEAD];

	return read_head(path, head) && !memcmp(head + ARM64_MAGIC, "ARM\x64", 4);
}

/* Behind the payload stands how long it is when it is unpacked, whatever it is packed with. */
static bool find_payload(const uint8_t *file, size_t len, struct packed *packed)
{
	size_t sects, start;

	if (!kernel_image_is(file, len))
		return false;
	sects = get(file, BOOT_SETUP_SECTS, 1);
	/* 0 means 4, for the sake of old boot loaders. */
	start = ((sects ? sects : 4) + 1) * BOOT_SECTOR + get(file, BOOT_PAYLOAD_OFFSET, 4);
	packed->len = get(file, BOOT_PAYLOAD_LENGTH, 4);
	if (start > len || packed->len > len - start || packed->len < 8)
		return false;
	packed->bytes = file + start;
	packed->out_len = get(packed->bytes, packed->len - 4, 4);
	return packed->out_len > SELFMAG && packed->out_len <= UNPACKED_MAX;
}

struct error *kernel_image_unpack(const char *path, const void *file, size_t len, char **elf,
				  size_t *elf_len)
{
	const struct unpacker *unpacker;
	struct packed packed;

	if (!find_payload(file, len, &packed))
		return error_new(ERR_INPUT, "%s: damaged or truncated Linux kernel image", path);
	unpacker = find_unpacker(&packed);
	if (!unpacker)
		return error_new(ERR_INPUT,
				 "%s: this Linux kernel is not compressed with gzip, xz or zstd; "
				 "unpack it first (scripts/extract-vmlinux of Linux does that)",
				 path);
	packed.out = malloc(packed.out_len);
	if (!packed.out)
		return error_no_memory();
	if (!unpacker->unpack(&packed) || memcmp(packed.out, ELFMAG, SELFMAG)) {
		free(packed.out);
		return error_new(ERR_INPUT, "%s: the compressed kernel in it is damaged", path);
	}
	*elf = (char *)packed.out;
	*elf_len = packed.out_len;
	return NULL;
}

static struct error *read_file(const char *path, int fd, uint8_t **file, size_t len)
{
	*file = malloc(len);
	if (!*file)
		return error_no_memory();
	if (pread(fd, *file, len, 0) == (ssize_t)len)
		return NULL;
	free(*file);
	return error_new(ERR_INPUT, "%s: cannot be read to its end", path);
}

struct error *kernel_image_load(const char *path, char **elf, size_t *elf_len)
{
	struct error *err = NULL;
	uint8_t *file = NULL;
	struct stat st;
	int fd;

	*elf = NULL;
	if (!kernel_image_at(path))
		return NULL;
	fd = open_to_read(path);
	if (fd < 0 || fstat(fd, &st))
		err = error_errno(ERR_INPUT, errno, "%s: cannot open the kernel", path);
	else if (st.st_size <= 0 || st.st_size > UNPACKED_MAX)
		err = error_new(ERR_INPUT, "%s: too large for a kernel", path);
	else
		err = read_file(path, fd, &file, (size_t)st.st_size);
	if (fd >= 0)
		close(fd);
	if (err)
		return err;
	err = kernel_image_unpack(path, file, (size_t)st.st_size, elf, elf_len);
	free(file);
	return err;
}
