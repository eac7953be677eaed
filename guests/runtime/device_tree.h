/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The value of a node's property in a flattened device tree (Devicetree
 * Specification, 5); NULL: none, as where there is no tree (QEMU's virt has none for an ELF file).
 */
const char *device_tree_property(const void *tree, const char *node, const char *property);
