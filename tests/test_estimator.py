"""The habits of scikit-learn: its own checks, and every form that images may come in."""

import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import unida
from tests.tasks import QUICK, Task
from unida import UniversalAdapter
from unida.data.in_memory import kind_of, load_in_memory, wrap_images
from unida.data.pixels import StreamedStore
from unida.data.samples import read_labelled, read_unlabelled
from unida.errors import UserError
from unida.methods import METHODS
from unida.pipeline import run_adaptation

# Its heads learn from scratch on a few numbers, and it never predicts unknown: scikit-learn's
# checks expect no such label.
QUICK_HEADS = UniversalAdapter(
    settings={"projection_lr": 1, "width": 16},
    lr=0.1,
    steps=15,
    reject="threshold:1000",
    device="cpu",
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Of these small arrays, two threads would spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


ROUNDED = {
    "check_methods_subset_invariance": "its bound is one of float64; heads compute in float32",
}


@parametrize_with_checks([QUICK_HEADS], expected_failed_checks=lambda estimator: ROUNDED)
def test_scikit_learn_finds_its_habits(estimator: UniversalAdapter, check: Any) -> None:
    check(estimator)


def quick(**more: Any) -> UniversalAdapter:
    """The quick run of `tests.tasks` as an estimator."""
    parameters = UniversalAdapter().get_params()
    own = {name: value for name, value in QUICK.items() if name in parameters}
    options = {name: value for name, value in QUICK.items() if name not in parameters}
    return UniversalAdapter(**(own | {"steps": 6, "options": options} | more))


def blobs(n: int = 60, shift: float = 0.0) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Embeddings of three classes, far apart."""
    draw, labels = np.random.default_rng(0), np.arange(n) % 3
    return 4 * np.eye(3, 8)[labels] + draw.normal(scale=0.3, size=(n, 8)) + shift, labels


@pytest.fixture(scope="module")
def forms(digits: Task) -> dict[str, tuple[Any, Any, Any]]:
    """The same digits in every form: source, its labels, target."""
    samples, target = read_labelled(digits.source), read_unlabelled(digits.target).paths
    assert samples.labels is not None
    y = np.array(samples.classes)[samples.labels]
    pixels = [np.stack([np.asarray(Image.open(p)) for p in ps]) for ps in (samples.paths, target)]
    colour = [np.repeat(array[..., None], 3, -1) for array in pixels]
    opened = [[Image.open(p) for p in ps] for ps in (samples.paths, target)]
    return {
        "a folder": (digits.source, None, digits.target),
        "paths": ([str(p) for p in samples.paths], y, list(target)),
        "grey": (pixels[0], y, pixels[1]),
        "channels last": (colour[0], y, colour[1]),
        "channels first": (colour[0].transpose(0, 3, 1, 2), y, torch.from_numpy(colour[1])),
        "PIL images": (opened[0], y, opened[1]),
        "a data set": (data_set(opened[0], y), None, data_set(opened[1])),
        "mixed": (digits.source, None, pixels[1]),
    }


def data_set(images: list[Image.Image], labels: Any = None) -> datasets.Dataset:
    columns: dict[str, Any] = {"picture": images}
    features: dict[str, Any] = {"picture": datasets.Image()}
    if labels is not None:
        names = sorted(set(labels))
        columns["digit"] = [names.index(label) for label in labels]
        features["digit"] = datasets.ClassLabel(names=names)
    return datasets.Dataset.from_dict(columns, datasets.Features(features))


@pytest.fixture(scope="module")
def adapted(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Labels that the command line gives the target."""
    out = tmp_path_factory.mktemp("adapted") / "run"
    model = run_adaptation(digits.config(out, steps=6))
    return [p.label for p in model.predict(digits.target)]


FORMS = ("a folder", "paths", "grey", "channels last", "channels first", "PIL images",
         "a data set", "mixed")  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_predictions_are_those_of_adapt_for_every_form_of_images(
    forms: dict[str, tuple[Any, Any, Any]], adapted: list[str], form: str
) -> None:
    source, y, target = forms[form]
    model = quick().fit(source, target) if y is None else quick().fit(source, y, target=target)
    assert model.predict(target).tolist() == adapted
    assert model.classes_.tolist() == ["0", "1", "2", "3"]
    assert model.unknown_label_ == "unknown"
    assert not hasattr(model, "n_features_in_")
    probs = model.predict_proba(target)
    assert probs.shape == (len(adapted), 4)
    unknown = model.unknown_score(target) >= model.model_.rule().threshold
    named = np.where(unknown, "unknown", model.classes_[probs.argmax(1)])
    assert named.tolist() == adapted


def test_images_in_memory_go_with_a_frozen_backbone_too(
    forms: dict[str, tuple[Any, Any, Any]], digits: Task
) -> None:
    source, y, target = forms["grey"]
    in_memory = quick(frozen=True).fit(source, y, target=target).unknown_score(target)
    of_files = quick(frozen=True).fit(digits.source, digits.target).unknown_score(digits.target)
    assert np.array_equal(in_memory, of_files)


class TestFolders:
    def test_nothing_is_left_behind_unless_a_folder_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        x, y = blobs()
        clone(QUICK_HEADS).fit(x, y)
        assert os.listdir(tmp_path) == []

    def test_a_run_in_memory_is_a_run(self, out: Path) -> None:
        x, y = blobs()
        model = clone(QUICK_HEADS).set_params(out=out).fit(x, y)
        loaded = unida.load(out, "cpu")
        predicted = [p.label for p in loaded.predict(x.astype(np.float32))]
        assert predicted == [str(label) for label in model.predict(x)]
        assert not list(out.rglob("*.png"))
        with pytest.raises(UserError, match="holds a finished run"):
            model.fit(x, y)

    def test_it_logs_only_if_verbose(self, caplog: pytest.LogCaptureFixture) -> None:
        x, y = blobs()
        clone(QUICK_HEADS).fit(x, y)
        assert not caplog.records
        clone(QUICK_HEADS).set_params(verbose=True).fit(x, y)
        assert "target images" in caplog.text


class TestEmbeddings:
    @pytest.mark.parametrize("seed", [0, 1])
    def test_a_target_of_its_own_with_unknown_samples(self, seed: int) -> None:
        x, y = blobs()
        known, labels = blobs(shift=0.2)
        unknown = np.full((60, 8), -4.0) + np.random.default_rng(1).normal(size=(60, 8))
        target = np.concatenate([known, unknown])
        model = UniversalAdapter(steps=150, lr=0.03, device="cpu", random_state=seed)
        model.fit(x, y, target=target)
        predicted = model.predict(target)
        assert model.n_features_in_ == 8
        assert (predicted[:60] == labels).mean() > 0.9
        assert (predicted[60:] == -1).mean() >= 0.9

    def test_a_single_row_is_predicted_as_in_a_set(self) -> None:
        x, y = blobs()
        model = clone(QUICK_HEADS).fit(x, y)
        for outputs_of in (model.predict_proba, model.unknown_score):
            single = np.concatenate([outputs_of(row[None]) for row in x])
            np.testing.assert_allclose(single, outputs_of(x), rtol=1e-4, atol=1e-6)

    def test_a_pickled_model_predicts_the_same(self) -> None:
        x, y = blobs()
        model = clone(QUICK_HEADS).fit(x, y)
        again = pickle.loads(pickle.dumps(model))
        assert np.array_equal(again.unknown_score(x), model.unknown_score(x))

    def test_it_goes_into_a_pipeline_and_a_search(self) -> None:
        x, y = blobs()
        steps = make_pipeline(StandardScaler(), clone(QUICK_HEADS))
        grid = {"universaladapter__lr": [1e-6, 0.1]}
        search = GridSearchCV(steps, grid, cv=2).fit(x, y)
        assert search.best_params_ == {"universaladapter__lr": 0.1}
        assert search.score(x, y) > 0.9

    def test_a_target_of_another_length_or_kind_is_refused(self, digits: Task) -> None:
        x, y = blobs()
        with pytest.raises(ValueError, match="expecting 8 features"):
            clone(QUICK_HEADS).fit(x, y, target=x[:, :5])
        with pytest.raises(UserError, match="not of one kind"):
            clone(QUICK_HEADS).fit(x, y, target=digits.target)
        with pytest.raises(UserError, match="has no backbone"):
            clone(QUICK_HEADS).fit(x, y).predict(digits.target)

    def test_every_method_takes_them_but_one_that_uses_parts_of_images(self) -> None:
        x, y = blobs()
        for method in METHODS:
            model = UniversalAdapter(method, steps=2, device="cpu")
            if method == "spa":
                with pytest.raises(UserError, match="backbone is 'Embeddings'; allowed: small_cnn"):
                    model.fit(x, y)
            else:
                assert np.isfinite(model.fit(x, y).unknown_score(x)).all(), method


class TestLabels:
    @pytest.mark.parametrize(
        ("labels", "unknown", "dtype"),
        [
            (np.array(["cat", "dog", "owl"]), "unknown", "<U7"),
            (np.array(["cat", "dog", "owl"], dtype=object), "unknown", "O"),
            (np.array([3, 1, 7], dtype=np.int32), -1, "int32"),
            (np.array([-1, 0, 1]), -2, "int64"),
            (np.array([3, 1, 7], dtype=np.uint8), -1, "int64"),
        ],
    )
    def test_unknown_is_a_label_that_no_class_has(
        self, labels: npt.NDArray[Any], unknown: object, dtype: str
    ) -> None:
        x, numbers = blobs()
        model = clone(QUICK_HEADS).set_params(reject="threshold:-1000")
        y = labels[numbers]
        predicted = model.fit(x, y).predict(x)
        assert model.classes_.tolist() == sorted(labels.tolist())
        assert model.unknown_label_ == unknown
        assert predicted.tolist() == [unknown] * len(x)
        assert predicted.dtype == dtype
        known = clone(QUICK_HEADS).fit(x, y)
        assert known.score(x, y) > 0.9
        assert known.predict(x).dtype == dtype

    def test_one_class_and_a_class_called_unknown_are_refused(self) -> None:
        x, y = blobs()
        with pytest.raises(UserError, match="one class"):
            clone(QUICK_HEADS).fit(x, np.zeros_like(y))
        with pytest.raises(UserError, match="rename it"):
            clone(QUICK_HEADS).fit(x, np.array(["a", "b", "unknown"])[y])

    def test_images_need_labels_and_a_folder_takes_none(
        self, forms: dict[str, tuple[Any, Any, Any]], digits: Task
    ) -> None:
        with pytest.raises(UserError, match="a label for each image"):
            quick().fit(forms["grey"][0])
        with pytest.raises(UserError, match="the source has its labels"):
            quick().fit(digits.source, [1, 2], target=digits.target)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            quick().fit(forms["grey"][0], [1, 2])


class TestParameters:
    def test_a_small_domain_lowers_the_batch(self) -> None:
        x, y = blobs(6)
        model = clone(QUICK_HEADS).set_params(batch=36).fit(x, y)
        assert model.model_.method.sizes.batch == 6

    def test_the_seed_is_the_random_state(self) -> None:
        x, y = blobs()
        states = (0, 0, 1, None, np.random.RandomState(3))
        fits = [clone(QUICK_HEADS).set_params(random_state=s).fit(x, y) for s in states]
        first, again, *others = (fit.unknown_score(x) for fit in fits)
        assert np.array_equal(first, again)
        assert not any(np.array_equal(first, other) for other in others)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"method": "sam"}, "'sam'"),
            ({"reject": "never"}, "'never'"),
            ({"settings": {"beat": 1}}, "beat"),
            ({"options": {"flop": True}}, "flop"),
            ({"options": {"steps": 3}}, "options is 'steps'"),
            ({"steps": 0}, "steps is 0"),
        ],
    )
    def test_a_wrong_one_is_an_error_of_fit(self, wrong: dict[str, Any], message: str) -> None:
        x, y = blobs()
        with pytest.raises(UserError, match=message):
            clone(QUICK_HEADS).set_params(**wrong).fit(x, y)


class TestForms:
    def test_floats_are_no_pixels(self) -> None:
        with pytest.raises(UserError, match="float64; allowed: uint8"):
            kind_of(np.zeros((4, 8, 8, 3)))

    def test_an_item_that_is_no_image_is_named(self) -> None:
        with pytest.raises(UserError, match="An image is int"):
            wrap_images([np.zeros((8, 8), np.uint8), 3])

    def test_images_too_many_for_the_memory_are_opened_for_every_batch(
        self, forms: dict[str, tuple[Any, Any, Any]], digits: Task, out: Path
    ) -> None:
        in_memory = {"target": wrap_images(forms["grey"][2])}
        progress: list[tuple[int, int]] = []

        def load(**options: Any) -> Any:
            config = digits.config(out, **options)
            device = torch.device("cpu")
            return load_in_memory(
                config, device, in_memory, lambda name: lambda *a: progress.append(a)
            )

        kept, opened = load()["target"], load(memory_gb=1e-6)["target"]
        assert isinstance(opened.pixels, StreamedStore)
        index = torch.tensor([5, 0, 79])
        assert torch.equal(kept.images(index), opened.images(index))
        assert progress[-1] == (80, 80)

    def test_a_bad_image_is_left_out_of_training_and_refused_by_predict(
        self, forms: dict[str, tuple[Any, Any, Any]], tmp_path: Path, out: Path
    ) -> None:
        source, y, target = forms["PIL images"]
        (tmp_path / "bad.png").write_bytes(b"no image")
        mixed = [tmp_path / "bad.png", *target]
        model = quick(out=out).fit(source, y, target=mixed)
        assert "0,not an image" in (out / "skipped.csv").read_text()
        with pytest.raises(UserError, match="cannot be used"):
            model.predict(mixed)


class TestDataSets:
    def test_columns_are_guessed_or_named(self, forms: dict[str, tuple[Any, Any, Any]]) -> None:
        source = forms["a data set"][0]
        twice = source.add_column("mark", ["a", "b"] * (len(source) // 2))
        model = quick(label_column="mark", image_column="picture").fit(twice)
        assert model.classes_.tolist() == ["a", "b"]
        with pytest.raises(UserError, match="image_column is 'photo'; allowed: picture, digit"):
            quick(image_column="photo").fit(source)
        with pytest.raises(UserError, match="label_column is None"):
            quick().fit(source.remove_columns("digit"))

    def test_one_of_several_sets_is_to_be_named(
        self, forms: dict[str, tuple[Any, Any, Any]]
    ) -> None:
        source = forms["a data set"][0]
        with pytest.raises(UserError, match=r"several sets of images \(train\)"):
            quick().fit(datasets.DatasetDict(train=source))
        with pytest.raises(UserError, match="IterableDataset"):
            quick().fit(source.to_iterable_dataset())

    def test_a_column_without_images_is_an_error(
        self, forms: dict[str, tuple[Any, Any, Any]]
    ) -> None:
        with pytest.raises(UserError, match="column 'digit' holds no image"):
            quick(image_column="digit").fit(forms["a data set"][0])


def test_the_page_about_it_runs(
    digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks but the one that fills the cache of another library."""
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "photos").symlink_to(digits.source)
    (tmp_path / "sketches").symlink_to(digits.target)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        if "load_dataset" not in block:
            exec(block, names)
    assert len(blocks) == 4
    assert names["model"].classes_.tolist() == ["0", "1", "2", "3"]
    assert names["search"].best_params_.keys() == {"universaladapter__lr"}
