# SPDX-License-Identifier: BSD-3-Clause
"""Made-up stores of `uniprof agent`: hours that were joined, and the minutes since."""

import subprocess
import time

HOUR, DAY = 3600, 86400


def moment(unix_s):
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_s))


class Store:
    """Guests whose samples differ in nothing but chance."""

    def __init__(self, build, directory, hz=19, stacks=2000, vcpus=2):
        self.bench, self.directory = build / "src/recording_bench", directory
        subprocess.run(["ninja", "-C", build, "uniprof", "src/recording_bench"], check=True, stdout=subprocess.DEVNULL)
        self.what = [str(number) for number in (hz, stacks, vcpus)]

    def write(self, guest, name, start, seconds):
        hz, stacks, vcpus = self.what
        path = self.directory / guest / f"{name}.uniprof"
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.bench, "segment", path, str(start), str(seconds), hz, stacks, vcpus, guest], check=True)
        return path

    def hour(self, guest, start):
        return self.write(guest, f"{moment(start)}-{moment(start + HOUR - 60)}", start, HOUR)

    def minute(self, guest, start):
        return self.write(guest, moment(start), start, 60)

    def fill(self, guest, seconds, now):
        """So much of the past, up to now."""
        last = now // HOUR * HOUR
        for start in range((now - seconds) // HOUR * HOUR, last, HOUR):
            self.hour(guest, start)
        for start in range(last, now, 60):
            self.minute(guest, start)
