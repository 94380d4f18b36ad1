# Everyday commands; `just` lists them. docs/architecture.md has the tiers of tests, and the commands without just.

# list the commands
default:
    @just --list

# compare TRIM policies with the built-in defaults
compare *ARGUMENTS:
    cargo run --release -- compare {{ARGUMENTS}}

# make the published experiments again
reproduce *ARGUMENTS='--all':
    cargo build --release -p trimwise-cli -p trimwise-lab -p trimwised
    cargo run --release -- reproduce {{ARGUMENTS}}

# tier quick: needs nothing; three minutes from an empty target
test *ARGUMENTS:
    scripts/test-tier quick {{ARGUMENTS}}

# what would the quick tests not notice in the lines that differ from BASE? needs cargo-mutants; five minutes at most
mutants *BASE:
    scripts/test-mutants {{BASE}}

# tier experiments: samples of the published experiments; needs processor time; two and a half minutes
experiments *ARGUMENTS:
    scripts/test-tier experiments {{ARGUMENTS}}

# tier system: needs root, loop devices, FUSE, tracefs and the packages that .ci/run installs; six minutes
system *ARGUMENTS:
    scripts/test-tier system {{ARGUMENTS}}

# tier kernels: needs `trimwise kernel build --version 6.1` and the programs that make file systems; four to seven minutes
kernels *ARGUMENTS:
    scripts/test-tier kernels {{ARGUMENTS}}

# tier stock: Debian's kernels in qemu; needs root, qemu-system-x86, mmdebstrap, busybox-static, cpio, binutils
stock *ARGUMENTS:
    scripts/test-tier stock {{ARGUMENTS}}

# play the built-in tournament again, and put its table into docs/tournament.md; some minutes
tournament *ARGUMENTS:
    cargo build --release -p trimwise-cli -p trimwise-lab -p trimwised
    scripts/make-tournament {{ARGUMENTS}}

# make docs/stacks.md again from what the tier stock measures
stacks:
    STACKS=write scripts/test-tier stock

# kernel/dm-trim by DKMS on Debian's kernels in qemu: stacks, reloads under load, failing devices; needs what stock needs
dm-trim *ARGUMENTS:
    scripts/test-dm-trim {{ARGUMENTS}}

# hours of load on kernel/ext4-trim and kernel/dm-trim under KASAN, lockdep and KCSAN; goes on where it was stopped
sanitized *ARGUMENTS:
    scripts/test-sanitized {{ARGUMENTS}}

# the Debian package on a whole Debian in qemu: reboot, kill, upgrade, downgrade, purge; needs root, qemu-system-x86, mmdebstrap
debian:
    scripts/build-deb test
    scripts/test-debian

# everything that the tiers only sample: needs all of the above, a device mapper, Linux 5.10, 6.12 and 7.3; hours
full:
    scripts/test-full

# the live page and the reports in a browser, each width in both themes; CI has each width in one
pages:
    scripts/build-web
    PAGES=full scripts/test-web
    PAGES=full scripts/test-report

# what CI runs
ci:
    .ci/run

# format and lint
tidy:
    cargo fmt --all
    rustfmt --edition 2024 crates/trimwise/src/{policy,workload/apps}/*.rs
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    cargo clippy --workspace --test '*' --all-features -- -D warnings

# measure the models' own speed
bench *ARGUMENTS:
    cargo bench --manifest-path benches/Cargo.toml -- {{ARGUMENTS}}

# stripped binaries for packages, with link-time optimisation, in target/dist
dist:
    cargo build --profile dist -p trimwise-cli -p trimwise-lab -p trimwised

# the Python package: builds the wheel and tests it in an environment of its own; needs PyPI
python *ARGUMENTS:
    scripts/test-python {{ARGUMENTS}}

# the Debian package, tried in a clean Debian as root
deb:
    scripts/build-deb
    scripts/test-deb

# programs without libraries, compared with the host's own
static:
    scripts/test-static

# `trimwise bench` and fio side by side on a file in a directory; the machine must be idle
against-fio *DIRECTORY:
    scripts/bench-against-fio.sh {{DIRECTORY}}

# accept what snapshot tests print now; read the diff before you commit it
snapshots:
    INSTA_UPDATE=always cargo test -p trimwise-cli -p trimwise-lab
    git diff --stat -- '*.snap'
