"""Of scripts/test-suites: `todo` prints lines for the guest, `tables` writes what came of them into docs/suites.md.

    suites.py todo RESULTS CONFIG...      environment: XFSTESTS, BLKTESTS, BATCH, ROUNDS, TESTS
    suites.py tables RESULTS
"""
import collections, os, random, re, sys, textwrap

STOCK = {"ext4-lazy": "ext4", "ext4-reuse": "ext4", "ext4-dm": "ext4", "xfs-dm": "xfs", "btrfs-dm": "btrfs", "block-dm": "block"}
RESULTS = "pass notrun fail timeout died".split()


def drawn():
    """All tests as (suite, test), in the order in which they run: the short suite first."""
    tests = []
    if folder := os.environ.get("BLKTESTS"):
        for group in ("block", "dm"):
            numbers = sorted(name for name in os.listdir(f"{folder}/tests/{group}") if re.fullmatch(r"\d{3}", name))
            tests += [("blktests", f"{group}/{number}") for number in numbers]
        tests.append(("blktests", "dm/900"))  # kernel/dm-trim/blktests
    if folder := os.environ.get("XFSTESTS"):
        quick = []
        for fs in ("generic", "ext4", "xfs", "btrfs"):
            for line in open(f"{folder}/tests/{fs}/group.list"):
                number, *groups = line.split() or ["#"]
                if "quick" in groups:
                    quick.append(("xfstests", f"{fs}/{number}"))
        random.Random(2026).shuffle(quick)
        tests += quick
    return tests


def applies(suite, test, config):
    group, base = test.split("/")[0], config.split("-")[0]
    if suite == "xfstests":
        return base not in ("block", "dm") and group in ("generic", base)
    if group != base:
        return False
    # Only tests of a given device differ over dm-trim.
    return config != "block-dm" or "\ntest_device()" in open(f"{os.environ['BLKTESTS']}/tests/{test}").read()


def read(path):
    """Results and reasons of each (configuration, test), in the order of the rounds."""
    found = collections.defaultdict(list)
    for line in list(open(path))[1:]:
        _, config, test, _, result, _, _, why = line.rstrip("\n").split("\t")
        found[config, test].append((result, why))
    return found


def todo(results, *configs):
    found, rounds, batch = read(results), int(os.environ.get("ROUNDS") or 1), int(os.environ.get("BATCH") or 4)
    only = os.environ.get("TESTS", "").split()
    if unknown := set(only) - {test for _, test in drawn()}:
        sys.exit(f"TESTS: {' '.join(sorted(unknown))}: not in the suites' quick groups")
    for suite in ("blktests", "xfstests"):
        tests = [test for s, test in drawn() if s == suite and (not only or test in only)]
        for at in range(0, len(tests), batch):
            for config in configs:
                mine = [test for test in tests[at : at + batch] if applies(suite, test, config)]
                # xfstests' check takes a test once.
                for round in range(rounds):
                    if left := [test for test in mine if len(found[config, test]) <= round]:
                        print(suite, config, *left)


def tables(results):
    found, tests = read(results), drawn()
    made, *lines = open(results)
    dates = sorted(line.split("\t")[6] for line in lines)
    if not dates:
        sys.exit(f"{results}: no results yet; run scripts/test-suites first")
    out = [textwrap.fill(f"Made by {made[2:].strip()}, from {dates[0]} to {dates[-1]} UTC.", 120), ""]
    out += ["| configuration | compared with | ran in both | passed | not run | failed | differ |", "|---|---|---|---|---|---|---|"]
    differ, reasons = [], collections.defaultdict(list)
    for config, stock in STOCK.items():
        count, total = collections.Counter(), 0
        for suite, test in tests:
            if not applies(suite, test, config):
                continue
            total += 1
            here, there = found.get((config, test)), found.get((stock, test))
            if not here or not there:
                continue
            count["both"] += 1
            same = here[0][0] == there[0][0]
            count[here[0][0] if same else "differ"] += 1
            if not same:
                said = [collections.Counter(result for result, _ in runs) for runs in (here, there)]
                said = [", ".join(f"{r} {c[r]} of {c.total()}" for r in RESULTS if c[r]) for c in said]
                differ.append(f"| {test} | {config} | {said[0]} | {said[1]} |")
        bad = count["fail"] + count["timeout"] + count["died"]
        out.append(f"| {config} | {stock} | {count['both']} of {total} | {count['pass']} | {count['notrun']} | {bad} | {count['differ']} |")
    for (config, test), runs in sorted(found.items()):
        if config not in STOCK and runs[0][0] != "pass":
            reasons[runs[0][0], re.sub(r"/dev/\S+|\(see .*", "", runs[0][1]).strip()].append(f"{test} ({config})")
    out += ["", "| differs | in | there | compared with |", "|---|---|---|---|", *differ]
    out += ["", "Not passed without either, in the stock kernel:", "", "| | why | tests |", "|---|---|---|"]
    for (result, why), names in sorted(reasons.items()):
        out.append(f"| {result} | {why.replace('|', chr(92) + '|')} | {len(names)}: {', '.join(names[:6])}{', ...' * (len(names) > 6)} |")
    own = [f"{test} {runs[0][0]}" for (config, test), runs in sorted(found.items()) if config == "dm"]
    out += ["", f"blktests' group dm: {', '.join(own)}.", ""]
    page = open("docs/suites.md").read()
    head, tail = "<!-- tables -->\n", "<!-- end of tables -->"
    before, rest = page.split(head)
    after = rest.split(tail)[1]
    open("docs/suites.md", "w").write(before + head + "\n".join(out) + tail + after)
    unexplained = [row.split("|")[1].strip() for row in differ if row.split("|")[1].strip() not in after]
    if unexplained:
        sys.exit(f"docs/suites.md does not explain: {' '.join(unexplained)}")


{"todo": todo, "tables": tables}[sys.argv[1]](*sys.argv[2:])
