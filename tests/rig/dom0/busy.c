/* SPDX-License-Identifier: BSD-3-Clause */

/* busy: keeps dom0's CPU busy at a low priority, until it is killed. */

#include <unistd.h>

int main(void)
{
	if (nice(10) < 0)
		return 1;
	for (volatile unsigned n = 0;; n++)
		;
}
