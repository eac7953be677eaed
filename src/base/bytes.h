/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The bytes that recordings are made of: a buffer that grows, and the numbers
 * in it. A number is stored as LEB128: seven bits a byte, lowest first, the
 * top bit set on all but the last byte. Differences are 64-bit and wrap, and
 * are folded (zigzag) so that small ones of either sign take few bytes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* The most bytes that a number takes. */
#define VARINT_MAX 10

struct bytes {
	uint8_t *data;
	size_t len, cap;
};

/* Makes room for `more` bytes behind `len`. The put functions do not check: reserve first. */
static inline struct error *bytes_reserve(struct bytes *bytes, size_t more)
{
	size_t need, cap;
	uint8_t *data;

	if (more <= bytes->cap - bytes->len)
		return NULL;
	if (__builtin_add_overflow(bytes->len, more, &need))
		return error_no_memory();
	cap = bytes->cap > SIZE_MAX / 2 ? need : bytes->cap * 2;
	if (cap < need)
		cap = need;
	data = realloc(bytes->data, cap);
	if (!data)
		return error_no_memory();
	bytes->data = data;
	bytes->cap = cap;
	return NULL;
}

static inline void bytes_free(struct bytes *bytes)
{
	free(bytes->data);
	*bytes = (struct bytes){0};
}

static inline void put_varint(struct bytes *bytes, uint64_t value)
{
	while (value >= 0x80) {
		bytes->data[bytes->len++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	bytes->data[bytes->len++] = (uint8_t)value;
}

/* The most bytes that a number in digits takes. */
#define DECIMAL_MAX 20

static inline void put_decimal(struct bytes *bytes, uint64_t value)
{
	uint8_t digits[DECIMAL_MAX];
	size_t at = sizeof(digits);

	do
		digits[--at] = (uint8_t)('0' + value % 10);
	while (value /= 10);
	memcpy(bytes->data + bytes->len, digits + at, sizeof(digits) - at);
	bytes->len += sizeof(digits) - at;
}

static inline void put_bytes(struct bytes *bytes, const void *data, size_t len)
{
	memcpy(bytes->data + bytes->len, data, len);
	bytes->len += len;
}

static inline uint64_t zigzag(uint64_t difference)
{
	return (difference << 1) ^ (0 - (difference >> 63));
}

static inline uint64_t unzigzag(uint64_t folded)
{
	return (folded >> 1) ^ (0 - (folded & 1));
}

/* Bytes that are being read. */
struct cursor {
	const uint8_t *at, *end;
};

/* False, with `in` anywhere: the bytes end within the number, or it has more than 64 bits. */
static inline bool get_varint(struct cursor *in, uint64_t *value)
{
	uint64_t sum = 0;

	for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
		uint64_t byte = *in->at++;

		if (shift == 63 && byte > 1)
			return false;
		sum |= (byte & 0x7f) << shift;
		if (byte < 0x80) {
			*value = sum;
			return true;
		}
	}
	return false;
}

#define EACH_BYTE(b) (UINT64_C(0x0101010101010101) * (b))

/*
 * The value of eight hexadecimal digits, the first one in the lowest byte; false if one is none.
 * A byte that is at least X has its top bit set after 0x80 - X was added.
 */
static inline bool eight_digits(uint64_t word, uint64_t *value)
{
	const uint64_t lower = word | EACH_BYTE(0x20), top = EACH_BYTE(0x80);
	const uint64_t digit = (word + EACH_BYTE(0x80 - '0')) & ~(word + EACH_BYTE(0x80 - '9' - 1));
	const uint64_t letter =
		(lower + EACH_BYTE(0x80 - 'a')) & ~(lower + EACH_BYTE(0x80 - 'f' - 1));
	uint64_t v = (lower & EACH_BYTE(0x0f)) + 9 * (lower >> 6 & EACH_BYTE(1));

	if (word & top || ((digit | letter) & top) != top)
		return false;
	v = (v << 4 | v >> 8) & UINT64_C(0x00ff00ff00ff00ff);
	v = (v << 8 | v >> 16) & UINT64_C(0x0000ffff0000ffff);
	*value = (v << 16 | v >> 32) & UINT64_C(0xffffffff);
	return true;
}

static inline int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Two hexadecimal digits at `at`, with small letters: a byte; -1 if there are none. */
static inline int hex_byte(const char *at)
{
	int high = hex_value(at[0]), low = high < 0 ? -1 : hex_value(at[1]);

	return low < 0 ? -1 : high << 4 | low;
}
