"""What a killed process was writing is removed; what a living one writes is not."""

import os
from pathlib import Path

from unida.training.run_folder import write_text
from unida.utils.parts import new_part


def test_what_a_killed_process_left_goes_when_the_file_is_written(tmp_path: Path) -> None:
    left = {tmp_path / ".a.csv.0123abcd.part", tmp_path / ".a.csv.99999999.part"}
    others = {tmp_path / ".b.csv.0123abcd.part", tmp_path / ".a.csv.thesis.part"}
    for place in left | others:
        place.write_text("half")
    write_text(tmp_path / "a.csv", "whole")
    assert set(tmp_path.iterdir()) == others | {tmp_path / "a.csv"}


def test_an_empty_part_of_a_living_process_stays(tmp_path: Path) -> None:
    with new_part(tmp_path / "a.csv") as (part, file):
        write_text(tmp_path / "a.csv", "of another")
        file.write(b"of this one")
        file.flush()
        part.replace(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "of this one"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_pipe_and_a_link_under_such_a_name_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".a.csv.0123abcd.part")
    (tmp_path / ".a.csv.99999999.part").symlink_to("/dev/zero")
    write_text(tmp_path / "a.csv", "whole")
    assert len(list(tmp_path.iterdir())) == 3
