"""The review server saves corrections of one run, completely, and for its own page only."""

import base64
import contextlib
import hashlib
import http.client
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.images import file_size_limit
from unida.errors import UserError
from unida.report.page import render
from unida.review.corrections import (
    MAX_NAME_LENGTH,
    Corrections,
    CorrectionStore,
    parse_corrections,
    read_corrections,
    read_review_target,
)
from unida.review.server import (
    MAX_BYTES,
    ReviewServer,
    open_server,
    serve,
    up_to_date_report,
)
from unida.training.run_folder import RunFolder, write_text
from unida.types import Prediction
from unida.utils.csv_files import to_csv

PAGE = render({})
ODD = "/images/\udcff\n,.png"
"""A file name that is not valid UTF-8, in one line or free of commas."""
IMAGES = ("/images/a.png", "/images/b.png", "/images/c.png", ODD)
UNEDITED: dict[str, Any] = {"merges": {}, "moves": {}}
STATE = {"names": {"1": "zebra"}, "labels": {"/images/b.png": "dog", ODD: "unknown"}} | UNEDITED


def write_categories(run: Path, members: dict[str, tuple[str, float]]) -> None:
    """Writes categories.csv; by path the category and how sure it is."""
    rows = [(path, category, str(sure)) for path, (category, sure) in members.items()]
    write_text(run / "categories.csv", to_csv(("path", "category", "confidence"), rows))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a finished run has to be reviewed, without the training."""
    folder = tmp_path / "run"
    folder.mkdir()
    predictions = (Prediction(Path(path), "unknown", 0.5, 1.0, "own") for path in IMAGES)
    RunFolder(folder).write_predictions(predictions)
    write_categories(folder, {IMAGES[0]: ("1", 0.9), IMAGES[1]: ("2", 0.4), IMAGES[2]: ("", 0.1)})
    (folder / "report.html").write_text(PAGE)
    (folder / "config.json").write_text("{}")
    (folder / "done").touch()
    return folder


@pytest.fixture
def server(run: Path) -> Iterator[ReviewServer]:
    with open_server(CorrectionStore(read_review_target(run)), run / "report.html") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Client:
    """Sends requests as the page in a browser does, unless headers are given."""

    def __init__(self, server: ReviewServer) -> None:
        self.port, self.headers = server.server_port, {}
        cookie = self.get(f"/?token={server.token}")[2]["Set-Cookie"]
        self.headers = {
            "Cookie": cookie.split(";")[0],
            "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/json",
        }

    def get(self, path: str, **headers: str | None) -> tuple[int, bytes, dict[str, str]]:
        return self.request("GET", path, None, headers)

    def save(self, content: Any, **headers: str | None) -> tuple[int, Any]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        status, answer, _ = self.request("POST", "/save", body, headers)
        return status, json.loads(answer)

    def request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str | None]
    ) -> tuple[int, bytes, dict[str, str]]:
        """Headers are named with underscores; None leaves one out."""
        sent = self.headers | {k.replace("_", "-"): v for k, v in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            given = {k: v for k, v in sent.items() if v is not None}
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.headers)


@pytest.fixture
def client(server: ReviewServer) -> Client:
    return Client(server)


def history(run: Path) -> list[dict[str, Any]]:
    files = sorted((run / "review-history").glob("[!.]*"))
    return [json.loads(path.read_text()) for path in files]


def stored(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "review.json").read_text())
    content.pop("categories")
    content.pop("revision")
    return content


class TestThePage:
    def test_it_is_the_report_and_sets_a_strict_cookie(self, server: ReviewServer) -> None:
        status, body, headers = Client(server).get(f"/?token={server.token}", Cookie=None)
        assert (status, body.decode()) == (200, PAGE)
        assert {"HttpOnly", "SameSite=Strict"} <= set(headers["Set-Cookie"].split("; "))
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe-inline" not in policy
        for part, kind in (("script", "script-src"), ("style", "style-src")):
            text = PAGE.rpartition(f"<{part}>")[2].partition(f"</{part}>")[0]
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{kind} 'sha256-{digest}'" in policy
        assert headers["Cache-Control"] == "no-store"

    def test_what_is_saved_comes_back(self, client: Client, run: Path) -> None:
        empty = {"names": {}, "labels": {}, "revision": 0} | UNEDITED
        assert json.loads(client.get("/saved")[1]) == empty
        assert client.save(STATE) == (200, STATE | {"revision": 1})
        assert json.loads(client.get("/saved")[1]) == STATE | {"revision": 1}
        assert stored(run) == STATE

    def test_names_are_normalized_and_empty_ones_dropped(self, client: Client, run: Path) -> None:
        names = {"1": "  ze\x00bra \n\u2028 e\u0301 ", "2": "\t"}
        labels = {"/images/a.png": "UNKNOWN", "/images/b.png": "", ODD: "\ud800x"}
        assert client.save({"names": names, "labels": labels})[0] == 200
        assert stored(run) == UNEDITED | {
            "names": {"1": "ze bra é"},
            "labels": {"/images/a.png": "unknown", ODD: "x"},
        }

    def test_a_hostile_name_is_only_a_name(self, client: Client, run: Path) -> None:
        before = {path.name for path in run.parent.rglob("*")}
        name = "../../<script>alert(1)</script>"
        assert client.save({"names": {"1": name}})[0] == 200
        assert stored(run)["names"] == {"1": name}
        new = {path.name for path in run.parent.rglob("*")} - before
        # review.json, the folder of the history, its lock and one save
        assert len(new) == 4


class TestRefusals:
    def test_requests_from_elsewhere_or_of_another_kind(self, client: Client, run: Path) -> None:
        refused: list[tuple[dict[str, str | None], int]] = [
            ({"Host": "evil.example"}, 403),
            ({"Host": "127.0.0.1"}, 403),
            ({"Host": "127.0.0.1:1"}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "http://127.0.0.1:1"}, 403),
            ({"Origin": "null"}, 403),
            ({"Cookie": None}, 403),
            ({"Cookie": "unida-review-1=guess"}, 403),
            ({"Cookie": "a=\x7f\x01;;=="}, 403),
            ({"Content_Type": "text/plain"}, 415),
            ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
            ({"Content_Type": None}, 415),
            ({"Content_Length": str(MAX_BYTES + 1)}, 413),
            ({"Content_Length": "9" * 100}, 413),
            ({"Content_Length": "-1"}, 411),
            ({"Content_Length": "one"}, 411),
        ]
        for headers, status in refused:
            assert client.save(STATE, **headers)[0] == status, headers
        assert not (run / "review.json").exists()

    def test_nothing_is_shown_to_others(self, client: Client) -> None:
        for path in ("/", "/saved"):
            others: tuple[dict[str, str | None], ...] = ({"Host": "evil.example"}, {"Cookie": None})
            for headers in others:
                status, body, answered = client.get(path, **headers)
                assert status == 403
                assert PAGE.encode() not in body
                assert "Set-Cookie" not in answered

    def test_no_other_address_or_method_exists(self, client: Client) -> None:
        for path in ("/report.html", "/../config.json", "/%2e%2e/config.json", "//etc/passwd",
                     "/saved/", "/save"):  # fmt: skip
            assert client.get(path)[0] == 404, path
        for method in ("PUT", "DELETE", "OPTIONS", "HEAD"):
            assert client.request(method, "/save", None, {})[0] == 501, method

    def test_the_images_to_label_first_are_listed(self, run: Path, client: Client) -> None:
        assert json.loads(client.get("/first")[1]) == []
        store, first = CorrectionStore(read_review_target(run)), [IMAGES[2], ODD]
        with open_server(store, run / "report.html", first=first) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            assert json.loads(Client(server).get("/first")[1]) == first
            server.shutdown()

    def test_what_is_not_json(self, client: Client, run: Path) -> None:
        for body in (b"", b"{", b'{"names": {}', b"\xff\xfe", b"[" * 100_000, b"{} {}"):
            assert client.save(body)[0] == 400, body[:20]
        assert not (run / "review.json").exists()

    def test_what_is_not_of_this_run(self, client: Client, run: Path) -> None:
        refused: list[Any] = [
            [],
            None,
            {"names": ["zebra"]},
            {"names": {"1": 3}},
            {"labels": {"/images/a.png": None}},
            {"labels": "all"},
            {"names": {"3": "zebra"}},
            {"names": {"": "zebra"}},
            {"names": {"1_": "zebra"}},
            {"labels": {"/etc/passwd": "dog"}},
            {"labels": {"/images/../images/a.png": "dog"}},
            {"names": {"1": "z" * (MAX_NAME_LENGTH + 1)}},
            {"names": {"1": "Unknown"}},
            {"names": {"1": "zebra"}, "base": []},
            {"names": {"0": "zebra"}},
            {"merges": {"1": "3"}},
            {"merges": {"0": "1"}},
            {"merges": {"1": "1"}},
            {"merges": {"1": "2", "2": "1"}},
            {"merges": {"1": "2"}, "names": {"1": "zebra"}},
            {"moves": {"/etc/passwd": "1"}},
            {"moves": {"/images/a.png": "3.01"}},
            {"moves": {"/images/a.png": "1./.."}},
        ]
        for content in refused:
            status, answer = client.save(content)
            assert status == 422, content
            assert answer["error"].endswith(".")
        assert not (run / "review.json").exists()

    @pytest.mark.parametrize(
        "request_",
        [
            b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET /saved\r\n\r\n",
            b"GET /saved HTTP/9.9\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
            b"GET http://[ HTTP/1.1\r\nHost: %s\r\n\r\n",
            b"GET /saved HTTP/1.1\r\nHost: %s\r\nno header\r\n\r\n",
            b"GET /saved HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
            b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
            b"POST /save HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n",
        ],
    )
    def test_a_malformed_request_is_answered_with_a_status(
        self, server: ReviewServer, request_: bytes
    ) -> None:
        place = ("127.0.0.1", server.server_port)
        with socket.create_connection(place, timeout=60) as line:
            line.sendall(request_.replace(b"%s", f"127.0.0.1:{server.server_port}".encode()))
            line.shutdown(socket.SHUT_WR)
            assert re.match(rb"HTTP/1\.0 [45]\d\d ", line.makefile("rb").readline())

    def test_a_failure_of_the_server_is_answered_with_a_status(
        self, server: ReviewServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(content: Any) -> None:
            raise RuntimeError("not foreseen")

        monkeypatch.setattr(server.store, "save", fail)
        status, answer = client.save(STATE)
        assert status == 500
        assert "not foreseen" in answer["error"]

    def test_it_listens_on_this_machine_only(self, server: ReviewServer) -> None:
        assert server.socket.getsockname()[0] == "127.0.0.1"

    def test_half_a_body_is_no_save(self, server: ReviewServer, client: Client, run: Path) -> None:
        """A browser that is closed in the middle of sending."""
        lines = [
            "POST /save HTTP/1.1",
            f"Host: 127.0.0.1:{server.server_port}",
            f"Cookie: {client.headers['Cookie']}",
            "Content-Type: application/json",
            "Content-Length: 100",
        ]
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as line:
            line.sendall(("\r\n".join(lines) + '\r\n\r\n{"names": {}}').encode())
            line.shutdown(socket.SHUT_WR)
            assert b" 400 " in line.makefile("rb").readline()
        assert not (run / "review.json").exists()


class TestCorrectionStore:
    def test_every_save_is_kept_in_order(self, run: Path) -> None:
        store = CorrectionStore(read_review_target(run))
        for name in ("zebra", "horse", ""):
            store.save({"names": {"1": name}})
        assert [entry["names"] for entry in history(run)] == [{"1": "zebra"}, {"1": "horse"}, {}]
        assert stored(run)["names"] == {}

    def test_saves_at_once_are_all_kept_and_one_counts(self, client: Client, run: Path) -> None:
        names = [f"zebra {i}" for i in range(16)]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda name: client.save({"names": {"1": name}}), names))
        assert [status for status, _ in answers] == [200] * 16
        kept = [entry["names"]["1"] for entry in history(run)]
        assert sorted(kept) == sorted(names)
        assert stored(run)["names"]["1"] == kept[-1]

    def test_a_page_that_is_open_twice_loses_nothing(self, client: Client) -> None:
        """Each page sends what it shows and what it was shown at first."""
        base = {"names": {"1": "zebra", "2": "horse"}, "labels": {IMAGES[0]: "dog"}}
        client.save(base)
        client.save({"names": {"1": "quagga", "2": "horse"}, "labels": {}, "base": base})
        labels = {IMAGES[0]: "dog", IMAGES[1]: "cat"}
        status, state = client.save({"names": {"1": "zebra"}, "labels": labels, "base": base})
        assert status == 200
        merged = {"names": {"1": "quagga"}, "labels": {IMAGES[1]: "cat"}}
        assert state == merged | {"revision": 3} | UNEDITED

    def test_what_was_changed_elsewhere_too_is_a_conflict(self, client: Client, run: Path) -> None:
        base = {"names": {"1": "zebra"}, "labels": {}}
        client.save(base)
        horse = {"names": {"1": "horse"}, "labels": {IMAGES[0]: "dog"}, "base": base}
        assert client.save(horse)[0] == 200
        quagga = {"names": {"1": "quagga"}, "labels": {IMAGES[1]: "cat"}, "base": base}
        status, answer = client.save(quagga)
        assert status == 409
        assert "category 1" in answer["error"]
        assert "'horse'" in answer["error"]
        assert not answer["groups"]
        assert answer["saved"] == UNEDITED | {
            "names": {"1": "horse"}, "labels": {IMAGES[0]: "dog"}, "revision": 2
        }  # fmt: skip
        assert stored(run)["names"] == {"1": "horse"}
        assert client.save(quagga | {"base": answer["saved"]})[0] == 200

    def test_a_revision_that_is_not_the_last_is_a_conflict(self, client: Client) -> None:
        for revision, status in ((0, 200), (0, 409), (1, 200), (3, 409), (-1, 422), ("2", 422)):
            content = {"names": {"1": f"zebra {revision}"}, "revision": revision}
            assert client.save(content)[0] == status, revision

    def test_200_saves_at_once_to_two_servers_lose_nothing(
        self, server: ReviewServer, run: Path
    ) -> None:
        n = 200
        paths = [f"/images/{i}.png" for i in range(n)]
        predictions = (Prediction(Path(path), "unknown", 0.5, 1.0, "own") for path in paths)
        RunFolder(run).write_predictions(predictions)
        server.store.target = read_review_target(run)
        begin = threading.Barrier(n)

        def save(i: int) -> int:
            begin.wait(60)
            content = {"labels": {paths[i]: f"label {i}"}, "base": {}}
            return save_to((server, second)[i % 2], content)

        with open_server(CorrectionStore(read_review_target(run)), server.page) as second:
            thread = threading.Thread(target=second.serve_forever, args=(0.01,), daemon=True)
            thread.start()
            with ThreadPoolExecutor(n) as pool:
                statuses = list(pool.map(save, range(n)))
            second.shutdown()
            thread.join()
        assert statuses == [200] * n
        assert stored(run)["labels"] == {path: f"label {i}" for i, path in enumerate(paths)}
        assert sorted(entry["revision"] for entry in history(run)) == list(range(1, n + 1))

    def test_what_is_not_on_disk_is_never_answered_as_saved(
        self, client: Client, run: Path
    ) -> None:
        client.save(STATE)
        with file_size_limit(20):
            status, answer = client.save({"names": {"2": "horse"}})
        assert (status, stored(run)) == (507, STATE)
        assert "cannot be written" in answer["error"]
        (run / "review.json").unlink()
        (run / "review.json").mkdir()
        assert client.save(STATE)[0] == 500
        assert client.get("/saved")[0] == 500
        shutil.rmtree(run)
        status, answer = client.save(STATE)
        assert status == 500
        assert "No such file" in answer["error"]
        assert client.get("/")[0] == 500
        assert not run.exists()

    def test_a_save_that_fails_leaves_the_one_before(self, run: Path) -> None:
        store = CorrectionStore(read_review_target(run))
        store.save(STATE)
        with file_size_limit(20), pytest.raises(UserError, match="cannot be written"):
            store.save({"names": {"2": "horse"}})
        assert stored(run) == STATE
        assert not list(run.glob(".*"))

    def test_names_do_not_pass_to_categories_found_anew(self, run: Path) -> None:
        edits = {"merges": {"2": "0"}, "moves": {IMAGES[0]: "new.1"}}
        CorrectionStore(read_review_target(run)).save(STATE | edits)
        write_categories(run, {IMAGES[2]: ("1", 0.9)})
        saved, outdated = read_corrections(read_review_target(run))
        assert outdated
        assert saved == Corrections(labels=STATE["labels"])

    def test_a_damaged_file_is_reported(self, run: Path) -> None:
        for text in ("{", "[]", '{"labels": {"/gone.png": "dog"}}'):
            (run / "review.json").write_text(text)
            with pytest.raises(UserError, match="review-history"):
                read_corrections(read_review_target(run))

    def test_without_categories_labels_can_be_corrected(self, run: Path) -> None:
        (run / "categories.csv").unlink()
        target = read_review_target(run)
        assert parse_corrections({"labels": {IMAGES[0]: "dog"}}, target).labels == {
            IMAGES[0]: "dog"
        }
        with pytest.raises(UserError, match="no category"):
            parse_corrections({"names": {"1": "zebra"}}, target)


def save_to(server: ReviewServer, content: Any) -> int:
    with closing(
        http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    ) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/save?token={server.token}", json.dumps(content), headers)
        return connection.getresponse().status


def test_a_page_of_another_version_is_written_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server allows only the script of its own version."""
    report, written = run / "report.html", list[RunFolder]()
    monkeypatch.setattr("unida.review.server.write_report", written.append)
    assert up_to_date_report(RunFolder(run)) == report
    report.write_text(PAGE.replace("script-src 'sha256-", "script-src 'sha256-0"))
    up_to_date_report(RunFolder(run))
    assert len(written) == 1


class TestServe:
    def test_it_serves_until_ctrl_c_and_returns_the_corrections(
        self, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        statuses: list[int] = []

        def save_and_interrupt(server: ReviewServer) -> None:
            try:
                statuses.append(save_to(server, STATE))
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        class Interrupted(ReviewServer):
            def serve_forever(self, poll_interval: float = 0.01) -> None:
                threading.Thread(target=save_and_interrupt, args=(self,)).start()
                super().serve_forever(poll_interval)

        monkeypatch.setattr("unida.review.server.ReviewServer", Interrupted)
        corrections = serve(run, browser=False)
        assert statuses == [200]
        assert (corrections.names, corrections.labels) == (STATE["names"], STATE["labels"])

    def test_a_process_killed_while_it_saves_leaves_a_complete_state(self, run: Path) -> None:
        server = open_server(CorrectionStore(read_review_target(run)), run / "report.html")
        child = multiprocessing.get_context("fork").Process(target=server.serve_forever)
        child.start()
        enough = threading.Event()

        def save_until_it_dies(who: int) -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                for i in range(10_000):
                    save_to(server, {"names": {"1": f"zebra {who} {i}"}})
                    if i == 5:
                        enough.set()

        with ThreadPoolExecutor(3) as pool:
            for who in range(3):
                pool.submit(save_until_it_dies, who)
            assert enough.wait(60)
            server.socket.close()  # or the parent would keep the port open
            child.kill()
        child.join()
        assert stored(run)["names"]["1"] in [entry["names"]["1"] for entry in history(run)]

    def test_what_cannot_be_served_is_one_sentence(
        self, server: ReviewServer, run: Path, tmp_path: Path
    ) -> None:
        for port, words in ((server.server_port, "leave --port out"), (70000, "from 0 to 65535")):
            with pytest.raises(UserError, match=words):
                serve(run, port, browser=False)
        with pytest.raises(UserError, match="holds no run"):
            serve(tmp_path / "nowhere")
        (run / "done").unlink()
        with pytest.raises(UserError, match="is not finished"):
            serve(run)
