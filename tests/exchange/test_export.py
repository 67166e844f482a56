"""Predictions in the formats of other tools, read as those tools read them."""

import dataclasses
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.exchange.examples import CLASSES, LABELS, PATHS, made_records
from tests.images import read_csv
from tests.report.made_up import make_run
from unida.errors import UserError
from unida.evaluation.probabilities import read_probabilities, write_probabilities
from unida.exchange.export import FORMATS, export_predictions, guess_format
from unida.exchange.fiftyone import labels_of_fiftyone, write_fiftyone
from unida.exchange.label_studio import labelling_config, labels_of_tasks, write_label_studio
from unida.exchange.records import RunRecords, read_records
from unida.exchange.tables import write_cleanlab, write_coco, write_csv, write_parquet
from unida.exchange.trees import MANIFEST, write_tree
from unida.training.predictions import read_predictions
from unida.training.run_folder import RunFolder

FINAL = [*LABELS[:6], "okapi"]


@pytest.fixture
def records() -> RunRecords:
    return made_records()


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


class TestTables:
    def test_csv_has_a_row_an_image(self, records: RunRecords, tmp_path: Path) -> None:
        write_csv(records, tmp_path / "p.csv")
        rows = read_csv(tmp_path / "p.csv")
        assert [row["path"] for row in rows] == PATHS
        assert [row["label"] for row in rows] == LABELS
        assert [row["category"] for row in rows] == ["", "", "", "1", "2", "1", ""]
        assert (rows[4]["category_name"], rows[6]["correction"]) == ("zebra", "okapi")

    def test_parquet_is_a_frame_with_arrays_in_cells(
        self, records: RunRecords, tmp_path: Path
    ) -> None:
        pandas = pytest.importorskip("pandas")
        write_parquet(records, tmp_path / "p.parquet")
        frame = pandas.read_parquet(tmp_path / "p.parquet")
        assert frame["path"].tolist() == PATHS
        assert frame["label"].tolist() == LABELS
        assert frame["confidence"].tolist() == records.confidence.tolist()
        assert frame["unknown_score"].tolist() == records.unknown_score.tolist()
        np.testing.assert_array_equal(np.stack(frame["probabilities"]), records.probabilities)
        np.testing.assert_array_equal(np.stack(frame["embedding"]), records.embedding)
        assert frame["category"].isna().tolist() == [True, True, True, False, False, False, True]
        assert frame.attrs["classes"] == CLASSES

    def test_parquet_without_arrays(self, records: RunRecords, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        few = dataclasses.replace(records, probabilities=None, embedding=None)
        write_parquet(few, tmp_path / "p.parquet")
        columns = pandas.read_parquet(tmp_path / "p.parquet").columns
        assert {"probabilities", "embedding"} & set(columns) == set()

    def test_a_name_that_is_not_utf8_is_refused(self, records: RunRecords, tmp_path: Path) -> None:
        odd = dataclasses.replace(records, paths=["/images/\udcff.png", *PATHS[1:]])
        with pytest.raises(UserError, match="valid UTF-8"):
            write_parquet(odd, tmp_path / "p.parquet")
        assert not list(tmp_path.iterdir())

    def test_cleanlab_gets_probabilities_and_corrected_labels(
        self, records: RunRecords, tmp_path: Path
    ) -> None:
        corrected = dataclasses.replace(records, corrections={PATHS[0]: "a/b", PATHS[6]: "okapi"})
        write_cleanlab(corrected, tmp_path / "c.npz")
        with np.load(tmp_path / "c.npz") as arrays:
            assert arrays["labels"].tolist() == [2, 1, 2, -1, -1, -1, -1]
            assert arrays["corrected"].tolist() == [True, *[False] * 5, True]
            np.testing.assert_array_equal(arrays["pred_probs"], records.probabilities)
            np.testing.assert_array_equal(arrays["features"], records.embedding)
            assert arrays["classes"].tolist() == CLASSES
            assert arrays["paths"].tolist() == PATHS

    def test_cleanlab_needs_probabilities(self, records: RunRecords, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"probabilities\.npz"):
            write_cleanlab(dataclasses.replace(records, probabilities=None), tmp_path / "c.npz")

    def test_coco_numbers_fit_each_other(self, records: RunRecords, tmp_path: Path) -> None:
        write_coco(records, tmp_path / "c.json")
        content = read_json(tmp_path / "c.json")
        image = {one["id"]: one["file_name"] for one in content["images"]}
        name = {one["id"]: one["name"] for one in content["categories"]}
        assert len(name) == len(content["categories"]) == len(set(name.values()))
        found = {image[a["image_id"]]: name[a["category_id"]] for a in content["annotations"]}
        categories = {PATHS[3]: "unknown/1", PATHS[4]: "unknown/2", PATHS[5]: "unknown/1"}
        assert found == dict(zip(PATHS, FINAL, strict=True)) | categories
        assert content["annotations"][5]["unknown_score"] is None  # infinite, which JSON has not


class TestLabelStudio:
    def test_tasks_are_sorted_by_doubt_and_corrected_ones_come_last(
        self, records: RunRecords, tmp_path: Path
    ) -> None:
        assert write_label_studio(records, tmp_path / "t.json") == Path("/images")
        tasks = read_json(tmp_path / "t.json")
        scores = [task["predictions"][0]["score"] for task in tasks]
        assert scores[:-1] == sorted(scores[:-1])
        assert tasks[0]["data"]["path"] == PATHS[1]  # the most doubtful one
        assert [task["data"]["path"] for task in tasks if "annotations" in task] == [PATHS[6]]
        assert tasks[-1]["data"]["path"] == PATHS[6]
        assert labels_of_tasks(tasks) == [(PATHS[6], "okapi")]

    def test_addresses_are_below_the_document_root(
        self, records: RunRecords, tmp_path: Path
    ) -> None:
        write_label_studio(records, tmp_path / "t.json", [PATHS[2]], root="/images/two")
        (task,) = read_json(tmp_path / "t.json")
        assert task["data"]["image"] == "/data/local-files/?d=zw%C3%B6lf%20%26%2013.png"
        write_label_studio(records, tmp_path / "t.json", [PATHS[5]], "https://host/", "/")
        (task,) = read_json(tmp_path / "t.json")
        assert task["data"]["image"] == "https://host/images/three/a%20b.png"
        with pytest.raises(UserError, match="--image-root"):
            write_label_studio(records, tmp_path / "t.json", root="/images/two")

    def test_the_configuration_offers_every_label(self, records: RunRecords) -> None:
        view = ET.fromstring(labelling_config(records.all_labels))
        offered = [one.get("value") for one in view.iter("Choice")]
        assert offered == [*CLASSES, "okapi", "zebra", "unknown"]
        with pytest.raises(UserError, match="XML"):
            labelling_config(["bell\x07"])


def test_fiftyone_has_a_label_and_a_file_for_each_image(
    records: RunRecords, tmp_path: Path
) -> None:
    write_fiftyone(records, tmp_path / "set")
    content = read_json(tmp_path / "set" / "labels.json")
    assert labels_of_fiftyone(content) == list(zip(PATHS, FINAL, strict=True))
    assert (tmp_path / "set" / "data").is_dir()  # or FiftyOne reads nothing
    attributes = content["labels"][PATHS[4]]["attributes"]
    assert (attributes["category"], attributes["category_name"]) == ("2", "zebra")
    assert content["labels"][PATHS[6]]["attributes"]["predicted"] == "cat"


class TestFolders:
    @pytest.fixture
    def on_disk(self, records: RunRecords, tmp_path: Path) -> RunRecords:
        """The same images as files, each with its path as content."""
        paths = [str(tmp_path / path[1:]) for path in PATHS]
        for path in paths:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(path)
        moved = dict(zip(PATHS, paths, strict=True))
        return dataclasses.replace(
            records,
            paths=paths,
            labels=["unknown ", "cat", "Cat", *LABELS[3:]],
            categories={moved[path]: k for path, k in records.categories.items()},
            corrections={moved[PATHS[6]]: "../okapi"},
        )

    def test_a_folder_a_label_and_categories_below_unknown(
        self, on_disk: RunRecords, tmp_path: Path
    ) -> None:
        out = tmp_path / "tree"
        write_tree(on_disk, out)
        rows = {row["path"]: row["file"] for row in read_csv(out / MANIFEST)}
        assert list(rows) == on_disk.paths
        for path, file in rows.items():
            assert (out / file).read_text() == path
            assert (out / file).samefile(path)
        folders = [os.path.dirname(file) for file in rows.values()]
        assert sorted(folders[:3]) == ["Cat", "cat-2", "unknown_"]
        assert folders[3:] == ["unknown/1", "unknown/2-zebra", "unknown/1", "_._okapi"]
        assert not list(tmp_path.glob(".*.part"))

    def test_copies_are_files_of_their_own(self, on_disk: RunRecords, tmp_path: Path) -> None:
        write_tree(on_disk, tmp_path / "tree", copy=True)
        for row in read_csv(tmp_path / "tree" / MANIFEST):
            copied = tmp_path / "tree" / row["file"]
            assert copied.read_text() == row["path"]
            assert not copied.samefile(row["path"])

    def test_only_an_earlier_export_is_replaced(self, on_disk: RunRecords, tmp_path: Path) -> None:
        out = tmp_path / "tree"
        out.mkdir()
        write_tree(on_disk, out)  # an empty folder is free
        with pytest.raises(UserError, match="--force"):
            write_tree(on_disk, out)
        (out / "mine").touch()
        write_tree(on_disk, out, force=True)
        assert not (out / "mine").exists()
        own = tmp_path / "own"
        own.mkdir()
        (own / "thesis.tex").touch()
        with pytest.raises(UserError, match="not exported"):
            write_tree(on_disk, own, force=True)
        assert (own / "thesis.tex").exists()

    def test_a_lost_image_is_named_and_nothing_written(
        self, on_disk: RunRecords, tmp_path: Path
    ) -> None:
        Path(on_disk.paths[3]).unlink()
        with pytest.raises(UserError, match=r"-x\.jpg is not there"):
            write_tree(on_disk, tmp_path / "tree")
        assert not (tmp_path / "tree").exists()


class TestRun:
    """A made-up run with hostile names, from its folder."""

    @pytest.fixture(scope="class")
    @staticmethod
    def made(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
        run = make_run(tmp_path_factory.mktemp("export"), pictures=True)
        n = len(read_predictions(run.predictions))
        write_probabilities(run.probabilities, np.full((n, 6), 1 / 6))
        return run

    @pytest.mark.parametrize("format", FORMATS)
    def test_nothing_is_overwritten_without_force(
        self, made: RunFolder, format: Any, tmp_path: Path
    ) -> None:
        to = tmp_path / "out.json"
        written = export_predictions(made.path, to, format)
        assert written.images == len(read_predictions(made.predictions))
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        with pytest.raises(UserError, match="there already"):
            export_predictions(made.path, to, format)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
        export_predictions(made.path, to, format, force=True)
        assert {path.name for path in tmp_path.iterdir()} <= {"out.json", "out.xml"}

    def test_records_are_those_of_the_run(self, made: RunFolder) -> None:
        records, table = read_records(made.path), read_predictions(made.predictions)
        assert records.paths == table.paths
        assert {y for y, k in zip(records.labels, records.final_categories, strict=True) if k} == {
            "unknown"
        }
        assert records.embedding is not None
        assert len(records.embedding) == len(table)

    def test_a_budget_is_of_label_studio(self, made: RunFolder, tmp_path: Path) -> None:
        written = export_predictions(made.path, tmp_path / "t.json", "label-studio", budget=5)
        assert written.images == 5 == len(read_json(tmp_path / "t.json"))
        with pytest.raises(UserError, match="label-studio only"):
            export_predictions(made.path, tmp_path / "p.csv", budget=5)
        with pytest.raises(UserError, match="1 or more"):
            export_predictions(made.path, tmp_path / "n.json", "label-studio", budget=0)

    def test_bad_places_and_formats(self, made: RunFolder, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="--format"):
            guess_format(Path("predictions.json"))
        with pytest.raises(UserError, match="did you mean 'parquet'"):
            export_predictions(made.path, tmp_path / "p", "parket")  # type: ignore[arg-type]
        with pytest.raises(UserError, match="No such file"):
            export_predictions(made.path, tmp_path / "lost" / "p.csv")
        with pytest.raises(UserError, match="holds no run"):
            export_predictions(tmp_path, tmp_path / "p.csv")


class TestProbabilities:
    def test_a_run_keeps_those_of_its_predictions(self, finished_run: Path) -> None:
        run = RunFolder(finished_run)
        table = read_predictions(run.predictions)
        probs = read_probabilities(run.probabilities, (len(table), 4))
        np.testing.assert_allclose(probs.max(1), table.confidence, atol=1e-6)
        np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)

    def test_what_is_not_of_the_run_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "probabilities.npz"
        write_probabilities(file, np.full((5, 2), 0.5))
        assert read_probabilities(file, (5, 2)).shape == (5, 2)
        with pytest.raises(UserError, match="not of this run"):
            read_probabilities(file, (4, 2))
        file.write_bytes(file.read_bytes()[:40])
        with pytest.raises(UserError, match="does not hold"):
            read_probabilities(file, (5, 2))
        np.savez(file, format=2, probabilities=np.zeros((5, 2), np.float32))
        with pytest.raises(UserError, match="later version"):
            read_probabilities(file, (5, 2))
