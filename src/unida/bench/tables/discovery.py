"""Tables of novel categories: a row for every method, means over tasks and seeds."""

from statistics import mean, median

from unida.bench.results import Result
from unida.bench.tables.groups import group_results
from unida.bench.tables.render import Table
from unida.errors import UserError

COLUMNS = {
    "All": "all",
    "Old": "old",
    "New": "new",
    "NMI": "nmi",
    "ARI": "ari",
    "H3": "h3",
    "k-means All (oracle)": "kmeans_all",
    "k-means New (oracle)": "kmeans_new",
}
NOTES = (
    "All, Old, New: share in % of all target images, of those of known and of novel classes, in "
    "the cluster of their class, by one Hungarian pairing of classes with predicted known classes "
    "and categories. NMI and ARI are of the images of novel classes.",
    "k-means (oracle): in place of the categories, k-means on the method's features of the "
    "rejected images with the true number of novel classes.",
    "found / true: median of the ratio. error: median of the relative error of the number. in "
    "interval: runs whose interval holds the true number. supported: runs whose features were said "
    "to support a number.",
)


def discovery_tables(results: list[Result]) -> list[Table]:
    """Return a table for every data set and setting with scores of novel categories."""
    scored = [result for result in results if result.discovery.get("true")]
    if not scored:
        raise UserError("No result has scores of novel categories: run `unida bench --discover`.")
    return [_table(group.title, group.results) for group in group_results(scored)]


def _table(title: str, results: list[Result]) -> Table:
    rows = []
    for name in dict.fromkeys(result.row for result in results):
        of_row = [result.discovery for result in results if result.row == name]
        rows.append((name, *cells([_numbers(one) for one in of_row])))
    columns = ("method", *COLUMNS, "found / true", "error", "in interval", "supported", "runs")
    return Table(f"{title}: novel categories", columns, 1, tuple(rows), NOTES, ())


def cells(runs: list[dict[str, float]]) -> list[str]:
    """Return the cells of a row: means in %, medians of the number, and counts of runs."""
    shown = []
    for name in COLUMNS.values():
        values = [run[name] for run in runs if name in run]
        shown.append(f"{100 * mean(values):.1f}" if values else "–")
    n = len(runs)
    return [
        *shown,
        f"{median(run['count'] / run['true'] for run in runs):.2f}",
        f"{100 * median(run['error'] for run in runs):.0f} %",
        f"{sum(run['covered'] for run in runs):.0f} of {n}",
        f"{sum(run['supported'] for run in runs):.0f} of {n}",
        str(n),
    ]


def _numbers(scores: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if value is not None}
