"""The proposer that never drafts."""

from localspec.speculation.proposer import Nothing, Proposer
from tests.conformance.proposer import ProposerConformance


class TestNothing(ProposerConformance):
    def make(self) -> Proposer:
        return Nothing()
