"""The notes under a table: data, options, origin and caveats of its numbers."""

from collections import Counter
from collections.abc import Iterable

from unida.bench.results import ALONE, Result
from unida.bench.tables.groups import DataGroup, Line, ResultGroup, traits, usual_options
from unida.bench.tables.published import paper
from unida.bench.tables.recipes import published_settings, searched_settings

SHOWN_OPTIONS = ("steps", "batch", "image_size", "lr", "backbone", "weights", "precision")
SHOWN_IF_SET = ("frozen", "backbone_lr", "batch_norm")
COLLAPSED = 0.2
"""A mean H below this under the method's own rule needs an explanation."""
SEARCHED = "‡ Settings were chosen with this task's target labels"
ORACLE = (
    "oracle: H of the checkpoint that target labels rank best; for reference only, no such choice "
    "can be made in practice."
)
NO_UNKNOWN = (
    "No target image is unknown, so this score is not defined: --metric closed shows accuracy "
    "where nothing is rejected, --metric known the recall under a rule."
)


def footer(group: ResultGroup, lines: list[Line]) -> list[str]:
    """Describe data, options, seeds and origin of the runs in these rows."""
    return [
        _data(group),
        *_runs(group.results, lines),
        *_unlike_the_paper(group),
        *_refined(lines),
        *published_settings(lines),
        *searched_settings(lines),
        *_reconstructions(lines),
    ]


def shifts_footer(group: DataGroup, lines: list[Line]) -> list[str]:
    """Describe the same of a data set with several category shifts."""
    numbers = (f"{name} {' / '.join(map(str, s.classes))}" for name, s in group.shifts.items())
    by_tasks: dict[tuple[str, ...], list[str]] = {}
    for name, shift in group.shifts.items():
        by_tasks.setdefault(tuple(shift.tasks), []).append(name)
    tasks = [f"{_list(tasks)} ({_list(names)})" for tasks, names in by_tasks.items()]
    return [
        f"Data: {group.results[0].data}; shared / source-private / target-private classes: "
        f"{_list(numbers)}.",
        f"Tasks: {'; '.join(tasks) if len(tasks) > 1 else _list(next(iter(by_tasks)))}.",
        *_runs(group.results, lines),
        *_refined(lines),
        *published_settings(lines),
        *searched_settings(lines),
        *_reconstructions(lines),
    ]


def _runs(results: list[Result], lines: list[Line]) -> list[str]:
    runs = [run for line in lines for run in line.all_runs()]
    return [_options(results, runs), _seeds(lines), _made_with(runs)]


def how_measured(what: str, lines: list[Line]) -> str:
    """Return the first note of every table."""
    counts = {len(seeds) for line in lines for seeds in line.runs.values()}
    spread = "mean ± sample standard deviation over seeds"
    spread = "one seed, so without a deviation" if counts == {1} else spread
    return f"Last step; in a run, target labels are used for scoring only. {what}, {spread}."


def usual_count(lines: list[Line]) -> int:
    """Return the number of seeds most cells have; cells with another number are marked."""
    return Counter(len(s) for line in lines for s in line.runs.values()).most_common(1)[0][0]


def _data(group: ResultGroup) -> str:
    first = group.results[0]
    shared, private, unknown = group.classes
    return (
        f"Data: {first.data}; {first.setting} with {shared} shared / {private} source-private / "
        f"{unknown} target-private classes."
    )


def _options(results: list[Result], runs: list[Result]) -> str:
    usual = usual_options(results)
    texts = []
    set_ = [name for name in SHOWN_IF_SET if _is_set(usual.get(name))]
    for name in (*SHOWN_OPTIONS, *set_):
        base = usual.get(name, "not recorded")
        others = sorted({traits(run).get(name, "not recorded") for run in runs} - {base})
        but = f" ({', '.join(others)} where a row says so)" if others else ""
        texts.append(f"{name.replace('_', ' ')} {base}{but}")
    return f"Runs: {', '.join(texts)}."


def _is_set(value: str | None) -> bool:
    return value not in (None, "None", "False", "auto")


def _seeds(lines: list[Line]) -> str:
    sets = {tuple(sorted(seeds)) for line in lines for seeds in line.runs.values()}
    text = f"Seeds: {_list(sorted({seed for one in sets for seed in one}))}"
    if len(sets) > 1:
        return text + ", not all of them in every cell."
    return text + (" (one seed)." if len(next(iter(sets))) == 1 else ".")


def other_counts(rows: Iterable[tuple[str, ...]], usual: int) -> list[str]:
    """Explain `(n=2)` where a cell has it."""
    if not any("(n=" in cell for row in rows for cell in row):
        return []
    return [
        f"(n=…): the number has that many seeds, others have {usual}; in an average, seeds that "
        "have all tasks."
    ]


def _made_with(runs: list[Result]) -> str:
    values: dict[str, set[str]] = {"commit": set()}
    for run in runs:
        values["commit"].add(run.made_with.get("commit", "not recorded"))
        for name, value in run.made_with.items():
            values.setdefault(name, set()).add(value)
    shown = {k: v for k, v in values.items() if k not in SHOWN_OPTIONS}
    texts = [f"{name} {_list(sorted(found))}" for name, found in shown.items()]
    return f"Made with: {'; '.join(texts)}."


def _unlike_the_paper(group: ResultGroup) -> list[str]:
    table = group.data and paper().find_table(group.data, group.results[0].setting)
    if not table or group.table:
        return []
    numbers = " / ".join(map(str, table.classes))
    return [f"Table {table.number} of the paper has {numbers} classes, so it is not shown beside."]


def _refined(lines: list[Line]) -> list[str]:
    if all(line.refine == ALONE for line in lines):
        return []
    return [
        "'+ …': predictions were refined on the target after training; a row without it is the "
        "method alone. '+ refinement' is k-NN smoothing, twice, and target prototypes; 'knn' is "
        "smoothing without prototypes, '(z)' smoothing once."
    ]


def _reconstructions(lines: list[Line]) -> list[str]:
    if not any(line.is_reconstruction for line in lines):
        return []
    return [
        "'reconstruction': the authors released no code, so the row is this project's reading of "
        "the idea and no reproduction of the published method."
    ]


def incomplete(lines: list[Line], tasks: list[str]) -> list[str]:
    """Name the rows without an average, and why they have none."""
    by_count: dict[int, list[str]] = {}
    for line in lines:
        done = sum(task in line.runs for task in tasks)
        if done < len(tasks):
            by_count.setdefault(done, []).append(line.label)
    return [
        f"{count} of {len(tasks)} tasks are done, so there is no average: {', '.join(labels)}."
        for count, labels in sorted(by_count.items())
    ]


def published_notes(group: ResultGroup, shown: list[str]) -> list[str]:
    """Explain the dagger, and return slips and notes that concern the published rows shown."""
    if not group.table or not shown:
        return []
    first = f"† published: Table {group.table.number} of the {paper().name}, as printed."
    return [f"{first} {paper().caveat}", *group.table.remarks(shown)]


def explanations(lines: list[Line], notes: dict[str, str]) -> list[str]:
    """Return the notes on rows of the table; a collapsed row without one is reported as such."""
    found = []
    for line in lines:
        low = [f"{h:.1f} % on {task}" for task, h in _collapsed(line)]
        note = notes.get(line.row, notes.get(line.entry))
        if low:
            why = note or "not explained yet."
            found.append(f"{line.label} collapsed (H {_list(low)} under its own rule): {why}")
        elif note:
            found.append(f"{line.label}: {note}")
    return found


def _collapsed(line: Line) -> Iterable[tuple[str, float]]:
    for task, seeds in line.runs.items():
        scores = [run.rules["own"].scores.get("h") for run in seeds.values() if "own" in run.rules]
        defined = [h for h in scores if h is not None and h == h]
        if defined and sum(defined) / len(defined) < COLLAPSED:
            yield task, 100 * sum(defined) / len(defined)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
