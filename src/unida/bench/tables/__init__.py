"""Results → Markdown, LaTeX and CSV, laid out like the paper's tables."""
