"""Labels from other tools become corrections; whatever is doubtful is refused in one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.exchange.examples import PATHS, made_records, write_run
from unida.errors import UserError
from unida.exchange.corrections import ImageNames, import_corrections
from unida.exchange.fiftyone import write_fiftyone
from unida.review.corrections import CorrectionStore, read_review_target
from unida.utils.csv_files import to_csv

WRITTEN = Path(__file__).parents[1] / "fixtures" / "exchange"
CHANGED = {PATHS[1]: "zebra", PATHS[3]: "cat", PATHS[5]: "a/b"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def stored(run: Path) -> dict[str, str]:
    content = json.loads((run / "review.json").read_text())
    return dict(content["labels"])


def table(
    tmp_path: Path, *rows: tuple[str, str], header: tuple[str, str] = ("path", "label")
) -> Path:
    file = tmp_path / "labels.csv"
    file.write_text(to_csv(header, rows))
    return file


class TestWrittenByTheRealTools:
    @pytest.mark.parametrize(
        "name", ["label-studio.json", "label-studio-min.json", "label-studio.csv"]
    )
    def test_label_studio(self, run: Path, name: str) -> None:
        done = import_corrections(run, WRITTEN / name)
        confirmed = {PATHS[0]: "cat", PATHS[6]: "okapi"}
        assert stored(run) == CHANGED | confirmed == done.corrections.labels
        assert (done.new, done.unchanged) == (5, 1)

    def test_fiftyone_by_whole_paths(self, run: Path) -> None:
        import_corrections(run, WRITTEN / "fiftyone-abs.json")
        assert stored(run) == CHANGED

    def test_fiftyone_by_ends_of_paths(self, run: Path) -> None:
        done = import_corrections(run, WRITTEN / "fiftyone-rel.json", changed_only=True)
        assert stored(run) == CHANGED | {PATHS[6]: "okapi"}
        assert done.unchanged == 3

    def test_fiftyone_by_bare_names_that_are_not_unique(self, run: Path) -> None:
        with pytest.raises(UserError, match=r"'1', which may be .*one/1\.png or .*two/1\.png"):
            import_corrections(run, WRITTEN / "fiftyone-names.json")
        assert not (run / "review.json").exists()

    def test_what_unida_exports_for_fiftyone_comes_back(self, run: Path, tmp_path: Path) -> None:
        write_fiftyone(made_records(), tmp_path / "set")
        done = import_corrections(run, tmp_path / "set", changed_only=True)
        assert stored(run) == {PATHS[6]: "okapi"}
        assert done.unchanged == 6


class TestSaved:
    def test_it_is_what_review_saves(self, run: Path, tmp_path: Path) -> None:
        store = CorrectionStore(read_review_target(run))
        store.save({"names": {}, "labels": {PATHS[2]: "dog"}})
        import_corrections(run, table(tmp_path, (PATHS[0], "  new   name "), (PATHS[1], "Unknown")))
        after = store.read()
        assert after.labels == {PATHS[0]: "new name", PATHS[1]: "unknown", PATHS[2]: "dog"}
        assert after.revision == 2
        assert len(list((run / "review-history").glob("*.json"))) == 2

    def test_another_label_needs_force(self, run: Path, tmp_path: Path) -> None:
        import_corrections(run, table(tmp_path, (PATHS[0], "dog"), (PATHS[1], "cat")))
        other = table(tmp_path, (PATHS[0], "cow"), (PATHS[1], "cat"), (PATHS[2], "elk"))
        with pytest.raises(UserError, match=r"one/1\.png was corrected to 'dog'.* 'cow': --force"):
            import_corrections(run, other)
        assert stored(run) == {PATHS[0]: "dog", PATHS[1]: "cat"}
        done = import_corrections(run, other, force=True)
        assert (done.new, done.replaced, done.same) == (1, 1, 1)
        assert stored(run) == {PATHS[0]: "cow", PATHS[1]: "cat", PATHS[2]: "elk"}

    def test_two_labels_in_one_file(self, run: Path, tmp_path: Path) -> None:
        twice = table(tmp_path, (PATHS[0], "dog"), ("one/1.png", "cow"))
        with pytest.raises(UserError, match="both 'dog' and 'cow'"):
            import_corrections(run, twice, force=True)
        import_corrections(run, table(tmp_path, (PATHS[0], "dog"), ("one/1.png", "dog")))
        assert stored(run) == {PATHS[0]: "dog"}


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            PATHS[2],
            "file:///images/two/zw%C3%B6lf%20%26%2013.png",
            "/data/local-files/?d=two/zw%C3%B6lf%20%26%2013.png",
            "http://localhost:8080/data/local-files/?d=images/two/zw%C3%B6lf%20%26%2013.png",
            "two/zwölf & 13.png",
            "zwölf & 13",
        ],
    )
    def test_ways_to_name_an_image(self, name: str) -> None:
        assert ImageNames(PATHS).find(name, Path("f")) == PATHS[2]

    @pytest.mark.parametrize(
        "name",
        ["", "/", "..", "/etc/passwd", "file:///etc/passwd", "/other/one/1.png", "ne/1.png",
         "2.png", "http://host/images/one/1.png", "/data/local-files/?d=../one/1.png",
         "http://[", "\0"],
    )  # fmt: skip
    def test_an_unknown_image_is_named(self, name: str) -> None:
        with pytest.raises(UserError, match="no target image"):
            ImageNames(PATHS).find(name, Path("f"))

    def test_relative_paths_of_a_run_are_found_by_absolute_ones(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        names = ImageNames(["a/1.png", "b/1.png"])
        assert names.find(str(tmp_path / "a" / "1.png"), Path("f")) == "a/1.png"
        assert names.find("b/1.png", Path("f")) == "b/1.png"

    def test_no_file_is_opened(self, run: Path, tmp_path: Path) -> None:
        secret = tmp_path / "secret.png"
        secret.write_text("secret")
        with pytest.raises(UserError, match="no target image") as caught:
            import_corrections(run, table(tmp_path, (str(secret), "cat")))
        assert str(secret) in str(caught.value)


BAD: dict[str, tuple[str, Any]] = {
    "is no JSON": ("x.json", "{"),
    "columns": ("x.csv", "file,class\na,b\n"),
    r"columns \[\]": ("x.csv", ""),
    "x.csv has no label": ("x.csv", "path,label\n"),
    "no label that is to be imported": ("x.csv", "path,label\n/images/one/1.png,\n"),
    "has no 'labels'": ("x.json", {"images": []}),
    "an object, and perhaps": ("x.json", {"labels": []}),
    "number of a class": ("x.json", {"classes": ["a"], "labels": {"c": 7}}),
    "is no object": ("x.json", [3]),
    "no text in 'path'": ("x.json", [{"data": {}, "annotations": []}]),
    "only numbers": ("x.json", [{"data": {"path": PATHS[0]}, "annotations": [3]}]),
    "several labels": ("x.json", [{"path": PATHS[0], "label": {"choices": ["a", "b"]}}]),
    "gives .* several labels": (
        "x.csv",
        to_csv(("path", "label"), [(PATHS[0], '{"choices": ["a", "b"]}')]),
    ),
    "characters long": ("x.csv", f"path,label\n{PATHS[0]},{'x' * 300}\n"),
}


@pytest.mark.parametrize("words", BAD)
def test_a_bad_file_is_one_sentence_and_changes_nothing(
    words: str, run: Path, tmp_path: Path
) -> None:
    name, content = BAD[words]
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError, match=words):
        import_corrections(run, file)
    assert not (run / "review.json").exists()


def test_places_that_are_no_file(run: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "lost.csv", tmp_path):
        with pytest.raises(UserError, match="cannot be read: No such file"):
            import_corrections(run, place)
    with pytest.raises(UserError, match="holds no run"):
        import_corrections(tmp_path, WRITTEN / "label-studio.csv")
