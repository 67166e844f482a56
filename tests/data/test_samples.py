"""Readers of images: what they find, in which order, and their errors."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images import ordinary_user, write_classes, write_folder, write_image
from unida.data.samples import Samples, read_labelled, read_source, read_unlabelled
from unida.errors import UserError


def labels_by_name(place: Path) -> dict[str, str]:
    samples = read_labelled(place)
    assert samples.labels is not None
    return {
        str(path): samples.classes[k] for path, k in zip(samples.paths, samples.labels, strict=True)
    }


class TestClassFolders:
    def test_a_sub_folder_is_a_class(self, tmp_path: Path) -> None:
        write_classes(tmp_path, {"cat": 1, "ant": 2})
        samples = read_labelled(tmp_path)
        assert samples.classes == ("ant", "cat")
        assert samples.labels is not None
        assert samples.labels.tolist() == [0, 0, 1]
        assert [path.parent.name for path in samples.paths] == ["ant", "ant", "cat"]

    def test_images_deeper_down_belong_to_the_class(self, tmp_path: Path) -> None:
        deep = write_image(tmp_path / "cat" / "at night" / "x.png")
        assert labels_by_name(tmp_path) == {str(deep): "cat"}

    def test_order_is_by_name_and_not_by_time(self, tmp_path: Path) -> None:
        names = ["b/2.png", "a/9.png", "b/1.png", "a/sub/0.png", "a/10.png"]
        for name in names:
            write_image(tmp_path / name)
        found = [str(path.relative_to(tmp_path)) for path in read_labelled(tmp_path).paths]
        assert found == ["a/10.png", "a/9.png", "a/sub/0.png", "b/1.png", "b/2.png"]

    def test_hidden_files_and_folders_are_left_out(self, tmp_path: Path) -> None:
        visible = write_image(tmp_path / "cat" / "x.png")
        for hidden in ("cat/.y.png", "cat/.trash/z.png", ".git/x.png", ".loose.png"):
            write_image(tmp_path / hidden)
        samples = read_labelled(tmp_path)
        assert samples.paths == (visible,)
        assert samples.classes == ("cat",)
        assert samples.skipped == ()

    def test_other_files_are_left_out(self, tmp_path: Path) -> None:
        visible = write_image(tmp_path / "cat" / "x.JPG")
        (tmp_path / "cat" / "notes.txt").write_text("x")
        assert read_labelled(tmp_path).paths == (visible,)

    def test_a_loose_image_is_noted_as_skipped(self, tmp_path: Path) -> None:
        write_image(tmp_path / "cat" / "x.png")
        loose = write_image(tmp_path / "loose.png")
        (skipped,) = read_labelled(tmp_path).skipped
        assert (skipped.path, skipped.reason) == (loose, "outside any class folder")

    def test_a_linked_class_folder_counts(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "elsewhere", 2)
        write_folder(tmp_path / "root" / "ant", 1)
        (tmp_path / "root" / "cat").symlink_to(tmp_path / "elsewhere")
        assert sorted(labels_by_name(tmp_path / "root").values()) == ["ant", "cat", "cat"]

    def test_no_image_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="one sub-folder a class is needed"):
            read_labelled(tmp_path)


class TestPlainFolders:
    def test_every_image_of_the_tree_is_found_in_a_fixed_order(self, tmp_path: Path) -> None:
        for name in ("b.png", "z/1.bmp", "a.JPEG", "z/y/0.gif", ".hidden.png"):
            write_image(tmp_path / name)
        samples = read_unlabelled(tmp_path)
        found = [str(path.relative_to(tmp_path)) for path in samples.paths]
        assert found == ["a.JPEG", "b.png", "z/1.bmp", "z/y/0.gif"]
        assert samples.labels is None

    def test_linked_folders_are_followed_once(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "elsewhere", 2)
        tree = write_folder(tmp_path / "tree", 1)
        (tree / "link").symlink_to(tmp_path / "elsewhere")
        (tree / "loop").symlink_to(tree)
        found = [str(path.relative_to(tree)) for path in read_unlabelled(tree).paths]
        assert found == ["000.png", "link/000.png", "link/001.png"]

    def test_one_image_is_a_set_of_one(self, tmp_path: Path) -> None:
        path = write_image(tmp_path / "x.png")
        assert read_unlabelled(path).paths == (path,)

    def test_no_image_is_an_error_that_lists_the_suffixes(self, tmp_path: Path) -> None:
        (tmp_path / "x.doc").write_text("x")
        with pytest.raises(UserError, match=r"holds no image: files ending in \.avif, \.bmp"):
            read_unlabelled(tmp_path)

    @pytest.mark.parametrize("mode", [0o000, 0o444])
    def test_a_folder_without_permission_is_an_error_that_names_it(self, mode: int) -> None:
        with tempfile.TemporaryDirectory() as root:
            locked = write_classes(Path(root, "locked"), {"cat": 1})
            os.chmod(root, 0o755)
            locked.chmod(mode)
            with ordinary_user(), pytest.raises(UserError, match=r"locked.* cannot be read: Perm"):
                read_labelled(locked)
            locked.chmod(0o755)


class TestListFiles:
    def test_paths_are_relative_to_the_lists_folder_and_may_hold_spaces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "away").mkdir()
        monkeypatch.chdir(tmp_path / "away")
        place = tmp_path / "list.txt"
        place.write_text("x.png ant\n\n  my cats/big one.png cat \r\n/abs/y.jpg ant\n")
        assert labels_by_name(place) == {
            str(tmp_path / "x.png"): "ant",
            str(tmp_path / "my cats/big one.png"): "cat",
            "/abs/y.jpg": "ant",
        }

    def test_a_list_of_targets_needs_no_labels(self, tmp_path: Path) -> None:
        place = tmp_path / "list"
        place.write_text("big one.png\nx.png 3\n")
        assert read_unlabelled(place).paths == (tmp_path / "big one.png", tmp_path / "x.png")

    def test_a_line_without_a_label_is_an_error_that_names_the_line(self, tmp_path: Path) -> None:
        place = tmp_path / "list.txt"
        place.write_text("x.png ant\ny.png\n")
        with pytest.raises(UserError, match=r"list.txt, line 2: 'path label' is expected.*y\.png"):
            read_labelled(place)

    def test_a_name_that_is_not_utf_8_stays_itself(self, tmp_path: Path) -> None:
        place = tmp_path / "list.txt"
        place.write_bytes(b"bad\xff\xe2\x80\xa8.png ant\n")
        (path,) = read_labelled(place).paths
        assert os.fsencode(path.name) == b"bad\xff\xe2\x80\xa8.png"

    def test_an_empty_list_is_an_error(self, tmp_path: Path) -> None:
        place = tmp_path / "list.txt"
        place.write_text("\n")
        with pytest.raises(UserError, match=r"list\.txt lists no image"):
            read_labelled(place)

    def test_an_image_is_no_list(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"x\.png is neither a folder, a list"):
            read_labelled(write_image(tmp_path / "x.png"))


class TestCSV:
    def test_columns_are_found_by_name(self, tmp_path: Path) -> None:
        place = tmp_path / "all.csv"
        place.write_text('label,size,path\nant,3,x.png\n"big, cat",4,"a ""b"", c.png"\n')
        assert labels_by_name(place) == {
            str(tmp_path / "x.png"): "ant",
            str(tmp_path / 'a "b", c.png'): "big, cat",
        }
        assert len(read_unlabelled(place)) == 2

    def test_space_around_a_label_is_removed(self, tmp_path: Path) -> None:
        place = tmp_path / "all.csv"
        place.write_text("path,label\na.png,ant\nb.png,ant \nc.png,bee\n")
        assert read_labelled(place).classes == ("ant", "bee")

    def test_a_quoted_name_may_hold_any_line_break(self, tmp_path: Path) -> None:
        place = tmp_path / "all.csv"
        place.write_bytes('path\n"a\rb\r\nc\nd\x85e\u2028.png"\n'.encode())
        assert read_unlabelled(place).paths == (tmp_path / "a\rb\r\nc\nd\x85e\u2028.png",)

    def test_a_byte_order_mark_is_no_part_of_the_first_column(self, tmp_path: Path) -> None:
        place = tmp_path / "excel.csv"
        place.write_bytes(b"\xef\xbb\xbfpath,label\r\nx.png,ant\r\n")
        assert labels_by_name(place) == {str(tmp_path / "x.png"): "ant"}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("path,class\nx.png,a\n", r"no column 'label'; its columns are \['path', 'class'\]"),
            ("file,label\nx.png,a\n", "no column 'path'"),
            ("", "no column 'path'"),
            ("path,label\nx.png,ant\ny.png\n", "line 3: the label is missing"),
            ("path,label\nx.png,ant\n,ant\n", "line 3: the path is missing"),
            ("label,path\nant\n", "line 2: the path is missing"),
            ("path,label\n" + "x" * 200_000 + ",a\n", "after line 1: field larger than"),
            ("path,label\n", "lists no image"),
            ("path,label\nx.png,ant\nx.png,bee\n", "x.png both 'ant' and 'bee': keep one"),
        ],
    )
    def test_a_faulty_table_is_an_error_that_names_the_place(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        place = tmp_path / "all.csv"
        place.write_text(text)
        with pytest.raises(UserError, match=rf"all\.csv.*{message}"):
            read_labelled(place)


class TestPlaces:
    @pytest.mark.parametrize("read", [read_labelled, read_unlabelled])
    @pytest.mark.parametrize(
        ("place", "message"),
        [
            ("", "No folder was given"),
            ("/no/such/place", "/no/such/place does not exist"),
            ("x" * 300, "x cannot be read: File name too long"),
        ],
    )
    def test_a_missing_place_is_an_error(
        self, read: Callable[[str], Samples], place: str, message: str
    ) -> None:
        with pytest.raises(UserError, match=message):
            read(place)


class TestSource:
    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["only"], "has one class, 'only'"),
            (["Cat", "cat", "dog"], r"differ only in case \(Cat, cat\)"),
            (["STRASSE", "straße"], r"differ only in case \(STRASSE, straße\)"),
            (["cat", "unknown"], "has a class called 'unknown'"),
            (["cat", "Unknown"], "has a class called 'Unknown'"),
            (["cat", "unknown\u200b"], r"has a class called 'unknown\\u200b'"),
            (["caf\u00e9", "cafe\u0301"], r"look alike \('cafe\\u0301', 'caf\\xe9'\)"),
            (["cat", "c\u200dat"], r"look alike \('cat', 'c\\u200dat'\)"),
        ],
    )
    def test_ambiguous_classes_are_refused(
        self, tmp_path: Path, names: list[str], message: str
    ) -> None:
        write_classes(tmp_path, dict.fromkeys(names, 1))
        with pytest.raises(UserError, match=message):
            read_source(tmp_path)

    def test_two_classes_are_enough(self, tmp_path: Path) -> None:
        assert read_source(write_classes(tmp_path, {"a": 1, "b": 1})).classes == ("a", "b")
