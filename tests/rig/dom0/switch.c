/* SPDX-License-Identifier: BSD-3-Clause */

/* switch NAME=VALUE...: sets booleans of Xen's policy (XSM/Flask), all at once. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xenctrl.h>

int main(int argc, char **argv)
{
	xc_interface *xc = xc_interface_open(NULL, NULL, 0);

	if (!xc)
		return 2;
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			return 2;
		*value++ = '\0';
		if (xc_flask_setbool(xc, argv[i], atoi(value), i == argc - 1)) {
			perror(argv[i]);
			return 1;
		}
	}
	return 0;
}
