/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_SNAPSHOT_FORMAT_H
#define UNIPROF_TARGET_SNAPSHOT_FORMAT_H

/* Numbers of the snapshot file; what they mean is in docs/snapshot.md. */

#define SNAPSHOT_MAGIC	   "uniprof-snapshot" /* without the final 0 */
#define SNAPSHOT_MAGIC_LEN 16
#define SNAPSHOT_MAJOR	   1
#define SNAPSHOT_MINOR	   1

#define SNAPSHOT_HEAD	'H'
#define SNAPSHOT_FRAME	'F'
#define SNAPSHOT_SAMPLE 'S'
#define SNAPSHOT_END	'E'

#define SNAPSHOT_RECORD_HEAD 5 /* tag and length */
#define SNAPSHOT_RECORD_TAIL 4 /* checksum */
#define SNAPSHOT_PAYLOAD_MAX (4u << 20)

#define SNAPSHOT_ONLINE 0x01
#define SNAPSHOT_USER	0x02
#define SNAPSHOT_PSE	0x04
#define SNAPSHOT_ARM	0x08
#define SNAPSHOT_ELR	0x10

#endif
