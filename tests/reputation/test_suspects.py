"""Why a client weighs what it weighs: a second reply in a round changes nothing."""

from __future__ import annotations

from tesseract_fl.reputation.records import Verdict
from tesseract_fl.reputation.suspects import explanation

TWICE = [
    Verdict(round=1, client="a", verdict="rewarded", weight=0.5, reputation=0.5),
    Verdict(round=1, client="b", verdict="rewarded", weight=0.5, reputation=0.5),
    Verdict(round=2, client="a", verdict="rewarded", weight=0.5, reputation=1.0),
    Verdict(round=2, client="a", verdict="rejected", code="duplicate_id", detail="one is there", reputation=1.0),
    Verdict(round=2, client="b", verdict="rewarded", weight=0.5, reputation=1.0),
]


def test_a_second_reply_is_told_but_not_counted() -> None:
    of_round = [verdict for verdict in TWICE if verdict.round == 2]
    told = list(explanation("a", 2, of_round, [verdict for verdict in TWICE if verdict.client == "a"]))
    assert told[0] == "In round 2 client a was admitted, and nothing about it stood out."
    assert "  beside that, a reply that did not count: duplicate_id — one is there" in told
    assert "  reputation +1.000 after this round, from +0.500 before" in told
    assert told[-1] == "  so far: 2 × rewarded"
