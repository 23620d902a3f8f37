"""Graph breaks at calls that only write text: `print`, `warnings.warn`, methods of loggers."""

from __future__ import annotations

from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.evidence import BreakEvidence

_OF_LOGGERS = frozenset(("debug", "info", "warning", "error", "critical", "exception", "log"))


def message_writer(finding: FindingRecord) -> str | None:
    """What writes text where the break is: "print", "warnings.warn" or "logging.Logger.info"; torch
    2.7 names no method of a logger: "logging.Logger". None for any other function, whatever its
    name: a `log` of the program's own may do more. Of what torch calls a logger every method is one
    (`warning_once` of libraries): torch can leave it out, and there is no other it could mean.
    """
    if finding.rule != "CD211":
        return None
    broken = BreakEvidence.of(finding.evidence)
    reason = broken.reason or ""
    if reason.startswith("Logger not supported"):
        return "logging.Logger"
    name, module = broken.callee.get("name") or "", broken.callee.get("module") or ""
    owner, _, short = name.rpartition(".")
    if short == "print" and owner in ("", "builtins") and module in ("", "builtins"):
        return "print"
    if short == "warn" and module in ("", "warnings", "_warnings"):
        return "warnings.warn"
    if reason.startswith("logging.Logger method") and owner == "Logger" and short.isidentifier():
        return f"logging.Logger.{short}"
    if short in _OF_LOGGERS and (module.partition(".")[0] == "logging" or owner == "Logger"):
        return f"logging.Logger.{short}"
    return None
