# SPDX-License-Identifier: BSD-3-Clause
"""Readers that are npm packages: fetched once, of one version, and kept in the user's cache."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path


def package(name, version):
    """The directory of a package without its dependencies; skips the test where it is not to be had."""
    cache = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache') / 'uniprof' / 'npm'
    place = cache / f'{name.replace("/", "+")}-{version}'
    if place.exists():
        return place
    if not shutil.which('npm'):
        raise unittest.SkipTest(f'{name} is not in the cache, and npm is not installed')
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        done = subprocess.run(['npm', 'pack', '--silent', f'{name}@{version}'], cwd=work, capture_output=True, text=True,
                              check=False, timeout=120)
        archives = list(Path(work).glob('*.tgz'))
        if done.returncode or not archives:
            raise unittest.SkipTest(f'npm cannot fetch {name}: {done.stderr.strip().splitlines()[-1:]}')
        subprocess.run(['tar', 'xf', archives[0].name], cwd=work, check=True)
        Path(work, 'package').rename(place)
    return place
