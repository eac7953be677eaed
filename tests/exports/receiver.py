# SPDX-License-Identifier: BSD-3-Clause
"""A receiver of profiles that keeps what it is sent, and misbehaves as it is told."""

import http.server
import socket
import ssl
import threading
import time


class Request:
    def __init__(self, handler, body):
        self.path, self.headers, self.body, self.when = handler.path, handler.headers, body, time.monotonic()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        receiver = self.server.receiver
        with receiver.lock:
            receiver.requests.append(Request(self, body))
            behave = receiver.script.pop(0) if receiver.script else receiver.otherwise
        behave(self)

    def log_message(self, *_):
        pass


def answer(status=200, body=b"", **headers):
    """Answers so."""
    def behave(handler):
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)
    return behave


def cut(handler):
    """Ends the connection without an answer."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def stall(handler):
    """Does not answer while the test runs."""
    handler.server.receiver.ended.wait(60)
    cut(handler)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """The other end has gone: some tests are about that."""


class Receiver:
    """On a port of its own, or on the one given, until the test ends; `script` has what is done with the next requests."""

    def __init__(self, test, *script, otherwise=answer(), certificate=None, port=0):
        self.script, self.otherwise, self.requests = list(script), otherwise, []
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.server = Server(("127.0.0.1", port), Handler)
        self.server.receiver = self
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.root = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        test.addCleanup(self.close)

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()


def closed_port():
    """A port on which nobody listens: that of a listener that has gone."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
