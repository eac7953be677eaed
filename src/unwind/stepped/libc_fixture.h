/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The C library: code without frame pointers, in assembly, and calling back. */

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern volatile int sink;

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static jmp_buf back;

__attribute__((noinline)) static void jumps_back(int (*leaf)(int))
{
	sink = leaf(1);
	longjmp(back, 1);
}

__attribute__((noinline)) static void with_library(int (*leaf)(int))
{
	int numbers[12] = {5, 3, 9, 1, 7, 2, 8, 12, 4, 6, 11, 10}, found = 4;
	char text[200], *copy;

	qsort(numbers, 12, sizeof(numbers[0]), compare);
	sink = *(int *)bsearch(&found, numbers, 12, sizeof(numbers[0]), compare);
	snprintf(text, sizeof(text), "%d %s %5.3f %#lx", numbers[3], "text", 1.25, 0x123456789l);
	copy = strdup(text);
	memset(text, leaf(2), sizeof(text));
	memmove(text + 3, text, 60);
	sink += (int)strlen(copy) + strcmp(copy, text) + (strchr(copy, 'x') != NULL);
	free(copy);
	if (!setjmp(back))
		jumps_back(leaf);
	sink += atoi("123");
}

#define leave_program(status) _exit(status)

int stepped_main(void);

int main(void)
{
	return stepped_main();
}
