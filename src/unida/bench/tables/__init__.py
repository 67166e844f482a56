"""Results → Markdown, LaTeX and CSV, laid out like the paper's tables.

Lives here: which results may be averaged, the columns, the published numbers and the footers.
Does not live here: how a run is scored (`unida.bench.scoring`).
"""
