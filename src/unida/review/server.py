"""`unida review RUN`: the report as a page that saves what is said of the run.

A small server for one person at this machine. It listens on 127.0.0.1 only and knows three
addresses, none of which leads to a file of the visitor's choice. Other web pages the person has
open, and other users of the machine, are kept out: a request must name this very host and port (a
name on the internet may be made to point here), must not come from another page, and must carry
the secret of the printed address, as `?token=` or in the cookie that the page sets.
"""

import contextlib
import dataclasses
import hmac
import json
import os
import secrets
import socketserver
import sys
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import tyro

from unida.errors import UserError, require
from unida.report.build import write_report
from unida.review.corrections import Corrections, Store, read_review_target, read_saved
from unida.training.run_folder import RunFolder
from unida.utils.console import say

HOST = "127.0.0.1"
MOST_BYTES = 16 * 2**20
"""Of a save: some hundred thousand corrected labels."""
PATIENCE = 30
"""Seconds that a silent visitor is waited for."""

# The page is one file: nothing is loaded from elsewhere, and nothing is sent elsewhere.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Review:
    """Opens a run's report as a page to name categories and correct labels on.

    Example: unida review runs/first
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    port: int = 0
    """Port on this machine; 0 takes a free one."""
    browser: bool = True
    """Open the page in the browser."""


def run_review(review: Review) -> None:
    """Serves until Ctrl-C."""
    require(0 <= review.port <= 65535, "port", review.port, "from 0 to 65535")
    store = Store(read_review_target(review.run))
    if read_saved(store.subject)[1]:
        say("The categories were found anew: names given before are in the history only.")
    page = _page(store.subject.run)
    with serving(store, page, review.port) as server:
        say(f"Review at {server.address} (Ctrl-C ends it; every save is on disk at once)")
        if review.browser and _has_display():
            # In a thread: some browsers come back only when they are closed.
            threading.Thread(target=_open, args=(server.address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    say(farewell(review.run, store.read()))


def farewell(run: Path, saved: Corrections) -> str:
    """What there is now and how to go on."""
    if not saved:
        return f"Nothing is named or corrected yet: `unida review {run}` opens the page again."
    return (
        f"Named categories: {len(saved.names)}, corrected labels: {len(saved.labels)}. Go on with "
        f"`unida adapt --continue {run} --out NEW`."
    )


class ReviewServer(ThreadingHTTPServer):
    """One run's page, and the secret of its address."""

    def __init__(self, store: Store, page: Path, port: int = 0) -> None:
        self.store, self.page = store, page
        self.token = secrets.token_urlsafe(24)
        super().__init__((HOST, port), _Visit)

    def server_bind(self) -> None:
        """Without the look-up of the host's name, which can take seconds without a network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def server_close(self) -> None:
        """Ends between two saves, not within one."""
        with self.store.lock:
            super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A visitor who went away in the middle is no news; anything else is."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            say(f"A request failed: {error!r}")

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> frozenset[str]:
        """What a visitor may call this server."""
        return frozenset(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    @property
    def cookie(self) -> str:
        """Cookies do not tell ports apart, so the name does."""
        return f"unida-review-{self.server_port}"

    def is_secret(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


def serving(store: Store, page: Path, port: int = 0) -> ReviewServer:
    """A server that listens; a port that is taken is answered in one sentence."""
    try:
        return ReviewServer(store, page, port)
    except OSError as error:
        raise UserError(
            f"port {port} cannot be used: {error.strerror}; leave --port out."
        ) from None


class _RefusedError(Exception):
    """A request that is not done, and why."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Visit(BaseHTTPRequestHandler):
    """One request."""

    server: ReviewServer
    server_version, sys_version = "unida", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        self._answer({"/": self._show, "/saved": self._saved})

    def do_POST(self) -> None:
        self._answer({"/save": self._save})

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not reported: the person sees the page."""

    def _answer(self, known: dict[str, Callable[[], None]]) -> None:
        try:
            self._guard()
            path = urlsplit(self.path).path
            if path not in known:
                raise _RefusedError(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
            known[path]()
        except _RefusedError as refused:
            self._send_json({"error": str(refused)}, refused.status)
            self._drain()

    def _guard(self) -> None:
        """Only the person who was given the address, by way of the page itself."""
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            names = " or ".join(sorted(self.server.hosts))
            raise _RefusedError(HTTPStatus.FORBIDDEN, f"This server is called {names}.")
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "Another page may not ask.")
        if not any(map(self.server.is_secret, self._secrets())):
            raise _RefusedError(
                HTTPStatus.FORBIDDEN, "Open the address that `unida review` printed."
            )

    def _secrets(self) -> list[str]:
        """What the visitor has to show, in the address or in the cookie."""
        shown = parse_qs(urlsplit(self.path).query).get("token", [])
        with contextlib.suppress(CookieError):
            cookies = SimpleCookie("; ".join(self.headers.get_all("Cookie", [])))
            shown += [c.value for name, c in cookies.items() if name == self.server.cookie]
        return shown

    def _show(self) -> None:
        try:
            content = self.server.page.read_bytes()
        except OSError as error:
            raise _RefusedError(
                HTTPStatus.INTERNAL_SERVER_ERROR, f"The page cannot be read: {error.strerror}."
            ) from None
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        self._send(content, "text/html; charset=utf-8", HTTPStatus.OK, {"Set-Cookie": cookie})

    def _saved(self) -> None:
        self._send_state(self.server.store.read)

    def _save(self) -> None:
        content = self._read_json()
        self._send_state(lambda: self.server.store.save(content))

    def _send_state(self, get: Callable[[], Corrections]) -> None:
        try:
            state = get()
        except UserError as error:
            raise _RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
        self._send_json(dataclasses.asdict(state), HTTPStatus.OK)

    def _read_json(self) -> Any:
        """The body: JSON by type, of a length that is said and not too much."""
        if self.headers.get_content_type() != "application/json":
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send application/json.")
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "Say the length.")
        if len(lengths[0]) > 18 or int(lengths[0]) > MOST_BYTES:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{MOST_BYTES} bytes are the most."
            )
        body = self.rfile.read(int(lengths[0]))
        try:
            if len(body) == int(lengths[0]):
                return json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError):
            pass
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "This is not whole JSON.")

    def _send_json(self, content: Any, status: HTTPStatus) -> None:
        # ASCII: file names that are not valid UTF-8 arrive as they left.
        self._send(json.dumps(content).encode("ascii"), "application/json", status)

    def _send(
        self, content: bytes, kind: str, status: HTTPStatus, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _drain(self) -> None:
        """Takes in what a refused visitor still sends, or the answer would be lost to them."""
        left = MOST_BYTES
        if self.command == "POST":
            while left > 0 and (taken := len(self.rfile.read1(2**16))):
                left -= taken


def _page(run: RunFolder) -> Path:
    """The report of the run, made anew where it does not show the categories of now."""
    if not run.report.exists() or _is_older(run.report, run.categories):
        say("Making the report …")
        return write_report(run)
    return run.report


def _is_older(one: Path, other: Path) -> bool:
    return other.exists() and one.stat().st_mtime_ns < other.stat().st_mtime_ns


def _has_display() -> bool:
    """Elsewhere the only browser is one that takes the terminal."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def _open(address: str) -> None:
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(address)
