"""The JSON Schema of receipts, as it is published."""

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[2] / "docs" / "reference" / "receipt.schema.json"


def json_schema() -> dict[str, Any]:
    """The page in docs/, which `make docs` writes and a test holds to the code."""
    return json.loads(PATH.read_text(encoding="utf-8"))
