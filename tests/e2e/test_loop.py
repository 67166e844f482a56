"""The loop: adapt, find what was unknown, name it, and adapt again with the name known."""

import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.torch import load_file

import unida
from tests.images import read_csv
from tests.tasks import Task
from unida.cli.main import main
from unida.errors import UserError
from unida.models.backbones import build_backbone
from unida.pipeline import run_adaptation
from unida.report.build import write_report
from unida.review.corrections import CorrectionStore, read_corrections, read_review_target
from unida.review.server import ReviewServer, open_server
from unida.training.run_folder import RunFolder, write_text
from unida.utils.csv_files import to_csv

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Capture = pytest.CaptureFixture[str]


def write_categories(run: Path, members: dict[str, tuple[str, float]]) -> None:
    rows = [(path, category, str(sure)) for path, (category, sure) in members.items()]
    write_text(run / "categories.csv", to_csv(("path", "category", "confidence"), rows))


def images(digits: Task, digit: int) -> list[str]:
    return sorted(map(str, (digits.target / str(digit)).glob("*.png")))


@pytest.fixture(scope="module")
def finished(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("loop") / "run"
    run_adaptation(digits.config(out, method="source_only", steps=5))
    return out


@pytest.fixture
def run(digits: Task, finished: Path, out: Path) -> Path:
    """A finished run whose unknown images were sorted: the eights are category 1, the nines 2.

    All but one of the eights are sure.
    """
    shutil.copytree(finished, out)
    (unsure, *eights), nines = images(digits, 8), images(digits, 9)
    sorted_out = dict.fromkeys(eights, ("1", 0.9)) | {unsure: ("1", 0.2)}
    write_categories(out, sorted_out | dict.fromkeys(nines, ("2", 0.8)))
    groups = [{"id": 1, "size": 16, "name": None, "representatives": eights[:2]},
              {"id": 2, "size": 16, "name": None, "representatives": nines[:2]}]  # fmt: skip
    count = {"estimate": 2, "low": 2, "high": 2}
    content = {"count": count, "method": "by hand", "categories": groups}
    (out / "categories.json").write_text(json.dumps(content))
    (out / "report.html").write_text("<!doctype html>")
    return out


@contextmanager
def served(run: Path, page: Path) -> Iterator[ReviewServer]:
    with open_server(CorrectionStore(read_review_target(run)), page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def save(run: Path, content: Any) -> None:
    """Through a server, as the page does."""
    with (
        served(run, run / "report.html") as server,
        closing(
            http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        ) as connection,
    ):
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/save?token={server.token}", json.dumps(content), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()


def test_a_named_category_is_a_known_class_of_the_next_run(
    digits: Task, run: Path, tmp_path: Path, capfd: Capture
) -> None:
    new, nine, two = tmp_path / "new", images(digits, 9)[0], images(digits, 2)[0]
    save(run, {"names": {"1": "eight"}, "labels": {nine: "nine", two: "2"}})
    command = ["adapt", "--continue", str(run), "--out", str(new), "--trust", "2"]
    assert main([*command, "--steps", "80", "--batch", "16"]) == 0
    printed = capfd.readouterr().err
    assert "64 source images; added: 15 as 'eight' (new), 1 as '2', 1 as " in printed
    assert "byte by byte" not in printed  # that some files are in both domains is meant here

    source = read_csv(new / "source.csv")
    assert len(source) == 64 + 15 + 2
    assert images(digits, 8)[0] not in [row["path"] for row in source]  # it was not sure
    config = json.loads((new / "config.json").read_text())["run"]
    assert config["data"]["source"] == str(new / "source.csv")
    assert (config["data"]["image_size"], config["optim"]["steps"]) == (
        16,
        80,
    )  # as before, and as given

    model = unida.load(new, "cpu")
    assert model.classes == ("0", "1", "2", "3", "eight", "nine")
    rows = read_csv(new / "predictions.csv")
    assert [row["path"] for row in rows] == sorted(map(str, digits.target.rglob("*.png")))
    eights = model.score([Path(path) for path in images(digits, 8)])[1].probs.argmax(1)
    assert (eights == model.classes.index("eight")).mean() > 0.8
    assert "eight" in {row["label"] for row in rows}
    for number, name in enumerate(model.classes[:4]):  # no class of the source is lost
        own = sorted((digits.source / name).glob("*.png"))
        best = model.score(own)[1].probs.argmax(1)
        assert (best == number).mean() > 0.5, name


def test_a_continued_run_can_be_continued_and_resumed(
    digits: Task, run: Path, tmp_path: Path, capfd: Capture
) -> None:
    """What was learned in one round stays known in the next, unless it is corrected."""
    second, third = tmp_path / "second", tmp_path / "third"
    save(run, {"names": {"1": "eight"}})
    assert main(["adapt", "--continue", str(run), "--out", str(second), "--trust", "2"]) == 0
    assert main(["adapt", "--out", str(second), "--resume"]) == 0
    assert "finished already" in capfd.readouterr().err

    wrong = images(digits, 8)[3]
    write_categories(second, dict.fromkeys(images(digits, 9), ("1", 1.0)))
    save(second, {"names": {"1": "nine"}, "labels": {wrong: "unknown"}})
    assert main(["adapt", "--continue", str(second), "--out", str(third), "--trust", "2"]) == 0
    assert unida.load(third, "cpu").classes == ("0", "1", "2", "3", "eight", "nine")
    known = {row["path"]: row["label"] for row in read_csv(third / "source.csv")}
    assert wrong not in known
    assert sum(label == "eight" for label in known.values()) == 14


def test_it_starts_from_the_trained_backbone(run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    save(run, {"names": {"1": "eight"}})
    lazy = ["--steps", "1", "--backbone-lr", "0"]
    assert main(["adapt", "--continue", str(run), "--out", str(new), *lazy]) == 0
    before, after = (load_file(folder / "model.safetensors") for folder in (run, new))
    names = [name for name in before if name.startswith("backbone.") and name.endswith("weight")]
    assert names
    assert all(before[name].equal(after[name]) for name in names)
    again = build_backbone("small_cnn", str(new / "model.safetensors"))
    assert not again.pretrained  # it began from scratch, and what it saw since are few images


def test_the_backbone_of_a_model_is_its_own(run: Path) -> None:
    backbone = build_backbone("small_cnn", str(run / "model.safetensors"))
    tensors = load_file(run / "model.safetensors")
    assert not backbone.pretrained  # it began from scratch
    assert all(v.equal(tensors[f"backbone.{k}"]) for k, v in backbone.state_dict().items())
    with pytest.raises(UserError, match="backbone is 'resnet18'"):
        build_backbone("resnet18", str(run / "model.safetensors"))


def test_what_is_typed_on_the_page_is_saved_from_two_tabs(browser: "Browser", run: Path) -> None:
    from playwright.sync_api import Page, expect

    expect.set_options(timeout=60_000)
    (run / "report.html").unlink()
    page = write_report(RunFolder(run))
    with served(run, page) as server, browser.new_context() as context:
        context.set_default_timeout(120_000)
        complaints: list[str] = []
        tabs: list[Page] = [context.new_page(), context.new_page()]
        for tab in tabs:
            tab.on("console", lambda message: complaints.append(message.text))
            tab.goto(server.address)
            expect(tab.locator("#saved")).to_have_text("changes are saved to the run")
        for tab, field, name in ((tabs[0], 0, "eight"), (tabs[1], 1, "nine")):
            tab.locator(".group input").nth(field).fill(name)
            expect(tab.locator("#saved")).to_have_text("saved")
    assert complaints == []
    assert read_corrections(read_review_target(run))[0].names == {"1": "eight", "2": "nine"}


def test_a_name_that_another_tab_gave_is_told(browser: "Browser", run: Path) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    (run / "report.html").unlink()
    page = write_report(RunFolder(run))
    with served(run, page) as server, browser.new_context() as context:
        context.set_default_timeout(120_000)
        first, second = context.new_page(), context.new_page()
        for tab in (first, second):
            tab.goto(server.address)
            expect(tab.locator("#saved")).to_have_text("changes are saved to the run")
        first.locator(".group input").nth(0).fill("eight")
        expect(first.locator("#saved")).to_have_text("saved")
        second.locator(".group input").nth(0).fill("ate")
        expect(second.locator("#saved")).to_contain_text("in another window: category 1 is “eight”")
        expect(second.locator(".group input").nth(0)).to_have_value("eight")
    assert read_corrections(read_review_target(run))[0].names == {"1": "eight"}


class TestRefusals:
    def complaint(self, command: list[str], capfd: Capture) -> str:
        capfd.readouterr()
        assert main(["adapt", *command]) == 2
        return capfd.readouterr().err

    def test_what_stops_a_continuation_is_one_sentence(
        self, digits: Task, run: Path, tmp_path: Path, capfd: Capture
    ) -> None:
        new = tmp_path / "new"
        go = ["--continue", str(run), "--out", str(new)]
        assert f"`unida review {run}`" in self.complaint(go, capfd)
        save(run, {"labels": {images(digits, 8)[0]: "unknown"}})
        assert "change nothing" in self.complaint(go, capfd)
        save(run, {"names": {"1": "eight"}})
        assert "--out and --resume alone" in self.complaint([*go, "--resume"], capfd)
        assert "--out" in self.complaint(go[:2], capfd)
        assert "holds a finished run" in self.complaint([*go[:2], "--out", str(run)], capfd)
        assert "min_confidence is 2.0" in self.complaint([*go, "--min-confidence", "2"], capfd)
        assert "change nothing" in self.complaint([*go, "--min-confidence", "0.95"], capfd)
        nowhere = ["--continue", str(tmp_path / "nowhere"), "--out", str(new)]
        assert "is not the config.json of a run" in self.complaint(nowhere, capfd)
        assert not new.exists()
        assert "weights" in self.complaint([*go, "--weights", "gone.safetensors"], capfd)
        assert not new.exists()  # free for the next attempt
        write_categories(run, {images(digits, 8)[0]: ("1", 1.0)})
        assert "found anew" in self.complaint(go, capfd)

    def test_a_file_of_the_users_is_not_written_over(
        self, run: Path, tmp_path: Path, capfd: Capture
    ) -> None:
        save(run, {"names": {"1": "eight"}})
        (tmp_path / "new").mkdir()
        own = tmp_path / "new" / "source.csv"
        own.write_text("path,label\n")
        go = ["--continue", str(run), "--out", str(own.parent)]
        assert "is there already" in self.complaint(go, capfd)
        assert own.read_text() == "path,label\n"
