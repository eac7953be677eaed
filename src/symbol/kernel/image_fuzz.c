/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for compressed kernels. The first byte of the input selects:
 * the rest is a file; or the contents that one of the packers packs, whose
 * checksums no fuzzer would find, behind a good head, and damage to all of it;
 * or that of a gzip file without such a head.
 */

#include <bzlib.h>
#include <lz4.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "base/fuzz_testing.h"
#include "symbol/kernel/kernel.h"

#define PAYLOAD 0x400u
#define ROOM	0x8000u

struct image {
	uint8_t bytes[PAYLOAD + ROOM];
	size_t len;
};

static size_t pack_gzip(const uint8_t *data, size_t size, uint8_t *to)
{
	z_stream z = {.next_in = (uint8_t *)data,
		      .avail_in = (uInt)size,
		      .next_out = to,
		      .avail_out = ROOM};

	need(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
	need(deflate(&z, Z_FINISH) == Z_STREAM_END);
	deflateEnd(&z);
	return z.total_out;
}

static size_t pack_bzip2(const uint8_t *data, size_t size, uint8_t *to)
{
	unsigned len = ROOM;

	need(BZ2_bzBuffToBuffCompress((char *)to, &len, (char *)data, (unsigned)size, 1, 0, 0) ==
	     BZ_OK);
	return len;
}

static size_t pack_xz(const uint8_t *data, size_t size, uint8_t *to)
{
	size_t len = 0;

	need(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, data, size, to, &len, ROOM) ==
	     LZMA_OK);
	return len;
}

static size_t pack_lzma(const uint8_t *data, size_t size, uint8_t *to)
{
	lzma_stream z = LZMA_STREAM_INIT;
	lzma_options_lzma options;
	size_t len;

	need(!lzma_lzma_preset(&options, 0) && lzma_alone_encoder(&z, &options) == LZMA_OK);
	z.next_in = data;
	z.avail_in = size;
	z.next_out = to;
	z.avail_out = ROOM;
	need(lzma_code(&z, LZMA_FINISH) == LZMA_STREAM_END);
	len = z.total_out;
	lzma_end(&z);
	return len;
}

static size_t pack_zstd(const uint8_t *data, size_t size, uint8_t *to)
{
	const size_t len = ZSTD_compress(to, ROOM, data, size, 1);

	need(!ZSTD_isError(len));
	return len;
}

/* In two blocks. */
static size_t pack_lz4(const uint8_t *data, size_t size, uint8_t *to)
{
	const size_t half[] = {size / 2, size - size / 2};
	size_t at = 4;

	memcpy(to, "\x02\x21\x4c\x18", 4);
	for (unsigned i = 0; i < 2; i++) {
		const int len = LZ4_compress_default((const char *)data + (i ? half[0] : 0),
						     (char *)to + at + 4, (int)half[i],
						     (int)(ROOM - at - 4));

		memcpy(to + at, &len, 4);
		at += 4 + (size_t)len;
	}
	return at;
}

static size_t (*const packers[])(const uint8_t *data, size_t size,
				 uint8_t *to) = {pack_gzip, pack_bzip2, pack_xz,
						 pack_lzma, pack_zstd,	pack_lz4};

static void put(struct image *image, size_t at, uint32_t value, size_t len)
{
	memcpy(image->bytes + at, &value, len);
}

static void wrap(struct image *image, const uint8_t *data, size_t size, unsigned packer)
{
	const size_t len = packers[packer](data, size, image->bytes + PAYLOAD);

	memset(image->bytes, 0, PAYLOAD);
	put(image, 0x1f1, 1, 1);
	put(image, 0x1fe, 0xaa55, 2);
	memcpy(image->bytes + 0x202, "HdrS", 4);
	put(image, 0x206, 0x20f, 2);
	put(image, 0x248, PAYLOAD - 1024, 4);
	put(image, 0x24c, (uint32_t)len + 4, 4);
	put(image, PAYLOAD + len, (uint32_t)size, 4);
	image->len = PAYLOAD + len + 4;
}

static void unpack(const uint8_t *bytes, size_t len, const uint8_t *inner, size_t inner_len)
{
	uint8_t *file = fuzz_copy(bytes, len);
	struct error *err;
	size_t elf_len;
	char *elf = NULL;

	if (kernel_image_has_elf(file, len)) {
		err = kernel_image_unpack("vmlinuz", file, len, &elf, &elf_len);
		need(!err || err->kind == ERR_INPUT);
		need(!inner || (!err && elf_len == inner_len && !memcmp(elf, inner, inner_len)));
		error_free(err);
		free(elf);
	}
	free(file);
}

static void read_file(const uint8_t *data, size_t size)
{
	struct fuzz_file file = fuzz_file_new(data, size);
	size_t elf_len;
	struct error *err;
	char *elf = NULL;

	(void)kernel_image_arm64_at(file.path);
	err = kernel_image_load(file.path, &elf, &elf_len);
	need(kernel_image_has_elf(data, size) || (!err && !elf));
	need(!kernel_image_at(file.path) || kernel_image_has_elf(data, size));
	error_free(err);
	free(elf);
	close(file.fd);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	static struct image image;
	static uint8_t contents[ROOM / 2];
	struct fuzz_input in = {data, data + size};
	const unsigned how = (unsigned)fuzz_number(&in, 1);
	size_t inner;

	if (how % 8 > 5) {
		read_file(in.at, fuzz_left(&in));
		unpack(in.at, fuzz_left(&in), NULL, 0);
		return;
	}
	inner = how & 0x80 ? fuzz_left(&in) : fuzz_left(&in) / 2;
	if (inner < 8 || inner > sizeof(contents))
		return;
	memcpy(contents, in.at, inner);
	memcpy(contents,
	       "\x7f"
	       "ELF",
	       4);
	if (how & 0x20)
		image.len = pack_gzip(contents, inner, image.bytes);
	else
		wrap(&image, contents, inner, how % 8);
	if (how & 0x80) {
		unpack(image.bytes, image.len, contents, inner);
		return;
	}
	in.at += inner;
	/* Most of it in the payload, the rest in the head and the length behind. */
	if (how & 0x60)
		fuzz_damage(&in, image.bytes, image.len);
	else
		fuzz_damage(&in, image.bytes + PAYLOAD, image.len - PAYLOAD);
	unpack(image.bytes, image.len, NULL, 0);
}
