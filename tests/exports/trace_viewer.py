# SPDX-License-Identifier: BSD-3-Clause
"""Chrome's trace viewer (catapult, chrome://tracing), which Go's sources bring along for `go tool trace`.

    with TraceViewer(browser) as viewer:
        viewer.open(path)
        viewer.threads()
"""

import http.server
import shutil
import subprocess
import threading
import time
from pathlib import Path

FILES = 'webcomponents.min.js', 'trace_viewer_full.html'

PAGE = b"""<!DOCTYPE html>
<meta charset="utf-8">
<script src="/webcomponents.min.js"></script>
<link rel="import" href="/trace_viewer_full.html">
<style>html, body, tr-ui-timeline-view { width: 100%; height: 100%; margin: 0; }</style>
<body></body>
"""

# The way of catapult's own embedding page.
LOAD = """
const done = arguments[0];
const fail = (error) => done(String(error && error.stack || error));
fetch('/trace').then((answer) => answer.text()).then((text) => {
    const model = new tr.Model();
    const options = new tr.importer.ImportOptions();
    options.shiftWorldToZero = false;
    return new tr.importer.Import(model, options).importTracesWithProgressDialog([text]).then(() => {
        const container = document.createElement('track-view-container');
        container.id = 'track_view_container';
        const viewer = document.createElement('tr-ui-timeline-view');
        viewer.track_view_container_ = container;
        Polymer.dom(viewer).appendChild(container);
        Polymer.dom(document.body).appendChild(viewer);
        viewer.globalMode = true;
        viewer.model = model;
        viewer.viewTitle = document.title;
        window.loaded = model;
        done(null);
    }, fail);
}).catch(fail);
"""

# Threads: process, name, and samples of each: times in milliseconds, stacks leaf first.
SAMPLES = """
const threads = [];
for (const thread of window.loaded.getAllThreads())
    threads.push({process: thread.parent.name, pid: thread.parent.pid, name: thread.name, tid: thread.tid,
                  samples: (thread.samples || []).map((sample) => ({
                      start: sample.start, stack: sample.getNodesAsArray().map((node) => node.functionName)}))});
return threads;
"""

# Rows of samples that the time line has: how many each holds.
SHOWN = """
const shown = [];
const walk = (track) => {
    for (const one of track.tracks_ || []) {
        if (one.samples)
            shown.push(one.samples.length);
        walk(one);
    }
};
walk(document.querySelector('tr-ui-timeline-track-view').modelTrack_);
return shown;
"""


def missing() -> str | None:
    """Why it cannot be had here, or None."""
    if not shutil.which('go'):
        return 'go is not installed (package golang-go)'
    if not all((_place() / name).is_file() for name in FILES):
        return f'{_place()} lacks the trace viewer (package golang-src)'
    return None


def _place() -> Path:
    root = subprocess.run(['go', 'env', 'GOROOT'], capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    return Path(root, 'src/cmd/trace/static')


HIDE = """
Array.from(document.querySelectorAll('button')).filter((button) => button.textContent.trim() === 'Hide')
    .forEach((button) => button.click());
"""


class TraceViewer:
    def __init__(self, browser) -> None:
        self._browser, self._trace = browser, b''

    def __enter__(self) -> 'TraceViewer':
        self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self):
        viewer = self
        files = {f'/{name}': (_place() / name).read_bytes() for name in FILES}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = {'/': PAGE, '/trace': viewer._trace, **files}.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header('Content-Type', 'text/javascript' if self.path.endswith('.js') else 'text/html')
                self.send_header('Content-Length', str(len(content or b'')))
                self.end_headers()
                self.wfile.write(content or b'')

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def open(self, path: Path) -> None:
        self._trace = path.read_bytes()
        self._browser.open(f'http://127.0.0.1:{self._server.server_port}/')
        deadline = time.monotonic() + 60
        while not self._browser.run('return Boolean(window.tr && tr.Model && tr.importer && window.Polymer)'):
            assert time.monotonic() < deadline, 'the trace viewer does not start'
            time.sleep(.1)
        error = self._browser.ask('POST', '/execute/async', {'script': LOAD, 'args': []})
        assert error is None, error

    def threads(self) -> list[dict]:
        return self._browser.run(SAMPLES)

    def shown(self) -> list[int]:
        return self._browser.run(SHOWN)

    def hide_advice(self) -> None:
        """Takes away what stands above it about old browsers."""
        self._browser.run(HIDE)

    def warnings(self) -> list[str]:
        """Warnings of the importer."""
        return self._browser.run('return window.loaded.importWarnings.map((warning) => warning.message)')
