/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEVICE_TREE_H
#define DEVICE_TREE_H

/* The command line that a flattened device tree (Devicetree Specification, 5) holds, or "". */
const char *device_tree_command_line(const void *tree);

#endif
