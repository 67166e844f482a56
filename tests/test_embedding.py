"""`unida embed`, and runs, predictions and evaluations that use embeddings."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import unida
from tests.images import read_csv, write_bad_files, write_folder
from tests.processes import started, wait_for
from tests.tasks import QUICK, Task
from tests.utils.test_distributed import free_port
from unida.cli.main import main
from unida.data.samples import Skipped
from unida.data.tables import EmbeddingTable, read_table
from unida.embedding import embed, write_table
from unida.errors import UserError
from unida.evaluation.evaluate import evaluate
from unida.methods.presets import configure
from unida.model import Model
from unida.models.backbones.base import Backbone
from unida.pipeline import run, run_adaptation

NETWORK: dict[str, Any] = {"backbone": "small_cnn", "image_size": 16, "device": "cpu"}
OPTIONS = ["--backbone", "small_cnn", "--image-size", "16", "--device", "cpu"]
Counted = list[int]


@pytest.fixture
def forwarded(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Numbers of images that a backbone was given, batch by batch."""
    counted: Counted = []
    forward = Backbone.forward

    def count(self: Backbone, images: torch.Tensor) -> torch.Tensor:
        counted.extend([len(images)] if images.ndim == 4 else [])
        return forward(self, images)

    monkeypatch.setattr(Backbone, "forward", count)
    return counted


@dataclasses.dataclass(frozen=True)
class Tables:
    """Embeddings of the digits, a file a domain."""

    source: Path
    target: Path

    def config(self, out: Path, **options: Any) -> Any:
        values = {k: v for k, v in QUICK.items() if k not in ("backbone", "image_size")} | options
        return configure(source=str(self.source), target=str(self.target), out=str(out), **values)


@pytest.fixture(scope="module")
def tables(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    folder = tmp_path_factory.mktemp("tables")
    embed(digits.source, folder / "source.parquet", **NETWORK)
    embed(digits.target, folder / "target.npy", **NETWORK)
    return Tables(folder / "source.parquet", folder / "target.npy")


@pytest.fixture(scope="module")
def run_on_tables(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its report; a test that changes it takes a copy."""
    out = tmp_path_factory.mktemp("run") / "run"
    run_adaptation(tables.config(out, report=True))
    return out


class TestEmbed:
    def test_rows_are_features_of_the_images_with_paths_and_labels(self, digits: Task) -> None:
        table = unida.embed(digits.source, **NETWORK)
        assert table.paths == tuple(map(str, sorted(digits.source.rglob("*.png"))))
        assert table.labels == tuple(Path(path).parent.name for path in table.paths)
        assert table.embeddings.shape == (len(table), table.width)
        some = unida.embed(table.paths[3], **NETWORK)
        np.testing.assert_allclose(some.embeddings[0], table.embeddings[3], rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("first", ["embed", "adapt"])
    def test_embed_and_a_frozen_run_compute_nothing_twice(
        self, digits: Task, tmp_path: Path, forwarded: Counted, first: str
    ) -> None:
        cache = str(tmp_path / "cache")
        n = len(list(digits.source.parent.rglob("*.png")))

        def by_embed() -> None:
            for place in (digits.source, digits.target):
                embed(place, cache_dir=cache, **NETWORK)

        def by_adapt() -> None:
            run_adaptation(digits.config(tmp_path / "run", frozen=True, cache_dir=cache, steps=2))

        for step in (by_embed, by_adapt) if first == "embed" else (by_adapt, by_embed):
            step()
            assert sum(forwarded) == n

    def test_the_command_writes_it_and_writes_over_nothing(
        self, digits: Task, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        to = tmp_path / "x.npy"
        command = ["embed", str(digits.target), "--to", str(to), *OPTIONS]
        assert main(command) == 0
        assert "80 embeddings of 128 numbers, with labels of 5 classes" in capfd.readouterr().err
        assert sorted(p.name for p in tmp_path.iterdir()) == ["x.csv", "x.npy"]
        before = to.read_bytes()
        assert main(command) == 2
        assert "is there already: name another file, or add --force" in capfd.readouterr().err
        to.write_text("")
        assert main([*command, "--force"]) == 0
        assert to.read_bytes() == before

    def test_a_parquet_file_has_the_three_columns(self, tables: Tables) -> None:
        schema = pq.read_schema(tables.source)
        assert schema.names == ["path", "label", "embedding"]
        assert str(schema.field("embedding").type).startswith("fixed_size_list<element: float")

    def test_bad_images_are_left_out_and_named(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "in", 3)
        bad = write_bad_files(tmp_path / "in")
        skipped: list[Skipped] = []
        table = embed(tmp_path / "in", tmp_path / "x.parquet", skipped=skipped, **NETWORK)
        assert [Path(path).name for path in table.paths] == ["000.png", "001.png", "002.png"]
        assert {one.path for one in skipped} == set(bad)

    def test_an_image_that_is_listed_twice_is_embedded_once(self, tmp_path: Path) -> None:
        folder = write_folder(tmp_path / "in", 3)
        text = "path\nin/002.png\nin/000.png\nin/../in/002.png\n"
        (tmp_path / "list.csv").write_text(text)
        table = embed(tmp_path / "list.csv", tmp_path / "x.parquet", **NETWORK)
        assert table.paths == (str(folder / "002.png"), str(folder / "000.png"))
        assert read_table(tmp_path / "x.parquet").paths == table.paths

    def test_names_that_are_not_unicode_go_into_npy_alone(self, tmp_path: Path) -> None:
        folder = write_folder(tmp_path / "in", 2)
        odd = os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png")
        (folder / "000.png").rename(odd)
        embed(folder, tmp_path / "x.npy", **NETWORK)
        assert odd in read_table(tmp_path / "x.npy").paths
        with pytest.raises(UserError, match=r"caf\\xe9.png' is not valid UTF-8"):
            embed(folder, tmp_path / "x.parquet", **NETWORK)
        assert not (tmp_path / "x.parquet").exists()

    @pytest.mark.parametrize(
        ("images", "to", "message"),
        [
            ("empty", "x.npy", "empty holds no image"),
            ("bad", "x.npy", "None of the 6 images can be read"),
            ("nowhere", "x.npy", "nowhere does not exist"),
            ("in", "x.csv", "to is .*; allowed: a file ending in .npy or .parquet"),
            ("in", "empty.npy/x.npy", "x.npy cannot be written"),
            ("in", "folder.npy", "is a folder"),
            ("list.csv", "list.npy", "would be written over"),
            ("old.npy", "x.npy", "holds embeddings already"),
        ],
    )
    def test_what_cannot_be_done_is_one_sentence(
        self, tmp_path: Path, images: str, to: str, message: str
    ) -> None:
        write_folder(tmp_path / "in", 2)
        write_bad_files(tmp_path / "bad")
        (tmp_path / "empty").mkdir()
        (tmp_path / "folder.npy").mkdir()
        (tmp_path / "list.csv").write_text("path\nin/000.png\n")
        (tmp_path / "old.npy").write_bytes(b"")
        with pytest.raises(UserError, match=message):
            embed(tmp_path / images, tmp_path / to, force=True, **NETWORK)
        assert (tmp_path / "list.csv").read_text() == "path\nin/000.png\n"
        assert not list(tmp_path.glob(".*"))

    def test_without_pyarrow_the_extra_is_named_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("unida.data.tables.importlib.util.find_spec", lambda name: None)
        with pytest.raises(UserError, match=r"pip install 'unida\[parquet\]', or use .npy"):
            embed(tmp_path, tmp_path / "x.parquet", **NETWORK)

    def test_of_two_that_write_one_file_the_second_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, to, refused = write_folder(tmp_path / "in", 2), tmp_path / "x.npy", list[str]()
        forward = Backbone.forward

        def second(self: Backbone, images: torch.Tensor) -> torch.Tensor:
            with pytest.raises(UserError) as caught:
                embed(folder, to, force=True, **NETWORK)
            refused.append(str(caught.value))
            return forward(self, images)

        monkeypatch.setattr(Backbone, "forward", second)
        embed(folder, to, cache_dir=tmp_path / "cache", **NETWORK)
        assert len(refused) == 1
        assert f"is being written by process {os.getpid()} on" in refused[0]
        assert len(read_table(to)) == 2

    @pytest.mark.slow
    def test_a_killed_one_goes_on(self, tmp_path: Path) -> None:
        folder, cache = write_folder(tmp_path / "in", 2500), tmp_path / "cache"
        code = (
            "import sys, time; from unida.models.backbones.base import Backbone as B\n"
            "f = B.forward\n"
            "B.forward = lambda self, x: (time.sleep(0.05), f(self, x))[1]\n"
            "from unida.cli.main import main; sys.exit(main(sys.argv[1:]))"
        )
        words = ["embed", str(folder), "--to", str(tmp_path / "x.npy"), *OPTIONS]
        words += ["--cache-dir", str(cache)]
        with started([sys.executable, "-c", code, *words]) as child:
            wait_for(lambda: any(cache.glob("*-0.rows")), child)
            os.killpg(child.process.pid, signal.SIGKILL)
            child.ended()
        assert not (tmp_path / "x.npy").exists()
        with started([sys.executable, "-c", code, "-v", *words]) as child:
            assert child.ended() == 0, child.output()
        embed(folder, tmp_path / "y.npy", cache_dir=tmp_path / "other", **NETWORK)
        assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "y.npy").read_bytes()
        assert not list(tmp_path.glob(".*"))
        assert len(list(cache.glob("*.f32"))) == 1

    @pytest.mark.slow
    def test_processes_of_a_launcher_share_the_images(self, tmp_path: Path) -> None:
        folder = write_folder(tmp_path / "in", 150)
        words = ["embed", str(folder), "--to", str(tmp_path / "x.parquet"), *OPTIONS]
        words += ["--cache-dir", str(tmp_path / "cache")]
        # What `accelerate launch` starts on several GPUs; on CPUs alone it starts one process.
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        launcher += ["--master-port", str(free_port())]
        with started([*launcher, "-m", "unida", *words]) as child:
            assert child.ended() == 0, child.output()
            assert child.output().count("150 embeddings of 128 numbers") == 1
        alone = embed(folder, cache_dir=tmp_path / "other", **NETWORK)
        shared = read_table(tmp_path / "x.parquet")
        assert shared.paths == alone.paths
        np.testing.assert_array_equal(shared.embeddings, alone.embeddings)
        assert len(list((tmp_path / "cache").glob("*.f32"))) == 1


class TestRun:
    def test_a_run_on_tables_is_a_run_with_their_paths(
        self, tables: Tables, run_on_tables: Path
    ) -> None:
        rows = read_csv(run_on_tables / "predictions.csv")
        assert tuple(row["path"] for row in rows) == read_table(tables.target).paths
        assert len({row["label"] for row in rows}) > 2
        assert (run_on_tables / "report.html").exists()
        assert "no thumbnails" not in (run_on_tables / "report.html").read_text()

    def test_it_is_what_the_frozen_run_on_the_images_is(
        self, digits: Task, tables: Tables, tmp_path: Path
    ) -> None:
        """With a method whose settings do not depend on whether the network is pretrained."""
        options = {"method": "source_only", "reject": "none"}
        run_adaptation(digits.config(tmp_path / "images", frozen=True, **options))
        run_adaptation(tables.config(tmp_path / "tables", **options))
        files = [tmp_path / name / "predictions.csv" for name in ("images", "tables")]
        assert read_csv(files[0]) == read_csv(files[1])

    def test_predict_and_evaluate_take_tables(
        self, tables: Tables, run_on_tables: Path, tmp_path: Path
    ) -> None:
        to = tmp_path / "labels.csv"
        assert main(["predict", str(run_on_tables), str(tables.target), "--to", str(to)]) == 0
        assert to.read_bytes() == (run_on_tables / "predictions.csv").read_bytes()
        model = unida.load(run_on_tables, "cpu")
        both = model.predict([tables.source, tables.target])
        assert len(both) == len(read_table(tables.source)) + len(read_table(tables.target))
        result = evaluate(model, tables.target)
        assert result.true_classes.tolist() == list(read_table(tables.target).labels or ())
        assert result.scores["none"].known > 0.5

    def test_a_model_of_images_takes_tables_of_its_backbone(
        self, digits: Task, tables: Tables, out: Path
    ) -> None:
        model = run_adaptation(digits.config(out, frozen=True, method="source_only", steps=5))
        from_images, from_table = model.predict(digits.target), model.predict(tables.target)
        assert [p.label for p in from_images] == [p.label for p in from_table]
        assert [p.path for p in from_images] == [p.path for p in from_table]

    def test_paths_that_are_no_files_are_kept_and_the_report_says_so(
        self, tables: Tables, tmp_path: Path
    ) -> None:
        places = {}
        for name in ("source", "target"):
            table = read_table(getattr(tables, name))
            paths = tuple(f"s3://{name}//{i}" for i in range(len(table)))
            places[name] = tmp_path / f"{name}.npy"
            write_table(dataclasses.replace(table, paths=paths), places[name])
        config = Tables(**places).config(tmp_path / "run", report=True)
        run_adaptation(config)
        rows = read_csv(tmp_path / "run" / "predictions.csv")
        assert [row["path"] for row in rows[:2]] == ["s3://target//0", "s3://target//1"]
        page = (tmp_path / "run" / "report.html").read_text()
        assert "none of the 144 paths shown is an image" in page
        assert main(["discover", str(tmp_path / "run")]) == 0

    def test_a_killed_run_resumes_and_not_with_other_embeddings(
        self, tables: Tables, tmp_path: Path
    ) -> None:
        own = Tables(tmp_path / "source.parquet", tmp_path / "target.npy")
        for name in ("source.parquet", "target.npy", "target.csv"):
            shutil.copy(tables.source.parent / name, tmp_path / name)

        class KilledError(Exception):
            pass

        def kill(step: int, method: object) -> None:
            if step == 10:
                raise KilledError

        with pytest.raises(KilledError):
            run(own.config(tmp_path / "cut"), on_checkpoint=kill)
        rows = np.load(own.target)
        np.save(own.target, rows + 1)
        resume = ["adapt", "--resume", "--out", str(tmp_path / "cut")]
        assert main(resume) == 2
        np.save(own.target, rows)
        assert main(resume) == 0
        run_adaptation(own.config(tmp_path / "whole"))
        files = [tmp_path / name / "predictions.csv" for name in ("cut", "whole")]
        assert files[0].read_bytes() == files[1].read_bytes()

    def test_a_reviewed_run_is_continued(
        self, tables: Tables, run_on_tables: Path, tmp_path: Path
    ) -> None:
        first = shutil.copytree(run_on_tables, tmp_path / "first")
        path = read_csv(first / "predictions.csv")[0]["path"]
        content = {"names": {}, "labels": {path: "new class"}, "revision": 1}
        (first / "review.json").write_text(json.dumps(content))
        second = tmp_path / "second"
        words = ["adapt", "--continue", str(first), "--out", str(second), "--steps", "5"]
        assert main(words) == 0
        assert "new class" in unida.load(second, "cpu").classes
        source = read_table(second / "source.npy")
        target = read_table(tables.target)
        row = source.embeddings[source.paths.index(path)]
        np.testing.assert_array_equal(row, target.embeddings[target.paths.index(path)])
        assert len(read_csv(second / "predictions.csv")) == len(target)

    def test_paths_in_both_tables_cannot_be_continued(
        self, run_on_tables: Path, tables: Tables, tmp_path: Path
    ) -> None:
        first = shutil.copytree(run_on_tables, tmp_path / "first")
        path = read_csv(first / "predictions.csv")[0]["path"]
        content = {"names": {}, "labels": {path: "new class"}, "revision": 1}
        (first / "review.json").write_text(json.dumps(content))
        words = ["--source", str(tables.target), "--out", str(tmp_path / "second")]
        assert main(["adapt", "--continue", str(first), *words]) == 2
        assert not (tmp_path / "second").exists()

    def test_from_python(self, tables: Tables, digits: Task, tmp_path: Path) -> None:
        options = {"steps": 5, "batch": 8, "device": "cpu"}
        model = unida.adapt(tables.source, tables.target, tmp_path / "run", **options)
        assert isinstance(model, Model)
        adapter = unida.UniversalAdapter(**options)
        labels = adapter.fit(tables.source, tables.target).predict(tables.target)
        assert len(labels) == len(read_table(tables.target))
        table = read_table(tables.target)
        np.testing.assert_array_equal(adapter.predict(table.embeddings), labels)
        assert adapter.model_.backbone.is_precomputed

    @pytest.mark.parametrize("option", ["--source x", "--frozen", "--backbone=resnet50"])
    def test_options_of_images_are_refused(
        self, tables: Tables, out: Path, option: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        places = ["--embeddings", str(tables.source), str(tables.target), "--out", str(out)]
        assert main(["adapt", *places, *option.split()]) == 2
        shown = capfd.readouterr().err
        assert f"{option.split()[0].partition('=')[0]} has no meaning with --embeddings" in shown
        assert shown.count("\n") == 1
        assert not out.exists()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda t, d: {"target": str(d.target)}, "not of one kind"),
            (lambda t, d: {"source": str(d.source)}, "not of one kind"),
            (lambda t, d: {"backbone": "small_cnn"}, "backbone is 'small_cnn'; allowed: none"),
            (lambda t, d: {"weights": "w"}, "weights is 'w'; allowed: none"),
            (lambda t, d: {"frozen_views": 2}, "frozen_views is 2; allowed: none"),
            (lambda t, d: {"batch": 100}, "--batch"),
            (lambda t, d: {"method": "spa"}, "without --frozen"),
            (lambda t, d: {"ensemble": 0}, "ensemble"),
        ],
    )
    def test_what_does_not_go_with_tables_is_refused(
        self,
        digits: Task,
        tables: Tables,
        out: Path,
        change: Callable[[Tables, Task], dict[str, Any]],
        message: str,
    ) -> None:
        with pytest.raises(UserError, match=message):
            run_adaptation(tables.config(out).replace(**change(tables, digits)))
        assert not out.exists()

    def test_tables_that_do_not_fit_are_refused(self, tables: Tables, tmp_path: Path) -> None:
        table = read_table(tables.target)
        narrow = dataclasses.replace(table, embeddings=table.embeddings[:, :7], labels=None)
        write_table(narrow, tmp_path / "x.npy")
        out = tmp_path / "run"
        with pytest.raises(UserError, match="source have 128 numbers, those of the target 7"):
            run_adaptation(Tables(tables.source, tmp_path / "x.npy").config(out))
        with pytest.raises(UserError, match="npy has no labels: a column label is needed"):
            run_adaptation(Tables(tmp_path / "x.npy", tables.target).config(out))
        assert not out.exists()

    def test_predictions_from_tables_that_do_not_fit(
        self, run_on_tables: Path, digits: Task, tables: Tables, tmp_path: Path
    ) -> None:
        model = unida.load(run_on_tables, "cpu")
        write_table(EmbeddingTable(("a",), np.ones((1, 7), np.float32)), tmp_path / "x.npy")
        with pytest.raises(UserError, match="npy have 7 numbers, and the model takes 128"):
            model.predict(tmp_path / "x.npy")
        with pytest.raises(UserError, match="holds embeddings: pass no images beside it"):
            model.predict([tables.target, digits.target])
        with pytest.raises(UserError, match="has no backbone: pass embeddings, 128"):
            model.predict(digits.target)


@pytest.fixture(scope="module")
def frozen(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images with a frozen backbone, which has its cache folder beside it."""
    root = tmp_path_factory.mktemp("frozen")
    run_adaptation(digits.config(root / "run", frozen=True, cache_dir=str(root / "cache")))
    return root / "run"


class TestCache:
    def test_predict_and_evaluate_use_embeddings_again(
        self, digits: Task, frozen: Path, forwarded: Counted
    ) -> None:
        model = unida.load(frozen, "cpu")
        cached, result = model.predict(digits.target), evaluate(model, digits.target)
        assert forwarded == []
        without = dataclasses.replace(model, cache_dir=None)
        computed, other = without.predict(digits.target), evaluate(without, digits.target)
        assert sum(forwarded) == 2 * len(cached)
        assert [(p.path, p.label) for p in cached] == [(p.path, p.label) for p in computed]
        for name in ("confidence", "unknown_score"):
            one, two = ([getattr(p, name) for p in some] for some in (cached, computed))
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(result.scored.features, other.scored.features, atol=1e-4)

    def test_only_new_images_are_embedded(
        self, digits: Task, frozen: Path, tmp_path: Path, forwarded: Counted
    ) -> None:
        shutil.copytree(digits.target, tmp_path / "in")
        write_folder(tmp_path / "in" / "0", 3)
        model = unida.load(frozen, "cpu")
        mixed = model.predict(tmp_path / "in")
        assert sum(forwarded) == 3
        computed = dataclasses.replace(model, cache_dir=None).predict(tmp_path / "in")
        scores = ([p.unknown_score for p in some] for some in (mixed, computed))
        np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)

    def test_a_few_images_are_not_searched_for(
        self, digits: Task, frozen: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("unida.model.open_cache", lambda *args: pytest.fail("searched"))
        assert len(unida.load(frozen, "cpu").predict(digits.target / "8")) == 16

    def test_a_trained_network_computes_all(
        self, digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_adaptation(digits.config(out, steps=2))
        monkeypatch.setattr("unida.model.open_cache", lambda *args: pytest.fail("searched"))
        assert len(unida.load(out, "cpu").predict(digits.target)) == 80

    def test_another_cache_folder_can_be_named(
        self, digits: Task, frozen: Path, tmp_path: Path, forwarded: Counted
    ) -> None:
        embed(digits.target, cache_dir=tmp_path / "cache", **NETWORK)
        model = run_adaptation(
            digits.config(tmp_path / "run", frozen=True, cache_dir=str(tmp_path / "other"))
        )
        assert model.cache_dir == tmp_path / "other"
        shutil.rmtree(tmp_path / "other")
        forwarded.clear()
        words = [str(tmp_path / "run"), str(digits.target), "--to", str(tmp_path / "x.csv")]
        assert main(["predict", *words, "--device", "cpu"]) == 0
        assert sum(forwarded) == 80
        cache = ["--cache-dir", str(tmp_path / "cache")]
        assert main(["predict", *words, "--device", "cpu", *cache]) == 0
        assert sum(forwarded) == 80

    def test_a_run_without_its_configuration_is_loaded(self, frozen: Path, tmp_path: Path) -> None:
        copy = shutil.copytree(frozen, tmp_path / "copy")
        (copy / "config.json").write_text("{}")
        assert unida.load(copy, "cpu").cache_dir is not None


def test_the_page_about_it_runs(
    digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[1] / "docs" / "embeddings.md").read_text()
    (tmp_path / "photos").symlink_to(digits.source)
    (tmp_path / "sketches").symlink_to(digits.target)
    monkeypatch.chdir(tmp_path)
    network = "--backbone small_cnn --image-size 32"
    page = page.replace("--backbone resnet50 --weights weights.safetensors", network)
    page = page.replace("--out runs/first", "--out runs/first --steps 20")
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            assert main(shlex.split(line)[1:]) == 0, line
    assert len(read_csv(Path("labels.csv"))) == 80
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert len(read_csv(Path("runs/python/predictions.csv"))) == 80
