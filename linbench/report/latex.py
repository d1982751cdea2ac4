"""Tables for papers: LaTeX, with the packages booktabs and graphicx."""

import pandas as pd

from linbench.common import escape

PACKAGES = "% \\usepackage[T1]{fontenc}, \\usepackage{booktabs} and \\usepackage{graphicx}"


def tabular(frame: pd.DataFrame, *, caption: str, label: str, align: str) -> str:
    """A floating table, no wider than the text; `align` has a letter for each column."""
    # as `header` pandas would fill in what is in braces
    cells = frame.map(escape.latex).set_axis([escape.latex(str(name)) for name in frame.columns], axis=1)
    body = cells.to_latex(index=False, escape=False, column_format=align).strip()
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{escape.latex(caption)}}}\n\\label{{tab:{label}}}\n"
        f"\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%\n{body}}}\n\\end{{table}}\n"
    )
