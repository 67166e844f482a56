"""A run on disk: what is written comes back, as it comes, and a failure is named."""

import csv
import errno
import io
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from unida.errors import UserError
from unida.methods.presets import configure
from unida.training.predictions import prediction_lines, read_predictions
from unida.training.run_folder import RunFolder, differences, require_writable, write_lines
from unida.types import Prediction
from unida.utils.csv_files import csv_lines, to_csv

ODD = ("plain", 'a,"b"', "line\nbreak", "carriage\rreturn", "")


def test_a_checkpoint_comes_back_and_leaves_nothing_else(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    state = {"step": 3, "model": {"w": torch.randn(5, 2)}}
    run.save_state(state)
    back, _ = run.load_state()
    assert back is not None
    assert back["step"] == 3
    assert back["model"]["w"].equal(state["model"]["w"])  # type: ignore[index]
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_one_flipped_bit_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save_state({"step": 3, "model": {"w": torch.arange(1000.0)}})
    content = bytearray(run.state.read_bytes())
    content[content.index(torch.tensor(500.0).numpy().tobytes())] ^= 1
    run.state.write_bytes(content)
    with pytest.raises(UserError, match="not a whole checkpoint"):
        run.load_state()


def test_a_checkpoint_is_written_tensor_by_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody holds the whole file in memory."""
    sizes: list[int] = []
    save = torch.save

    def noting(state: Any, file: Any) -> None:
        write = file.write
        monkeypatch.setattr(torch, "save", save)

        class Noted:
            def write(self, data: Any) -> int:
                sizes.append(len(data))
                return int(write(data))

            def flush(self) -> None:
                file.flush()

        save(state, Noted())

    monkeypatch.setattr(torch, "save", noting)
    RunFolder(tmp_path).save_state({"step": 1, "model": {str(i): torch.ones(5000) for i in "abc"}})
    assert max(sizes) == 20_000
    assert sum(sizes) == (tmp_path / "state.pt").stat().st_size > 60_000


@pytest.mark.parametrize("stumbles", [False, True])
def test_a_failed_checkpoint_is_reported_and_the_last_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stumbles: bool
) -> None:
    run = RunFolder(tmp_path)
    run.save_state({"step": 1})

    def fail(state: Any, file: Any) -> None:
        file.write(b"half a che")
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            if stumbles:  # as torch's writer does, which finds itself at another place
                raise RuntimeError("unexpected pos 232 vs 0")  # noqa: B904
            raise

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(UserError, match=r"state\.pt cannot be written: No space left on device\."):
        run.save_state({"step": 2})
    monkeypatch.undo()
    assert run.load_state() == ({"step": 1}, [])
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_an_error_that_is_not_the_disk_s_is_not_called_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(state: Any, file: Any) -> None:
        raise RuntimeError("cannot be pickled")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(RuntimeError, match="pickled"):
        RunFolder(tmp_path).save_state({})


class TestSpecialFiles:
    """`--to` writes to what is no regular file and leaves it in place."""

    def test_a_link_stays_a_link_to_what_was_written(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        link = tmp_path / "link.csv"
        for target in (tmp_path / "folder" / "a.csv", Path("folder/new.csv")):
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            require_writable(link)
            write_lines(link, ("a\n",))
            assert link.is_symlink()
            assert (tmp_path / target).read_text() == "a\n"
        assert sorted(path.name for path in tmp_path.rglob("*.*")) == [
            "a.csv", "link.csv", "new.csv"
        ]  # fmt: skip

    def test_a_pipe_is_written_to(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe.csv"
        os.mkfifo(pipe)
        with ThreadPoolExecutor(1) as pool:
            reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # or a failure would hang
            require_writable(pipe)
            pool.submit(write_lines, pipe, ("a\n", "b\n")).result(60)
            assert os.read(reader, 100) == b"a\nb\n"
            os.close(reader)
        assert pipe.is_fifo()

    def test_a_device_is_written_to(self) -> None:
        terminal, device = os.openpty()
        require_writable(Path(os.ttyname(device)))
        write_lines(Path(os.ttyname(device)), ("a\n",))
        assert os.read(terminal, 100) == b"a\r\n"
        for descriptor in (terminal, device):
            os.close(descriptor)

    def test_the_standard_output_goes_where_the_shell_sends_it(self, tmp_path: Path) -> None:
        """`--to /dev/stdout >> log` appends; the file is neither replaced nor cut.

        /dev/stdout is a link to the place used here, which no mistake can remove.
        """
        log = tmp_path / "log"
        log.write_text("before\n")
        code = (
            "from pathlib import Path; from unida.training.run_folder import *;"
            "to = Path('/proc/self/fd/1'); require_writable(to); write_lines(to, ['a\\n'])"
        )
        with log.open("ab") as out:
            subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
            assert os.path.samestat(os.fstat(out.fileno()), log.stat())
        assert log.read_text() == "before\na\n"

    def test_a_planted_link_in_place_of_the_part_is_not_followed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        victim = tmp_path / "victim"
        victim.write_text("precious")
        (tmp_path / ".p.csv.part").symlink_to(victim)
        write_lines(tmp_path / "p.csv", ("a\n",))
        assert victim.read_text() == "precious"
        monkeypatch.setattr(secrets, "token_hex", lambda n: "guessed")
        (tmp_path / ".p.csv.guessed.part").symlink_to(victim)
        with pytest.raises(UserError, match="cannot be written"):
            write_lines(tmp_path / "p.csv", ("b\n",))
        assert victim.read_text() == "precious"

    def test_what_cannot_be_written_is_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for name in ("x" * 300, "file/below", "no/such/folder", "."):
            with pytest.raises(UserError):
                require_writable(tmp_path / name)


def test_a_run_may_go_on_elsewhere_but_not_as_another() -> None:
    stored = configure(source="a", target="b", out="c", settings={"beta": 0.7})
    moved = stored.replace(out="d", device="cuda:1", cache="disk", memory_gb=9, log_every=10)
    assert differences(stored, moved) == []
    other = configure(source="a", target="d", out="c", steps=7)
    assert differences(stored, other) == ["target='b'", "steps=2000", "beta=0.7"]


def test_any_cell_comes_back_and_only_odd_rows_are_quoted() -> None:
    rows = [ODD, ("1", "2", "3", "4", "5")]
    text = to_csv(("a", "b", "c", "d", "e"), rows)
    assert text.startswith("a,b,c,d,e\n")
    assert text.endswith("\n1,2,3,4,5\n")
    assert [tuple(row) for row in csv.reader(io.StringIO(text, newline=""))][1:] == rows


def test_rows_are_read_one_at_a_time() -> None:
    read: list[int] = []

    def rows() -> Iterator[tuple[str, ...]]:
        for i in range(3):
            read.append(i)
            yield (str(i),)

    lines = csv_lines(("n",), rows())
    assert next(lines) == "n\n"
    assert read == []
    assert next(lines) == "0\n"
    assert read == [0]
    assert list(lines) == ["1\n", "2\n"]


def test_predictions_are_written_as_they_come(tmp_path: Path) -> None:
    predictions = (Prediction(Path(f"{i}.png"), "cat", 0.5, -1.25, "own") for i in range(2))
    write_lines(tmp_path / "p.csv", prediction_lines(predictions))
    assert (tmp_path / "p.csv").read_text() == (
        "path,label,confidence,unknown_score,rule\n"
        "0.png,cat,0.500000,-1.25,own\n"
        "1.png,cat,0.500000,-1.25,own\n"
    )


def test_files_of_earlier_versions_are_found_under_their_names(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for earlier in ("atlas.npz", "quality.json"):
        assert not run.stored_features.exists() or not run.stored_diagnostics.exists()
        (tmp_path / earlier).touch()
    assert run.stored_features.name == "atlas.npz"
    assert run.stored_diagnostics.name == "quality.json"
    run.features.touch()
    assert run.stored_features == run.features


def test_a_table_of_predictions_is_read_as_it_was_written(tmp_path: Path) -> None:
    names = ["a,b.png", "line\nbreak.png", "\udcff.png"]
    labels = ["cat", "unknown", "dog"]
    rows = (Prediction(Path(n), k, 0.25, -1.5, "own") for n, k in zip(names, labels, strict=True))
    RunFolder(tmp_path).write_predictions(rows)
    table = read_predictions(tmp_path / "predictions.csv")
    assert (table.paths, table.labels) == (names, labels)
    assert (table.confidence == 0.25).all()
    assert (table.unknown_score == -1.5).all()
    assert table.is_unknown.tolist() == [False, True, False]
    assert table.class_numbers(("cat", "dog")).tolist() == [0, 2, 1]
    for refused in (
        "path,label\na,cat\n",
        "path,label,confidence,unknown_score,rule\na,cat,x,0,o\n",
    ):
        (tmp_path / "predictions.csv").write_text(refused)
        with pytest.raises(UserError, match=r"predictions\.csv"):
            read_predictions(tmp_path / "predictions.csv")
    with pytest.raises(UserError, match="not a class"):
        table.class_numbers(("cat",))
