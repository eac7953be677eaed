/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_XEN_QUIET_LOG_H
#define UNIPROF_TARGET_XEN_QUIET_LOG_H

#include <xentoollog.h>

/*
 * Given no logger, Xen's libraries print to stderr. What went wrong is in errno
 * as well, and only the verbs print.
 */
extern xentoollog_logger xen_quiet_log;

#endif
