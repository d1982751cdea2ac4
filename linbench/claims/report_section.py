"""The verdicts for the report page of a folder of results."""

import pandas as pd

from linbench.claims.claim import claims
from linbench.claims.page import MEASURES, about, heading, line, measure_rows
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import Verdict, verdict
from linbench.report.page.page import Claimed


def claim_sections(stored: Stored) -> list[Claimed]:
    """Return the verdicts on those claims that rest on trained or timed models, by these results alone.

    Claims of which none of these results tells anything are left out.
    """
    resting = [claim for claim in claims().values() if claim.uses_device]
    verdicts = [verdict(claim, stored) for claim in resting]
    return [_section(each, stored) for each in verdicts if each.rulings]


def _section(verdict: Verdict, stored: Stored) -> Claimed:
    figures = [
        (heading(ruling), pd.DataFrame(measure_rows(verdict.claim, ruling.evidence), columns=MEASURES))
        for ruling in verdict.rulings
    ]
    ids = {name for ruling in verdict.rulings for name in verdict.result_ids(ruling, stored)}
    return Claimed(line(verdict), about(verdict.claim), figures, ids)
