/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Has every multicall of this program carried out as one call for each of its
 * entries, so that the same sample can be taken both ways.
 */

#include <stdbool.h>

void single_calls(bool on);
