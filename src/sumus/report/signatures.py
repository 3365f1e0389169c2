"""Who stands for a run: the hashes that name it, the silos that signed its sums, and room for people
to sign on paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

from sumus.books import RunFolder

__all__ = ["EvidenceSummary", "SignatureView", "signatures_of"]


class EvidenceSummary(Protocol):
    """What was checked of a run's signed certificates; `sumus.parties.audit_evidence` makes one."""

    @property
    def fingerprints(self) -> Sequence[str]:
        """Of the rosters that signed."""
        ...

    @property
    def signers(self) -> Sequence[str]:
        """Silos whose signatures hold."""
        ...

    @property
    def certificates(self) -> int:
        """How many hold."""
        ...

    @property
    def accused(self) -> Sequence[str]:
        """Who is proved to have disagreed with whom, a line each."""
        ...

    @property
    def findings(self) -> Sequence[str]:
        """What contradicts, a line each."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class SignatureView:
    """What the page says about signatures.

    Args:
        verdict: "signed", "contradicted", "not checked" or "none".
        words: what that means.
        rows: (name, value) of what names the run and of who signed.
        findings: what contradicts.
    """

    verdict: str
    words: str
    rows: tuple[tuple[str, str], ...]
    findings: tuple[str, ...] = ()


def signatures_of(run: RunFolder, evidence: EvidenceSummary | None) -> SignatureView:
    """Of one run.

    Args:
        evidence: as it was checked for this page; None: nobody has.
    """
    rows = [("Record", run.head), ("Plan", run.plan_hash)]
    model = (run.summary or {}).get("model_hash")
    if isinstance(model, str):
        rows.append(("Model", model))
    if evidence is not None:
        return _signed_for(run, evidence, rows)
    if run.has_evidence:
        return SignatureView(
            verdict="not checked",
            words="The run holds certificates that silos signed; this page was made without "
            "checking them. “sumus audit evidence RUN” does.",
            rows=tuple(rows),
        )
    return SignatureView(
        verdict="none",
        words="No silo has signed: one process played all of them, and could sign anything. The "
        "hashes tell whether the record, the plan or the model was changed since."
        if run.arithmetic
        else "No silo has signed. The hashes tell whether the record, the plan or the model was "
        "changed since.",
        rows=tuple(rows),
    )


def _signed_for(
    run: RunFolder, evidence: EvidenceSummary, rows: list[tuple[str, str]]
) -> SignatureView:
    rows += [("Roster", fingerprint) for fingerprint in evidence.fingerprints]
    rows.append(("Signed by", _some(evidence.signers)))
    rows += [("Proved", line) for line in evidence.accused]
    rounds = len(run.rounds())
    if evidence.findings:
        return SignatureView(
            verdict="contradicted",
            words="THE SIGNATURES DO NOT BEAR THIS RECORD OUT. Do not sign.",
            rows=tuple(rows),
            findings=tuple(evidence.findings),
        )
    return SignatureView(
        verdict="signed",
        words=f"{evidence.certificates} certificates hold for {rounds} rounds, checked when this "
        "page was made: server and a quorum of silos signed which silos are in each sum, under "
        "this plan, and the record says the same. Compare the roster's fingerprint with your own "
        "copy; “sumus audit evidence RUN --roster FILE” repeats the check offline.",
        rows=tuple(rows),
    )


def _some(names: Sequence[str], most: int = 12) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
