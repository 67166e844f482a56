"""What is no regular file is not read, except for a pipe where one is meant."""

import os
import threading
from pathlib import Path

import pytest

from unida.data.samples import read_labelled
from unida.errors import UserError
from unida.methods.presets import load_config
from unida.utils.csv_files import read_csv
from unida.utils.files import NotRegularError, read_file


def test_a_list_may_come_from_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    text = b"a.png ant\nb.png bee\n"
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(text,))
    writer.start()
    assert read_labelled(tmp_path / "pipe").classes == ("ant", "bee")
    writer.join()


def test_a_device_and_a_waiting_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        with pytest.raises(NotRegularError):
            read_file(place)
        for read in (load_config, lambda path: read_csv(path, ("path",))):
            with pytest.raises(UserError):
                read(place)
    for place in (Path("/dev/zero"), Path("/dev/full")):
        with pytest.raises(UserError, match="Not a regular file"):
            read_labelled(place)
