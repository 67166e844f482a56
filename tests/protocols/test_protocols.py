"""Protocols: the built-in ones as on docs/methods/index.md, other data, trees of all kinds."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from tests.images import file_size_limit, read_csv, write_classes, write_image
from unida.cli.data import DataCheck
from unida.cli.demo import DIRECTIONS, SETUP
from unida.config import RunConfig
from unida.data.samples import read_labelled
from unida.errors import UserError
from unida.protocols.check import check
from unida.protocols.names import Spellings, key_of
from unida.protocols.schema import Images
from unida.protocols.sets import set_names
from unida.protocols.tasks import Protocol, load_protocol, parse_tasks, split_of, write_task

BUILT_IN = ("digits", "domainnet", "office-31", "office-caltech10", "office-home", "visda")

# Shared, source-private and target-private classes: docs/methods/index.md, and the partial and
# closed settings of the literature.
SIZES = {
    "office-31": {
        "unda": (10, 10, 11), "oda": (10, 0, 11), "pda": (10, 21, 0), "closed": (31, 0, 0),
    },
    "office-caltech10": {
        "unda": (4, 3, 3), "oda": (5, 0, 5), "pda": (5, 5, 0), "closed": (10, 0, 0),
    },
    "office-home": {
        "unda": (10, 5, 50), "oda": (25, 0, 40), "oda-dance": (15, 0, 50),
        "pda": (25, 40, 0), "closed": (65, 0, 0),
    },
    "visda": {
        "unda": (6, 3, 3), "oda": (6, 0, 6), "oda-glc": (6, 0, 6),
        "pda": (6, 6, 0), "closed": (12, 0, 0),
    },
    "domainnet": {"unda": (150, 50, 145), "unda-uniot": (150, 50, 145), "closed": (345, 0, 0)},
    "digits": {"unda": (6, 2, 2), "oda": (6, 0, 2), "pda": (6, 4, 0), "closed": (10, 0, 0)},
}  # fmt: skip

# Images as source, as target and unknown, in the lists of the papers.
IMAGES = {
    ("office-31", "unda", "amazon"): (1808, 1967, 1009),
    ("office-31", "unda", "dslr"): (323, 332, 175),
    ("office-31", "unda", "webcam"): (526, 564, 269),
    ("office-31", "oda", "dslr"): (157, None, None),
    ("office-caltech10", "unda", "amazon"): (666, 659, 292),
    ("office-caltech10", "closed", "webcam"): (295, 295, None),
    ("office-home", "unda", "Art"): (743, 2209, 1684),
    ("office-home", "unda", "Clipart"): (1116, 4021, 3249),
    ("office-home", "unda", "Product"): (1077, 4016, 3362),
    ("office-home", "unda", "Real World"): (1203, 3983, 3154),
    ("visda", "unda", "validation"): (None, 41043, 12065),
    ("visda", "oda", "validation"): (None, 55388, 21242),
    ("domainnet", "unda", "painting"): (30857 + 12855, 62904, 32047),
    ("domainnet", "unda", "sketch"): (None, 62286, None),
}

TOTALS = {
    "office-31": (2817, 498, 795),
    "office-caltech10": (958, 1123, 157, 295),
    "office-home": (2427, 4365, 4439, 4357),
    "visda": (152397, 55388),
    "domainnet": (75759, None, 70386),
    "digits": (5000, 1797),
}

SIMPLE = """
name = "birds"
domains = ["photos", "drawings"]
classes = ["crow", "duck", "gull", "heron", "owl", "wren"]
shared = ["crow", "duck"]
source_private = ["gull"]
target_private = "rest"
[run]
steps = 20
"""


def own(folder: Path, text: str = SIMPLE) -> Protocol:
    path = folder / "own.toml"
    path.write_text(text)
    return load_protocol(str(path))


def birds(root: Path, counts: dict[str, int] | None = None) -> Path:
    for domain in ("photos", "drawings"):
        write_classes(root / domain, counts or dict.fromkeys(own_classes(), 2))
    return root


def own_classes() -> list[str]:
    return ["crow", "duck", "gull", "heron", "owl", "wren"]


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def touch_tree(root: Path, protocol: Protocol, counts: dict[str, dict[str, int]]) -> Path:
    """Empty files where images would be: names and counts are all a check uses."""
    for domain in protocol.domains:
        for name, n in counts[domain].items():
            for i in range(n):
                touch(root / domain / name / f"{i:05}.jpg")
    return root


def one_each(protocol: Protocol) -> dict[str, dict[str, int]]:
    return {domain: dict.fromkeys(protocol.classes, 1) for domain in protocol.domains}


class TestBuiltIn:
    def test_names(self) -> None:
        assert tuple(set_names()) == BUILT_IN == tuple(sorted(SIZES))

    def test_every_file_is_complete(self) -> None:
        for name in BUILT_IN:
            protocol = load_protocol(name)
            assert protocol.name == name
            assert all(source != target for source, target in protocol.tasks)
            keys = [key_of(name) for name in protocol.classes]
            assert len(set(keys)) == len(keys), "loosely spelt folders are distinct"
            options = RunConfig.from_flat(**protocol.run).flat()
            assert all(options[key] == value for key, value in protocol.run.items())

    def test_split_sizes_are_those_of_the_papers(self) -> None:
        for name in BUILT_IN:
            protocol, sizes = load_protocol(name), {}
            for key, split in protocol.splits.items():
                sizes[key] = tuple(map(len, dataclasses.astuple(split)))
                everything = split.source + split.target_private
                assert len(set(everything)) == len(everything)
                assert set(everything) <= set(protocol.classes)
            assert sizes == SIZES[name], name

    def test_image_counts(self) -> None:
        for (name, setting, domain), known in IMAGES.items():
            expected = dataclasses.astuple(load_protocol(name).expected(setting, domain))
            assert [e for e, k in zip(expected, known, strict=True) if k] == [k for k in known if k]
        for name in BUILT_IN:
            protocol = load_protocol(name)
            assert tuple(map(protocol.totals.get, protocol.domains)) == TOTALS[name]

    def test_office_31_classes(self) -> None:
        splits = load_protocol("office-31").splits
        caltech = (
            "back_pack bike calculator headphones keyboard laptop_computer monitor mouse mug "
            "projector"
        )
        private = (
            "bike_helmet bookcase bottle desk_chair desk_lamp desktop_computer file_cabinet "
            "letter_tray mobile_phone paper_notebook"
        )
        unda = splits["unda"]
        assert unda.shared == tuple(caltech.split())
        assert unda.source_private == tuple(private.split())
        assert (unda.target_private[0], unda.target_private[-1]) == ("pen", "trash_can")
        assert list(unda.target_private) == sorted(unda.target_private)
        assert splits["oda"].target_private == unda.target_private

    def test_office_home_classes(self) -> None:
        protocol = load_protocol("office-home")
        private = ("Chair", "Clipboards", "Computer", "Couch", "Curtains")
        assert list(protocol.classes) == sorted(protocol.classes)
        assert protocol.splits["unda"].source_private == private

    def test_visda_classes(self) -> None:
        splits = load_protocol("visda").splits
        unda = splits["unda"]
        assert " ".join(unda.shared) == "aeroplane bicycle bus car horse knife"
        assert " ".join(unda.source_private) == "motorcycle person plant"
        assert " ".join(unda.target_private) == "skateboard train truck"
        assert " ".join(splits["oda"].shared) == "bicycle bus car motorcycle train truck"
        assert splits["oda-glc"].shared == unda.shared == splits["pda"].shared

    def test_domainnet_classes_are_345_in_ascii_order(self) -> None:
        protocol = load_protocol("domainnet")
        classes, ours, others = (
            protocol.classes,
            protocol.splits["unda"],
            protocol.splits["unda-uniot"],
        )
        order = sorted(classes, key=str.lower)
        parts = (others.shared, others.source_private, others.target_private)
        counted = (order[:150], order[150:200], order[200:])
        assert [sorted(part) for part in parts] == [sorted(part) for part in counted]
        elsewhere = set(ours.shared) ^ set(others.shared)
        elsewhere |= set(ours.target_private) ^ set(others.target_private)
        assert len(elsewhere) == 9
        assert len(set(classes)) == 345
        assert list(classes) == sorted(classes)
        # Numbers of classes in the lists of SAN and GLC.
        known = {0: "The_Eiffel_Tower", 199: "nail", 322: "train", 323: "tree", 344: "zigzag"}
        assert {k: classes[k] for k in known} == known

    def test_tasks_are_in_the_papers_order_of_columns(self) -> None:
        def columns(name: str) -> str:
            tasks = load_protocol(name).tasks
            return " ".join(f"{s[0]}2{t[0]}".upper() for s, t in tasks)

        assert columns("office-31") == "A2D A2W D2A D2W W2D W2A"
        assert columns("domainnet") == "P2R R2P P2S S2P R2S S2R"
        assert columns("office-home") == "A2C A2P A2R C2A C2P C2R P2A P2C P2R R2A R2C R2P"
        assert columns("visda") == "T2V"

    def test_digits_are_those_of_the_demo(self) -> None:
        digits = load_protocol("digits")
        assert digits.run == SETUP
        assert digits.tasks == DIRECTIONS
        assert digits.splits["unda"].source_private == ("6", "7")
        assert digits.splits["oda"].target_private == digits.splits["unda"].target_private

    def test_any_spelling_of_a_name_is_accepted_and_a_wrong_name_refused(self) -> None:
        for spelling in ("Office-Home", "officehome", "office_home"):
            assert load_protocol(spelling).name == "office-home"
        with pytest.raises(UserError, match=r"protocol is 'offic-home'; allowed: .*office-home"):
            load_protocol("offic-home")


class TestOwnFile:
    def test_defaults_of_a_short_file(self, tmp_path: Path) -> None:
        protocol = own(tmp_path)
        split = protocol.splits["unda"]
        assert (split.shared, split.source_private) == (("crow", "duck"), ("gull",))
        assert split.target_private == ("heron", "owl", "wren")
        assert protocol.tasks == (("photos", "drawings"), ("drawings", "photos"))
        assert protocol.run == {"steps": 20}
        assert (protocol.name, protocol.title) == ("birds", "birds")

    def test_a_split_without_a_name_gets_the_usual_one(self, tmp_path: Path) -> None:
        private = {"source_private = ['c']": "pda", "target_private = ['c']": "oda", "": "closed"}
        for text, setting in private.items():
            protocol = own(tmp_path, f"domains = ['x', 'y']\nshared = ['a', 'b']\n{text}\n")
            assert list(protocol.splits) == [setting]
            assert protocol.name == "own"

    def test_class_names_may_be_numbers(self, tmp_path: Path) -> None:
        protocol = own(tmp_path, "domains = ['x', 'y']\nshared = [3, 4]\ntarget_private = [5]\n")
        assert protocol.classes == ("3", "4", "5")

    def test_names_are_resolved_before_numbers(self, tmp_path: Path) -> None:
        protocol = own(
            tmp_path,
            "domains = ['x', 'y']\nclasses = ['a', 'b', 'c', 'd', 'e']\n"
            "[settings.odd]\nshared = 2\nsource_private = ['b']\ntarget_private = 'rest'\n",
        )
        split = protocol.splits["odd"]
        assert dataclasses.astuple(split) == (("a", "c"), ("b",), ("d", "e"))

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (("shared", "shred"), "a key of .*own.toml is 'shred'; allowed: name, title, domains"),
            (("steps", "stepps"), ".run. of .*own.toml: .*'stepps'.*'steps'"),
            (("steps = 20", "steps = 'x'"), "steps is 'x'; allowed: a value of type int"),
            (("steps = 20", "out = 'x'"), "an option in .run. of .* is 'out'; allowed: what no"),
            (('"rest"', '"others"'), "target_private of .* is 'others'; allowed: a list, a number"),
            (('"rest"', "7"), "target_private of .* is 7; allowed: 0 to 3, the classes left"),
            (('"rest"', "true"), "target_private of .* is True; allowed: a list, a number"),
            (('"rest"', '["raven"]'), "target_private of .* is 'raven'; allowed: crow, duck"),
            (('"rest"', '["crow"]'), "split of .* has names more than once .*: crow"),
            (('["gull"]', '"rest"'), "'rest' of .* is 'source_private and target_private'"),
            (('["crow", "duck"]', "[]"), "shared of .* is ..; allowed: one class or more"),
            (('"crow", "duck", "g', '"crow", "Crow", "g'), "classes of .* too much alike: crow"),
            (('"wren"]', '"unknown"]'), "a class of .* is 'unknown'; allowed: any other name"),
            (('"wren"]', '"Unknown"]'), "a class of .* is 'Unknown'; allowed: any other name"),
            (('"photos", "drawings"', '"photos"'), "domains of .*; allowed: two names or more"),
            (('"drawings"', '"Photos"'), "domains of .* too much alike: photos"),
            (('"drawings"', '"a,b"'), "a domain of .* is 'a,b'; allowed: a name without a comma"),
            (('"birds"', '"../birds"'), "name of .* is '../birds'; allowed: letters"),
            (('["gull"]', '[["gull"]]'), "source_private of .* is .'gull'.; allowed: a name"),
            (("[run]", "[settings.x]\nshared = 2\n[run]"), "needs either shared, source_private"),
            (("[run]", "[counts]\ncrow = [1]\n[run]"), "counts.crow of .*; allowed: 2 whole"),
            (("[run]", "[totals]\nphoto = 3\n[run]"), "a key of .totals. .* is 'photo'; allowed"),
            (("[run]", "run"), "own.toml is not TOML: "),
            (("[run]", f"[run]\na = {'[' * 10_000}"), "own.toml is not TOML: "),
            (("steps = 20", f"steps = {'9' * 5000}"), "own.toml is not TOML: "),
        ],
    )
    def test_a_mistake_is_one_sentence(
        self, tmp_path: Path, change: tuple[str, str], sentence: str
    ) -> None:
        assert change[0] in SIMPLE
        with pytest.raises(UserError, match=sentence) as error:
            own(tmp_path, SIMPLE.replace(*change))
        assert "\n" not in str(error.value)

    def test_rest_needs_a_class_list(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="needs a list called classes"):
            own(tmp_path, "domains = ['x', 'y']\nshared = ['a', 'b']\ntarget_private = 'rest'\n")

    def test_unreadable_files_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="cannot be read: No such file"):
            load_protocol(str(tmp_path / "none.toml"))
        (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(UserError, match="not a text file in UTF-8"):
            load_protocol(str(tmp_path / "x.toml"))

    def test_a_list_file_instead_of_a_folder(self, tmp_path: Path) -> None:
        root = birds(tmp_path / "data")
        lists = tmp_path / "lists"
        lists.mkdir()
        chosen = [f"{name}/{2 * i:03}.png {i}\n" for i, name in enumerate(own_classes())]
        (lists / "p.txt").write_text("".join(chosen))
        protocol = own(tmp_path, SIMPLE + '[files]\nphotos = "lists/p.txt"\n')
        files = write_task(protocol, "unda", "photos", "drawings", root, tmp_path / "task")
        assert [row["path"] for row in read_csv(files.source)] == [
            str(root / "photos" / line.split()[0]) for line in chosen[:3]
        ]
        assert files.target_images == 10


class TestParseTasks:
    def parse(self, text: str, name: str = "office-home") -> list[tuple[str, str]]:
        return parse_tasks(load_protocol(name), text)

    def test_all(self) -> None:
        assert self.parse("all") == list(load_protocol("office-home").tasks)

    def test_spellings(self) -> None:
        for text in (
            "Art-Clipart,Product-Real World", " art-clipart , product-real_world", "A-C,P-R",
            "Art→Clipart,Product→RealWorld", "Art->Clipart,Pr->Rw", "A-C,A-C,P-Real",
        ):  # fmt: skip
            assert self.parse(text) == [("Art", "Clipart"), ("Product", "Real World")], text

    def test_visda_by_other_names(self) -> None:
        assert self.parse("Synthetic-Real", "visda") == [("train", "validation")]

    def test_an_unknown_task_is_refused_with_the_allowed_ones(self) -> None:
        for text in ("", "Art", "Art-Art", "Art-Clipart,", "X-Art", "-", "Art-"):
            with pytest.raises(UserError, match=r"a task of office-home is .*; allowed: all, Art"):
                self.parse(text)

    def test_an_unknown_direction_is_refused(self) -> None:
        with pytest.raises(UserError, match="allowed: all, train-validation"):
            self.parse("validation-train", "visda")

    def test_an_ambiguous_prefix_is_refused_and_a_dash_in_a_name_is_not(
        self, tmp_path: Path
    ) -> None:
        protocol = own(tmp_path, "domains = ['day-time', 'dark', 'x']\nshared = ['a', 'b']\n")
        assert parse_tasks(protocol, "day-time-dark") == [("day-time", "dark")]
        assert parse_tasks(protocol, "dark-day-time") == [("dark", "day-time")]
        assert parse_tasks(protocol, "x-dar") == [("x", "dark")]
        with pytest.raises(UserError, match="'x-d'"):
            parse_tasks(protocol, "x-d")


class TestSpellings:
    def test_an_exact_spelling_wins_and_an_ambiguous_one_is_none(self) -> None:
        names = Spellings({"C": (), "C++": (), "R": ("S plus",)})
        assert names.find("C++") == "C++"
        assert names.find("c") is None
        assert names.find("S-Plus") == "R"

    def test_a_name_of_punctuation_alone(self) -> None:
        names = Spellings({"+": (), "-": ()})
        assert [names.find(text) for text in ("+", "-", "*")] == ["+", "-", None]


class TestWriteTask:
    def test_the_files_of_a_task(self, tmp_path: Path) -> None:
        root = birds(tmp_path / "data")
        files = write_task(own(tmp_path), "unda", "photos", "drawings", root, tmp_path / "task")
        assert [p.name for p in sorted((tmp_path / "task").iterdir())] == [
            "source.csv", "target.csv",
        ]  # fmt: skip
        rows = read_csv(files.source)
        assert list(rows[0]) == ["path", "label"]
        assert [row["label"] for row in rows] == ["crow"] * 2 + ["duck"] * 2 + ["gull"] * 2
        assert all(Path(row["path"]).is_file() for row in rows)
        assert {row["label"] for row in read_csv(files.target)} == {
            "crow", "duck", "heron", "owl", "wren",
        }  # fmt: skip
        assert (files.source_images, files.target_images, files.unknown_images) == (6, 10, 6)
        assert (files.unknown_classes, files.changed_labels) == (3, 0)
        assert files.shared_classes == ("crow", "duck")

    def test_known_classes_are_in_the_order_of_a_run(self, tmp_path: Path) -> None:
        text = SIMPLE.replace('["crow", "duck"]', '["duck", "crow"]')
        root = birds(tmp_path / "data")
        files = write_task(own(tmp_path, text), "unda", "photos", "drawings", root, tmp_path / "t")
        assert (
            files.known_classes == read_labelled(files.source).classes == ("crow", "duck", "gull")
        )

    def test_a_relative_root_gives_absolute_paths(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        birds(tmp_path / "data")
        monkeypatch.chdir(tmp_path)
        files = write_task(own(tmp_path), "unda", "photos", "drawings", Path("data"), Path("task"))
        assert all(os.path.isabs(row["path"]) for row in read_csv(files.target))

    def test_fewer_unknown_classes_are_the_first_in_order(self, tmp_path: Path) -> None:
        root, protocol = birds(tmp_path / "data"), own(tmp_path)
        for n, kept in ((0, set()), (1, {"heron"}), (2, {"heron", "owl"})):
            files = write_task(
                protocol, "unda", "photos", "drawings", root, tmp_path / "t", unknown_classes=n
            )
            labels = {row["label"] for row in read_csv(files.target)}
            assert labels - {"crow", "duck"} == kept
            assert (files.unknown_classes, files.unknown_images) == (n, 2 * n)

    def test_a_number_of_unknown_classes_out_of_range_is_refused(self, tmp_path: Path) -> None:
        for n in (-1, 4):
            with pytest.raises(UserError, match=f"classes of birds is {n}; allowed: 0 to 3"):
                split_of(own(tmp_path), "unda", n)

    def test_label_noise_adds_a_column_of_true_labels(self, tmp_path: Path) -> None:
        root, protocol = birds(tmp_path / "data", dict.fromkeys(own_classes(), 10)), own(tmp_path)

        def write(name: str, share: float, seed: int) -> list[dict[str, str]]:
            files = write_task(
                protocol, "unda", "photos", "drawings", root, tmp_path / name,
                label_noise=share, noise_seed=seed,
            )  # fmt: skip
            rows = read_csv(files.source)
            assert files.changed_labels == round(share * len(rows))
            assert list(read_csv(files.target)[0]) == ["path", "label"]
            return rows

        clean, noisy = write("clean", 0, 0), write("noisy", 0.3, 0)
        assert [row["label"] for row in clean] == [row["true_label"] for row in noisy]
        assert sum(row["label"] != row["true_label"] for row in noisy) == 9
        assert {row["label"] for row in noisy} == {"crow", "duck", "gull"}
        assert write("again", 0.3, 0) == noisy
        assert write("other", 0.3, 1) != noisy

    def test_noise_may_not_take_the_last_image_of_a_class(self, tmp_path: Path) -> None:
        root = birds(tmp_path / "data", dict.fromkeys(own_classes(), 1))
        with pytest.raises(UserError, match=r"label_noise 0\.4 with seed 0 leaves no source image"):
            write_task(
                own(tmp_path), "unda", "photos", "drawings", root, tmp_path / "t", label_noise=0.4
            )

    def test_a_missing_class_is_named(self, tmp_path: Path) -> None:
        root = birds(tmp_path / "data", {"crow": 1, "duck": 1, "heron": 1})
        with pytest.raises(UserError, match=r"photos below .* 1 of the 3 classes .*\(gull\)"):
            write_task(own(tmp_path), "unda", "photos", "drawings", root, tmp_path / "task")
        assert not (tmp_path / "task").exists()

    def test_names_of_domains_and_settings_are_checked(self, tmp_path: Path) -> None:
        root, protocol = birds(tmp_path / "data"), own(tmp_path)
        with pytest.raises(
            UserError, match="a domain of birds is 'paintings'; allowed: photos, dr"
        ):
            write_task(protocol, "unda", "paintings", "drawings", root, tmp_path / "t")
        with pytest.raises(UserError, match="a setting of birds is 'oda'; allowed: unda"):
            write_task(protocol, "oda", "photos", "drawings", root, tmp_path / "t")

    def test_file_names_of_all_kinds_are_read_back(self, tmp_path: Path) -> None:
        root = birds(tmp_path / "data")
        odd = ['a,"b".png', "line\nbreak.png", "cr\r.png", os.fsdecode(b"caf\xe9.png"), " x .png"]
        for name in odd:
            write_image(root / "photos" / "crow" / name)
        files = write_task(own(tmp_path), "unda", "photos", "drawings", root, tmp_path / "task")
        names = [path.name for path in read_labelled(files.source).paths]
        assert set(odd) <= set(names)

    def test_a_class_name_is_no_formula_in_a_list(self, tmp_path: Path) -> None:
        protocol = own(tmp_path, SIMPLE.replace('"crow"', '"=crow"'))
        root = birds(tmp_path / "data")
        for domain in ("photos", "drawings"):
            (root / domain / "crow").rename(root / domain / "=crow")
        files = write_task(protocol, "unda", "photos", "drawings", root, tmp_path / "task")
        assert "'=crow" in {row["label"] for row in read_csv(files.source)}
        assert "=crow" in read_labelled(files.source).classes

    def test_a_full_disk_leaves_no_half_list(self, tmp_path: Path) -> None:
        root, protocol = birds(tmp_path / "data"), own(tmp_path)
        with (
            file_size_limit(100),
            pytest.raises(UserError, match=r"source.csv cannot be written: File too large"),
        ):
            write_task(protocol, "unda", "photos", "drawings", root, tmp_path / "task")
        assert list((tmp_path / "task").iterdir()) == []


class TestTrees:
    """Folders of local copies."""

    def found(self, name: str, root: Path) -> list[str | None]:
        report = check(load_protocol(name), root)
        return [domain.place for domain in report.domains]

    def test_folder_names_of_every_data_set(self, tmp_path: Path) -> None:
        real = ("Real World", "RealWorld", "Real_World", "Real-World", "Real")
        three = ("painting", "real", "sketch")  # of six domains on disk
        six = ("clipart", "infograph", "quickdraw", *three)
        cases: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
            *(("office-home", "Alarm_Clock", (names := ("Art", "clipart", "PRODUCT", r)), names)
              for r in real),
            *(("office-31", "back_pack", (names := (f"amazon{i}", f"dslr{i}", f"Webcam{i}")), names)
              for i in ("", "/images", "/Images")),
            *(("visda", "train", names, names)  # one of its classes is called train
              for names in (("train", "validation"), ("visda_train", "visda_val"),
                            ("Synthetic", "Real"))),
            *(("domainnet", "The_Mona_Lisa", tuple(d + n for n in six), tuple(d + n for n in three))
              for d in ("", "d")),
            ("office-caltech10", "Back Pack", ("amazon", "Caltech", "DSLR", "webcam"),
             ("amazon", "Caltech", "DSLR", "webcam")),
        ]  # fmt: skip
        for number, (name, label, folders, expected) in enumerate(cases):
            root = tmp_path / str(number)
            for folder in folders:
                touch(root / folder / label / "1.jpg")
            assert self.found(name, root) == list(expected)

    def test_lists_use_the_protocols_spelling_of_classes(self, tmp_path: Path) -> None:
        protocol = load_protocol("domainnet")
        counts = {
            domain: {name.replace("_", " ").replace("-", "_").title(): 1 for name in names}
            for domain, names in one_each(protocol).items()
        }
        root = touch_tree(tmp_path / "data", protocol, counts)
        files = write_task(protocol, "unda", "painting", "sketch", root, tmp_path / "task")
        labels = [row["label"] for row in read_csv(files.source)]
        assert labels == list(protocol.classes[:200])
        assert (files.target_images, files.unknown_images) == (295, 145)

    def test_linked_domains(self, tmp_path: Path) -> None:
        birds(tmp_path / "elsewhere")
        root = tmp_path / "data"
        root.mkdir()
        for domain in ("photos", "drawings"):
            (root / domain).symlink_to(tmp_path / "elsewhere" / domain)
        assert check(own(tmp_path), root).problems == []

    def test_two_folders_for_a_domain(self, tmp_path: Path) -> None:
        for folder in ("Real World", "Real_World"):
            touch(tmp_path / folder / "Bed" / "1.jpg")
        problems = check(load_protocol("office-home"), tmp_path).problems
        assert f"{tmp_path} has 2 folders for Real World (Real World, Real_World): remove one." in (
            problems
        )

    def test_two_folders_for_a_class(self, tmp_path: Path) -> None:
        for folder in ("Alarm Clock", "Alarm_Clock"):
            touch(tmp_path / "Art" / folder / "1.jpg")
        problems = check(load_protocol("office-home"), tmp_path).problems
        expected = "2 folders for the class Alarm_Clock (Alarm Clock, Alarm_Clock): remove one."
        assert any(expected in sentence for sentence in problems)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Office-31 with all its 4,110 files, empty."""
    protocol = load_protocol("office-31")
    return touch_tree(tmp_path_factory.mktemp("office"), protocol, protocol.counts)


class TestCheck:
    def test_a_complete_set_has_no_problems(self, office: Path) -> None:
        reports = {
            setting: check(load_protocol("office-31"), office, setting)
            for setting in (None, "unda", "oda", "pda", "closed")
        }
        assert all((report.problems, report.notes) == ([], []) for report in reports.values())
        assert [domain.roles for domain in reports["unda"].domains] == [
            Images(1808, 1967, 1009), Images(323, 332, 175), Images(526, 564, 269),
        ]  # fmt: skip
        assert [len(domain.classes) for domain in reports["oda"].domains] == [21, 21, 21]

    def test_the_command_prints_a_table(
        self, office: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        DataCheck("office-31", office, "unda").execute()
        text = capsys.readouterr().out
        assert "Office-31, unda" in text
        for number in ("2,817 ✓", "1,808 ✓", "1,967 ✓", "1,009 ✓"):
            assert number in text

    def test_a_missing_domain_class_and_file_are_reported_together(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        protocol = load_protocol("office-31")
        counts: dict[str, dict[str, int]] = {d: dict(c) for d, c in protocol.counts.items()}
        counts["amazon"] = {}
        del counts["dslr"]["pen"], counts["dslr"]["mug"]
        counts["webcam"]["bike"] -= 1
        counts["webcam"]["mouse"] += 2
        root = touch_tree(tmp_path, protocol, counts)
        report = check(protocol, root)
        assert report.problems == [
            f"{root} has no folder for amazon: amazon is expected.",
            "dslr has no image of 2 of 31 classes: mug, pen.",
            "webcam has other image counts than expected: bike 20 instead of 21, "
            "mouse 32 instead of 30.",
        ]
        assert [d.place for d in report.domains] == [None, "dslr", "webcam"]
        assert (report.domains[2].classes["bike"].found, report.domains[0].images) == (20, 0)
        with pytest.raises(UserError, match=r"Office-31 below .* has 3 problems, listed above"):
            DataCheck("office-31", root).execute()
        out = capsys.readouterr().out
        assert "480 of 498" in out
        assert all(sentence in out for sentence in report.problems)

    def test_a_setting_needs_its_own_classes_only(self, tmp_path: Path) -> None:
        protocol = load_protocol("visda")
        root = touch_tree(tmp_path, protocol, one_each(protocol))
        for name in ("skateboard", "train"):
            (root / "train" / name / "00000.jpg").unlink()
        reported = {s: check(protocol, root, s).problems[0] for s in ("unda", "oda", "closed")}
        assert reported["unda"].startswith(
            "train has other image counts than expected: aeroplane 1 "
        )
        assert reported["oda"] == "train has no image of 1 of 6 classes: train."
        assert reported["closed"] == "train has no image of 2 of 12 classes: skateboard, train."

    def test_totals_where_class_counts_are_unknown(self, tmp_path: Path) -> None:
        protocol = load_protocol("domainnet")
        root = touch_tree(tmp_path, protocol, one_each(protocol))
        assert check(protocol, root).problems == [
            "painting has 345 images instead of 75,759.",
            "sketch has 345 images instead of 70,386.",
        ]

    def test_counts_of_a_setting_and_of_another_release(self, tmp_path: Path) -> None:
        text = (
            "domains = ['photos', 'drawings']\nclasses = ['a', 'b', 'c', 'd']\n"
            "[settings.unda]\nshared = 1\nsource_private = 1\ntarget_private = 1\n"
            "[settings.unda.images]\nphotos = {source = 2, target = 3}\n"
            "[totals]\ndrawings = 9\n[versions.cleaned]\ndrawings = 4\n"
        )
        protocol = own(tmp_path, text)
        for domain in protocol.domains:
            write_classes(tmp_path / "data" / domain, dict.fromkeys("abcd", 1))
        assert check(protocol, tmp_path / "data", "unda").problems == [
            "photos has 2 images as target instead of 3.",
        ]
        assert check(protocol, tmp_path / "data").problems == [
            "drawings has 4 images instead of 9; that is the cleaned release.",
        ]

    def test_hints_at_the_usual_mistakes(self, tmp_path: Path) -> None:
        touch(tmp_path / "packed" / "Art.tar.gz")
        touch(tmp_path / "packed" / "Clipart.py")
        reported = check(load_protocol("office-home"), tmp_path / "packed").problems
        assert reported[0].endswith("Art is expected; Art.tar.gz is there, so unpack it.")
        assert reported[1].endswith("Clipart is expected.")
        touch(tmp_path / "deep" / "OfficeHomeDataset_10072016" / "Art" / "Bed" / "1.jpg")
        reported = check(load_protocol("office-home"), tmp_path / "deep").problems
        inner = tmp_path / "deep" / "OfficeHomeDataset_10072016"
        assert reported[0].endswith(f"{inner} has domains in it, so perhaps that is the root.")

    def test_an_unknown_root_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="nowhere is no folder"):
            check(load_protocol("visda"), tmp_path / "nowhere")

    def test_an_unknown_setting_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="a setting of visda is 'opda'; allowed: unda, oda"):
            check(load_protocol("visda"), tmp_path, "opda")

    def test_an_empty_domain(self, tmp_path: Path) -> None:
        birds(tmp_path / "data")
        root = tmp_path / "other"
        (root / "photos").mkdir(parents=True)
        problems = check(own(tmp_path), root).problems
        assert "holds no image in a class folder" in problems[0]

    def test_unmatched_folders_are_noted_and_hostile_names_printed(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        root = birds(tmp_path / "data")
        for name in ("[red]x", "esc\x1b[31m", os.fsdecode(b"caf\xe9")):
            touch(root / "photos" / name / "1.png")
        own(tmp_path)
        DataCheck(str(tmp_path / "own.toml"), root).execute()
        out = capsys.readouterr().out
        assert "photos has folders that are no class: [red]x, caf\\udce9, esc\\x1b[31m." in out

    def test_the_command_line(self) -> None:
        given = DataCheck.parse("data check", ["office-home", "--root", "x", "--setting", "oda"])
        assert given == DataCheck("office-home", Path("x"), "oda")


def test_a_protocol_is_plain_data() -> None:
    """Nothing of a protocol has to be computed to be compared or stored."""
    stored: dict[str, Any] = dataclasses.asdict(load_protocol("visda"))
    assert stored == dataclasses.asdict(load_protocol("visda"))
