"""The logger of the library."""

import io
import logging

from unida.utils.logs import logger, printable


def test_a_file_name_that_is_no_text_can_be_logged_to_any_stream() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        logger.warning("left out: %s", "a\udcff\nb.png")
    finally:
        logger.removeHandler(handler)
    stream.seek(0)
    assert stream.read() == "left out: a\\udcff\\nb.png\n"


def test_printable_text_stays() -> None:
    assert printable("größe → 3 %") == "größe → 3 %"
