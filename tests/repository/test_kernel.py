"""Statements under Coq's kernel are tied to the ledger; an incomplete proof fails."""

import shutil

import pytest

from tests.repository.test_ledger import change
from tests.support import kernel, ledger

# Hypotheses of the ledger that a statement's form carries: its types, its quantifiers, the terms it has.
BY_FORM = {
    r"$\alpha$ and $\beta^{(L)}$ are fixed",  # the bound depends on nothing else
    "similarities have any sign",
    r"from the moments of each alone: $\alpha$ is independent of $\beta$",  # of the special case alone
    "samples are not coupled",  # a loss is a function of its own sample's pre-activation
    "losses are unnormalised",
    "one position",
    "one SGD step with a fixed normalisation",
    "one step with a fixed normalisation",
    "the loss after the step is quadratic in the gradient it is given",
    "one activation vector and one output gradient per layer and sample",
    r"$g_k$ is the mean gradient of source $k$",  # a definition that the step is written with
    "$L_V$ is quadratic",
    "one plain SGD step on sample $j$",
    "signs are drawn without looking at $g$ and $h$",
    "the expectation is over the signs",
    "groups are fixed",
    "the variance is over the signs",
    "the variance is over signs and permutations",
    "both are drawn without looking at $g$ and $h$",
    "the batch is its own validation set",
    "nothing overflows or underflows",  # numbers are those of an ordered field
    r"fixed $\alpha$",
    "one validation sample",
    "finite variances",  # the law has finitely many outcomes
    "finite second moments",
    r"over the law of $g^{(L)}$ and $\varepsilon$",
    r"$y_t = \gamma \odot \hat x_t + b$ are all uses of $\gamma$ and $b$",
    r"a chain of $L$ dense layers with one vector per layer and sample",
    r"$\hat x$ does not depend on them",
    r"$\E g^{(L)}$ exists",
    "what is random is left open",
    r"here $\bar J = \E J$",
    "the mean is left open in the text",
    r"$l = 2, \dots, L$",
    r"terms of higher order in $\Delta J$ are left to the residual",
    r"higher-order products of $\Delta J$ are ignored",
    r"the terms that involve $\xi$ are not written",
    r"$D$ is fixed while the step is taken",  # the direction is one vector
    r"$D$ has an entry per parameter",
    r"no momentum",
    r"$\epsilon = 0$",
    r"the moments before the step do not depend on $w$",  # they are bound before the weight is
    r"the inputs of all layers, concatenated, count as one vector",
    r"nothing says that it is short",
    r"$g_z$ and $g_j$ are fixed",  # they are vectors, the noise alone is random
    r"$z \ne j$",  # each has noise of its own
    "both samples share them",  # both gradients come down through one matrix
    "they are independent of $h_z$, $h_j$ and of the gates",  # those are fixed, the weights alone are random
    "schematic by the paper's own word",
    # The statement is for one that stands after it.
    r"the text does not say whether $s$ stands before or after the activation function",
}
# The formula refuted has none of the terms that its hypotheses are about.
FREE = {"decays-with-depth"}
COQ = shutil.which("coqc") is not None


def test_statements_name_slugs_and_hypotheses():
    entries, found = ledger.read(), kernel.claims()
    assert {slug for claim in found for slug in claim.implements + claim.refutes} <= set(entries)
    assert set(kernel.defined()) <= set(entries)
    assert [(claim.key, claim.unnamed) for claim in found if claim.unnamed] == []
    assert {entries[slug].verdict for claim in found for slug in claim.refutes} == {"false as printed"}


def test_kernel_and_ledger_hypotheses_agree():
    entries, used = ledger.read(), set()
    for claim in kernel.claims():
        for slug in claim.implements + claim.refutes:
            stated, named = set(ledger.assumed(entries[slug])), set(claim.hypotheses)
            assert named <= stated, claim.key
            left = set() if slug in FREE else stated - named
            assert left <= BY_FORM, (claim.key, left - BY_FORM)
            used |= left
    assert used == BY_FORM


def test_gaps_in_the_kernel_are_explained():
    found = {slug for claim in kernel.claims() for slug in claim.implements + claim.refutes}
    found |= set(kernel.defined())
    entries = ledger.read()
    silent = {slug for slug, entry in entries.items() if not (entry.reason or entry.outside)}
    assert set(entries) - found <= set(entries) - silent
    assert not found & {slug for slug, entry in entries.items() if entry.outside}
    assert len(found) >= 115


def test_statements_import_only_mathcomp_and_statements():
    """So that whoever reads a change of these files sees every change of what a statement says."""
    for path in (ledger.ROOT / "proofs/coq" / "Statements").glob("*.v"):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "Require" in line]
        assert all(line.startswith(("From mathcomp ", "From LAI.Statements ")) for line in lines), path.name


STATEMENT = """
Definition double (n : nat) : nat := n + n.

(** Two is half of four. *)
(* Implements: half *)
Definition half := forall n, (* $n$ is even *) n = 2 -> double n = 4.
"""
LEMMA = "Lemma used : forall n, n = 2 -> double n = 4. Proof. intros n e. now rewrite e. Qed."
AXIOM = "Axiom used : forall n, n = 2 -> double n = 4."
PROOF = f"""
Require Import LAI.Statements.Sums.
{LEMMA}
Theorem half : Statements.Sums.half. Proof. exact used. Qed.
"""


WITNESS = """
From mathcomp Require Import all_ssreflect.
From LAI Require Import Witness.
From LAI Require Statements.Sums.
Lemma half : ltac:(witness Statements.Sums.half). Proof. by exists 2. Qed.
"""


@pytest.fixture
def small(tmp_path):
    needed = ("Witness.v", "Statements/Networks.v", "Statements/Laws.v")
    files = {name: (ledger.ROOT / "proofs/coq" / name).read_text(encoding="utf-8") for name in needed}
    files |= {"Statements/Sums.v": STATEMENT, "Sums.v": PROOF, "Witnesses/Sums.v": WITNESS}
    for name, text in files.items():
        path = tmp_path / "proofs/coq" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    kernel.main(["--lock"], tmp_path)
    return tmp_path


HALF = "Theorem half : Statements.Sums.half. Proof. exact used. Qed."
TYPE = "ltac:(witness Statements.Sums.half)"
BREAKS = {
    "nothing": ("Sums.v", LEMMA, LEMMA, 0, "Sums.half: no axiom"),
    "an axiom": ("Sums.v", LEMMA, AXIOM, 1, "Sums.half: Axioms: Sums.used"),
    "a gap": ("Sums.v", LEMMA, LEMMA.replace("Qed", "Admitted"), 1, "Sums.half: Axioms: Sums.used"),
    "another theorem": ("Sums.v", HALF, "Theorem half : True. Proof. exact I. Qed.", 1, "Sums.half: "),
    "no witness": ("Witnesses/Sums.v", WITNESS, "", 1, "witness Sums.half: no witness"),
    "a hypothesis that nothing satisfies": ("Statements/Sums.v", "n = 2 ->", "n = 2 -> n < 2 ->", 1, ""),
    "another witness": ("Witnesses/Sums.v", TYPE, "exists n, 1 < n", 1, "no witness"),
    "uses that nobody wrote down": ("uses.lock", "Sums.half", "Sums.half Sums.half", 1, "other theorems"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_breaks_fail_and_are_named(small, capsys, name):
    file, old, new, status, message = BREAKS[name]
    change(small, f"proofs/coq/{file}", old, new)
    assert kernel.main([], small) == (status if COQ else 0)
    assert (message if COQ else kernel.ABSENT) in capsys.readouterr().out


# Where a statement may assume what nothing satisfies, so that it says nothing: definitions, claim, proof.
VACUOUS = {
    "in a definition": ("Definition low n := n < n -> n = 5.", "forall n, low n", "rewrite /low ltnn", "low"),
    "of what exists": ("", "forall n, exists m, n < n -> m = n.+1", "exists 0; rewrite ltnn", "half"),
    "in a type": ("", "forall k : 'I_0, 1 = 2", "case: n", "half"),
    "in a type before others": ("", "forall (k : 'I_0) n, 0 < n -> n = 2", "case: n", "half"),
}


@pytest.mark.parametrize("name", VACUOUS)
def test_vacuous_statements_have_no_witness(small, capsys, name):
    definition, claim, proof, wanting = VACUOUS[name]
    start = "From mathcomp Require Import all_ssreflect.\n"
    files = {
        "Statements/Sums.v": f"{start}{definition}\n(* Implements: half *)\nDefinition half := {claim}.\n",
        "Sums.v": f"{start}From LAI.Statements Require Import Sums.\n"
        f"Theorem half : Statements.Sums.half. Proof. by move=> n; {proof}. Qed.\n",
        "Witnesses/Sums.v": "",
    }
    for file, text in files.items():
        (small / "proofs/coq" / file).write_text(text, encoding="utf-8")
    kernel.main(["--lock"], small)
    capsys.readouterr()
    assert kernel.main([], small) == int(COQ)
    assert (f"witness Sums.{wanting}: no witness" if COQ else kernel.ABSENT) in capsys.readouterr().out
