# Fills a file system on /dev/vdb over and over, in ways drawn at random: fill.sh OPTIONS SEED ROUNDS.
# What is freed just before waits for its discard while the next write looks for room. Prints `left KIB` when a fill found
# no room, and `rounds N` at the end.
options=$1 RANDOM=$2 rounds=$3
die() {
    echo "round $round of $options: $*"
    df -k /tmp/b | tail -1
    dmesg | tail -3
    exit 9
}
pick() {
    shift $((RANDOM % $#))
    echo "$1"
}
check() {
    cd /
    umount /tmp/b || die "cannot be unmounted"
    e2fsck -fn /dev/vdb >/tmp/fsck 2>&1 || die "$(tail -3 /tmp/fsck)"
}
fresh() {
    [ "$round" = 0 ] || check
    # shellcheck disable=SC2046 # words
    mkfs.ext4 -q -F -m 0 -J size=4 -N 2000 -b $(pick 1024 4096 4096) /dev/vdb $(pick 24M 40M 100M 160M) || die mkfs
    mount -o "$options" /dev/vdb /tmp/b || die mount
    cd /tmp/b || die cd
}
mkdir -p /tmp/b
for ((round = 0; round < rounds; round++)); do
    ((round % 10 == 0)) && fresh
    # What is freed first: holes of one size, some of the files, or every second small file.
    kib=$(pick 4 8 16 64 256) n=$(pick 20 60 150 600)
    case $((RANDOM % 3)) in
    0)
        fallocate -l $((n * kib * 2))k "h$round" 2>/dev/null
        for ((i = 0; i < n; i++)); do echo "fpunch $((i * kib * 2))k ${kib}k"; done |
            xfs_io -f "h$round" >/dev/null 2>&1
        ;;
    1) for f in h*; do ((RANDOM % 2)) && rm -f "$f"; done ;;
    2)
        for ((i = 0; i < n; i++)); do head -c ${kib}k /dev/zero >"s$i" 2>/dev/null || break; done
        sync
        rm -f s*[13579]
        ;;
    esac
    case $((RANDOM % 4)) in 0) sync ;; 1) sync . ;; 2) sleep 0.1 ;; esac
    case $((RANDOM % 4)) in
    0)
        step=67108864 at=0
        while [ $step -ge 4096 ]; do
            if fallocate -o $at -l $step "f$round" 2>/dev/null; then at=$((at + step)); else step=$((step / 2)); fi
        done
        ;;
    1) dd if=/dev/zero of="f$round" bs=1M 2>/dev/null ;;
    2) dd if=/dev/zero of="f$round" bs=64k oflag=direct 2>/dev/null ;;
    3)
        for ((i = 0; i < 200; i++)); do
            dd if=/dev/zero of="f$round.$i" bs="$(pick 4k 20k 300k)" count="$(pick 1 5 20)" 2>/dev/null || break
        done
        dd if=/dev/zero of="f$round" bs=256k 2>/dev/null
        ;;
    esac
    echo "left $(stat -f -c '%a %S' . | awk '{ print int($1 * $2 / 1024) }')"
    sync || die "data were lost"
    rm -f s*
    for f in f*; do ((RANDOM % 4)) && rm -f "$f"; done
    case $((RANDOM % 2)) in 0) sync ;; esac
done
check
# Data that found no room when they were written back.
dmesg | grep -q 'lost' && die lost
echo "rounds $round"
