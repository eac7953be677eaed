# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark of sampling: programs for dom0 in C, and what runs them and shows their figures."""
