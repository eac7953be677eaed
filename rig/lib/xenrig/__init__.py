# SPDX-License-Identifier: BSD-3-Clause
"""A real Xen with dom0 under QEMU, ready in a fraction of a second. See rig.py for its use."""

from .errors import RigError, RigTimeout
from .rig import Result, Rig

__all__ = ["Result", "Rig", "RigError", "RigTimeout"]
