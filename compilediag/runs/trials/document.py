"""What `fix --json` prints and `fix.json` holds, and what `fix --dry-run --json` prints."""

from msgspec import Struct

from compilediag.json_document import Document
from compilediag.receipt.schema.compiles import Place, ProofRecord, RefusedChange


class TriedRecord(ProofRecord, frozen=True, kw_only=True):
    """A change that was tried, with the points of its certificate."""

    proved: bool
    refused: str | None
    """Why it is not proved."""
    together_with: tuple[str, ...]
    """Ids of findings whose changes were there too."""
    patch: str | None
    """Its edits as a diff; null where it has none, or a file changed meanwhile."""


class NamedFinding(Struct, frozen=True, kw_only=True):
    """A finding of the receipt."""

    id: str
    rule: str
    severity: str
    variable: str | None
    title: str | None
    location: Place | None


class FixedFinding(NamedFinding, frozen=True, kw_only=True):
    """One finding and what was tried for it."""

    candidates: int
    """Changes that there were to try."""
    impossible: tuple[RefusedChange, ...]
    """Edits that the program's text does not allow, each with what stands in the way."""
    tried: tuple[TriedRecord, ...]
    next: str
    """The command that leads on."""


class FixDocument(Document, frozen=True, kw_only=True):
    """Everything that was tried, proved or refused, by finding."""

    receipt_id: str
    runs: int
    seed: int
    fresh_caches: bool
    complete: bool
    """false: the budget was spent, or it was interrupted."""
    notes: tuple[str, ...]
    environment: tuple[str, ...]
    """The proved variables as lines for a shell."""
    findings: tuple[FixedFinding, ...]


class PlannedChange(Struct, frozen=True):
    """A change that would be tried."""

    kind: str
    change: str
    """The line that a user would write."""
    risk: str
    """What else it changes."""


class PlannedFinding(NamedFinding, frozen=True, kw_only=True):
    """One finding and what would be tried for it."""

    changes: tuple[PlannedChange, ...]
    """In the order of trying."""
    impossible: tuple[RefusedChange, ...]
    """Edits that the program's text does not allow, each with what stands in the way."""
    next: str
    """The command that leads on."""


class FixPlanDocument(Document, frozen=True, kw_only=True):
    """What would be tried for each finding; nothing was run."""

    receipt_id: str
    findings: tuple[PlannedFinding, ...]
