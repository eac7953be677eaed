# SPDX-License-Identifier: BSD-3-Clause
"""A Linux domU with dom0's own programs and files, that runs commands: they go in and come out by its console.

Its first root file system is a copy of dom0's, and what serves commands there is the rig's agent, on hvc0.
"""

import shlex

from guestcase import LINUX_PARAMETERS, PATIENCE

# Seconds that a command may take, and a boot, where nothing else runs.
SECONDS, BOOT = 60, 200

INIT = r"""#!/bin/busybox sh
export PATH=/job:/bin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /run/rig /dev/shm
ln -sf /proc/self/fd /dev/fd
echo 1 >/proc/sys/kernel/printk
MODULES
stty -F /dev/hvc0 raw -echo
sed 's,/dev/vport0p1,/dev/hvc0,' /agent >/run/agent
echo guest is up >/dev/hvc0
while :; do setsid sh /run/agent; done
"""

# Run in dom0 as `domu NAME SECONDS COMMANDS`: prints what the commands print, and ends with their status; 124: there was no end.
DOMU = r"""#!/bin/busybox sh
read -r tty <$1.tty || exit 125
token=end-of-$$-$(date +%s)
commands="echo; echo begin-$token; $3"
exec 3<>$tty
printf '%s %d 0\n%s' $token ${#commands} "$commands" >&3
# Not sed, which looks for a further line before it leaves off.
said=$(timeout $2 awk -v t=$token 'on; $0 == "begin-" t { on = 1 } on && index($0, t " ") { exit }' <&3)
status=${said##*$token }
[ "$status" != "$said" ] || { echo "$said"; exit 124; }
said=${said%$token *}
[ -z "$said" ] || printf '%s\n' "${said%
}"
exit $status
"""

# With INIT on its input, and the files of the job's directory that go along as arguments.
PACK = r"""
mkdir -p domu-root && cat >domu-root/init && chmod +x domu-root/init
(cd / && { find agent bin sbin lib lib64 usr modules etc root -xdev; for file in dev proc sys run tmp job; do echo $file; done; for file; do echo job/$file; done; } |
 cpio -o -H newc 2>/dev/null; cd /job/domu-root && echo init | cpio -o -H newc 2>/dev/null) >domu.cpio
"""

CREATE = r"""
rm -f /var/log/xen/console/guest-$1.log
xl create domu.cfg || exit
xl sched-credit2 -d $1 -w 65535
xenstore-read /local/domain/$(xl domid $1)/console/tty >$1.tty
i=0; until grep -q 'guest is up' /var/log/xen/console/guest-$1.log; do i=$((i + 1)); [ $i -lt $2 ] || { cat /var/log/xen/console/guest-$1.log; exit 1; }; usleep 250000; done
"""

# Linux restricts hypercalls of domUs to a domain that is told in xenstore, unless it is told otherwise.
PRIVCMD = "insmod /modules/xen-privcmd.ko unrestricted=1"
MODULES = ("insmod /modules/xen-evtchn.ko", PRIVCMD)


def settings_of(name, kind, kernel, more):
    lines = {"name": name, "type": kind, "kernel": kernel, "ramdisk": "domu.cpio", "memory": 256, "vcpus": 1, "tsc_mode": "native",
             "extra": LINUX_PARAMETERS, **more}
    return "".join(f"{key} = {value if isinstance(value, int) else repr(value)}\n" for key, value in lines.items())


class LinuxDomain:
    """Starts it from `kernel`, a file in dom0's job directory, with `files` of that, and waits until it serves commands.
    More of its configuration may be given."""

    def __init__(self, rig, name, kind="pv", kernel="linux", files=(), **settings):
        self.rig, self.name = rig, name
        init = INIT.replace("MODULES", "\n".join(MODULES))
        rig.write("domu", DOMU)
        rig.run(f"chmod +x domu; set -- {shlex.join(files)}\n{PACK}", stdin=init.encode(), check=True)
        rig.write("domu.cfg", settings_of(name, kind, kernel, settings))
        rig.run(f"set -- {name} {4 * BOOT * PATIENCE}\n{CREATE}", timeout=(BOOT + SECONDS) * PATIENCE, check=True)
        self.id = int(rig.run(f"xl domid {name}", check=True).text)

    def command(self, commands, seconds=SECONDS):
        """The command of dom0's that runs these there."""
        return f"domu {self.name} {seconds * PATIENCE} {shlex.quote(commands)}"

    def run(self, commands, seconds=SECONDS):
        """Runs commands there; returns (status, output)."""
        result = self.rig.run(self.command(commands, seconds), timeout=(seconds + SECONDS) * PATIENCE)
        return result.status, result.text
