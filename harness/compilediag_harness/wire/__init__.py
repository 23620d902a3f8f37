"""Events of the journal, the only contract between harness and toolkit, and their lines of JSON.

Invariant: class and field names are the format of journals; none is renamed. An event records what
happened in one process, in torch's own words. Text of the target is bounded
in length, loses its secrets where it is written, and is escaped by the outside.
"""

from __future__ import annotations

from compilediag_harness.wire.caches import *  # noqa: F403 - an event is named once, where it is  # noqa: F403
from compilediag_harness.wire.compiles import *  # noqa: F403
from compilediag_harness.wire.event import *  # noqa: F403
from compilediag_harness.wire.guards import *  # noqa: F403
from compilediag_harness.wire.process import *  # noqa: F403
from compilediag_harness.wire.recording import *  # noqa: F403
from compilediag_harness.wire.steps import *  # noqa: F403
from compilediag_harness.wire.trials import *  # noqa: F403
from compilediag_harness.wire.user_events import *  # noqa: F403

WIRE_VERSION = 1
