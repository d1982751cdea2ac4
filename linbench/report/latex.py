"""Tables for papers: LaTeX, with the packages booktabs and graphicx."""

import pandas as pd

PACKAGES = "% \\usepackage[T1]{fontenc}, \\usepackage{booktabs} and \\usepackage{graphicx}"

SIGNS = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}",
        "|": "\\textbar{}", '"': "\\textquotedbl{}", "±": "$\\pm$", "–": "--", "→": "$\\to$",
    }
)  # fmt: skip
"""What LaTeX would take for a command, or has no letter for."""


def escaped(text: str) -> str:
    """As LaTeX sets it, on one line."""
    return " ".join(text.split()).translate(SIGNS)


def tabular(frame: pd.DataFrame, *, caption: str, label: str, align: str) -> str:
    """A floating table, no wider than the text; `align` has a letter for each column."""
    body = frame.map(escaped).to_latex(index=False, escape=False, header=[escaped(str(name)) for name in frame.columns], column_format=align).strip()
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{escaped(caption)}}}\n\\label{{tab:{label}}}\n"
        f"\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%\n{body}}}\n\\end{{table}}\n"
    )
