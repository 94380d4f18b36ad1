"""The native part. Use the package ``trimwise``, which re-exports these classes."""

from typing import Any, Final, final

__version__: str

class UsageError(ValueError):
    """An argument or an input file is wrong; nothing was run."""

class RunError(RuntimeError):
    """A run failed."""

class PolicyError(RunError):
    """A policy of your own raised an exception, or returned something other than decisions.

    The cause is its exception, with the traceback."""

class Event:
    """What happened. ``isinstance(event, Event.Committed)`` or ``match`` tell which; units are of 4 KiB."""

    @final
    class Hosted(Event):
        """Describes the host; comes first, once."""

        __match_args__: Final = ("trim_depth", "ranges_max", "range_units_max", "total_units", "group_units",)
        def __new__(cls, trim_depth: int, ranges_max: int, range_units_max: int, total_units: int, group_units: int) -> Event.Hosted: ...

        @property
        def trim_depth(self) -> int:
            """Maximum number of TRIM commands in the device at once; 1 if TRIM is not queued."""
        @property
        def ranges_max(self) -> int:
            """Maximum number of ranges in one command."""
        @property
        def range_units_max(self) -> int:
            """Maximum length of one range."""
        @property
        def total_units(self) -> int:
            """Size of the file system."""
        @property
        def group_units(self) -> int:
            """Size of a block group."""

    @final
    class Committed(Event):
        """A transaction became durable; what it freed (perhaps nothing) is now pending."""

        __match_args__: Final = ("freed_units",)
        def __new__(cls, freed_units: int) -> Event.Committed: ...

        @property
        def freed_units(self) -> int: ...

    @final
    class Issued(Event):
        """A TRIM command that Decision.Issue asked for was acknowledged."""

        __match_args__: Final = ("ranges", "units", "took_ns",)
        def __new__(cls, ranges: int, units: int, took_ns: int) -> Event.Issued: ...

        @property
        def ranges(self) -> int: ...
        @property
        def units(self) -> int: ...
        @property
        def took_ns(self) -> int: ...

    @final
    class PassOver(Event):
        """Decision.Issue found no suitable extent up to the end of the device; the next search starts at its beginning."""

        __match_args__: Final = ()
        def __new__(cls) -> Event.PassOver: ...

    @final
    class Trimmed(Event):
        """A Decision.TrimFree has ended."""

        __match_args__: Final = ("units",)
        def __new__(cls, units: int) -> Event.Trimmed: ...

        @property
        def units(self) -> int: ...

    @final
    class Woken(Event):
        """The time of the last Decision.WakeAt has come."""

        __match_args__: Final = ()
        def __new__(cls) -> Event.Woken: ...

@final
class View:
    """The host at the moment of an event; units are of 4 KiB."""

    @property
    def now_ns(self) -> int:
        """Virtual time."""
    @property
    def used_units(self) -> int: ...
    @property
    def total_units(self) -> int: ...
    @property
    def freed_units(self) -> int:
        """Freed so far by durable commits."""
    @property
    def pending_units(self) -> int:
        """Freed, durable, and not yet trimmed, dropped or allocated again."""
    @property
    def pending_extents(self) -> int: ...
    @property
    def untrimmed_units(self) -> int:
        """Freed and dropped, and not allocated since."""
    @property
    def in_flight(self) -> int:
        """TRIM commands in flight."""
    @property
    def requests(self) -> int:
        """Requests other than TRIMs in the device or waiting for it."""
    @property
    def quiet_ns(self) -> int:
        """How long there have been none."""
    @property
    def requests_done(self) -> int:
        """Requests other than TRIMs that have completed."""
    @property
    def oldest_ns(self) -> int | None:
        """When the oldest in the pending set came there; None unless the policy takes the oldest first."""
    @property
    def served_requests(self) -> int:
        """Reads and writes that the device has completed."""
    @property
    def served_bytes(self) -> int:
        """Bytes that they moved."""
    @property
    def served_time_ns(self) -> int:
        """Total time that they took, from being queued to completion."""
    @property
    def served_busy_ns(self) -> int:
        """Time during which there were some, waiting or in the device."""

class Decision:
    """What a policy decides."""

    @final
    class DropFreed(Decision):
        """Do not trim what the commit freed. Only in answer to Event.Committed."""

        __match_args__: Final = ()

        def __new__(cls) -> Decision.DropFreed: ...

    @final
    class CatchUp(Decision):
        """Make all untrimmed extents pending again."""

        __match_args__: Final = ()

        def __new__(cls) -> Decision.CatchUp: ...

    @final
    class IssueInCommit(Decision):
        """Issue all pending extents before the commit is done. Only in answer to Event.Committed."""

        __match_args__: Final = ("together",)

        def __new__(cls, together: bool = False) -> Decision.IssueInCommit: ...
        @property
        def together(self) -> bool: ...

    @final
    class Issue(Decision):
        """Issue one TRIM command in the background: up to ``ranges_max`` extents of at least ``units_min``, in all at
        most ``units_max`` (None: no limit). ``runs_on``: the last runs on through the free space behind it."""

        __match_args__: Final = ("ranges_max", "units_min", "units_max", "runs_on",)

        def __new__(
            cls, ranges_max: int = 1, units_min: int = 1, units_max: int | None = None, runs_on: bool = False
        ) -> Decision.Issue: ...
        @property
        def ranges_max(self) -> int: ...
        @property
        def units_min(self) -> int: ...
        @property
        def units_max(self) -> int | None: ...
        @property
        def runs_on(self) -> bool: ...

    @final
    class TrimFree(Decision):
        """Trim the free extents of at least ``units_min`` in a range, as FITRIM does; without arguments, everywhere."""

        __match_args__: Final = ("start_unit", "units", "units_min",)

        def __new__(cls, start_unit: int = 0, units: int | None = None, units_min: int = 1) -> Decision.TrimFree: ...
        @property
        def start_unit(self) -> int: ...
        @property
        def units(self) -> int | None: ...
        @property
        def units_min(self) -> int: ...

    @final
    class Reveal(Decision):
        """Tell the device about all pending extents at no cost, which only a model can."""

        __match_args__: Final = ()

        def __new__(cls) -> Decision.Reveal: ...

    @final
    class WakeAt(Decision):
        """Call again at this instant of virtual time, which must be in the future; replaces any earlier request."""

        __match_args__: Final = ("at_ns",)

        def __new__(cls, at_ns: int) -> Decision.WakeAt: ...
        @property
        def at_ns(self) -> int: ...

def bench(request: str) -> str: ...
def compare(request: str, own: list[tuple[str, Any, str, bool, bool]]) -> tuple[str, str, str]: ...
def crashtest(request: str) -> str: ...
def devices() -> str: ...
def doctor(request: str) -> str: ...
def figures() -> str: ...
def findings() -> str: ...
def policies() -> str: ...
def reproduce(request: str) -> str: ...
def sweep(request: str) -> str: ...
def trace_info(trace: str) -> str: ...
def workloads() -> str: ...
