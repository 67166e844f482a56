"""`unida review RUN`: the report as a page that saves corrections of the run.

A small server for one person at this machine. It listens on 127.0.0.1 only and has four addresses,
none of which leads to a file of the client's choice. Other web pages the person has open, and other
users of the machine, are kept out: a request must name this very host and port (a name on the
internet may be made to point here), must not come from another page, and must carry the secret of
the printed address, as `?token=` or in the cookie that the page sets.
"""

import contextlib
import dataclasses
import errno
import hmac
import json
import os
import secrets
import socketserver
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from unida.errors import UserError, require
from unida.report.build import write_report
from unida.report.page import policy
from unida.review.budget import choose_images
from unida.review.corrections import (
    ConflictError,
    Corrections,
    CorrectionStore,
    read_corrections,
    read_review_target,
)
from unida.training.run_folder import RunFolder
from unida.utils.logs import logger

HOST = "127.0.0.1"
MAX_BYTES = 16 * 2**20
"""Of a save: some hundred thousand corrected labels."""
TIMEOUT = 30
"""Seconds after which a silent client is dropped."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def serve(
    path: str | Path, port: int = 0, browser: bool = True, budget: int | None = None
) -> Corrections:
    """Serve the review page of a finished run until Ctrl-C; return the corrections in force.

    Args:
        path: folder of the run.
        port: on this machine; 0 takes a free one.
        browser: open the page in the browser.
        budget: show so many images first, drawn by `choose_images`.
    """
    require(0 <= port <= 65535, "port", port, "from 0 to 65535")
    store = CorrectionStore(read_review_target(path))
    if read_corrections(store.target)[1]:
        logger.warning("The categories were found anew: earlier names are in the history only.")
    first = choose_images(path, budget, on_page=True) if budget is not None else []
    page = up_to_date_report(store.target.run)
    with open_server(store, page, port, first) as server:
        logger.info("Review at %s (Ctrl-C ends it; every save is on disk at once)", server.address)
        if browser and _has_display():
            # In a thread: some browsers return only when they are closed.
            threading.Thread(target=_open, args=(server.address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return store.read()


class ReviewServer(ThreadingHTTPServer):
    """An HTTP server of one run's page, with the secret of its address."""

    request_queue_size = 512
    """Connections that may wait to be accepted."""

    def __init__(
        self, store: CorrectionStore, page: Path, port: int = 0, first: Sequence[str] = ()
    ) -> None:
        self.store, self.page, self.first = store, page, list(first)
        # The page is one file: nothing is loaded from elsewhere, and only its own script runs.
        self.policy = f"{policy()}; frame-ancestors 'none'"
        self.token = secrets.token_urlsafe(24)
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        """Bind without resolving the host's name, which can take seconds without a network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def server_close(self) -> None:
        """Close between two saves, not within one."""
        with self.store.lock:
            super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failed request, unless the client disconnected."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.warning("A request failed: %r", error)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> frozenset[str]:
        """Names of this server that a client may use."""
        return frozenset(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    @property
    def cookie(self) -> str:
        """Name of the cookie; it has the port, which cookies do not distinguish."""
        return f"unida-review-{self.server_port}"

    def is_secret(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


def open_server(
    store: CorrectionStore, page: Path, port: int = 0, first: Sequence[str] = ()
) -> ReviewServer:
    """Return a server that listens; a port that is taken is a `UserError`.

    Args:
        store: of the corrections.
        page: the report.
        port: 0 takes a free one.
        first: paths of the images that the page shows first.
    """
    try:
        return ReviewServer(store, page, port, first)
    except OSError as error:
        raise UserError(
            f"port {port} cannot be used: {error.strerror}; leave --port out."
        ) from None


class _RefusedError(Exception):
    """A request that is refused, why, and what else the answer has."""

    def __init__(self, status: HTTPStatus, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.status, self.more = status, more


class _Handler(BaseHTTPRequestHandler):
    """Handler of one request."""

    server: ReviewServer
    raw_requestline: bytes
    server_version, sys_version = "unida", ""
    default_request_version = "HTTP/1.0"  # of 0.9, the default, an answer has no status
    timeout = TIMEOUT

    def do_GET(self) -> None:
        self._answer(
            {"/": self._send_page, "/saved": self._send_corrections, "/first": self._send_first}
        )

    def do_POST(self) -> None:
        self._answer({"/save": self._save})

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the person sees the page."""

    def parse_request(self) -> bool:
        """Answer an empty request too; the base class only closes the connection."""
        if self.raw_requestline.strip():
            return super().parse_request()
        self.requestline, self.command = "", ""
        self.request_version = self.default_request_version
        self.send_error(HTTPStatus.BAD_REQUEST)
        return False

    def _answer(self, routes: dict[str, Callable[[], None]]) -> None:
        """Answer a request; whatever goes wrong is a status and a sentence."""
        try:
            try:
                self._guard()
                path = self._address().path
                if path not in routes:
                    raise _RefusedError(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
                routes[path]()
            except (_RefusedError, ConnectionError):
                raise
            except TimeoutError:
                raise _RefusedError(
                    HTTPStatus.REQUEST_TIMEOUT, f"Nothing came for {TIMEOUT} seconds."
                ) from None
            except Exception as error:
                logger.warning("A request failed: %r", error)
                raise _RefusedError(
                    HTTPStatus.INTERNAL_SERVER_ERROR, f"The server failed: {error!r}."
                ) from None
        except _RefusedError as refused:
            self._send_json({"error": str(refused)} | refused.more, refused.status)
            self._drain()

    def _address(self) -> SplitResult:
        try:
            return urlsplit(self.path)
        except ValueError:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "This is not an address.") from None

    def _guard(self) -> None:
        """Accept only requests of the page itself, with the secret of the address."""
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            names = " or ".join(sorted(self.server.hosts))
            raise _RefusedError(HTTPStatus.FORBIDDEN, f"This server is {names}.")
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "Requests of other pages are refused.")
        if not any(map(self.server.is_secret, self._secrets())):
            raise _RefusedError(
                HTTPStatus.FORBIDDEN, "Open the address that `unida review` printed."
            )

    def _secrets(self) -> list[str]:
        """Return the secrets in the address and in the cookie."""
        tokens = parse_qs(self._address().query).get("token", [])
        with contextlib.suppress(CookieError):
            cookies = SimpleCookie("; ".join(self.headers.get_all("Cookie", [])))
            tokens += [c.value for name, c in cookies.items() if name == self.server.cookie]
        return tokens

    def _send_page(self) -> None:
        try:
            content = self.server.page.read_bytes()
        except OSError as error:
            raise _RefusedError(
                HTTPStatus.INTERNAL_SERVER_ERROR, f"The page cannot be read: {error.strerror}."
            ) from None
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        self._send(content, "text/html; charset=utf-8", HTTPStatus.OK, {"Set-Cookie": cookie})

    def _send_corrections(self) -> None:
        self._send_state(self.server.store.read)

    def _send_first(self) -> None:
        self._send_json(self.server.first, HTTPStatus.OK)

    def _save(self) -> None:
        content = self._read_json()
        self._send_state(lambda: self.server.store.save(content))

    def _send_state(self, get: Callable[[], Corrections]) -> None:
        try:
            state = get()
        except ConflictError as error:
            more = {"saved": dataclasses.asdict(error.current), "groups": error.groups}
            raise _RefusedError(HTTPStatus.CONFLICT, str(error), **more) from None
        except UserError as error:
            raise _RefusedError(_status_of(error), str(error)) from None
        self._send_json(dataclasses.asdict(state), HTTPStatus.OK)

    def _read_json(self) -> Any:
        """Read the body: JSON by type, of a stated and bounded length."""
        if self.headers.get_content_type() != "application/json":
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send application/json.")
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "Content-Length is needed.")
        if len(lengths[0]) > 18 or int(lengths[0]) > MAX_BYTES:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{MAX_BYTES} bytes are the most."
            )
        body = self.rfile.read(int(lengths[0]))
        try:
            if len(body) == int(lengths[0]):
                return json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError):
            pass
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "The body is not complete JSON.")

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
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _drain(self) -> None:
        """Read what a refused client still sends, or the answer would be lost to it."""
        left = MAX_BYTES
        if self.command == "POST":
            while left > 0 and (taken := len(self.rfile.read1(2**16))):
                left -= taken


def _status_of(error: UserError) -> HTTPStatus:
    """Return the status of a save that failed; an error with a cause is not the client's."""
    if error.__cause__ is None:
        return HTTPStatus.UNPROCESSABLE_ENTITY
    full = isinstance(error.__cause__, OSError) and error.__cause__.errno in _DISK_FULL
    return HTTPStatus.INSUFFICIENT_STORAGE if full else HTTPStatus.INTERNAL_SERVER_ERROR


def up_to_date_report(run: RunFolder) -> Path:
    """Return the report of the run; write it again if it is of another version or too old.

    The server allows only the script of this version, whose digest is in the page.
    """
    categories = run.categories.stat().st_mtime_ns if run.categories.exists() else 0
    if run.report.exists() and run.report.stat().st_mtime_ns >= categories:
        with contextlib.suppress(OSError), run.report.open("rb") as file:
            if policy().encode() in file.read(2**12):
                return run.report
    logger.info("Writing the report …")
    return write_report(run)


def _has_display() -> bool:
    """Return whether a browser can open that does not take over the terminal."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def _open(address: str) -> None:
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(address)
