"""The logger of the library. Only `unida.cli` prints; other programs add a handler of their own."""

import logging

logger = logging.getLogger("unida")


def printable(text: str) -> str:
    """Return the text with characters that are not printable as their escapes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


class _Printable(logging.Filter):
    """Make messages printable: a file name may be no valid text, which fails in most handlers."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), ()
        return True


logger.addFilter(_Printable())
