"""The server of examples/serving: many clients at once, and what it refuses."""

import ast
import http.client
import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.images import two_hundred_megapixels
from tests.tasks import Task
from unida.export import export_model
from unida.model import load
from unida.types import Prediction

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

SERVING = Path(__file__).parents[2] / "examples" / "serving"
BOUNDARY = "----a-boundary"

pytestmark = pytest.mark.slow


class Server:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Any = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def predict(self, files: Sequence[tuple[str, bytes]], field: str = "images") -> tuple[int, Any]:
        body = b"".join(
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"'
            "\r\nContent-Type: application/octet-stream\r\n\r\n".encode()
            + content
            + b"\r\n"
            for name, content in files
        )
        kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        return self.ask("POST", "/predict", body + f"--{BOUNDARY}--\r\n".encode(), kind)


@pytest.fixture(scope="module")
def expected(finished_run: Path, digits: Task) -> list[Prediction]:
    return load(finished_run, "cpu").predict(digits.target)


@pytest.fixture(scope="module")
def server(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("serving")
    export_model(load(finished_run, "cpu"), folder / "model.onnx")
    # Whoever imports torch or unida in the example finds these.
    for name in ("torch", "unida"):
        (folder / f"{name}.py").write_text("raise ImportError('not needed')\n")
    env = os.environ | {"MODEL": str(folder / "model.onnx"), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(SERVING)]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", "0"],
        env=env,
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
            break
    else:
        pytest.fail("".join(told))
    yield Server(int(found[1]))
    process.terminate()
    process.communicate(timeout=30)


def files_of(predictions: Sequence[Prediction]) -> list[tuple[str, bytes]]:
    paths = [p.path for p in predictions if p.path is not None]
    return [(path.name, path.read_bytes()) for path in paths]


def assert_same(answer: tuple[int, Any], expected: Sequence[Prediction]) -> None:
    status, rows = answer
    assert status == 200, rows
    assert [row["file"] for row in rows] == [p.path.name for p in expected if p.path]
    assert [row["label"] for row in rows] == [p.label for p in expected]
    for row, p in zip(rows, expected, strict=True):
        assert row["confidence"] == pytest.approx(p.confidence, abs=1e-4)
        assert row["unknown_score"] == pytest.approx(p.unknown_score, abs=1e-4)


def test_it_is_healthy(server: Server) -> None:
    status, content = server.ask("GET", "/healthz")
    assert (status, content["status"], content["classes"]) == (200, "ok", 4)


def test_a_single_image_and_a_batch_are_labelled_as_unida_does(
    server: Server, expected: list[Prediction]
) -> None:
    assert_same(server.predict(files_of(expected[:1])), expected[:1])
    assert_same(server.predict(files_of(expected[:64])), expected[:64])


def test_many_clients_at_once_get_their_own_answers(
    server: Server, expected: list[Prediction]
) -> None:
    parts = [expected[i : i + 1 + i % 3] for i in range(60)]
    with ThreadPoolExecutor(12) as pool:
        for part, answer in zip(parts, pool.map(server.predict, map(files_of, parts)), strict=True):
            assert_same(answer, part)


def png() -> bytes:
    content = io.BytesIO()
    Image.new("L", (8, 8)).save(content, "PNG")
    return content.getvalue()


def eps() -> bytes:
    content = io.BytesIO()
    Image.new("L", (8, 8)).save(content, "EPS")
    return content.getvalue()


def sixty_megapixels() -> bytes:
    content = io.BytesIO()
    Image.new("1", (10_000, 6_000)).save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        ([("a.txt", b"no picture at all")], 415, "'a.txt' is not an image"),
        ([("empty.png", b"")], 415, "'empty.png' is not an image"),
        ([("half.png", png()[:40])], 415, "'half.png' is not an image"),
        ([("script.eps", eps())], 415, "'script.eps' is not an image"),
        ([("bomb.png", two_hundred_megapixels())], 413, "'bomb.png' has too many pixels"),
        ([("large.png", sixty_megapixels())], 413, "'large.png' has too many pixels"),
        ([("good.png", png()), ("bad.png", b"x")], 415, "'bad.png'"),
        ([("a.png", png())] * 65, 413, "65 images are too many: 64 at most"),
        ([("a.png", b"x" * 20_000_001)], 413, "20,000,000 bytes"),
        ([], 422, "called 'images'"),
    ],
    ids=["text", "empty", "half", "eps", "bomb", "large", "one of two", "many", "bytes", "none"],
)
def test_bad_input_is_refused_in_a_sentence(
    server: Server, files: list[tuple[str, bytes]], status: int, words: str
) -> None:
    found, content = server.predict(files)
    assert found == status
    assert words in content["detail"]
    assert content["detail"].endswith(".")
    assert server.ask("GET", "/healthz")[0] == 200


def test_another_form_is_refused_in_a_sentence(server: Server) -> None:
    assert server.predict([("a.png", png())], field="picture")[0] == 422
    status, content = server.ask("POST", "/predict", b"{}", {"Content-Type": "application/json"})
    assert (status, content["detail"]) == (
        422,
        "Send a form with one file or several called 'images'.",
    )


def test_a_body_without_a_length_is_refused_before_it_is_read(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert b" 411 " in client.recv(4096).partition(b"\r\n")[0]


def test_the_server_needs_what_its_requirements_name_and_no_torch() -> None:
    tree = ast.parse((SERVING / "app.py").read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert roots == {"fastapi", "numpy", "onnxruntime", "PIL"}
    required = re.findall(r"^[a-z-]+", (SERVING / "requirements.txt").read_text(), re.MULTILINE)
    assert set(required) == {"fastapi", "uvicorn", "python-multipart", "onnxruntime", "pillow"}
    docker = (SERVING / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.+) \S+$", docker, re.MULTILINE)
    mine = {name for line in copied for name in line.split()} - {"model.onnx"}
    assert mine == {"requirements.txt", "app.py"}
    assert all((SERVING / name).exists() for name in mine)
