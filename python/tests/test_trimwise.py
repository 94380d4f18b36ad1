"""The package as a user meets it."""

import concurrent.futures
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest

import trimwise
from trimwise import Decision, Event

SMALL = "small.toml"


class Heap(trimwise.Policy):
    """Waits until 1 MiB is freed, then issues one command at a time until all is trimmed."""

    availability = "reuse"

    def __init__(self):
        self.is_emptying = False

    def on_event(self, event, view):
        self.is_emptying = view.pending_units >= (1 if self.is_emptying else 256)
        if self.is_emptying and view.in_flight == 0:
            return Decision.Issue()


def test_three_lines_give_a_table_and_the_same_every_time(small):
    comparison = trimwise.compare(["off", "commit"], devices=SMALL, reps=2, **small)
    assert "commit" in str(comparison) and "sata-small" in str(comparison)
    assert [(cell.policy, cell.rep) for cell in comparison.cells] == [("off", 0), ("off", 1), ("commit", 0), ("commit", 1)]
    assert comparison.cells[0].device_stats["trim_commands"] == 0
    assert {row.policy for row in comparison.summary} == {"off", "commit"}
    again = trimwise.compare(["off", "commit"], devices=SMALL, reps=2, jobs=1, **small)
    assert again.json["cells"] == comparison.json["cells"]


def test_frames_have_the_columns_of_a_sweep(small):
    comparison = trimwise.compare(["off", "lazy"], devices=SMALL, reps=1, **small)
    frame = comparison.to_pandas()
    assert list(frame.policy) == ["off", "lazy"] and (frame.duration_ns > 0).all()
    assert (frame.device_stats_write_amplification >= 1).all()
    assert comparison.to_arrow().column("ledger_freed_units").to_pylist() == list(frame.ledger_freed_units)
    made = [figure.key for figure in trimwise.figures() if figure.is_column]
    assert "gc_busy_ns" in made and (frame[made] > 0).all(axis=None)
    busy = comparison.cells[0].json["device_stats"]["busy_ns"]
    assert frame.gc_busy_ns[0] == busy["read_gc"] + busy["program_gc"]
    # The same cells in a sweep have the same figures.
    path = pathlib.Path("grid.toml")
    path.write_text(
        "devices = ['small.toml']\npolicies = ['off', 'lazy']\nworkloads = ['small.pmrc']\n"
        "utilizations_percent = [50]\nseeds = [3]\nmemory_mib = 64\n"
    )
    swept = trimwise.sweep(path, "swept").to_pandas()
    assert list(frame.columns) == list(swept.columns)
    for (_, ours), (_, theirs) in zip(frame.iterrows(), swept.iterrows()):
        for name in frame.columns:
            both_missing = ours[name] is None or ours[name] != ours[name]
            assert (theirs[name] is None or theirs[name] != theirs[name]) if both_missing else ours[name] == theirs[name], name


def test_figures_are_described_and_summaries_have_them(small):
    figures = trimwise.figures()
    assert all(figure.key and figure.meaning.endswith(".") for figure in figures)
    comparison = trimwise.compare(["off", "lazy"], devices=SMALL, reps=1, **small)
    for row in comparison.summary:
        assert {figure.key for figure in figures if figure.in_summary} <= row.json.keys()
        assert {figure.key for figure in figures if figure.in_summary_ledger} <= row.json["ledger"].keys()
    # What a summary has besides, such as the policy's name, is no figure.
    listed = {figure.key for figure in figures}
    numbers = {key for key, value in comparison.summary[1].json["ledger"].items() if isinstance(value, (int, float))}
    assert numbers and numbers <= listed


def test_what_is_built_in_is_listed():
    names = {str(profile) for profile in trimwise.profiles()}
    assert "sata-small" in names
    assert any(term.term == "commit" and term.meaning for term in trimwise.policies())
    lsm = next(workload for workload in trimwise.workloads() if workload.name == "lsm")
    assert str(lsm(reads=90, operations=1000)) == "lsm:reads=90,operations=1000"
    trace = trimwise.Trace("a.csv", ("open=200", "wrap"), format="msr")
    assert str(trace) == "trace:msr:a.csv:open=200:wrap"


def test_a_trace_is_a_workload(small):
    lines = "".join(f"{i * 100} a write {i * 8192} 4096\n" for i in range(50))
    pathlib.Path("log").write_text("fio version 3 iolog\n" + lines)
    trace = trimwise.Trace("log")
    assert isinstance(trace.info(), dict)
    cell = trimwise.run("off", trace, SMALL, utilization_percent=1)
    assert cell.json["replay"]["requests"] == 50


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"policies": "lasy"}, ["lasy", "lazy"]),
        ({"devices": "nosuch"}, ["nosuch", "sata-small"]),
        ({"workload": "nosuch"}, ["nosuch", "lsm"]),
        ({"reps": 0}, ["reps=0: expected a value from 1 to 1000"]),
        ({"policies": [3]}, ["policy 3", "expected a name"]),
        ({"utilization_percent": 101}, ["utilization_percent=101: expected a value from 0 to 100"]),
        ({"utilization_percent": 300}, ["utilization", "300"]),
        ({"utilization_percent": "half"}, ["utilization", "half"]),
        ({"jobs": 0}, ["jobs=0: expected a value from 1 to 1024"]),
        ({"judge": "p98:fsync"}, ["judge", "p99"]),
        ({"day": "office"}, ["day=office: expected days with it"]),
        ({"reps": 0, "jobs": 0}, ["reps=0: ", "\njobs=0: "]),
    ],
)
def test_a_wrong_argument_is_a_usage_error_that_says_what_is_accepted(arguments, words):
    with pytest.raises(trimwise.UsageError) as caught:
        trimwise.compare(**arguments)
    assert isinstance(caught.value, ValueError)
    for word in words:
        assert word in str(caught.value)


def test_a_policy_in_python_is_compared_with_others(small):
    comparison = trimwise.compare(["off", Heap], devices=SMALL, reps=2, **small)
    heap = [cell for cell in comparison.cells if cell.policy == "Heap"]
    assert len(heap) == 2 and all(cell.device_stats["trim_commands"] > 0 for cell in heap)
    ledger = heap[0].ledger
    parts = ("issued_units", "reused_units", "dropped_units", "pending_units", "in_flight_units")
    # Pending units may be older than the workload.
    assert 0 < ledger["freed_units"] <= sum(ledger[part] for part in parts)
    assert "Heap" in str(comparison)
    again = trimwise.run(Heap, device=SMALL, **small)
    assert again.json["duration_ns"] == heap[0].duration_ns


def test_a_policy_that_is_named_like_a_built_in_one_is_another(small):
    """The built-in `ideal` is only a bound, and a host applies `commit` by a mount option; neither holds for others."""

    class Ideal(Heap):
        name = "ideal"

    class Commit(Heap):
        name = "commit"

    for own in (Ideal, Commit):
        comparison = trimwise.compare(["off", own], devices=SMALL, reps=6, **small)
        verdict = comparison.verdict
        assert {cell.policy for cell in comparison.cells} == {"off", f"own:{own.name}"}
        assert verdict.policy == f"own:{own.name}" and verdict.speedup > 1, verdict
        assert comparison.conclusion.policy == verdict.policy, comparison.conclusion
        assert comparison.conclusion.json["steps"]["commands"] == [], "there is no host"
    with pytest.raises(trimwise.UsageError, match="two policies are named"):
        trimwise.compare([Ideal, Ideal], devices=SMALL, reps=1, **small)


def test_it_sees_every_kind_of_event_and_the_present(small):
    seen = []

    class Curious(trimwise.Policy):
        def on_event(self, event, view):
            seen.append((event, view.now_ns))
            match event:
                case Event.Hosted(total_units=total):
                    assert total == view.total_units > 0
                    return [Decision.WakeAt(view.now_ns + 1_000_000), Decision.TrimFree()]
                case Event.Committed(freed_units=freed) if freed > 0:
                    return [Decision.Issue(), Decision.Issue(units_min=1 << 40)]
            return None

    trimwise.run(Curious, device=SMALL, **small)
    kinds = {type(event) for event, _ in seen}
    assert kinds == {Event.Hosted, Event.Committed, Event.Issued, Event.PassOver, Event.Trimmed, Event.Woken}
    assert [now for _, now in seen] == sorted(now for _, now in seen)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda event, view: 1 / 0,
        lambda event, view: "trim all",
        lambda event, view: [Decision.Issue(), 7],
        lambda event, view: view.no_such_figure,
        lambda event, view: Decision.WakeAt(view.now_ns),
        lambda event, view: Decision.Issue(units_min=5, units_max=4),
        lambda event, view: Decision.Issue(ranges_max=-1),
    ],
)
def test_a_mistake_ends_the_run_with_the_traceback_and_the_instant(small, mistake):
    class Wrong(trimwise.Policy):
        def on_event(self, event, view):
            if isinstance(event, Event.Committed) and view.now_ns > 5_000_000_000:
                return mistake(event, view)

    with pytest.raises(trimwise.PolicyError) as caught:
        trimwise.run(Wrong, device=SMALL, **small)
    message = str(caught.value)
    assert "policy Wrong at " in message and " s of virtual time, on Event.Committed" in message, message
    cause = caught.value.__cause__
    assert cause is not None and type(cause).__name__ in message
    # The next run is not affected.
    assert trimwise.run(Heap, device=SMALL, **small).duration_ns > 0


def test_a_policy_s_file_in_a_tournament_finds_the_same_classes():
    """The command runs it by `governor.py`, which must not need this package."""
    from trimwise import governor

    public = lambda kind: {name for name in vars(kind) if not name.startswith("_")}
    for ours, theirs in ((Decision, governor.Decision), (Event, governor.Event)):
        assert public(ours) == public(theirs)
        for name in public(ours):
            assert getattr(ours, name).__match_args__ == getattr(theirs, name).__match_args__, name
    for kind in ("DropFreed", "CatchUp", "IssueInCommit", "Issue", "TrimFree", "Reveal"):
        ours, theirs = (getattr(of, kind)() for of in (Decision, governor.Decision))
        assert [getattr(ours, field) for field in ours.__match_args__] == list(vars(theirs).values()), kind
    assert public(trimwise.View) == set(governor.View.__match_args__)
    for name in ("name", "availability", "merges", "takes_oldest_first"):
        assert getattr(trimwise.Policy, name) == getattr(governor.Policy, name)


@pytest.mark.parametrize("over", [{}, {"days": 1}])
def test_a_policy_decides_the_same_in_a_tournament(small, tmp_path, over):
    command = os.environ.get("TRIMWISE")
    if command is None:
        pytest.skip("TRIMWISE does not name the command")
    policy = "from trimwise import Decision, Policy\n\n" + textwrap.dedent(inspect.getsource(Heap)).replace(
        "trimwise.Policy", "Policy"
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/heap.py").write_text(policy)
    (tmp_path / "mine/tournament.toml").write_text(
        f"devices = ['{SMALL}']\npolicies = ['off']\nworkloads = ['{small['workload']}']\n"
        f"utilizations_percent = [{small['utilization_percent']}]\nmemory_mib = {small['memory_mib']}\nseeds = [{small['seed']}]\n"
        + "".join(f"{key} = {value}\n" for key, value in over.items())
    )
    subprocess.run([command, "tournament", "mine"], check=True, stdout=subprocess.DEVNULL)
    cells = (tmp_path / "mine/results/own/heap.py/_cells/00000/00000000").read_text().split("\n", 1)[1]
    assert json.loads(cells)["result"]["duration_ns"] == trimwise.run(Heap, device=SMALL, **small, **over).duration_ns


def test_the_traceback_leads_to_the_line_of_the_policy(small):
    class Wrong(trimwise.Policy):
        def on_event(self, event, view):
            raise KeyError("the line")

    with pytest.raises(trimwise.PolicyError) as caught:
        trimwise.run(Wrong, device=SMALL, **small)
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise KeyError("the line")' in text and "on Event.Hosted" in text


def test_a_policy_that_cannot_be_made_and_one_that_never_decides(small):
    class Unmade(trimwise.Policy):
        def __init__(self, needed):
            pass

    with pytest.raises(trimwise.PolicyError, match="policy Unmade cannot be made: TypeError"):
        trimwise.run(Unmade, device=SMALL, **small)

    class Idle(trimwise.Policy):
        availability = "after_issue"

        def on_event(self, event, view):
            return None

    # What it withholds is never given back, so a task would wait for it for ever.
    withheld = "policy Idle: .*a task waits for free blocks, but the policy withholds [0-9]+ until their TRIM"
    with pytest.raises(trimwise.RunError, match=withheld):
        trimwise.run(Idle, device=SMALL, **small)

    class Misnamed(Heap):
        availability = "soon"

    with pytest.raises(ValueError, match="expected 'after_commit', 'after_issue' or 'reuse'"):
        trimwise.run(Misnamed, device=SMALL, **small)


def test_no_blocks_can_be_invented_or_trimmed_twice(small):
    """It asks for far more than there is: the host has nothing left to send, and its audits find nothing wrong."""

    class Greedy(trimwise.Policy):
        def on_event(self, event, view):
            if isinstance(event, Event.Committed):
                return [Decision.CatchUp(), *[Decision.Issue(ranges_max=64)] * 20]

    assert trimwise.run(Greedy, device=SMALL, **small).ledger["issued_units"] > 0
    with pytest.raises(TypeError):
        Event.Issued(units=1)
    with pytest.raises(TypeError):
        Decision()


def test_other_threads_run_meanwhile(small):
    count, is_done = 0, threading.Event()

    def work():
        nonlocal count
        while not is_done.is_set():
            count += 1
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    begin = count
    trimwise.compare(["off", "commit"], devices=SMALL, reps=4, jobs=1, **small)
    is_done.set()
    thread.join()
    assert count > begin


def test_bench_and_crashtest_and_reproduce_are_the_commands(small, tmp_path):
    bench = trimwise.bench(SMALL, "trimlatency")
    assert [test["test"] for test in bench.tests] == ["trimlatency"] and bench.device["is_model"]
    part = trimwise.bench(SMALL, "fill:50", scale="1/2")
    assert part.device["size_bytes"] * 2 == bench.device["size_bytes"] and part.json["settings"]["scale"] == 0.5
    (crash,) = trimwise.crashtest("lazy+reuse", cuts=50, seed=3)
    assert (crash.policy, crash.cuts, crash.violations) == ("lazy+reuse", 50, 0) and crash.files_checked > 0
    command = os.environ.get("TRIMWISE")
    if command:
        words = ["crashtest", "--policy", "lazy+reuse", "--cuts", "50", "--seed", "3", "--json", "crash.json"]
        subprocess.run([command, *words], check=True)
        assert json.loads(pathlib.Path("crash.json").read_text())["policies"] == [crash.json]
    found = trimwise.reproduce("lazy-3")
    assert {claim.role for claim in found.claims} == {"check", "built-in"} and all(claim.met for claim in found.claims)
    frame = found.to_pandas()
    assert frame.index.name == "append size" and (frame["lazy"] < frame["commit (traditional)"]).all()
    for wrong in (lambda: trimwise.bench(SMALL, "nosuch"), lambda: trimwise.crashtest("lasy"), lambda: trimwise.reproduce("x")):
        with pytest.raises(trimwise.UsageError):
            wrong()


SCRIPT = """
import sys, time, threading, os, signal
import trimwise
class Idle(trimwise.Policy):
    def on_event(self, event, view):
        return trimwise.Decision.Issue() if view.pending_units else None
class Spinning(trimwise.Policy):
    def on_event(self, event, view):
        return trimwise.Decision.WakeAt(view.now_ns + 1)
def interrupt():
    time.sleep(1)
    sys.stderr.write(f"{time.monotonic()}\\n")
    os.kill(os.getpid(), signal.SIGINT)
# A program that a script starts in the background ignores it, and so would the interpreter.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=interrupt, daemon=True).start()
try:
    trimwise.compare(POLICIES, reps=1000)
except KeyboardInterrupt:
    print(time.monotonic())
    sys.exit(7)
"""


@pytest.mark.parametrize("policies", ['["off"]', "[Idle]", "[Spinning]"])
def test_an_interrupt_ends_it(policies):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("POLICIES", policies)], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 7, ended.stderr
    # Within a second on an idle machine; the figure is for the reader of a failure.
    print("seconds until it ended:", float(ended.stdout) - float(ended.stderr.split()[0]))


def grid(folder):
    text = (
        "devices = ['small.toml']\npolicies = ['off', 'lazy+reuse']\nworkloads = ['small.pmrc']\n"
        "utilizations_percent = [10, 30]\nseeds = ['1-3']\nmemory_mib = 64\n"
    )
    path = pathlib.Path("grid.toml")
    path.write_text(text)
    return path


def parts(folder):
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).glob("*.parquet"))}


def test_a_sweep_has_the_same_bytes_on_every_executor(small, tmp_path):
    path = grid(tmp_path)
    summary = trimwise.sweep(path, "one")
    assert (summary.cells, summary.run_cells, summary.failed_cells, summary.missing_cells) == (12, 12, 0, 0)
    frame = summary.to_pandas()
    assert len(frame) == 12 and frame.cell.is_unique and frame.error.isna().all()
    expected = parts("one")
    assert expected
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        summary = trimwise.sweep(path, "threads", executor=executor, shards=3)
        assert (summary.run_cells, summary.found_cells, summary.json["run_cells"]) == (12, 0, 12)
        summary = trimwise.sweep(path, "threads", executor=executor, shards=3)
        assert (summary.run_cells, summary.found_cells) == (0, 12)
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        assert trimwise.sweep(path, "processes", executor=executor, shards=3).run_cells == 12
    assert parts("threads") == expected and parts("processes") == expected
    # The command itself, if it was built.
    command = os.environ.get("TRIMWISE")
    if command:
        subprocess.run([command, "sweep", str(path), "--out", "command"], check=True)
        assert parts("command") == expected


def test_a_sweep_on_dask(small, tmp_path):
    distributed = pytest.importorskip("distributed")
    path = grid(tmp_path)
    trimwise.sweep(path, "one")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            summary = trimwise.sweep(path, "dask", executor=client, shards=4)
    assert (summary.run_cells, summary.found_cells) == (12, 0)
    assert parts("dask") == parts("one")


def test_a_wrong_grid_is_a_usage_error(small, tmp_path):
    path = grid(tmp_path)
    path.write_text(path.read_text().replace("'off'", "'of'"))
    with pytest.raises(trimwise.UsageError, match="grid.toml:2: policies: "):
        trimwise.sweep(path, "one")


def test_a_finding_of_the_doctor_has_a_code_of_the_list(tmp_path):
    def file(path, text):
        at = tmp_path / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)

    file("proc/1/mountinfo", "22 1 8:16 / /media rw - ext4 /dev/sdb rw\n")
    file("sys/devices/usb1/host1/block/sdb/dev", "8:16")
    file("sys/devices/usb1/host1/block/sdb/queue/discard_max_bytes", "0")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/8:16").symlink_to("../../devices/usb1/host1/block/sdb")
    [found] = trimwise.doctor("/media", host_root=tmp_path)
    assert (found.code, found.mount, found.wrong) == ("disk.usb.adapter-no-trim", "/media", True)
    assert str(found).endswith("[disk.usb.adapter-no-trim]")
    [kind] = [kind for kind in trimwise.findings() if kind.code == found.code]
    assert kind.severity == "problem" and "USB adapter" in kind.meaning
    with pytest.raises(trimwise.UsageError, match="/nope"):
        trimwise.doctor("/nope", host_root=tmp_path)
