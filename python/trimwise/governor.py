"""Runs a policy for ``trimwise tournament``: JSON lines on standard input and output.

The command carries this file and runs it by itself, so a policy needs Python alone and not this package: the file's
``from trimwise import Decision, Policy`` finds the classes below. docs/tournament.md has the protocol.
"""

import sys

if sys.path and sys.path[0] in ("", "."):
    # A policy may be called json.py.
    del sys.path[0]

import json
import os
import re
import traceback
import types
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Iterable, NoReturn, Union

PROTOCOL = 1


class Event:
    """What happened; units are of 4 KiB."""

    @dataclass(frozen=True)
    class Hosted:
        trim_depth: int
        ranges_max: int
        range_units_max: int
        total_units: int
        group_units: int

    @dataclass(frozen=True)
    class Committed:
        freed_units: int

    @dataclass(frozen=True)
    class Issued:
        ranges: int
        units: int
        took_ns: int

    @dataclass(frozen=True)
    class PassOver:
        pass

    @dataclass(frozen=True)
    class Trimmed:
        units: int

    @dataclass(frozen=True)
    class Woken:
        pass


@dataclass(frozen=True)
class View:
    """The host at the moment of an event."""

    now_ns: int
    used_units: int
    total_units: int
    freed_units: int
    pending_units: int
    pending_extents: int
    untrimmed_units: int
    in_flight: int
    requests: int
    quiet_ns: int
    requests_done: int
    oldest_ns: Union[int, None]
    served_requests: int
    served_bytes: int
    served_time_ns: int
    served_busy_ns: int


class Decision:
    """What a policy decides. The host checks it."""

    @dataclass(frozen=True)
    class DropFreed:
        pass

    @dataclass(frozen=True)
    class CatchUp:
        pass

    @dataclass(frozen=True)
    class IssueInCommit:
        together: bool = False

    @dataclass(frozen=True)
    class Issue:
        ranges_max: int = 1
        units_min: int = 1
        units_max: Union[int, None] = None
        runs_on: bool = False

    @dataclass(frozen=True)
    class TrimFree:
        start_unit: int = 0
        units: Union[int, None] = None
        units_min: int = 1

    @dataclass(frozen=True)
    class Reveal:
        pass

    @dataclass(frozen=True)
    class WakeAt:
        at_ns: int


class Policy:
    """A policy of your own: a class with one method."""

    name: str = ""
    availability: str = "after_commit"
    merges: bool = True
    takes_oldest_first: bool = False

    def on_event(self, event: Any, view: View) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.on_event")


def _kinds(of: type) -> dict[str, Any]:
    """The classes in a class by the names that lines have for them: ``PassOver`` is ``pass_over``."""
    kinds = {name: kind for name, kind in vars(of).items() if is_dataclass(kind)}
    return {re.sub("(?<!^)(?=[A-Z])", "_", name).lower(): kind for name, kind in kinds.items()}


_EVENTS = _kinds(Event)
_NAMES = {kind: name for name, kind in _kinds(Decision).items()}


def _missing(name: str) -> Any:
    what = f"trimwise.{name}: a policy in a tournament has Decision, Event, Policy and View alone"
    # Python itself asks for names such as __path__; of an AttributeError it would keep the name alone.
    raise (AttributeError if name.startswith("__") else ImportError)(what)


def policy_of(path: str) -> Any:
    """The one class of a file that is a policy."""
    package = types.ModuleType("trimwise")
    vars(package).update(Decision=Decision, Event=Event, Policy=Policy, View=View, __getattr__=_missing)
    sys.modules["trimwise"] = package
    module = types.ModuleType("policy")
    module.__file__ = path
    sys.modules["policy"] = module
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec"), vars(module))
    found = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Policy) and kind.__module__ == "policy"
    ]
    if len(found) != 1:
        names = ", ".join(kind.__name__ for kind in found) or "none"
        raise TypeError(f"defines {len(found)} policies ({names}); expected one class that inherits from trimwise.Policy")
    return found[0]


def decided(answer: Any) -> list[dict[str, Any]]:
    """A policy's answer as the line has it."""
    is_list = isinstance(answer, Iterable) and not isinstance(answer, (str, bytes))
    several: Iterable[Any] = [] if answer is None else answer if is_list else [answer]
    decisions = []
    for decision in several:
        if type(decision) not in _NAMES:
            raise TypeError(f"on_event returned {decision!r}; expected None, a trimwise.Decision, or a list of them")
        decisions.append({"type": _NAMES[type(decision)], **asdict(decision)})
    return decisions


def give_up(path: str, error: Exception) -> NoReturn:
    """Ends the process, and says where in the policy's file the error came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    place = f"line {frames[-1].lineno}, in {frames[-1].name}: " if frames else ""
    if isinstance(error, SyntaxError) and error.filename == path:
        place = f"line {error.lineno}: "
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    what = " ".join(f"{type(error).__name__}: {text}".split())
    sys.exit(f"{os.path.basename(path)}, {place}{what}")


def main() -> None:
    lines = sys.stdin.buffer
    answers = sys.stdout
    # What the policy prints must not be taken for an answer.
    sys.stdout = sys.stderr
    json.loads(lines.readline())
    path = sys.argv[1]
    try:
        play(path, lines, answers)
    except Exception as error:
        give_up(path, error)


def play(path: str, lines: Any, answers: Any) -> None:
    policy = policy_of(path)()
    answer: Any = {"protocol": PROTOCOL}
    answer.update((name, getattr(policy, name)) for name in ("availability", "merges", "takes_oldest_first"))
    while True:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        line = lines.readline()
        if not line:
            return
        asked = json.loads(line)
        event = asked["event"]
        happened = _EVENTS[event.pop("type")](**event)
        answer = decided(policy.on_event(happened, View(**asked["view"])))


if __name__ == "__main__":
    main()
