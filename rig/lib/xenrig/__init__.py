# SPDX-License-Identifier: BSD-3-Clause
"""A real Xen with dom0, or a host with KVM, under QEMU, ready in a fraction of a second. See rig.py for its use."""

from .errors import RigError, RigTimeout
from .kvm import Kvm, Preparation
from .rig import Result, Rig
from .xen import Xen

__all__ = ["Kvm", "Preparation", "Result", "Rig", "RigError", "RigTimeout", "Xen"]
