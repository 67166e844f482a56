"""Names and labels that a person saves: by a server that answers one page only, and whole."""

import contextlib
import http.client
import json
import os
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
from tests.processes import UNIDA, Child, started, wait_for
from unida.cli.main import main
from unida.errors import UserError
from unida.review.corrections import LONGEST_NAME, Store, checked, read_review_target, read_saved
from unida.review.server import MOST_BYTES, Review, ReviewServer, run_review, serving
from unida.training.run_folder import RunFolder, write_text
from unida.types import Prediction
from unida.utils.csv_files import to_csv

Capture = pytest.CaptureFixture[str]

PAGE = "<!doctype html><title>a report</title>"
ODD = "/images/\udcff\n,.png"
"""A file name that is not valid UTF-8, in one line or free of commas."""
IMAGES = ("/images/a.png", "/images/b.png", "/images/c.png", ODD)
STATE = {"names": {"1": "zebra"}, "labels": {"/images/b.png": "dog", ODD: "unknown"}}


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
    with serving(Store(read_review_target(run)), run / "report.html") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Visitor:
    """Asks as the page in a browser does, unless told to ask otherwise."""

    def __init__(self, server: ReviewServer) -> None:
        self.port, self.headers = server.server_port, {}
        cookie = self.get(f"/?token={server.token}")[2]["Set-Cookie"]
        self.headers = {
            "Cookie": cookie.split(";")[0],
            "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/json",
        }

    def get(self, path: str, **headers: str | None) -> tuple[int, bytes, dict[str, str]]:
        return self.ask("GET", path, None, headers)

    def save(self, content: Any, **headers: str | None) -> tuple[int, Any]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        status, answer, _ = self.ask("POST", "/save", body, headers)
        return status, json.loads(answer)

    def ask(
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
def visitor(server: ReviewServer) -> Visitor:
    return Visitor(server)


def history(run: Path) -> list[dict[str, Any]]:
    files = sorted((run / "review-history").glob("[!.]*"))
    return [json.loads(path.read_text()) for path in files]


def stored(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "review.json").read_text())
    content.pop("categories")
    return content


class TestThePage:
    def test_it_is_the_report_and_sets_a_strict_cookie(self, server: ReviewServer) -> None:
        status, body, headers = Visitor(server).get(f"/?token={server.token}", Cookie=None)
        assert (status, body.decode()) == (200, PAGE)
        assert {"HttpOnly", "SameSite=Strict"} <= set(headers["Set-Cookie"].split("; "))
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"

    def test_what_is_saved_comes_back(self, visitor: Visitor, run: Path) -> None:
        empty = {"names": {}, "labels": {}}
        assert json.loads(visitor.get("/saved")[1]) == empty
        assert visitor.save(STATE) == (200, STATE)
        assert json.loads(visitor.get("/saved")[1]) == STATE
        assert stored(run) == STATE

    def test_names_are_tidied_and_empty_ones_taken_away(self, visitor: Visitor, run: Path) -> None:
        names = {"1": "  ze\x00bra \n\u2028 e\u0301 ", "2": "\t"}
        labels = {"/images/a.png": "UNKNOWN", "/images/b.png": "", ODD: "\ud800x"}
        assert visitor.save({"names": names, "labels": labels})[0] == 200
        assert stored(run) == {
            "names": {"1": "ze bra é"},
            "labels": {"/images/a.png": "unknown", ODD: "x"},
        }

    def test_a_hostile_name_is_only_a_name(self, visitor: Visitor, run: Path) -> None:
        before = {path.name for path in run.parent.rglob("*")}
        name = "../../<script>alert(1)</script>"
        assert visitor.save({"names": {"1": name}})[0] == 200
        assert stored(run)["names"] == {"1": name}
        new = {path.name for path in run.parent.rglob("*")} - before
        assert len(new) == 3  # review.json, the folder of the history, and one file in it


class TestRefusals:
    @pytest.mark.parametrize(
        ("headers", "status"),
        [
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
            ({"Content_Length": str(MOST_BYTES + 1)}, 413),
            ({"Content_Length": "9" * 100}, 413),
            ({"Content_Length": "-1"}, 411),
            ({"Content_Length": "one"}, 411),
        ],
    )
    def test_a_request_from_elsewhere_or_of_another_kind(
        self, visitor: Visitor, run: Path, headers: dict[str, str | None], status: int
    ) -> None:
        answer = visitor.save(STATE, **headers)
        assert answer[0] == status
        assert answer[1]["error"].endswith(".")
        assert not (run / "review.json").exists()

    @pytest.mark.parametrize("path", ["/", "/saved"])
    @pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Cookie": None}])
    def test_nothing_is_shown_to_others(
        self, visitor: Visitor, path: str, headers: dict[str, str | None]
    ) -> None:
        status, body, answered = visitor.get(path, **headers)
        assert status == 403
        assert PAGE.encode() not in body
        assert "Set-Cookie" not in answered

    @pytest.mark.parametrize(
        "path",
        [
            "/report.html",
            "/../config.json",
            "/%2e%2e/config.json",
            "//etc/passwd",
            "/saved/",
            "/save",
        ],
    )
    def test_no_other_address_exists(self, visitor: Visitor, path: str) -> None:
        assert visitor.get(path)[0] == 404

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD"])
    def test_no_other_method_exists(self, visitor: Visitor, method: str) -> None:
        assert visitor.ask(method, "/save", None, {})[0] == 501

    @pytest.mark.parametrize(
        "body", [b"", b"{", b'{"names": {}', b"\xff\xfe", b"[" * 100_000, b"{} {}"]
    )
    def test_what_is_not_json(self, visitor: Visitor, run: Path, body: bytes) -> None:
        assert visitor.save(body)[0] == 400
        assert not (run / "review.json").exists()

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ([], "'names'"),
            (None, "'names'"),
            ({"names": ["zebra"]}, "'names'"),
            ({"names": {"1": 3}}, "'names'"),
            ({"labels": {"/images/a.png": None}}, "'labels'"),
            ({"labels": "all"}, "'labels'"),
            ({"names": {"3": "zebra"}}, "no category '3'"),
            ({"names": {"": "zebra"}}, "no category ''"),
            ({"names": {"1_": "zebra"}}, "no category '1_'"),
            ({"labels": {"/etc/passwd": "dog"}}, "'/etc/passwd'"),
            ({"labels": {"/images/../images/a.png": "dog"}}, "No target image"),
            ({"names": {"1": "z" * (LONGEST_NAME + 1)}}, "201 characters"),
            ({"names": {"1": "Unknown"}}, "'unknown' is the word"),
            ({"names": {"1": "zebra"}, "base": []}, "'names'"),
        ],
    )
    def test_what_does_not_speak_of_this_run(
        self, visitor: Visitor, run: Path, content: Any, words: str
    ) -> None:
        status, answer = visitor.save(content)
        assert status == 422
        assert words in answer["error"]
        assert not (run / "review.json").exists()

    def test_it_listens_on_this_machine_only(self, server: ReviewServer) -> None:
        assert server.socket.getsockname()[0] == "127.0.0.1"

    def test_half_a_body_is_no_save(
        self, server: ReviewServer, visitor: Visitor, run: Path
    ) -> None:
        """A browser that is closed in the middle of sending."""
        lines = [
            "POST /save HTTP/1.1",
            f"Host: 127.0.0.1:{server.server_port}",
            f"Cookie: {visitor.headers['Cookie']}",
            "Content-Type: application/json",
            "Content-Length: 100",
        ]
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as line:
            line.sendall(("\r\n".join(lines) + '\r\n\r\n{"names": {}}').encode())
            line.shutdown(socket.SHUT_WR)
            assert b" 400 " in line.makefile("rb").readline()
        assert not (run / "review.json").exists()


class TestStore:
    def test_every_save_is_kept_in_order(self, run: Path) -> None:
        store = Store(read_review_target(run))
        for name in ("zebra", "horse", ""):
            store.save({"names": {"1": name}})
        assert [entry["names"] for entry in history(run)] == [{"1": "zebra"}, {"1": "horse"}, {}]
        assert stored(run)["names"] == {}

    def test_saves_at_once_are_all_kept_and_one_counts(self, visitor: Visitor, run: Path) -> None:
        names = [f"zebra {i}" for i in range(16)]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda name: visitor.save({"names": {"1": name}}), names))
        assert [status for status, _ in answers] == [200] * 16
        kept = [entry["names"]["1"] for entry in history(run)]
        assert sorted(kept) == sorted(names)
        assert stored(run)["names"]["1"] == kept[-1]

    def test_a_page_that_is_open_twice_loses_nothing(self, visitor: Visitor) -> None:
        """Each page sends what it shows and what it was shown at first."""
        base = {"names": {"1": "zebra", "2": "horse"}, "labels": {IMAGES[0]: "dog"}}
        visitor.save(base)
        visitor.save({"names": {"1": "quagga", "2": "horse"}, "labels": {}, "base": base})
        labels = {IMAGES[0]: "dog", IMAGES[1]: "cat"}
        status, state = visitor.save({"names": {"1": "zebra"}, "labels": labels, "base": base})
        assert status == 200
        assert state == {"names": {"1": "quagga"}, "labels": {IMAGES[1]: "cat"}}

    def test_a_save_that_fails_leaves_the_one_before(self, run: Path) -> None:
        store = Store(read_review_target(run))
        store.save(STATE)
        with file_size_limit(20), pytest.raises(UserError, match="cannot be written"):
            store.save({"names": {"2": "horse"}})
        assert stored(run) == STATE
        assert not list(run.glob(".*"))

    def test_names_do_not_pass_to_categories_found_anew(self, run: Path) -> None:
        Store(read_review_target(run)).save(STATE)
        write_categories(run, {IMAGES[2]: ("1", 0.9)})
        saved, outdated = read_saved(read_review_target(run))
        assert outdated
        assert (saved.names, saved.labels) == ({}, STATE["labels"])

    @pytest.mark.parametrize("text", ["{", "[]", '{"labels": {"/gone.png": "dog"}}'])
    def test_a_damaged_file_is_spoken_of(self, run: Path, text: str) -> None:
        (run / "review.json").write_text(text)
        with pytest.raises(UserError, match="review-history"):
            read_saved(read_review_target(run))

    def test_without_categories_labels_can_be_corrected(self, run: Path) -> None:
        (run / "categories.csv").unlink()
        subject = read_review_target(run)
        assert checked({"labels": {IMAGES[0]: "dog"}}, subject).labels == {IMAGES[0]: "dog"}
        with pytest.raises(UserError, match="no category"):
            checked({"names": {"1": "zebra"}}, subject)


class TestCommand:
    @contextlib.contextmanager
    def reviewing(self, run: Path) -> Iterator[tuple[Child, str]]:
        """The command as a process of its own, and the address it prints."""
        with started([*UNIDA, "review", str(run), "--no-browser"], COLUMNS="500") as child:
            wait_for(lambda: "\n" in child.said(), child)
            yield child, child.said().split()[2]

    def save(self, address: str, content: Any) -> int:
        place, _, token = address.removeprefix("http://").partition("/?token=")
        with closing(http.client.HTTPConnection(place, timeout=60)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/save?token={token}", json.dumps(content), headers)
            return connection.getresponse().status

    def test_ended_it_says_how_to_go_on(self, run: Path) -> None:
        with self.reviewing(run) as (child, address):
            assert self.save(address, STATE) == 200
            os.kill(child.process.pid, signal.SIGINT)
            assert child.ended() == 0
            said = child.said()
        assert "Named categories: 1, corrected labels: 2." in said
        assert f"unida adapt --continue {run} --out NEW" in said

    def test_killed_while_it_saves_it_leaves_a_whole_state(self, run: Path) -> None:
        enough = threading.Event()

        def save_until_it_dies(address: str, who: int) -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                for i in range(10_000):
                    self.save(address, {"names": {"1": f"zebra {who} {i}"}})
                    if i == 5:
                        enough.set()

        with ThreadPoolExecutor(3) as pool, self.reviewing(run) as (child, address):
            for who in range(3):
                pool.submit(save_until_it_dies, address, who)
            wait_for(enough.is_set, child)
            child.kill()
        assert stored(run)["names"]["1"] in [entry["names"]["1"] for entry in history(run)]

    def test_a_taken_port_is_one_sentence(
        self, server: ReviewServer, run: Path, capfd: Capture
    ) -> None:
        command = ["review", str(run), "--no-browser", "--port"]
        assert main([*command, str(server.server_port)]) == 2
        assert "leave --port out" in capfd.readouterr().err
        assert main([*command, "70000"]) == 2
        assert "from 0 to 65535" in capfd.readouterr().err

    def test_an_unfinished_run_is_one_sentence(self, run: Path, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="holds no run"):
            run_review(Review(tmp_path / "nowhere"))
        (run / "done").unlink()
        with pytest.raises(UserError, match="is not finished"):
            run_review(Review(run))
