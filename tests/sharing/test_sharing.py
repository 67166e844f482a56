"""Shared models: a folder, the hub by a stub, and a card that no class name can break."""

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml
from huggingface_hub.errors import LocalEntryNotFoundError
from markdown_it import MarkdownIt

import unida
from tests.tasks import Task, assert_alike
from unida.cli.main import main
from unida.config import RunConfig
from unida.errors import UserError
from unida.methods.presets import load_config
from unida.model import Model, load
from unida.sharing.card import CardFacts, build_card
from unida.sharing.folder import FILES, public_backbone, public_config
from unida.sharing.hub import download, parse_place

HOSTILE = (
    "# ant",
    "bee | wasp",
    "---\nlicense: evil\n---",
    "<script>alert(1)</script>",
    "![x](http://evil.example/x.png)",
    "www.evil.example",
    "`code` **bold** _it_ ~~no~~",
    "&lt;b&gt; \\| $x$ {{x}} @someone #1",
    "a\u202eb\x00c",
    "x" * 500,
)


@pytest.fixture(scope="module")
def model(finished_run: Path) -> Model:
    return load(finished_run, "cpu")


@pytest.fixture
def shared(model: Model, tmp_path: Path) -> Path:
    return model.save_pretrained(tmp_path / "shared", license="cc-by-4.0")


class Hub:
    """What stands for `HfApi` and the hub behind it: folders below `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.made = root, dict[str, bool]()

    def file_exists(self, repo: str, name: str) -> bool:
        return (self.root / repo / name).exists()

    def create_repo(self, repo: str, private: bool, exist_ok: bool) -> str:
        assert exist_ok
        self.made[repo] = private
        return f"https://hub.example/{repo}"

    def upload_folder(self, repo_id: str, folder_path: str, **more: Any) -> None:
        assert set(more["allow_patterns"]) == set(FILES)
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)

    def snapshot_download(self, repo: str, revision: str | None, **more: Any) -> str:
        if not (self.root / repo).exists() or revision not in (None, "v1"):
            raise LocalEntryNotFoundError("no such thing")
        return str(self.root / repo)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    monkeypatch.setattr("unida.sharing.hub.require_hub", lambda: None)
    return hub


class TestFolder:
    def test_a_loaded_one_predicts_the_same(self, model: Model, shared: Path, digits: Task) -> None:
        again = unida.load(shared, "cpu")
        assert_alike(again.predict(digits.target), model.predict(digits.target))

    def test_it_holds_safetensors_json_and_a_card_only(self, shared: Path) -> None:
        assert {path.name for path in shared.iterdir()} <= set(FILES)
        assert {"model.safetensors", "config.json", "README.md"} <= {
            path.name for path in shared.iterdir()
        }

    def test_no_path_of_this_machine_is_in_it(self, shared: Path, digits: Task) -> None:
        for file in shared.iterdir():
            content = file.read_bytes()
            for place in (digits.source.parent, shared, Path.cwd(), Path.home()):
                assert str(place).encode() not in content, file

    def test_it_can_be_shared_again_with_all_that_is_known(
        self, shared: Path, tmp_path: Path
    ) -> None:
        again = unida.load(shared, "cpu").save_pretrained(tmp_path / "again", license="cc-by-4.0")
        for file in shared.iterdir():
            if file.suffix != ".safetensors":
                assert (again / file.name).read_text() == file.read_text()
        assert load_config(again / "config.json").optim.steps == 10

    def test_nothing_is_overwritten_unless_forced(
        self, model: Model, shared: Path, tmp_path: Path, finished_run: Path
    ) -> None:
        before = (shared / "README.md").read_text()
        with pytest.raises(UserError, match="--force"):
            model.save_pretrained(shared)
        assert (shared / "README.md").read_text() == before
        model.save_pretrained(shared, force=True)
        assert (shared / "README.md").read_text() != before  # it has no licence now
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "thesis.tex").write_text("mine")
        for place in (tmp_path / "other", finished_run):
            with pytest.raises(UserError, match="another folder"):
                model.save_pretrained(place, force=True)

    def test_a_model_without_a_run_has_a_card_too(self, model: Model, tmp_path: Path) -> None:
        moved = dataclasses.replace(model, origin=None)
        folder = moved.save_pretrained(tmp_path / "shared")
        assert {path.name for path in folder.iterdir()} == {"model.safetensors", "README.md"}
        assert "| classes | 4 |" in (folder / "README.md").read_text()

    def test_a_bad_licence_is_one_sentence(self, model: Model, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="license is 'MIT: yes\\\\n'; allowed"):
            model.save_pretrained(tmp_path / "shared", license="MIT: yes\n")
        assert not (tmp_path / "shared").exists()

    def test_a_backbone_of_a_folder_is_named_by_its_last_part(self) -> None:
        config = RunConfig.from_flat(
            backbone="hf:/home/me/vit", source="/a", target="/b", out="/c", weights="/w"
        )
        text = json.dumps(public_config(config))
        assert '"hf:vit"' in text
        assert not re.search(r'"/[abcwh]', text)
        spec = {"name": "hf:/home/me/vit", "config": {"_name_or_path": "/home/me/vit"}}
        assert "/home" not in public_backbone(json.dumps(spec))
        assert json.loads(public_backbone('{"name": "resnet50-v1"}')) == {"name": "resnet50-v1"}


class TestCard:
    def test_it_says_what_the_run_says(self, model: Model, shared: Path) -> None:
        text = (shared / "README.md").read_text()
        head = yaml.safe_load(text.split("---")[1])
        assert head["license"] == "cc-by-4.0"
        assert head["library_name"] == "unida"
        assert "| source images&#44; labelled | " in text
        n_target = model.method.sizes.n_target
        assert f"| {n_target} |" in text
        assert model.origin is not None
        stored = json.loads((model.origin / "diagnostics.json").read_text())
        for name in stored["estimates"]:
            assert name.replace("_", "&#95;") in text
        for words in ("calibrated on source images", "No label of the target was used"):
            assert words in text
        assert model.method.about.venue.split()[0] in text

    def test_without_a_licence_none_is_claimed(self, model: Model, tmp_path: Path) -> None:
        text = (model.save_pretrained(tmp_path / "a") / "README.md").read_text()
        assert "license" not in yaml.safe_load(text.split("---")[1])
        assert "No licence was given" in text

    def test_hostile_names_are_text(self, model: Model) -> None:
        """The same structure as with plain names, and the names as they are."""

        def tokens(names: tuple[str, ...]) -> tuple[list[str], str, Any]:
            rule = dataclasses.replace(model.rule(), name=names[0], note=names[1])
            description = model.description() | {
                "classes": list(names),
                "rules": {name: rule.to_json() for name in names},
            }
            found = {"what": names[3], "advice": ""}
            diagnostics = {
                "estimates": dict.fromkeys(names, 0.5),
                "about": dict.fromkeys(names, names[4]),
                "warnings": [found],
            }
            calibration = {"note": names[2]}
            options = {"backbone": names[3], "steps": 5}
            text = build_card(
                CardFacts(description, rule, "hf:a/b", options, diagnostics, calibration, "mit")
            )
            _, head, body = text.split("---\n", 2)
            parser = MarkdownIt("gfm-like", {"linkify": False, "html": True}).enable("table")
            parsed = parser.parse(body)
            inner = [child.type for token in parsed for child in token.children or ()]
            shown = parser.render(body)
            kinds = [token.type for token in parsed]
            assert "<script" not in shown
            assert "evil.example" not in body  # nothing for a linkifier
            return (
                kinds + [i for i in inner if i not in ("text", "text_special")],
                shown,
                (yaml.safe_load(head)),
            )

        plain = tuple(f"name{i}" for i in range(len(HOSTILE)))
        kinds, _, head = tokens(plain)
        hostile_kinds, shown, hostile_head = tokens(HOSTILE)
        assert hostile_kinds == kinds
        assert hostile_head == head
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
        assert "&amp;lt;b&amp;gt; \\| $x$ {{x}} @someone #1" in shown

    def test_thousands_of_classes_are_counted(self, model: Model) -> None:
        names = [f"c{i}" for i in range(5000)]
        facts = CardFacts(model.description() | {"classes": names}, model.rule(), "hf:a/b")
        text = build_card(facts)
        assert "and 4800 more" in text
        assert len(text) < 20_000

    def test_an_infinite_threshold_is_written(self, model: Model) -> None:
        rule = dataclasses.replace(model.rule(), name="none", threshold=math.inf)
        assert "unknown score is inf or more" in build_card(
            CardFacts(model.description(), rule, "hf:a/b")
        )


class TestHub:
    def test_a_pushed_model_is_loaded_again(self, model: Model, hub: Hub, digits: Task) -> None:
        assert model.push_to_hub("me/birds", license="mit") == "https://hub.example/me/birds"
        assert hub.made == {"me/birds": True}  # private
        for place in ("hf:me/birds", "hf:me/birds@v1"):
            again = unida.load(place, "cpu")
            assert_alike(again.predict(digits.target), model.predict(digits.target))
        card = (hub.root / "me" / "birds" / "README.md").read_text()
        assert "unida.load('hf:me/birds')" in card

    def test_a_model_that_is_there_is_replaced_by_force_only(self, model: Model, hub: Hub) -> None:
        model.push_to_hub("me/birds")
        with pytest.raises(UserError, match="hf:me/birds holds a model already"):
            model.push_to_hub("me/birds")
        model.push_to_hub("hf:me/birds", force=True, private=False)
        assert hub.made == {"me/birds": False}

    def test_a_client_of_ones_own(self, model: Model, tmp_path: Path) -> None:
        hub = Hub(tmp_path)
        model.push_to_hub("me/birds", client=hub)
        assert (tmp_path / "me" / "birds" / "model.safetensors").exists()

    @pytest.mark.parametrize(
        "place",
        ["hf:birds", "hf:me/birds/more", "hf:../x", "hf:me/..", "hf:me/a@", "hf:me/a@../b",
         "hf:me/a b", "hf:", "hf:me/a--b"],
    )  # fmt: skip
    def test_a_bad_name_is_one_sentence(self, place: str) -> None:
        with pytest.raises(UserError, match="hf:owner/name"):
            load(place)

    def test_a_name_and_its_revision(self) -> None:
        assert parse_place("hf:me/birds@refs/pr-1") == ("me/birds", "refs/pr-1")
        assert parse_place("me/birds") == ("me/birds", None)

    def test_a_revision_cannot_be_pushed_to(self, model: Model, hub: Hub) -> None:
        with pytest.raises(UserError, match="owner/name"):
            model.push_to_hub("me/birds@v1")

    def test_a_repository_of_something_else(self, hub: Hub) -> None:
        (hub.root / "me" / "text").mkdir(parents=True)
        with pytest.raises(UserError, match=r"hf:me/text is no model of unida"):
            load("hf:me/text")


class TestOffline:
    @pytest.fixture(autouse=True)
    def offline(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))

    def test_what_is_not_here_is_one_sentence(self) -> None:
        with pytest.raises(UserError, match=r"hf:me/birds is not on this machine.*HF_HUB_OFFLINE"):
            load("hf:me/birds")

    def test_nothing_is_uploaded(self, model: Model) -> None:
        with pytest.raises(UserError, match=r"me/birds was not uploaded \(HF_HUB_OFFLINE is set"):
            model.push_to_hub("me/birds")

    def test_what_was_downloaded_is_used(
        self, shared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The layout of the real library's cache."""
        place = tmp_path / "cache" / "models--me--birds"
        shutil.copytree(shared, place / "snapshots" / "0123")
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text("0123")
        caplog.set_level("INFO", "unida")
        assert download("hf:me/birds").name == "0123"
        assert "is used as stored" in caplog.text


class TestCommand:
    def test_to_a_folder_and_to_the_hub(
        self, finished_run: Path, tmp_path: Path, hub: Hub, digits: Task
    ) -> None:
        out = tmp_path / "shared"
        assert main(["share", str(finished_run), "--to", str(out), "--license", "mit"]) == 0
        assert main(["share", str(out), "--to", "hf:me/birds", "--public"]) == 0
        assert hub.made == {"me/birds": False}
        labels = str(tmp_path / "labels.csv")
        assert main(["predict", "hf:me/birds", str(digits.target), "--to", labels]) == 0
        assert Path(labels).exists()

    def test_twice_is_refused(
        self, finished_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        command = ["share", str(finished_run), "--to", str(tmp_path / "shared")]
        assert main(command) == 0
        assert main(command) == 2
        assert "is not empty" in capfd.readouterr().err
        assert main([*command, "--force"]) == 0
