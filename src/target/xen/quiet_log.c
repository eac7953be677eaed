/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/xen/quiet_log.h"

static void ignore_message(struct xentoollog_logger *logger, xentoollog_level level, int errnoval,
			   const char *context, const char *format, va_list al)
{
}

static void ignore_progress(struct xentoollog_logger *logger, const char *context,
			    const char *doing_what, int percent, unsigned long done,
			    unsigned long total)
{
}

static void ignore_destroy(struct xentoollog_logger *logger)
{
}

xentoollog_logger xen_quiet_log = {
	.vmessage = ignore_message,
	.progress = ignore_progress,
	.destroy = ignore_destroy,
};
