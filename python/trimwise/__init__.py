"""To TRIM or not to TRIM: answered for one SSD, file system and workload, with numbers.

Three lines give a table::

    import trimwise
    comparison = trimwise.compare(["off", "commit", "lazy+reuse"], workload="oltp", reps=3)
    print(comparison)

Devices, policies and workloads are written as for the command ``trimwise compare``; a policy may also be a class of your
own, a :class:`Policy`. Everything runs in virtual time: the same seed gives the same result.
"""

from __future__ import annotations

import json
import operator
import os
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Sequence, Union

from . import _native
from ._native import Decision, Event, PolicyError, RunError, UsageError, View

__version__: str = _native.__version__

__all__ = [
    "Bench",
    "Cell",
    "Claim",
    "Comparison",
    "Conclusion",
    "CrashTest",
    "Decision",
    "Event",
    "Figure",
    "Finding",
    "FindingKind",
    "Policy",
    "PolicyError",
    "PolicyTerm",
    "Profile",
    "Reproduction",
    "RunError",
    "SummaryRow",
    "SweepSummary",
    "Trace",
    "UsageError",
    "Verdict",
    "View",
    "Workload",
    "bench",
    "compare",
    "crashtest",
    "doctor",
    "figures",
    "findings",
    "policies",
    "profiles",
    "reproduce",
    "run",
    "sweep",
    "workloads",
]


class Policy:
    """A policy of your own: a class with one method, :meth:`on_event`.

    Each run makes a new object, without arguments, so a policy may keep what it likes in ``self``. Everything that it
    decides must follow from the events: then a run repeats exactly.

    A policy never holds blocks. It decides when a TRIM is sent and how large it may be; the host takes the blocks out of
    the set of those that may be trimmed. So no policy, however wrong, can lose data or trim a block twice.
    """

    #: Its name in tables; that of the class if this is empty.
    name: str = ""
    #: When freed blocks may be allocated again: ``after_commit``, ``after_issue`` (of their TRIM), or ``reuse``: after
    #: the commit, and in preference to others.
    availability: str = "after_commit"
    #: Whether freed extents of different commits merge where they touch.
    merges: bool = True
    #: Whether commands take the extent that has waited longest, not the next by address; extents then merge.
    takes_oldest_first: bool = False

    def on_event(self, event: Event, view: View) -> Union[None, Decision, Iterable[Decision]]:
        """Returns what to do about an event: None, a decision, or several in order.

        Whatever else it returns, or raises, ends the run with a :class:`PolicyError`.
        """
        raise NotImplementedError(f"{type(self).__name__}.on_event")


PolicyLike = Union[str, Callable[[], Policy]]


@dataclass(frozen=True)
class Cell:
    """One run: a device, a policy, a repetition. ``json`` has all that ``trimwise compare --json`` says about it."""

    device: str
    policy: str
    rep: int
    #: Duration of the workload in virtual time; over days, the time that its tasks waited in their operations.
    duration_ns: int
    #: Figures of the device: ``write_amplification``, ``erases``, ``trim_commands``...
    device_stats: dict[str, Any]
    #: Where freed units went, and what TRIM cost and saved.
    ledger: dict[str, Any]
    #: ``count``, ``p50_ns``, ``p99_ns``, ``p999_ns`` and ``max_ns`` of each operation.
    latency: dict[str, dict[str, int]]
    json: dict[str, Any] = field(repr=False)
    _row: dict[str, Any] = field(repr=False)

    @staticmethod
    def _of(json: dict[str, Any], row: dict[str, Any]) -> Cell:
        return Cell(
            device=json["device"],
            policy=json["policy"],
            rep=json["rep"],
            duration_ns=json["duration_ns"],
            device_stats=json["device_stats"] or {},
            ledger=json["ledger"] or {},
            latency=json["latency"],
            json=json,
            _row=row,
        )

    def to_row(self) -> dict[str, Any]:
        """All figures but series in one row with the columns of a sweep; what the run does not have is None."""
        return dict(self._row)


@dataclass(frozen=True)
class SummaryRow:
    """The medians of a policy on a device. ``json`` has all that the command's JSON has: the figures whose
    ``in_summary`` is true, and in ``ledger`` those whose ``in_summary_ledger`` is (see :func:`figures`)."""

    device: str
    policy: str
    #: What a host with this drive needs in order to have it: ``stock``, ``trimwised``, ``own``, ``ext4-trim``,
    #: ``dm-trim``, ``elsewhere`` or ``bound``.
    means: str
    reps: int
    #: What policies are judged by: ``total``, ``fsync``...
    measure: str
    median_s: float
    low_s: float
    high_s: float
    #: Change against the baseline; None for the baseline itself.
    vs_baseline_percent: float | None
    json: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Verdict:
    """Which policy to use."""

    #: None if the runs cannot tell, or devices differ.
    policy: str | None
    #: How many times as fast as the baseline, with its confidence interval; None over several devices.
    speedup: float | None
    low: float | None
    high: float | None
    text: str
    why: str
    json: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Conclusion:
    """What to do, as all commands say it."""

    #: ``keep``, ``change``, ``untrimmed``, ``does_not_matter`` or ``cannot_tell``.
    decision: str
    #: The policy to have; if nothing is to be changed, the one that is there.
    policy: str | None
    #: At most five lines.
    head: list[str]
    #: What the policy is worth, or what the next best costs: ``time_saved_percent``, ``life_times``...
    worth: dict[str, Any] | None
    json: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return "\n".join(self.head)


def _picked(kind: Any, json: dict[str, Any]) -> Any:
    names = [name for name in kind.__dataclass_fields__ if name != "json"]
    return kind(**{name: json.get(name) for name in names}, json=json)


@dataclass(frozen=True)
class Comparison:
    """Policies compared; ``print`` shows the table of the command."""

    cells: list[Cell]
    summary: list[SummaryRow]
    verdict: Verdict
    conclusion: Conclusion
    seed: int
    text: str = field(repr=False)
    json: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def to_pandas(self) -> Any:
        """A data frame with a row for each run, and the columns of a sweep."""
        import pandas

        return pandas.DataFrame([cell.to_row() for cell in self.cells])

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row for each run, and the columns of a sweep."""
        import pyarrow

        return pyarrow.Table.from_pylist([cell.to_row() for cell in self.cells])


@dataclass(frozen=True)
class Profile:
    """A built-in profile of an SSD; its ``name`` is a device. The path of a profile of your own works, too."""

    name: str
    description: str
    capacity_bytes: int
    json: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FindingKind:
    """A kind of finding: its code, which never changes between versions, what it means, and what to do."""

    code: str
    severity: str
    meaning: str
    remedy: str
    found_by: str
    page: str
    json: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return self.code


@dataclass(frozen=True)
class Finding:
    """What the doctor found; ``code`` names one of :func:`findings`, unless a newer version found it."""

    code: str
    #: The mount point of the file system concerned, or None for the whole host and what was not checked.
    mount: str | None
    wrong: bool
    place: str
    what: str
    mend: str | None
    commands: list[str]
    undo: list[str]
    nothing_helps: bool
    json: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.place}: {self.what} [{self.code}]"


@dataclass(frozen=True)
class PolicyTerm:
    """A term of policies: how it is written, and what it does. Terms are joined with ``+``."""

    term: str
    meaning: str
    json: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return self.term


@dataclass(frozen=True)
class Workload:
    """A named workload, with parameters: ``str(workload("lsm", reads=90))`` is ``lsm:reads=90``."""

    name: str
    about: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    json: dict[str, Any] = field(default_factory=dict, repr=False)

    def __call__(self, **parameters: Any) -> Workload:
        """Returns a copy with these parameters."""
        return Workload(self.name, self.about, {**self.parameters, **parameters}, self.json)

    def __str__(self) -> str:
        given = ",".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.name}:{given}" if given else self.name


@dataclass(frozen=True)
class Figure:
    """A figure that tables, JSON and data sets show."""

    #: Its key, with the unit, if it has one, at the end.
    key: str
    meaning: str
    #: None for counts and ratios.
    unit: str | None
    #: Whether less of it is better; None if neither is.
    less_is_better: bool | None
    #: Whether :attr:`SummaryRow.json` has it.
    in_summary: bool
    #: Whether its ``ledger`` has it.
    in_summary_ledger: bool
    #: Whether it is a column of a sweep, next to the figures of :attr:`Cell.json`.
    is_column: bool
    json: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True)
class Trace:
    """A block trace as a workload: a file, and how it is replayed (``open``, ``closed``, ``depth=8``, ``wrap``...)."""

    path: Union[str, os.PathLike[str]]
    options: tuple[str, ...] = ()
    format: str = ""

    def __str__(self) -> str:
        parts = [part for part in (self.format, os.fspath(self.path), *self.options) if part]
        return ":".join(["trace", *parts])

    def info(self) -> dict[str, Any]:
        """What is in it, as ``trimwise trace info --json`` says."""
        path = os.fspath(self.path)
        return _read(_native.trace_info(f"{self.format}:{path}" if self.format else path))


def _read(document: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(document)
    return read


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    try:
        # Whole numbers of other packages, such as numpy's.
        return operator.index(value)
    except TypeError:
        return str(value)


def _request(**values: Any) -> str:
    """The JSON of a request; what is None has its default."""
    return json.dumps({key: value for key, value in values.items() if value is not None}, default=_plain)


def _listed(value: Any) -> list[Any]:
    is_one = isinstance(value, (str, os.PathLike, Profile, PolicyTerm, type)) or not isinstance(value, Iterable)
    return [value] if is_one else list(value)


def compare(
    policies: Union[PolicyLike, Sequence[PolicyLike], None] = None,
    workload: Any = "default",
    devices: Any = "sata-small",
    *,
    utilization_percent: int | None = None,
    reps: int = 6,
    seed: int | None = None,
    linux: str | None = None,
    memory_mib: int | None = None,
    judge: str | None = None,
    days: int | None = None,
    day: str | None = None,
    jobs: int | None = None,
) -> Comparison:
    """Runs a workload under each policy on each device, and says which policy to use.

    The arguments are those of ``trimwise compare``, and have its defaults. Policies that are classes of your own run one
    run at a time, others on ``jobs`` cores; meanwhile other Python threads go on. Ctrl-C ends it.

    Raises UsageError if an argument is wrong, RunError if a run fails, PolicyError if a policy of your own fails.
    """
    chosen = [] if policies is None else _listed(policies)
    own = [policy for policy in chosen if not isinstance(policy, (str, PolicyTerm))]
    named = [policy for policy in chosen if isinstance(policy, (str, PolicyTerm))]
    for policy in own:
        if not callable(policy):
            raise UsageError(f"policy {policy!r}: expected a name, or a class or function that makes a trimwise.Policy")
    request = _request(
        policies=named,
        workload=str(workload),
        devices=_listed(devices),
        utilization=utilization_percent,
        reps=reps,
        seed=seed,
        linux=linux,
        memory=memory_mib,
        judge=judge,
        days=days,
        day=day,
        jobs=jobs,
    )
    written, rows, text = _native.compare(request, [_own(policy) for policy in own])
    document = _read(written)
    return Comparison(
        cells=[Cell._of(cell, row) for cell, row in zip(document["cells"], json.loads(rows))],
        summary=[_picked(SummaryRow, row) for row in document["summary"]],
        verdict=_picked(Verdict, document["verdict"]),
        conclusion=_picked(Conclusion, document["conclusion"]),
        seed=document["seed"],
        text=text,
        json=document,
    )


def _own(policy: Any) -> tuple[str, Any, str, bool, bool]:
    name = getattr(policy, "name", "") or getattr(policy, "__name__", "own")
    merges, takes_oldest_first = getattr(policy, "merges", True), getattr(policy, "takes_oldest_first", False)
    return (name, policy, getattr(policy, "availability", "after_commit"), bool(merges), bool(takes_oldest_first))


def run(policy: PolicyLike, workload: Any = "default", device: Any = "sata-small", **options: Any) -> Cell:
    """Runs a workload once under one policy. Options are those of :func:`compare`, without ``reps``."""
    if "reps" in options:
        raise UsageError("run: makes one repetition; expected no reps, or compare for several")
    return compare([policy], workload, [device], reps=1, **options).cells[0]


def profiles() -> list[Profile]:
    """The built-in profiles of SSDs."""
    return [_picked(Profile, entry) for entry in _read(_native.devices())["devices"]]


def policies() -> list[PolicyTerm]:
    """The terms of policies."""
    return [_picked(PolicyTerm, entry) for entry in _read(_native.policies())["terms"]]


def doctor(
    mount: Union[str, os.PathLike[str], None] = None, *, host_root: Union[str, os.PathLike[str], None] = None
) -> list[Finding]:
    """Examines this host, or the file system mounted at ``mount``: is TRIM on, and does it reach the drive?"""
    places = {"mount": mount, "host_root": host_root}
    request = {name: None if place is None else os.fspath(place) for name, place in places.items()}
    report = _read(_native.doctor(json.dumps(request | {"run": "/run/trimwise"})))
    found = [(one["mount_point"], each) for one in report["file_systems"] for each in one["findings"]]
    found += [(None, each) for key in ("findings", "not_checked") for each in report[key]]
    return [_picked(Finding, {**each, "mount": at}) for at, each in found]


def findings() -> list[FindingKind]:
    """What :func:`doctor`, the daemon, ``verify`` and ``fleet`` may find."""
    return [_picked(FindingKind, entry) for entry in _read(_native.findings())["findings"]]


def workloads() -> list[Workload]:
    """The named workloads."""
    return [Workload(entry["name"], entry["about"], {}, entry) for entry in _read(_native.workloads())["workloads"]]


def figures() -> list[Figure]:
    """The figures that tables, JSON and data sets show, besides those that each run has as its own."""
    return [_picked(Figure, entry) for entry in _read(_native.figures())["figures"]]


@dataclass(frozen=True)
class Bench:
    """Tests of a device. ``json`` has all that ``trimwise bench --json`` has."""

    #: The device: its ``name`` and ``size_bytes``...
    device: dict[str, Any]
    #: For each test what it ``did``, what was ``measured`` and its ``findings``.
    tests: list[dict[str, Any]]
    notes: list[str]
    json: dict[str, Any] = field(repr=False)


def bench(
    target: Any,
    tests: Union[str, Sequence[str]],
    *,
    content: str | None = None,
    seed: int | None = None,
    scale: str | None = None,
) -> Bench:
    """Runs device tests (``randwrite``, ``hdtach``, ``trimlatency``...) one after another, as ``trimwise bench`` does.

    The target is a profile, which is modelled. A real file or device (``file:PATH``, ``dev:PATH``) is only read here:
    tests that write to one need the command. A ``scale`` such as ``"1/16"`` models a part that stands for the whole.
    """
    request = _request(target=target, tests=_listed(tests), content=content, seed=seed, scale=scale)
    result: Bench = _picked(Bench, _read(_native.bench(request)))
    return result


@dataclass(frozen=True)
class CrashTest:
    """Power cuts under one policy. ``json`` has the details of violations."""

    policy: str
    cuts: int
    violations: int
    files_checked: int
    trims: int
    json: dict[str, Any] = field(repr=False)


def crashtest(
    policies: Union[str, PolicyTerm, Sequence[Union[str, PolicyTerm]], None] = None,
    *,
    cuts: int = 1000,
    seed: int | None = None,
    jobs: int | None = None,
) -> list[CrashTest]:
    """Cuts the power at random moments of random runs on the model, as ``trimwise crashtest`` does.

    Takes trimwise's own policies; by default, one of every kind. A violation is not an error: it is in the result.
    """
    chosen = [] if policies is None else _listed(policies)
    request = _request(policies=chosen, cuts=cuts, seed=seed, jobs=jobs)
    return [_picked(CrashTest, entry) for entry in _read(_native.crashtest(request))["policies"]]


@dataclass(frozen=True)
class Claim:
    """A claim of a published experiment, and whether it holds here."""

    id: str
    text: str
    #: How the source knows: ``measured``, ``drawn`` or ``asserted``.
    basis: str
    #: What it proves that the claim holds: only a ``check`` could have failed; others are ``fitted`` or ``built-in``.
    role: str
    met: bool
    published: Any
    measured: Any
    json: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Reproduction:
    """A published experiment, repeated on the model."""

    experiment: str
    question: str
    source: str
    finding: str
    claims: list[Claim]
    #: The figures: ``title``, ``x``, ``y``, and ``series`` of points; published ones are series too.
    rows: list[dict[str, Any]]
    json: dict[str, Any] = field(repr=False)

    def to_pandas(self, row: int = 0) -> Any:
        """A figure as a data frame: a line for each x, a column for each series."""
        import pandas

        figure = self.rows[row]
        x, y = figure["x"]["key"], figure["y"]["key"]
        series = {s["name"]: {p[x]: p.get(y) for p in s["points"]} for s in figure["series"]}
        return pandas.DataFrame(series).rename_axis(figure["x"]["label"])


def reproduce(experiment: str, *, jobs: int | None = None) -> Reproduction:
    """Repeats a published experiment, as ``trimwise reproduce`` does; ``trimwise reproduce --list`` has the names."""
    json = _read(_native.reproduce(_request(name=experiment, jobs=jobs)))
    claims = [_picked(Claim, claim) for claim in json["claims"]]
    return Reproduction(
        json["experiment"], json["question"], json["source"], json["finding"], claims, json["rows"], json
    )


@dataclass(frozen=True)
class SweepSummary:
    """What a sweep did. ``out`` is the folder of the data set."""

    out: str
    cells: int
    run_cells: int
    found_cells: int
    failed_cells: int
    missing_cells: int
    #: The failed cells, each with its place in the grid and its ``error``.
    failures: list[dict[str, Any]]
    json: dict[str, Any] = field(repr=False)

    def to_pandas(self) -> Any:
        """The data set as a data frame."""
        import pandas

        return pandas.read_parquet(self.out)


def _shard(grid: str, out: str, number: int, of: int, _token: str) -> dict[str, Any]:
    return _read(_native.sweep(_request(grid=grid, out=out, shard=f"{number}/{of}", jobs=1)))


def sweep(
    grid: Union[str, os.PathLike[str]],
    out: Union[str, os.PathLike[str]],
    *,
    executor: Any = None,
    shards: int | None = None,
    jobs: int | None = None,
) -> SweepSummary:
    """Runs all cells of a grid that ``out`` does not have yet: ``trimwise sweep``, with the same bytes.

    Without an executor it runs on ``jobs`` cores of this computer. With one, it is cut into ``shards``, each a task:
    any executor of ``concurrent.futures``, or a ``distributed.Client``. All workers must see the same files.
    """
    grid, out = os.path.abspath(grid), os.path.abspath(out)
    ran = broken = 0
    if executor is not None:
        count = shards or 4 * (os.cpu_count() or 1)
        # Dask would take equal calls for the same.
        token = uuid.uuid4().hex
        futures = [executor.submit(_shard, grid, out, number, count, token) for number in range(1, count + 1)]
        try:
            for future in futures:
                shard = future.result()
                ran += shard["run_cells"]
                broken += shard["broken_cells"]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    json = _read(_native.sweep(_request(grid=grid, out=out, wants_cases=True, jobs=jobs)))
    # The last step finds what the shards ran.
    json["run_cells"] += ran
    json["found_cells"] -= ran
    json["broken_cells"] += broken
    summary: SweepSummary = _picked(SweepSummary, json)
    return summary
