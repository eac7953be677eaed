# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark of views: what makes up recordings, and what is measured."""
