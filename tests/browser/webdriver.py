# SPDX-License-Identifier: BSD-3-Clause
"""A small WebDriver client for chromium and its chromedriver.

    with Browser() as browser:
        browser.open(path.as_uri())
        browser.run('return document.title')

Everything has a timeout, and leaving the `with` block ends the driver and the
browser whatever happened inside. `missing()` says what this machine lacks.
"""

import base64
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'  # the key of an element's id in the protocol
TIMEOUT = 300.0  # seconds, for one command, however busy the machine is
KEYS = {'Enter': '\ue007', 'Escape': '\ue00c', 'Backspace': '\ue003', 'Tab': '\ue004', 'Home': '\ue011',
        'ArrowLeft': '\ue012', 'ArrowUp': '\ue013', 'ArrowRight': '\ue014', 'ArrowDown': '\ue015',
        'Shift': '\ue008', 'Control': '\ue009'}

ARGUMENTS = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic',
             '--no-first-run', '--disable-background-networking', '--disable-component-update',
             '--disable-sync', '--disable-default-apps', '--hide-scrollbars=false']


def missing() -> str | None:
    """Reason why browser tests cannot run here, or None."""
    for program in ('chromium', 'chromedriver'):
        if not shutil.which(program):
            return f'{program} is not installed (packages chromium and chromium-driver)'
    return None


def main() -> None:
    """Runs the tests of a script. With --meson the exit status says when all were skipped, as meson wants it."""
    arguments = [argument for argument in sys.argv if argument != '--meson']
    if arguments != sys.argv and missing():
        print(f'skipped: {missing()}')
        sys.exit(77)
    unittest.main(argv=arguments, verbosity=2)


class DriverError(Exception):
    """The driver or the browser refused, or did not answer in time."""


class Browser:
    """One browser with an empty profile and one window."""

    def __init__(self, width: int = 1300, height: int = 900) -> None:
        self._size = (width, height)
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> 'Browser':
        with contextlib.ExitStack() as cleanup:
            profile = cleanup.enter_context(tempfile.TemporaryDirectory(
                prefix='uniprof-browser-', ignore_cleanup_errors=True))
            self._base = f'http://127.0.0.1:{self._start_driver(cleanup, profile)}'
            self._start_session(profile)
            cleanup.callback(self._quit)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _start_driver(self, cleanup: contextlib.ExitStack, profile: str) -> int:
        """Starts chromedriver in a session of its own and returns the port that it chose."""
        log = pathlib.Path(profile, 'chromedriver.log')
        # The shell ends the whole session when its input ends, which it does however this process ends.
        watched = 'chromedriver "$@" & read -r _; kill -KILL 0'
        driver = subprocess.Popen(['sh', '-c', watched, 'sh', '--port=0', f'--log-path={log}'],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env=os.environ | {'HOME': profile}, start_new_session=True)
        cleanup.callback(_end, driver)
        said, deadline = b'', time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            if select.select([driver.stdout], [], [], 1)[0]:
                more = os.read(driver.stdout.fileno(), 4096)
                said += more
                if not more:
                    break
            if port := re.search(rb'started successfully on port (\d+)', said):
                return int(port[1])
        raise DriverError(f'chromedriver did not start: {said.decode(errors="replace")}')

    def _start_session(self, profile: str) -> None:
        width, height = self._size
        options = {'args': [*ARGUMENTS, f'--window-size={width},{height}', f'--user-data-dir={profile}/data']}
        answer = self._ask('POST', '/session', {'capabilities': {'alwaysMatch': {
            'browserName': 'chrome', 'goog:chromeOptions': options,
            'goog:loggingPrefs': {'performance': 'ALL', 'browser': 'ALL'}}}})
        self._session = f'/session/{answer["sessionId"]}'

    def _quit(self) -> None:
        with contextlib.suppress(DriverError):
            self._ask('DELETE', self._session, timeout=10)

    def _ask(self, method: str, path: str, body: dict | None = None, timeout: float = TIMEOUT):
        data = json.dumps(body or {}).encode() if method == 'POST' else None
        request = urllib.request.Request(self._base + path, data, {'Content-Type': 'application/json'},
                                         method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as answer:
                return json.load(answer)['value']
        except urllib.error.HTTPError as error:
            raise DriverError(json.load(error)['value']['message']) from None
        except OSError as error:
            raise DriverError(f'no answer from chromedriver: {error}') from None

    def ask(self, method: str, path: str, body: dict | None = None):
        """A command of the session, by its path in the protocol."""
        return self._ask(method, self._session + path, body)

    def open(self, url: str) -> None:
        """Loads a page; about:blank first, so that a change of the fragment alone loads it too."""
        self.ask('POST', '/url', {'url': 'about:blank'})
        self.ask('POST', '/url', {'url': url})

    def run(self, script: str, *args: object):
        """Runs JavaScript in the page and returns what it returns."""
        return self.ask('POST', '/execute/sync', {'script': script, 'args': list(args)})

    def resize(self, width: int, height: int) -> None:
        self.ask('POST', '/window/rect', {'width': width, 'height': height})

    def devtools(self, command: str, **params: object):
        return self.ask('POST', '/goog/cdp/execute', {'cmd': command, 'params': params})

    def click(self, x: float, y: float) -> None:
        """Moves the real mouse to a place in the window and clicks."""
        self._mouse(x, y, [{'type': 'pointerDown', 'button': 0}, {'type': 'pointerUp', 'button': 0}])

    def hover(self, x: float, y: float) -> None:
        self._mouse(x, y, [])

    def _mouse(self, x: float, y: float, then: list[dict]) -> None:
        move = {'type': 'pointerMove', 'duration': 0, 'x': int(x), 'y': int(y)}
        self.ask('POST', '/actions', {'actions': [{
            'type': 'pointer', 'id': 'mouse', 'parameters': {'pointerType': 'mouse'},
            'actions': [move, *then]}]})

    def press(self, *keys: str) -> None:
        """Presses keys one after the other: 'a', 'Enter', or held together 'Control+f'."""
        actions = []
        for key in keys:
            held = [KEYS.get(part, part) for part in (key.split('+') if len(key) > 1 else [key])]
            actions += [{'type': 'keyDown', 'value': part} for part in held]
            actions += [{'type': 'keyUp', 'value': part} for part in reversed(held)]
        self.ask('POST', '/actions', {'actions': [{'type': 'key', 'id': 'keyboard', 'actions': actions}]})

    def type(self, text: str) -> None:
        self.press(*text)

    def label(self, element: dict) -> str:
        """Accessible name of an element that `run` returned."""
        return self.ask('GET', f'/element/{element[ELEMENT]}/computedlabel')

    def role(self, element: dict) -> str:
        return self.ask('GET', f'/element/{element[ELEMENT]}/computedrole')

    def screenshot(self, path: pathlib.Path) -> None:
        path.write_bytes(base64.b64decode(self.ask('GET', '/screenshot')))

    def log(self, kind: str) -> list[dict]:
        """Log entries since the last call: 'browser' (console) or 'performance' (network)."""
        return self.ask('POST', '/se/log', {'type': kind})

    def requests(self) -> list[str]:
        """The addresses that the page asked for since the last call."""
        events = (json.loads(entry['message'])['message'] for entry in self.log('performance'))
        return [event['params']['request']['url'] for event in events
                if event['method'] == 'Network.requestWillBeSent']


def _end(driver: subprocess.Popen) -> None:
    """Ends chromedriver and, as they share its session, the browsers that it started."""
    driver.stdin.close()
    driver.wait(timeout=10)
    driver.stdout.close()
