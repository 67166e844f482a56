"""Collect all measurements of speed in benchmarks/speed/README.md, from the JSON beside it.

python benchmarks/scripts/speed_tables.py
"""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "speed"

ABOUT = {
    "step": "Images a second of (a) the bare network step and (b) our full training step",
    "waiting": "From files to the first step; waiting for data; memory",
    "frozen": "Heads on stored embeddings",
    "cached": "Predictions of a frozen model on images that were embedded before",
    "memory": "A network on the CPU, its memory released or reused; seconds for a hundred images",
    "cpu_network": "A network on the CPU, evaluated; fp32 against the fastest of its kind",
    "cpu_precision": "What bf16 changes in the labels",
    "start_up": "Start of a command, in seconds of the processor",
    "beside": "Training heads beside busy programs",
    "decoding": "Decoding images, in images a second of the processor",
    "frozen_gpu": "Heads on stored embeddings, on a GPU",
    "scale": "How cost grows: slope on log–log axes, 1 is proportional",
    "discover": "Novel categories among random images",
    "serving": "Images a second of the server in examples/serving, beside plain onnxruntime",
    "against": "The same data, another training loop",
}
"""Benchmarks in the order of the page, each with its title."""

COLUMNS: dict[str, tuple[str, ...]] = {
    "step": (
        "method",
        "backbone",
        "batch",
        "precision",
        "mode",
        "bare_images_per_second",
        "full_images_per_second",
        "full_over_bare",
    ),
    "waiting": (
        "mode",
        "first_start_s",
        "second_start_s",
        "first_over_second_start",
        "step_ms",
        "step_over_fixed",
        "waiting_share",
        "own_above_start_mib",
        "growth_mib",
    ),
    "frozen": ("table", "method", "variant", "steps", "seconds", "ms_per_step", "fastest_ms"),
    "cached": (
        "backbone",
        "images",
        "seconds_cached",
        "seconds_computed",
        "times_as_fast",
        "largest_difference",
    ),
    "memory": (
        "network",
        "work",
        "seconds_released",
        "seconds_kept",
        "times_as_fast",
        "mib_released",
        "mib_kept",
    ),
    "cpu_network": (
        "network",
        "way",
        "images_per_second",
        "images_per_cpu_second",
        "over_fastest",
        "over_fastest_by_cpu",
        "start_cpu_seconds",
        "difference",
    ),
    "cpu_precision": ("precision", "images", "other_labels", "h", "largest_feature_difference"),
    "start_up": ("command", "seconds", "cpu_seconds", "over_torch"),
    "beside": ("way", "steps_per_second", "beside", "alone_over_beside", "fair"),
    "decoding": (
        "way",
        "images_per_second",
        "images_per_cpu_second",
        "over_plain",
        "ms",
        "over_cached",
    ),
    "frozen_gpu": ("table", "method", "mode", "steps_per_second", "ms_per_step", "over_eager"),
    "scale": ("axis", "task", "slope", "sizes", "seconds", "host_mib", "stopped_before"),
    "discover": ("slope", "sizes", "seconds", "cpu"),
    "serving": (
        "network",
        "images_per_request",
        "plain_images_per_second",
        "served_images_per_second",
        "served_over_plain",
    ),
    "against": ("who", "batch", "steps_per_second", "images_per_second", "over_theirs"),
}

HEADERS = {"sizes": "largest size", "host_mib": "MiB", "cpu": "seconds of one core"}


def page() -> str:
    lines = [
        "# Speed",
        "",
        "Made by `python benchmarks/scripts/speed_tables.py` from the JSON files here.",
    ]
    for name, title in ABOUT.items():
        contents = [(file, json.loads(file.read_text())) for file in sorted(FOLDER.glob("*.json"))]
        ours = [(file, content) for file, content in contents if content["benchmark"] == name]
        lines += ["", f"## {title}"] if ours else []
        for file, content in ours:
            lines += ["", _where(file, content), "", *_table(content["results"], COLUMNS[name])]
            picture = file.with_suffix(".png")
            lines += ["", f"![{title}]({picture.name})"] if picture.exists() else []
    return "\n".join(lines) + "\n"


def _where(file: Path, content: dict[str, Any]) -> str:
    m = content["machine"]
    command = f"`benchmarks/scripts/{content['benchmark']}.py`"
    return (
        f"{command} on {m['device']}, {m['cores']} cores, torch {m['torch']}, commit "
        f"{m['commit']}; settings in [{file.name}]({file.name})."
    )


def _table(rows: list[dict[str, Any]], wanted: tuple[str, ...]) -> list[str]:
    columns = [name for name in wanted if any(row.get(name) is not None for row in rows)]
    head = " | ".join(HEADERS.get(name, name.replace("_", " ")) for name in columns)
    lines = [f"| {head} |", "|" + "---|" * len(columns)]
    return lines + [f"| {' | '.join(_cell(row.get(name)) for name in columns)} |" for row in rows]


def _cell(value: Any) -> str:
    """Format a number; of a list the last, which belongs to the largest size."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return _cell(value[-1])
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(page())
