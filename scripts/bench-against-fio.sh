#!/usr/bin/env bash
# Our device tests and fio's on the same file, in turn: sequential write of 1 MiB blocks, and random write of 4 KiB at
# queue depth 32, both direct and through io_uring. Prints the medians and their ratio; exits 1 if they differ by more
# than 10 %.
#
#   scripts/bench-against-fio.sh [DIRECTORY]
#
# Without a directory (and as root) it makes an ext4 on a loop device, and removes it afterwards. The file has SIZE_MIB
# (1024) and is written once before the first run. Each runs REPETITIONS (7) times, ours and fio's alternating. Random writes
# take SECONDS_EACH (5). QD (1) is for the sequential ones; only the example can set it. OURS=example measures the bare loop of
# benches/examples/raw_write.rs instead of `trimwise bench`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

size_mib=${SIZE_MIB:-1024} repetitions=${REPETITIONS:-7} seconds=${SECONDS_EACH:-5} depth=${QD:-1} ours=${OURS:-cli}
for program in fio python3; do
    command -v "$program" >/dev/null || { echo "$program is not installed: apt-get install $program" >&2; exit 2; }
done
if [ "$ours" = cli ] && [ "$depth" != 1 ]; then
    echo "QD=$depth: \`trimwise bench seqwrite\` has one write on its way; set OURS=example" >&2
    exit 2
fi

work=$(mktemp -d)
mounted=
cleanup() {
    rm -f "${file:-}"
    if [ -n "$mounted" ]; then umount "$mounted"; rm -f "$image"; rmdir "$mounted"; fi
    rm -rf "$work"
}
trap cleanup EXIT

if [ $# -gt 0 ]; then
    directory=$1
else
    image=$(mktemp -p target bench-against-fio.XXXXXX)
    truncate -s $((size_mib + size_mib / 4 + 128))M "$image"
    mkfs.ext4 -q -F "$image"
    mount_point=$(mktemp -d)
    mount -o loop "$image" "$mount_point"
    mounted=$mount_point
    directory=$mount_point
fi
file=$(mktemp -p "$directory" bench-against-fio.XXXXXX)

if [ "$ours" = example ]; then
    cargo build --release --quiet --manifest-path benches/Cargo.toml --example raw_write
else
    cargo build --release --quiet -p trimwise-cli -p trimwise-lab
fi

# Bytes per second of fio's test.
fio_rate() {
    fio --name=test --filename="$file" --size="${size_mib}M" --direct=1 --ioengine=io_uring --output-format=json "$@" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["jobs"][0]["write"]["bw_bytes"])'
}
# Bytes per second of `trimwise bench`, which counts in megabytes.
cli_rate() {
    target/release/trimwise bench "file:$file" "$1" --json "$work/out.json" --force --destroy "$file" >/dev/null
    python3 -c 'import json, sys
print(round(json.load(open(sys.argv[1]))["tests"][0]["measured"][0]["throughput_mb_per_s"] * 1e6))' "$work/out.json"
}
our_rate() {
    case $ours-$1 in
        example-seq) benches/target/release/examples/raw_write "file:$file" seq "$depth" "$size_mib" ;;
        example-rand) benches/target/release/examples/raw_write "file:$file" rand 32 "$seconds" ;;
        *-seq) cli_rate "seqwrite:${size_mib}MiB" ;;
        *-rand) cli_rate "randwrite:32:${seconds}" ;;
    esac
}
their_rate() {
    case $1 in
        seq) fio_rate --rw=write --bs=1M --iodepth="$depth" ;;
        rand) fio_rate --rw=randwrite --bs=4k --iodepth=32 --norandommap --time_based --runtime="$seconds" ;;
    esac
}

# Write the file once: the first write of a block also allocates it.
fio_rate --rw=write --bs=1M --iodepth=4 --end_fsync=1 >/dev/null

for test in seq rand; do
    for ((i = 0; i < repetitions; i++)); do
        # The first finds the device as the other left it.
        if ((i % 2)); then their_rate $test >>"$work/fio-$test"; fi
        our_rate $test >>"$work/ours-$test"
        if ! ((i % 2)); then their_rate $test >>"$work/fio-$test"; fi
    done
done

python3 - "$work" "$depth" <<'PYTHON'
import statistics, sys
work, depth = sys.argv[1:]
names = {"seq": f"sequential write, 1 MiB, QD {depth}", "rand": "random write, 4 KiB, QD 32"}
print(f"{'test':<34} {'trimwise MB/s':>18} {'fio MB/s':>18} {'ratio':>7}")
worst = 0.0
for test, name in names.items():
    rates = {}
    for whose in ("ours", "fio"):
        values = sorted(int(line) / 1e6 for line in open(f"{work}/{whose}-{test}"))
        rates[whose] = statistics.median(values), values[0], values[-1]
    ratio = rates["ours"][0] / rates["fio"][0]
    worst = max(worst, abs(ratio - 1))
    shown = [f"{m:,.0f} ({a:,.0f}-{b:,.0f})" for m, a, b in (rates["ours"], rates["fio"])]
    print(f"{name:<34} {shown[0]:>18} {shown[1]:>18} {ratio:>7.3f}")
print("medians; in brackets the minimum and the maximum")
sys.exit(worst > 0.10)
PYTHON
