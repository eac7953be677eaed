/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/kernel.h"

#include <bzlib.h>
#include <elf.h>
#include <errno.h>
#include <lz4.h>
#include <lzma.h>
#include <lzo/lzo1x.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/owned.h"
#include "base/preopen.h"

/*
 * The formats that Linux packs its kernels with. The input is not trusted: no
 * more is written than there is room for, and no more memory is used than
 * UNPACK_MEMORY_MAX. Dictionaries of Linux have 128 MiB at most (scripts/xz_wrap.sh).
 */
#define UNPACK_MEMORY_MAX (160u << 20)

struct packed {
	const uint8_t *bytes; /* bytes behind the end of the packed data do not matter */
	size_t len;
	uint8_t *out;
	size_t out_len;
};

struct unpacker {
	const char *magic;
	uint8_t magic_len;
	/* Fills `out` wholly; false if the input is damaged, or more or less comes out. */
	bool (*unpack)(const struct packed *packed);
};

/* Unpacked size of a block of lz4's legacy format, at most. */
#define LZ4_BLOCK (8u << 20)

/* Unpacks up to `size` bytes; returns how many there are. *ended: these are all. */
static size_t gunzip(const uint8_t *bytes, size_t len, void *out, size_t size, bool *ended)
{
	z_stream z = {.next_in = (uint8_t *)bytes,
		      .avail_in = (uInt)len,
		      .next_out = out,
		      .avail_out = (uInt)size};

	*ended = false;
	if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
		return 0;
	*ended = inflate(&z, Z_FINISH) == Z_STREAM_END;
	inflateEnd(&z);
	return size - z.avail_out;
}

static bool unpack_gzip(const struct packed *packed)
{
	bool ended;

	return gunzip(packed->bytes, packed->len, packed->out, packed->out_len, &ended) ==
		       packed->out_len &&
	       ended;
}

static bool unpack_xz(const struct packed *packed)
{
	uint64_t memory = UNPACK_MEMORY_MAX;
	size_t in = 0, out = 0;

	return lzma_stream_buffer_decode(&memory, 0, NULL, packed->bytes, &in, packed->len,
					 packed->out, &out, packed->out_len) == LZMA_OK &&
	       out == packed->out_len;
}

/* The length in its header may be "unknown": then a marker ends it. */
static bool unpack_lzma(const struct packed *packed)
{
	lzma_stream z = LZMA_STREAM_INIT;
	lzma_ret rc = lzma_alone_decoder(&z, UNPACK_MEMORY_MAX);

	z.next_in = packed->bytes;
	z.avail_in = packed->len;
	z.next_out = packed->out;
	z.avail_out = packed->out_len;
	if (rc == LZMA_OK)
		rc = lzma_code(&z, LZMA_FINISH);
	lzma_end(&z);
	return rc == LZMA_STREAM_END && z.avail_out == 0;
}

static bool unpack_bzip2(const struct packed *packed)
{
	unsigned len = (unsigned)packed->out_len;

	return BZ2_bzBuffToBuffDecompress((char *)packed->out, &len, (char *)packed->bytes,
					  (unsigned)packed->len, 0, 0) == BZ_OK &&
	       len == packed->out_len;
}

/* Unpacks as a stream: other bytes follow the frame. */
static bool unpack_zstd(const struct packed *packed)
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

/* The legacy format (lz4 -l): blocks, each behind its length, and no end of its own. */
static bool unpack_lz4(const struct packed *packed)
{
	size_t in = 4, out = 0;

	while (out < packed->out_len && packed->len - in > 4) {
		const size_t room = packed->out_len - out;
		uint32_t len;
		int got;

		memcpy(&len, packed->bytes + in, sizeof(len));
		in += sizeof(len);
		if (!len || len > packed->len - in || len > LZ4_COMPRESSBOUND(LZ4_BLOCK))
			return false;
		got = LZ4_decompress_safe((const char *)packed->bytes + in,
					  (char *)packed->out + out, (int)len,
					  (int)(room < LZ4_BLOCK ? room : LZ4_BLOCK));
		if (got <= 0)
			return false;
		in += len;
		out += (size_t)got;
	}
	return out == packed->out_len;
}

/* Flags in the head of an lzop file (lzop's conf.h): which checksums each block has, and more in the head. */
#define LZOP_CHECK_PLAIN  0x101u
#define LZOP_CHECK_PACKED 0x202u
#define LZOP_FILTER	  0x800u
#define LZOP_LEVEL	  0x940u /* the first version with a level, and times of 64 bits */

/* Fixed part of the head: magic bytes, versions, method, level, flags, filter, mode, time, length of the name. */
#define LZOP_HEAD_MAX (9 + 7 + 1 + 8 + 4 + 8 + 1)

static uint32_t big_endian(const uint8_t *bytes, size_t n)
{
	uint32_t value = 0;

	for (size_t i = 0; i < n; i++)
		value = value << 8 | bytes[i];
	return value;
}

/* Returns the length of the head with the file's name and a checksum, and the flags. */
static size_t lzop_head(const struct packed *packed, uint32_t *flags)
{
	size_t at = 9 + 7;
	bool level;

	if (packed->len < LZOP_HEAD_MAX)
		return packed->len;
	level = big_endian(packed->bytes + 9, 2) >= LZOP_LEVEL;
	at += level;
	*flags = big_endian(packed->bytes + at, 4);
	at += (*flags & LZOP_FILTER ? 8 : 4) + (level ? 12 : 8);
	return at + 1 + packed->bytes[at] + 4;
}

/* Unpacks a block; one that is as long as before is not packed. */
static bool lzop_block(const uint8_t *in, size_t len, uint8_t *out, size_t out_len)
{
	lzo_uint got = out_len;

	if (len == out_len) {
		memcpy(out, in, len);
		return true;
	}
	return lzo1x_decompress_safe(in, len, out, &got, NULL) == LZO_E_OK && got == out_len;
}

/* A file of lzop: blocks behind their lengths, without and with packing, and checksums. */
static bool unpack_lzo(const struct packed *packed)
{
	uint32_t flags = 0;
	size_t in = lzop_head(packed, &flags), out = 0;

	while (out < packed->out_len && in + 8 <= packed->len) {
		const uint32_t out_len = big_endian(packed->bytes + in, 4);
		const uint32_t len = big_endian(packed->bytes + in + 4, 4);

		in += 8 + (flags & LZOP_CHECK_PLAIN ? 4 : 0) +
		      (flags & LZOP_CHECK_PACKED && len < out_len ? 4 : 0);
		if (!len || len > out_len || out_len > packed->out_len - out || in > packed->len ||
		    len > packed->len - in ||
		    !lzop_block(packed->bytes + in, len, packed->out + out, out_len))
			return false;
		in += len;
		out += out_len;
	}
	return out == packed->out_len;
}

#define GZIP_MAGIC "\x1f\x8b"

#define UNPACKERS "gzip, bzip2, lzma, xz, lzo, lz4 or zstd"

static const struct unpacker unpackers[] = {
	{GZIP_MAGIC, 2, unpack_gzip},
	{"BZh", 3, unpack_bzip2},
	{"\x5d\0\0", 3, unpack_lzma},
	{"\xfd"
	 "7zXZ",
	 5, unpack_xz},
	{"\x89LZO\0\r\n\x1a\n", 9, unpack_lzo},
	{"\x02\x21\x4c\x18", 4, unpack_lz4},
	{"\x28\xb5\x2f\xfd", 4, unpack_zstd},
};

/* Recognises the first bytes; NULL: none of these. */
static const struct unpacker *unpacker_find(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < sizeof(unpackers) / sizeof(*unpackers); i++)
		if (len > unpackers[i].magic_len &&
		    !memcmp(bytes, unpackers[i].magic, unpackers[i].magic_len))
			return &unpackers[i];
	return NULL;
}

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

/* No kernel is larger than this, packed or unpacked: together they take what the reader may. */
#define KERNEL_MAX (256u << 20)

/* Kernels are packed to a fifth or so. A small file that tells a large size takes no time and memory. */
#define UNPACKED_TIMES 64

static uint32_t get(const uint8_t *bytes, size_t at, size_t n)
{
	uint32_t value = 0;

	memcpy(&value, bytes + at, n); /* little-endian, as the machines whose kernels these are */
	return value;
}

bool kernel_image_is(const void *head, size_t len)
{
	const uint8_t *bytes = head;

	return len >= KERNEL_IMAGE_HEAD && get(bytes, BOOT_FLAG, 2) == BOOT_FLAG_VALUE &&
	       !memcmp(bytes + BOOT_MAGIC, "HdrS", 4) &&
	       get(bytes, BOOT_VERSION, 2) >= BOOT_VERSION_2_08;
}

/* Returns how many bytes of the file's beginning there are. */
static size_t read_head(const char *path, uint8_t *head, size_t size)
{
	CLOSED const int fd = open_to_read(path);
	const ssize_t got = fd < 0 ? -1 : pread(fd, head, size, 0);

	return got < 0 ? 0 : (size_t)got;
}

bool kernel_image_at(const char *path)
{
	uint8_t head[KERNEL_IMAGE_HEAD];

	return kernel_image_is(head, read_head(path, head, sizeof(head)));
}

bool kernel_image_arm64_at(const char *path)
{
	uint8_t head[KERNEL_IMAGE_HEAD];

	return read_head(path, head, sizeof(head)) == sizeof(head) &&
	       !memcmp(head + ARM64_MAGIC, "ARM\x64", 4);
}

/* Unpacks so many bytes of the beginning of what gzip packed; false: there are not so many. */
static bool gzip_head(const uint8_t *bytes, size_t len, void *head, size_t size)
{
	bool ended;

	return len > strlen(GZIP_MAGIC) && !memcmp(bytes, GZIP_MAGIC, strlen(GZIP_MAGIC)) &&
	       gunzip(bytes, len, head, size, &ended) == size;
}

/* Do these bytes begin an ELF file that gzip packed? */
static bool is_gzip_elf(const uint8_t *bytes, size_t len)
{
	uint8_t head[SELFMAG];

	return gzip_head(bytes, len, head, sizeof(head)) && !memcmp(head, ELFMAG, SELFMAG);
}

/* gzip's own head has a name of a file, which is no longer. */
#define PACKED_HEAD 4096

/* Linux is linked to the topmost 2 GiB on x86-64, and entered where it is loaded (arch/x86/kernel/vmlinux.lds.S). */
#define LINUX_LINKED  0xffffffff80000000u
#define LINUX_HEADERS 16u

bool kernel_image_packs_linux(const char *path)
{
	uint8_t packed[PACKED_HEAD];
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr part[LINUX_HEADERS];
	} elf = {0};
	const size_t len = read_head(path, packed, sizeof(packed));

	if (!gzip_head(packed, len, &elf, sizeof(elf)) ||
	    memcmp(elf.head.e_ident, ELFMAG, SELFMAG) != 0 ||
	    elf.head.e_ident[EI_CLASS] != ELFCLASS64 || elf.head.e_machine != EM_X86_64 ||
	    elf.head.e_phoff != sizeof(elf.head) || elf.head.e_entry > UINT32_MAX)
		return false;
	for (unsigned i = 0; i < elf.head.e_phnum && i < LINUX_HEADERS; i++)
		if (elf.part[i].p_type == PT_LOAD && elf.part[i].p_vaddr >= LINUX_LINKED)
			return true;
	return false;
}

bool kernel_image_has_elf(const void *head, size_t len)
{
	return kernel_image_is(head, len) || is_gzip_elf(head, len);
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
	return packed->out_len > SELFMAG && packed->out_len <= KERNEL_MAX;
}

/* Unpacks an ELF file; `what` is damaged if it does not come out. */
static struct error *unpack(const char *path, const struct unpacker *unpacker,
			    struct packed *packed, const char *what, char **elf, size_t *elf_len)
{
	packed->out = malloc(packed->out_len);
	if (!packed->out)
		return error_no_memory();
	if (!unpacker->unpack(packed) || memcmp(packed->out, ELFMAG, SELFMAG)) {
		free(packed->out);
		return error_new(ERR_INPUT, "%s: the %s in it is damaged", path, what);
	}
	*elf = (char *)packed->out;
	*elf_len = packed->out_len;
	return NULL;
}

static struct error *unpack_image(const char *path, const void *file, size_t len, char **elf,
				  size_t *elf_len)
{
	const struct unpacker *unpacker;
	struct packed packed;

	if (!find_payload(file, len, &packed))
		return error_new(ERR_INPUT, "%s: damaged or truncated Linux kernel image", path);
	if (packed.out_len / UNPACKED_TIMES > packed.len)
		return error_new(ERR_INPUT,
				 "%s: damaged Linux kernel image: %zu bytes cannot unpack to %zu",
				 path, packed.len, packed.out_len);
	unpacker = unpacker_find(packed.bytes, packed.len);
	if (!unpacker)
		return error_new(ERR_INPUT,
				 "%s: this Linux kernel is not compressed with " UNPACKERS
				 "; unpack it first (scripts/extract-vmlinux of Linux does that)",
				 path);
	return unpack(path, unpacker, &packed, "compressed kernel", elf, elf_len);
}

/*
 * An ELF file whose segments lie far apart is mostly zeros: a small file may unpack to more
 * than UNPACKED_TIMES as much, up to this.
 */
#define SPARSE_MAX (16u << 20)

/* Its last four bytes tell the length before (RFC 1952, 2.3.1). */
static struct error *unpack_gzip_file(const char *path, const uint8_t *file, size_t len, char **elf,
				      size_t *elf_len)
{
	struct packed packed = {.bytes = file, .len = len, .out_len = get(file, len - 4, 4)};

	if (packed.out_len > KERNEL_MAX ||
	    (packed.out_len > SPARSE_MAX && packed.out_len / UNPACKED_TIMES > len))
		return error_new(ERR_INPUT,
				 "%s: a damaged gzip file: %zu bytes are not the %zu of an ELF "
				 "file",
				 path, len, packed.out_len);
	return unpack(path, unpacker_find(file, len), &packed, "ELF file", elf, elf_len);
}

struct error *kernel_image_unpack(const char *path, const void *file, size_t len, char **elf,
				  size_t *elf_len)
{
	return is_gzip_elf(file, len) ? unpack_gzip_file(path, file, len, elf, elf_len)
				      : unpack_image(path, file, len, elf, elf_len);
}

struct error *kernel_image_load(const char *path, char **elf, size_t *elf_len)
{
	uint8_t head[PACKED_HEAD];
	FREED uint8_t *file = NULL;
	CLOSED int fd = -1;
	struct stat st;

	*elf = NULL;
	if (!kernel_image_has_elf(head, read_head(path, head, sizeof(head))))
		return NULL;
	fd = open_to_read(path);
	if (fd < 0 || fstat(fd, &st))
		return error_errno(ERR_INPUT, errno, "%s: cannot open the kernel", path);
	if (st.st_size <= 0 || st.st_size > KERNEL_MAX)
		return error_new(ERR_INPUT, "%s: too large for a kernel", path);
	file = malloc((size_t)st.st_size);
	if (!file)
		return error_no_memory();
	if (pread(fd, file, (size_t)st.st_size, 0) != st.st_size)
		return error_new(ERR_INPUT, "%s: cannot be read to its end", path);
	return kernel_image_unpack(path, file, (size_t)st.st_size, elf, elf_len);
}
