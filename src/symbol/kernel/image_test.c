/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/kernel.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bzlib.h>
#include <cmocka.h>
#include <lz4.h>
#include <lzma.h>
#include <lzo/lzo1x.h>
#include <zlib.h>
#include <zstd.h>

#define SECTS	2
#define PAYLOAD ((SECTS + 1) * 512 + 0x100)

struct image {
	uint8_t bytes[8192];
	size_t len;
};

static const char elf[] = "\177ELF what is in it does not matter here, here, here, here, here, "
			  "here, here, here, here";

static void put(struct image *image, size_t at, uint32_t value, size_t len)
{
	memcpy(image->bytes + at, &value, len);
}

/* Makes a bzImage of these bytes, with the unpacked length behind them. */
static void wrap(struct image *image, const uint8_t *packed, size_t len)
{
	memset(image, 0, sizeof(*image));
	put(image, 0x1f1, SECTS, 1);
	put(image, 0x1fe, 0xaa55, 2);
	memcpy(image->bytes + 0x202, "HdrS", 4);
	put(image, 0x206, 0x20f, 2);
	put(image, 0x248, 0x100, 4);
	put(image, 0x24c, (uint32_t)len + 4, 4);
	memcpy(image->bytes + PAYLOAD, packed, len);
	put(image, PAYLOAD + len, sizeof(elf), 4);
	image->len = PAYLOAD + len + 4;
}

/* A gzip file of these bytes; returns its length. */
static size_t gzip(const void *bytes, size_t len, uint8_t *to, size_t room)
{
	z_stream z = {.next_in = (uint8_t *)bytes,
		      .avail_in = (uInt)len,
		      .next_out = to,
		      .avail_out = (uInt)room};

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
			 Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return z.total_out;
}

static void make_gzip(struct image *image)
{
	uint8_t packed[256];

	/* The length at the end of a gzip file is that behind the payload. */
	wrap(image, packed, gzip(elf, sizeof(elf), packed, sizeof(packed)) - 4);
}

static void make_xz(struct image *image)
{
	uint8_t packed[256];
	size_t len = 0;

	assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, NULL, (const uint8_t *)elf,
						 sizeof(elf), packed, &len, sizeof(packed)),
			 LZMA_OK);
	wrap(image, packed, len);
}

static void make_zstd(struct image *image)
{
	uint8_t packed[256];
	size_t len = ZSTD_compress(packed, sizeof(packed), elf, sizeof(elf), 3);

	assert_false(ZSTD_isError(len));
	wrap(image, packed, len);
}

static void make_lzma(struct image *image)
{
	uint8_t packed[256];
	lzma_stream z = LZMA_STREAM_INIT;
	lzma_options_lzma options;

	assert_false(lzma_lzma_preset(&options, 6));
	assert_int_equal(lzma_alone_encoder(&z, &options), LZMA_OK);
	z.next_in = (const uint8_t *)elf;
	z.avail_in = sizeof(elf);
	z.next_out = packed;
	z.avail_out = sizeof(packed);
	assert_int_equal(lzma_code(&z, LZMA_FINISH), LZMA_STREAM_END);
	wrap(image, packed, z.total_out);
	lzma_end(&z);
}

static void make_bzip2(struct image *image)
{
	char packed[256];
	unsigned len = sizeof(packed);

	assert_int_equal(BZ2_bzBuffToBuffCompress(packed, &len, (char *)elf, sizeof(elf), 9, 0, 0),
			 BZ_OK);
	wrap(image, (const uint8_t *)packed, len);
}

/* In two blocks: real ones are as long as 8 MiB. */
static void make_lz4(struct image *image)
{
	uint8_t packed[256] = {0x02, 0x21, 0x4c, 0x18};
	const int pieces[] = {20, sizeof(elf) - 20};
	size_t at = 4, from = 0;

	for (int i = 0; i < 2; i++) {
		const int len = LZ4_compress_default(elf + from, (char *)packed + at + 4, pieces[i],
						     (int)(sizeof(packed) - at - 4));

		assert_true(len > 0);
		memcpy(packed + at, &len, 4);
		at += 4 + (size_t)len;
		from += (size_t)pieces[i];
	}
	wrap(image, packed, at);
}

static void put_be32(uint8_t *to, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* As lzop -9 writes it: one block with a checksum in front, and zeros instead of times and sums. */
static void make_lzo(struct image *image)
{
	uint8_t packed[256] = "\x89LZO\0\r\n\x1a\n\x10\x30\x20\xa0\x09\x40\x03\x09\x03\0\0\x01";
	static uint8_t work[LZO1X_1_MEM_COMPRESS];
	const size_t at = 9 + 8 + 4 + 12 + 1 + 4;
	lzo_uint len;

	assert_int_equal(lzo1x_1_compress((const uint8_t *)elf, sizeof(elf), packed + at + 12, &len,
					  work),
			 LZO_E_OK);
	assert_true(len < sizeof(elf));
	put_be32(packed + at, sizeof(elf));
	put_be32(packed + at + 4, (uint32_t)len);
	wrap(image, packed, at + 12 + len + 4);
}

static void (*const make[])(struct image *) = {make_gzip, make_bzip2, make_lzma, make_xz,
					       make_lzo,  make_lz4,   make_zstd};

#define N_MAKE (sizeof(make) / sizeof(*make))

static void check(const struct image *image)
{
	size_t len = 0;
	char *out = NULL;

	assert_true(kernel_image_has_elf(image->bytes, image->len));
	assert_null(kernel_image_unpack("vmlinuz", image->bytes, image->len, &out, &len));
	assert_int_equal(len, sizeof(elf));
	assert_memory_equal(out, elf, sizeof(elf));
	free(out);
}

static void kernels_are_unpacked_whatever_packed_them(void **state)
{
	struct image image;

	for (size_t i = 0; i < N_MAKE; i++) {
		make[i](&image);
		assert_true(kernel_image_is(image.bytes, image.len));
		check(&image);
	}
}

static void refuse(const struct image *image, size_t len, const char *text)
{
	size_t elf_len;
	char *out;
	struct error *err = kernel_image_unpack("vmlinuz", image->bytes, len, &out, &elf_len);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_non_null(strstr(err->text, text));
	error_free(err);
}

static void damaged_kernels_are_refused(void **state)
{
	struct image image;

	for (size_t i = 0; i < N_MAKE; i++) {
		make[i](&image);
		refuse(&image, image.len - 1, "truncated");
		refuse(&image, 0x300, "truncated");
		put(&image, image.len - 4, sizeof(elf) + 1, 4);
		refuse(&image, image.len, "damaged");
		put(&image, image.len - 4, 0xffffffff, 4);
		refuse(&image, image.len, "damaged");
		make[i](&image);
		memset(image.bytes + PAYLOAD + 12, 0x77, 16);
		refuse(&image, image.len, "damaged");
	}
}

/* Zeros are packed to a thousandth, a kernel is not. */
static void a_small_file_is_no_large_kernel(void **state)
{
	static uint8_t unpacked[4 << 20] = ELFMAG, packed[8192];
	struct image image;
	unsigned len = sizeof(packed);

	assert_int_equal(BZ2_bzBuffToBuffCompress((char *)packed, &len, (char *)unpacked,
						  sizeof(unpacked), 9, 0, 0),
			 BZ_OK);
	wrap(&image, packed, len);
	put(&image, image.len - 4, sizeof(unpacked), 4);
	refuse(&image, image.len, "cannot unpack to 4194304");
}

static void elf_files_that_gzip_packed_are_unpacked(void **state)
{
	struct image image;

	image.len = gzip(elf, sizeof(elf), image.bytes, sizeof(image.bytes));
	assert_false(kernel_image_is(image.bytes, image.len));
	check(&image);
	/* Its beginning is enough to tell. */
	assert_true(kernel_image_has_elf(image.bytes, image.len / 2));
	image.len = gzip(elf + 1, sizeof(elf) - 1, image.bytes, sizeof(image.bytes));
	assert_false(kernel_image_has_elf(image.bytes, image.len));
	assert_false(kernel_image_has_elf(image.bytes, 2));
}

static void damaged_gzip_files_are_refused(void **state)
{
	const uint32_t lengths[] = {0, 3, sizeof(elf) - 1, sizeof(elf) + 1, 1u << 20};
	struct image image;

	image.len = gzip(elf, sizeof(elf), image.bytes, sizeof(image.bytes));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		put(&image, image.len - 4, lengths[i], 4);
		refuse(&image, image.len, "the ELF file in it is damaged");
	}
	put(&image, image.len - 4, UINT32_MAX, 4);
	refuse(&image, image.len, "a damaged gzip file");
	put(&image, image.len - 4, sizeof(elf), 4);
	for (size_t len = image.len - 1; kernel_image_has_elf(image.bytes, len); len--)
		refuse(&image, len, "damaged");
	/* Its checksum. */
	image.bytes[image.len - 8] ^= 1;
	refuse(&image, image.len, "damaged");
}

/* Zeros between segments are packed to a thousandth; no file of them is as large as a bomb. */
static void a_gzip_bomb_is_no_elf_file(void **state)
{
	const size_t sparse = 8u << 20, bomb = 64u << 20, room = 1u << 17;
	uint8_t *unpacked = calloc(1, bomb), *packed = malloc(room);
	size_t packed_len, len;
	struct error *err;
	char *out;

	assert_non_null(unpacked);
	assert_non_null(packed);
	memcpy(unpacked, ELFMAG, SELFMAG);
	packed_len = gzip(unpacked, sparse, packed, room);
	assert_null(kernel_image_unpack("guest.gz", packed, packed_len, &out, &len));
	assert_int_equal(len, sparse);
	assert_memory_equal(out, unpacked, sparse);
	free(out);
	packed_len = gzip(unpacked, bomb, packed, room);
	assert_true(kernel_image_has_elf(packed, packed_len));
	err = kernel_image_unpack("guest.gz", packed, packed_len, &out, &len);
	assert_non_null(err);
	assert_non_null(strstr(err->text, "are not the 67108864 of an ELF file"));
	error_free(err);
	free(unpacked);
	free(packed);
}

/* The head of an lzma file tells the size of the dictionary behind its first byte. */
static void dictionaries_take_no_more_memory_than_those_of_linux(void **state)
{
	struct image image;

	make_lzma(&image);
	put(&image, PAYLOAD + 1, 128u << 20, 4);
	check(&image);
	put(&image, PAYLOAD + 1, 256u << 20, 4);
	refuse(&image, image.len, "damaged");
}

static void unknown_packers_are_told(void **state)
{
	struct image image;

	wrap(&image, (const uint8_t *)"RZIP and so on", 14);
	refuse(&image, image.len, "gzip, bzip2, lzma, xz, lzo, lz4 or zstd");
	refuse(&image, image.len, "extract-vmlinux");
}

static void other_files_are_no_kernels(void **state)
{
	struct image image;

	make_xz(&image);
	assert_false(kernel_image_is(image.bytes, 0x100));
	put(&image, 0x206, 0x207, 2);
	assert_false(kernel_image_is(image.bytes, image.len));
	assert_false(kernel_image_is(elf, sizeof(elf)));
}

static void kernels_of_each_machine_are_told_apart_by_their_files(void **state)
{
	char path[] = "/tmp/kernel-image-XXXXXX";
	const int fd = mkstemp(path);
	struct image image;

	assert_true(fd >= 0);
	make_gzip(&image);
	assert_int_equal(pwrite(fd, image.bytes, image.len, 0), image.len);
	assert_true(kernel_image_at(path));
	assert_false(kernel_image_arm64_at(path));
	memset(image.bytes, 0, image.len);
	memcpy(image.bytes + 0x38, "ARM\x64", 4);
	assert_int_equal(pwrite(fd, image.bytes, image.len, 0), image.len);
	assert_false(kernel_image_at(path));
	assert_true(kernel_image_arm64_at(path));
	assert_int_equal(ftruncate(fd, 0x40), 0);
	assert_false(kernel_image_arm64_at(path));
	close(fd);
	unlink(path);
	assert_false(kernel_image_arm64_at(path));
}

/* True if the packed beginning of such a file is told to be Linux. */
static bool packs_linux(uint64_t entry, uint64_t va, uint16_t machine)
{
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr part[2];
		uint8_t more[2048];
	} file = {.head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
			   .e_machine = machine,
			   .e_entry = entry,
			   .e_phoff = sizeof(Elf64_Ehdr),
			   .e_phnum = 2},
		  .part = {{.p_type = PT_NOTE, .p_vaddr = UINT64_MAX}, {.p_type = PT_LOAD}}};
	char path[] = "/tmp/kernel-image-XXXXXX";
	const int fd = mkstemp(path);
	uint8_t packed[4096];
	ssize_t len;
	bool is;

	file.part[1].p_vaddr = va;
	len = (ssize_t)gzip(&file, sizeof(file), packed, sizeof(packed));
	assert_int_equal(pwrite(fd, packed, (size_t)len, 0), len);
	is = kernel_image_packs_linux(path);
	/* So few bytes do not tell. */
	assert_int_equal(ftruncate(fd, 12), 0);
	assert_false(kernel_image_packs_linux(path));
	close(fd);
	unlink(path);
	return is;
}

static void linux_is_told_by_where_it_is_linked(void **state)
{
	const uint64_t linked = 0xffffffff81000000;

	assert_true(packs_linux(0x1000000, linked, EM_X86_64));
	assert_false(packs_linux(linked, linked, EM_X86_64));
	assert_false(packs_linux(0x1000000, 0x1000000, EM_X86_64));
	assert_false(packs_linux(0x1000000, linked, EM_AARCH64));
	assert_false(kernel_image_packs_linux("/none"));
	assert_false(kernel_image_packs_linux("/proc/self/exe"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_are_unpacked_whatever_packed_them),
		cmocka_unit_test(damaged_kernels_are_refused),
		cmocka_unit_test(a_small_file_is_no_large_kernel),
		cmocka_unit_test(elf_files_that_gzip_packed_are_unpacked),
		cmocka_unit_test(damaged_gzip_files_are_refused),
		cmocka_unit_test(a_gzip_bomb_is_no_elf_file),
		cmocka_unit_test(dictionaries_take_no_more_memory_than_those_of_linux),
		cmocka_unit_test(unknown_packers_are_told),
		cmocka_unit_test(other_files_are_no_kernels),
		cmocka_unit_test(linux_is_told_by_where_it_is_linked),
		cmocka_unit_test(kernels_of_each_machine_are_told_apart_by_their_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
