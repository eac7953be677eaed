# SPDX-License-Identifier: BSD-3-Clause
# Runs in dom0: starts the guest, profiles it to its end, and brings out what came of it.
set -e

uniprof -V
uniprof run -v -F 997 -o out -- xl create app1.cfg
# The guest counts its own time, and prints it at its end.
sleep 1
grep '^truth ' /var/log/xen/console/guest-app1.log > out/app1.truth
