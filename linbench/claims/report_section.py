"""What stored results say of claims, for the page that has everything of a folder."""

import pandas as pd

from linbench.claims.claim import claims
from linbench.claims.page import MEASURES, about, line, measures, where
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import verdict
from linbench.report.page.page import Claimed


def claimed(stored: Stored) -> list[Claimed]:
    """Of every claim that rests on models some of which are among these results, its verdict by all of them
    and by no others."""
    resting = [
        claim for claim in claims().values() if any(claim.measures[name].model for name in claim.deciding)
    ]
    found = [each for each in (verdict(claim, stored) for claim in resting) if each.rulings]
    return [
        Claimed(
            line(each),
            about(each.claim),
            [
                (where(ruling), pd.DataFrame(measures(each.claim, ruling.figures), columns=MEASURES))
                for ruling in each.rulings
            ],
            {name for ruling in each.rulings for name in each.ids(ruling, stored)},
        )
        for each in found
    ]
