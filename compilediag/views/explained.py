"""What `explain --json` prints: a rule with its page, all rules, or one finding with its page."""

from compilediag.diagnosis.codes import CodeInfo
from compilediag.json_document import Document
from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import leading_call
from compilediag.views.findings import export_line
from compilediag.views.lookups import change, events

MAX_COMPILES = 50


class RuleDocument(Document, frozen=True, kw_only=True):
    """One rule."""

    code: str
    slug: str
    sentence: str
    severity: str
    page: str | None
    """Its page as Markdown: what it means, bad and good code, the fix."""


class RulesDocument(Document, frozen=True, kw_only=True):
    """The register."""

    rules: tuple[RuleDocument, ...]


class FindingDocument(Document, frozen=True, kw_only=True):
    """One finding, with what belongs to it elsewhere in the receipt."""

    receipt_id: str
    number: int
    file: str | None
    """Of the line of the program's own to look at first; of the finding's place where none is."""
    line: int | None
    before: str | None
    """What the guard expected."""
    after: str | None
    """What it met."""
    finding: FindingRecord
    compiles: tuple[CompileEvent, ...]
    """At most fifty that it explains."""
    environment: tuple[str, ...]
    """Lines for a shell that may remove it without an edit."""
    rule: RuleDocument
    next: tuple[str, ...]
    """Commands that lead on."""


def rule_document(info: CodeInfo, page: str | None) -> RuleDocument:
    """One rule with its page."""
    return RuleDocument(
        schema="compilediag.rule",
        code=info.code,
        slug=info.slug,
        sentence=info.sentence,
        severity=info.severity,
        page=page,
    )


def finding_document(
    number: int, receipt: Receipt, rule: RuleDocument, suffix: str
) -> FindingDocument:
    """Finding `number` of a receipt.

    Args:
        number: from 1.
        receipt: of the run.
        rule: of the finding.
        suffix: what commands need to find this receipt again.
    """
    finding = receipt.findings[number - 1]
    at, values = leading_call(finding) or finding.location, change(finding, receipt)
    following = [finding.next] if finding.next and not suffix else []
    following += [f"compilediag repro {number}{suffix}", f"compilediag show --timeline{suffix}"]
    return FindingDocument(
        schema="compilediag.finding",
        receipt_id=receipt.receipt_id,
        number=number,
        file=None if at is None else at.file,
        line=None if at is None else at.line,
        before=None if values is None else values[0],
        after=None if values is None else values[1],
        finding=finding,
        compiles=tuple(events(finding, receipt)[:MAX_COMPILES]),
        environment=tuple(export_line(each) for each in finding.fix.candidates),
        rule=rule,
        next=tuple(following),
    )
