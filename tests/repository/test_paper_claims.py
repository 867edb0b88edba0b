"""The paper's sentences about its own tables: which the tables bear out."""

import pytest

from tests.support.paper_claims import CLAIMS

REFUTED = {
    "accuracy improvements of 0.6–1.2% are achieved across the four datasets",
    "our method involves processing only half or fewer training samples",
    "[LAI] maintaining improved performance in general [over LLI]",
    "(the best entry of each column is bold)",
    "nearly 1.5 times memory over LLI or LAI on 20News-N",
    "LAI requires almost the same computational resources as LLI",
    "reducing memory/FLOPs by roughly an order of magnitude",
    "enabling single-run training with minimal overhead",
    "LLI and LAI [...] delivering superior performance to the vanilla method",
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.place}: {claim.said[:40]}")
def test_a_claim_about_a_table_has_the_verdict_that_the_page_prints(claim):
    memory_or_other = claim.said in REFUTED and not claim.place.endswith("operations")
    assert claim.verdict is not memory_or_other, claim.figures


def test_the_figures_of_the_two_claims_that_numbers_alone_decide():
    by_words = {claim.said: claim.found() for claim in CLAIMS if not claim.place.endswith("memory")}
    assert max(by_words["accuracy improvements of 0.6–1.2% are achieved across the four datasets"]) == (
        pytest.approx(1.4)
    )
    assert by_words["our method involves processing only half or fewer training samples"] == pytest.approx(
        [50.93, 51.17, 50.01, 33.45], abs=0.01
    )
