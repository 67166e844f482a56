"""The lists of other projects, read for a folder of one's own."""

import os
from pathlib import Path

import pytest

from tests.images import write_classes, write_image
from unida.errors import UserError
from unida.protocols.lists import read_list

OFFICE = {"back_pack": 3, "bike": 2}
HOME = {"Alarm_Clock": 2, "Curtains": 2}


def write_list(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    return path


def names_of(place: Path, root: Path, domain: str | None = None) -> list[tuple[str, str]]:
    """Images below the root, each with its class."""
    samples = read_list(place, root, domain)
    assert samples.labels is not None
    return [
        (str(path.relative_to(root)), samples.classes[k])
        for path, k in zip(samples.paths, samples.labels, strict=True)
    ]


# By project: how its paths begin, and the name of the list.
OFFICE_LISTS = {
    "ovanet": ("./data/office/amazon/images/", "source_amazon_opda.txt"),
    "san": ("data/office/amazon/images/", "source_amazon_opda.txt"),
    "san on its server": ("/root/data/office/amazon/images/", "source_amazon_opda_zzl.txt"),
    "uniot": ("amazon/images/", "txt/office31/amazon.txt"),
    "dcc": ("/amazon/images/", "dataset/list/office/amazon.txt"),
    "tllib": ("amazon/images/", "image_list/amazon.txt"),
    "glc": ("", "Amazon/image_unida_list.txt"),
}
OFFICE_TREES = ("amazon/images", "amazon", "Amazon/Images")


class TestProjects:
    @pytest.mark.parametrize("tree", OFFICE_TREES)
    @pytest.mark.parametrize("project", OFFICE_LISTS)
    def test_office_lists_are_found_in_every_usual_tree(
        self, tmp_path: Path, project: str, tree: str
    ) -> None:
        begin, name = OFFICE_LISTS[project]
        root = tmp_path / "office31"
        write_classes(root / tree, OFFICE)
        write_classes(root / "dslr" / "images", OFFICE)
        lines = [f"{begin}bike/001.png 1", f"{begin}back_pack/000.png 0"]
        write_image(root / tree / "bike" / "001.png")
        place = write_list(tmp_path / "lists" / name, lines)
        assert names_of(place, root) == [
            (f"{tree}/bike/001.png", "bike"),
            (f"{tree}/back_pack/000.png", "back_pack"),
        ]

    @pytest.mark.parametrize("project", OFFICE_LISTS)
    def test_the_folder_of_the_one_domain_will_do(self, tmp_path: Path, project: str) -> None:
        begin, name = OFFICE_LISTS[project]
        root = write_classes(tmp_path / "pictures", OFFICE)
        place = write_list(tmp_path / "lists" / name, [f"{begin}back_pack/000.png 0"])
        assert names_of(place, root) == [("back_pack/000.png", "back_pack")]

    @pytest.mark.parametrize("project", OFFICE_LISTS)
    @pytest.mark.parametrize("inner", ["", "images"])
    def test_the_folder_of_another_domain_will_not(
        self, tmp_path: Path, project: str, inner: str
    ) -> None:
        begin, name = OFFICE_LISTS[project]
        write_classes(tmp_path / "dslr" / inner, OFFICE)
        place = write_list(tmp_path / "lists" / name, [f"{begin}back_pack/000.png 0"])
        for root in (tmp_path / "dslr", tmp_path / "dslr" / inner):
            with pytest.raises(UserError, match="1 of the 1 files"):
                read_list(place, root)

    @pytest.mark.parametrize("folder", ["Real World", "RealWorld", "Real_World", "Real", "real"])
    @pytest.mark.parametrize(
        "begin", ["../DANCE/data/Real/", "RealWorld/", "OfficeHome/Real_World/", "Real World/"]
    )
    def test_the_fourth_domain_of_office_home_has_many_names(
        self, tmp_path: Path, folder: str, begin: str
    ) -> None:
        write_classes(tmp_path / folder, HOME)
        place = write_list(
            tmp_path / "l.txt",
            [f"{begin}Curtains/003.png 14", f"{begin}Alarm_Clock/000.png 0"],
        )
        assert [name for name, _ in names_of(place, tmp_path)] == [
            f"{folder}/Curtains/003.png",
            f"{folder}/Alarm_Clock/000.png",
        ]

    def test_glc_lists_take_the_domain_from_their_own_folder(self, tmp_path: Path) -> None:
        root = tmp_path / "data"
        for domain in ("Art", "Real World"):
            write_classes(root / domain, HOME)
        place = write_list(
            tmp_path / "GLC" / "Realworld" / "image_unida_list.txt", ["Curtains/002.png 14"]
        )
        assert names_of(place, root) == [("Real World/Curtains/002.png", "Curtains")]

    def test_or_from_the_domain_one_names(self, tmp_path: Path) -> None:
        for domain in ("Art", "Clipart"):
            write_classes(tmp_path / domain, HOME)
        place = write_list(tmp_path / "l.txt", ["Curtains/002.png 14"])
        assert names_of(place, tmp_path, "Clipart") == [("Clipart/Curtains/002.png", "Curtains")]

    @pytest.mark.parametrize("folder", ["validation", "visda_val"])
    def test_visda_has_a_class_called_like_a_domain(self, tmp_path: Path, folder: str) -> None:
        write_image(tmp_path / "train" / "train" / "1.png")
        write_image(tmp_path / folder / "train" / "train_1.png")
        lines = [
            "validation/train/train_1.png 10",
            "data/visda/validation/train/train_1.png 10",
            "/root/data/visda/validation/train/train_1.png 10",
        ]
        place = write_list(tmp_path / "Real.txt", lines)
        assert names_of(place, tmp_path) == [(f"{folder}/train/train_1.png", "train")] * 3

    def test_domainnet_classes_are_the_folders_and_not_the_numbers_in_names(
        self, tmp_path: Path
    ) -> None:
        for name in ("nail/sketch_197_000023.png", "zigzag/sketch_345_000144.png"):
            write_image(tmp_path / "sketch" / name)
        place = write_list(
            tmp_path / "source_dsketch_univ.txt",
            [
                "data/multisource_data/LSDA_ALL/sketch/nail/sketch_197_000023.png 199",
                "data/multisource_data/LSDA_ALL/sketch/zigzag/sketch_345_000144.png 344",
            ],
        )
        assert [label for _, label in names_of(place, tmp_path)] == ["nail", "zigzag"]

    def test_several_domains_in_one_list(self, tmp_path: Path) -> None:
        for domain in ("Art", "Clipart"):
            write_classes(tmp_path / domain, HOME)
        place = write_list(
            tmp_path / "l.txt", ["x/Clipart/Curtains/002.png 1", "x/Art/Curtains/002.png 1"]
        )
        assert [name for name, _ in names_of(place, tmp_path)] == [
            "Clipart/Curtains/002.png",
            "Art/Curtains/002.png",
        ]

    def test_the_longest_end_of_a_path_wins(self, tmp_path: Path) -> None:
        write_classes(tmp_path / "amazon" / "images", OFFICE)
        write_classes(tmp_path / "images", OFFICE)
        place = write_list(tmp_path / "l.txt", ["office/amazon/images/bike/003.png 1"])
        assert names_of(place, tmp_path) == [("amazon/images/bike/003.png", "bike")]


class TestNumbers:
    def read(self, tmp_path: Path, lines: list[str]) -> tuple[str, ...]:
        for line in lines:
            write_image(tmp_path / line.rpartition(" ")[0])
        return read_list(write_list(tmp_path / "l.txt", lines), tmp_path).classes

    def test_unknown_classes_share_the_highest_number(self, tmp_path: Path) -> None:
        lines = ["Art/bed/1.png 0", "Art/fan/1.png 15", "Art/mop/1.png 15", "Art/bus/1.png 3"]
        assert self.read(tmp_path, lines) == ("bed", "bus", "fan", "mop")

    def test_a_lower_number_has_one_folder(self, tmp_path: Path) -> None:
        lines = ["Art/bed/1.png 0", "Art/fan/1.png 0", "Art/mop/1.png 1"]
        with pytest.raises(UserError, match=r"number 0 to 2 folders \(bed, fan\)"):
            self.read(tmp_path, lines)

    def test_a_folder_has_one_number(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="gives the folder bed 2 numbers: 0, 4"):
            self.read(tmp_path, ["Art/bed/1.png 0", "Art/bed/2.png 4"])

    def test_labels_count_the_classes_by_alphabet(self, tmp_path: Path) -> None:
        write_classes(tmp_path / "Art", {"mop": 1, "bed": 1})
        lines = ["Art/mop/000.png 0", "Art/bed/001.png 7"]
        samples = read_list(write_list(tmp_path / "l.txt", lines), tmp_path)
        assert samples.labels is not None
        assert (samples.classes, samples.labels.tolist()) == (("bed", "mop"), [1, 0])


class TestWhatIsSaid:
    def test_how_many_are_missing_and_one_of_them(self, tmp_path: Path) -> None:
        write_classes(tmp_path / "Art", {"bed": 2})
        lines = [f"x/Art/bed/{i:03}.png 0" for i in range(5)]
        with pytest.raises(UserError) as error:
            read_list(write_list(tmp_path / "l.txt", lines), tmp_path)
        assert str(error.value) == (
            f"3 of the 5 files in {tmp_path / 'l.txt'} are not below {tmp_path}, "
            "such as x/Art/bed/002.png."
        )

    def test_the_wrong_root(self, tmp_path: Path) -> None:
        place = write_list(tmp_path / "l.txt", ["Art/bed/1.png 0"])
        for root in (tmp_path, tmp_path / "nowhere", place):
            with pytest.raises(UserError, match="1 of the 1 files"):
                read_list(place, root)

    @pytest.mark.parametrize("line", ["Art/bed/1.png", "Art/bed/1.png -1", "Art/bed/1.png bed"])
    def test_a_line_without_a_number(self, tmp_path: Path, line: str) -> None:
        place = write_list(tmp_path / "l.txt", ["Art/bed/0.png 0", line])
        with pytest.raises(UserError, match=r"line 2: 'path number' is expected, found 'Art/bed"):
            read_list(place, tmp_path)

    def test_a_file_without_a_folder_has_no_class(self, tmp_path: Path) -> None:
        place = write_list(tmp_path / "l.txt", ["../1.png 0"])
        with pytest.raises(UserError, match=r"line 1: '../1.png' has no folder, so no class"):
            read_list(place, tmp_path)

    def test_an_empty_list_and_none_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="lists no image"):
            read_list(write_list(tmp_path / "l.txt", [" "]), tmp_path)
        with pytest.raises(UserError, match="cannot be read: No such file"):
            read_list(tmp_path / "none.txt", tmp_path)


class TestOddNames:
    def test_a_path_cannot_lead_out_of_the_root(self, tmp_path: Path) -> None:
        write_image(tmp_path / "secret" / "1.png")
        root = write_classes(tmp_path / "root", {"bed": 1})
        for listed in ("bed/../../secret/1.png", f"{tmp_path}/secret/1.png", "../secret/1.png"):
            with pytest.raises(UserError, match="1 of the 1 files"):
                read_list(write_list(tmp_path / "l.txt", [f"{listed} 0"]), root)

    def test_spaces_tabs_carriage_returns_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        image = write_image(tmp_path / "Art" / "old bed" / "my photo 2.png")
        place = tmp_path / "l.txt"
        place.write_bytes("\ufeffx/Art/old bed/my photo 2.png\t 3\r\n\r\n".encode())
        samples = read_list(place, tmp_path)
        assert (samples.paths, samples.classes) == ((image,), ("old bed",))

    def test_names_that_are_no_utf8(self, tmp_path: Path) -> None:
        image = write_image(tmp_path / "Art" / "bed" / os.fsdecode(b"caf\xe9.png"))
        place = tmp_path / "l.txt"
        place.write_bytes(b"Art/bed/caf\xe9.png 0\n")
        assert read_list(place, tmp_path).paths == (image,)

    def test_a_class_folder_in_another_spelling(self, tmp_path: Path) -> None:
        image = write_image(tmp_path / "Art" / "Alarm Clock" / "1.png")
        samples = read_list(write_list(tmp_path / "l.txt", ["Art/Alarm_Clock/1.png 0"]), tmp_path)
        assert (samples.paths, samples.classes) == ((image,), ("Alarm_Clock",))
