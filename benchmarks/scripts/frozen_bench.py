"""The runs of `unida bench`, many at a time on one GPU, with their outputs.

    python benchmarks/scripts/frozen_bench.py PLAN.json OUT --processes 15

PLAN is a list of objects with arguments of `unida bench` (data, settings, methods, tasks, seeds,
options; first_seed and label_noise, a list, if they are given) and the root of the data set. For
frozen runs every domain is embedded once, and the runs take its rows from shared memory. They leave
their results, as `unida bench` writes them, in OUT/NAME.jsonl. With `--dump` their outputs stay too
(OUT/dump-NAME.zip), so that other rules can be fitted to them (`rescore.py`).
"""

import argparse
import dataclasses
import hashlib
import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.multiprocessing as mp

from unida import pipeline
from unida.bench import scoring
from unida.bench.jobs import Job, plan
from unida.bench.results import to_json
from unida.bench.run import resolve_settings
from unida.data.augmentations import EVAL_VIEW, make_view
from unida.data.decode import decode_file
from unida.data.domain import Domain, load_domains
from unida.data.pixels import ArrayStore
from unida.data.samples import IMAGE_SUFFIXES, Samples, read_labelled
from unida.decision.category_shift import balanced_index
from unida.decision.inference import predict_images
from unida.decision.predictor import Predictor
from unida.models.backbones import build_backbone
from unida.models.backbones.base import precomputed_features
from unida.ops.pca import joint_pca
from unida.protocols.tasks import load_protocol, parse_tasks, write_task
from unida.utils.devices import pick_device
from unida.utils.parallel import in_order
from unida.utils.progress import NO_PROGRESS

SHARED = Path("/dev/shm/unida")
DEVICE = pick_device("auto")


def read_plan(file: Path) -> list[tuple[dict[str, Any], Job]]:
    """Return every run with the part of the plan it belongs to; long ones first."""
    jobs = []
    for part in json.loads(file.read_text()):
        protocol = load_protocol(part["data"])
        for setting, numbers in resolve_settings(protocol, part["settings"]).items():
            tasks = parse_tasks(protocol, part["tasks"])
            for job in plan(
                part["data"],
                setting,
                part["methods"],
                tasks,
                range(part.get("first_seed", 0), part["seeds"]),
                part["options"],
                label_noise=part.get("label_noise", [0.0]),
                unknown_classes=numbers,
            ):
                jobs.append((part, job))
    return jobs


def network_key(job: Job) -> str:
    config = job.config(Path("s"), Path("t"), Path("o"))
    text = f"{job.data} {config.model.backbone} {config.data.image_size}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@torch.inference_mode()
def embed_all(part: dict[str, Any], job: Job) -> None:
    """Embed all images of a data set, unless that is done."""
    place = SHARED / network_key(job)
    if place.exists():
        return
    config = job.config(Path("s"), Path("t"), Path("o"))
    backbone = build_backbone(config.model.backbone, config.model.weights).to(DEVICE).eval()
    paths = sorted(p for p in Path(part["root"]).rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    size = config.data.pixel_size
    rows, block = [], []
    for pixels in in_order(lambda p: decode_file(p, size), paths):
        block.append(torch.from_numpy(np.asarray(pixels)))
        if len(block) == 256:
            rows.append(_rows(backbone, block, config.data.image_size))
            block = []
    rows.append(_rows(backbone, block, config.data.image_size))
    place.mkdir(parents=True)
    np.save(place / "rows.npy", torch.cat(rows).numpy())
    (place / "paths.json").write_text(json.dumps([str(p.absolute()) for p in paths]))


def _rows(backbone: Any, block: list[Any], size: int) -> Any:
    images = torch.stack(block).to(DEVICE)
    return backbone(make_view(EVAL_VIEW, images, size, torch.Generator())).float().cpu()


class Worker:
    """Runs jobs in one process."""

    def __init__(self, dump: bool) -> None:
        self.dump = dump
        self.banks: dict[str, tuple[Any, dict[str, int]]] = {}
        torch.set_num_threads(1)

    def domain(self, job: Job, samples: Samples) -> Domain:
        key = network_key(job)
        if key not in self.banks:
            names = json.loads((SHARED / key / "paths.json").read_text())
            rows = torch.from_numpy(np.load(SHARED / key / "rows.npy", mmap_mode="c"))
            self.banks[key] = rows, {name: i for i, name in enumerate(names)}
        rows, index = self.banks[key]
        of_domain = rows[[index[str(path)] for path in samples.paths]]
        return Domain(samples, ArrayStore(of_domain[:, None].to(DEVICE)), DEVICE)

    def run(self, part: dict[str, Any], job: Job) -> tuple[list[str], bytes]:
        place = SHARED / f"run-{os.getpid()}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        task = write_task(
            load_protocol(job.data),
            job.setting,
            job.source,
            job.target,
            Path(part["root"]),
            place / "task",
            unknown_classes=job.unknown_classes,
            label_noise=job.label_noise,
            noise_seed=job.seed,
        )
        config = job.config(task.source, task.target, place / "run").replace(report=False)
        config = pipeline.check_config(config)
        true = read_labelled(task.target)
        samples = {
            "source": read_labelled(task.source),
            "target": dataclasses.replace(true, labels=None, classes=()),
        }
        if config.model.frozen:
            source, target = (self.domain(job, one) for one in samples.values())
            network = precomputed_features(source.pixels.array.shape[-1])
        else:
            source, target = load_domains(config, DEVICE, samples, NO_PROGRESS.task).values()
            network = pipeline.make_backbone(config)
        with mock.patch.object(pipeline, "write_result"):
            result = pipeline.adapt_domains(config, source, target, network)
        with mock.patch.object(scoring, "_arrays"):
            scored = scoring.score_run(result, job, task)
        lines = [to_json(one) for one, _ in scored]
        return lines, self.outputs(result, true, config, source, target) if self.dump else b""

    def outputs(
        self, result: Any, true: Samples, config: Any, source: Domain, of_target: Domain
    ) -> bytes:
        assert true.labels is not None
        target = result.target
        arrays = {"labels": true.labels.astype(np.int16), "classes": np.array(true.classes)}
        for name, scored in (("alone", target.classifier), ("refined", target.scored)):
            best = np.argsort(-scored.probs, 1)[:, :4]
            arrays |= {
                f"{name}_class": best.astype(np.int16),
                f"{name}_prob": np.take_along_axis(scored.probs, best, 1).astype(np.float16),
                f"{name}_score": scored.unknown_score.astype(np.float32),
            }
        if not config.model.frozen:
            collected: list[Any] = []
            model, size = result.model, config.data.image_size
            method = Predictor(model.predictor.method).eval()
            z = predict_images(method, of_target.pixels, size, DEVICE, True, collected)
            y, reference = torch.cat(collected), model.reference
            arrays |= {
                "rows": reference.transform(y).half().cpu().numpy(),
                "reference_images": reference.images.half().cpu().numpy(),
                "reference_labels": reference.labels.cpu().numpy().astype(np.int16),
            }
            some = source.part(balanced_index(torch.from_numpy(source.samples.labels)).numpy())
            of_source = predict_images(method, some.pixels, size, DEVICE, True)
            both = joint_pca([z.features, of_source.features], 128)
            arrays |= {"z": both[0].astype(np.float16), "source_z": both[1].astype(np.float16)}
        if len(result.held_out.samples):
            held = result.held_out
            kept = {str(p) for p in held.samples.paths}
            some = np.array([str(p) in kept for p in source.samples.paths])
            pixels = source.part(np.flatnonzero(some)).pixels
            method = Predictor(result.model.predictor.method).eval()
            alone = predict_images(method, pixels, config.data.image_size, source.device, False)
            arrays |= {
                "held_labels": np.asarray(source.samples.labels)[some].astype(np.int16),
                "held_alone": alone.probs.argmax(1).astype(np.int16),
                "held_refined": held.scored.probs.argmax(1).astype(np.int16),
                "held_paths_equal": np.array([str(p) for p in held.samples.paths])
                == np.array([str(p) for p, k in zip(source.samples.paths, some, strict=True) if k]),
            }
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        return file.getvalue()


def work(jobs: Any, results: Any, dump: bool) -> None:
    worker = Worker(dump)
    while (item := jobs.get()) is not None:
        part, job = item
        begin = time.time()
        try:
            lines, content = worker.run(part, job)
            results.put((part, job, lines, content, time.time() - begin))
        except Exception as error:
            results.put((part, job, [], repr(error).encode(), time.time() - begin))


def finished(jobs: list[Any], processes: int, dump: bool) -> Iterator[Any]:
    context = mp.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for item in jobs:
        todo.put(item)
    for _ in range(processes):
        todo.put(None)
    workers = [context.Process(target=work, args=(todo, done, dump)) for _ in range(processes)]
    for one in workers:
        one.start()
    for _ in jobs:
        yield done.get()
    for one in workers:
        one.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--dump", action="store_true")
    given = parser.parse_args()
    begin = time.time()
    jobs = read_plan(given.plan)
    for part, job in jobs:
        if job.options.get("frozen"):
            embed_all(part, job)
    print(f"embedded, {time.time() - begin:.0f} s; {len(jobs)} runs", flush=True)
    spent: dict[str, list[float]] = {}
    given.out.mkdir(parents=True, exist_ok=True)
    for number, item in enumerate(finished(jobs, given.processes, given.dump)):
        part, job, lines, content, seconds = item
        spent.setdefault(f"{part['name']} {job.entry}", []).append(seconds)
        if not lines:
            print("FAILED", job.name, content.decode(), flush=True)
            continue
        with (given.out / f"{part['name']}.jsonl").open("a") as out:
            out.writelines(line + "\n" for line in lines)
        if given.dump:
            with zipfile.ZipFile(given.out / f"dump-{part['name']}.zip", "a") as archive:
                archive.writestr(f"{job.shift}_{job.name}.npz", content)
        if number % 50 == 0:
            print(f"{number} runs, {time.time() - begin:.0f} s", flush=True)
    for name, values in spent.items():
        print(f"{name}: {len(values)} runs, {np.mean(values):.1f} s each", flush=True)
    print(f"{time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
