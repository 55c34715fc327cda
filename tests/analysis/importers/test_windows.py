"""What a printed line of counters says, and where it contradicts itself."""

from __future__ import annotations

import pytest

from analysis.importers.model import RowError
from analysis.importers.windows import drafts_of, require_rates


@pytest.mark.parametrize(("accepted", "drafted"), [(1, 981), (16, 12_000), (500, 900)])
def test_rates_that_are_all_zero_are_a_filler(accepted: int, drafted: int) -> None:
    with pytest.raises(RowError, match="rates are all 0"):
        require_rates((0.0, 0.0, 0.0), accepted, drafted)
    with pytest.raises(RowError):
        drafts_of(accepted, drafted, 1 + 3 * accepted / drafted, (0.0, 0.0, 0.0))


def test_rates_that_round_to_zero_are_rates() -> None:
    # one token of 1,000 drafts of three: 0.001; of 3,000 drafts: 0.0003, printed 0.000
    require_rates((0.001, 0.0, 0.0), 1, 3000)
    require_rates((0.0, 0.0, 0.0), 1, 9000)
    require_rates((0.0, 0.0, 0.0), 0, 3000)
    require_rates((), 5, 10)
