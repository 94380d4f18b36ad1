# Everyday commands; `just` lists them.

# list the commands
default:
    @just --list

# compare TRIM policies with the built-in defaults
compare *ARGUMENTS:
    cargo run --release -- compare {{ARGUMENTS}}

# make the published experiments again
reproduce *ARGUMENTS='--all':
    cargo build --release
    cargo run --release -- reproduce {{ARGUMENTS}}

# the quick tests: three minutes from nothing, no root, no packages
test *ARGUMENTS:
    scripts/test-tier quick {{ARGUMENTS}}

# tests on real devices and file systems: root, loop devices, FUSE, tracefs and the packages that .ci/run installs
system *ARGUMENTS:
    scripts/test-tier system {{ARGUMENTS}}

# samples of the published experiments: processor time only
experiments *ARGUMENTS:
    scripts/test-tier experiments {{ARGUMENTS}}

# real kernels in virtual time: `trimwise kernel build --version 6.1` first, and the programs that make file systems
kernels *ARGUMENTS:
    scripts/test-tier kernels {{ARGUMENTS}}

# the experiments and grids that the tiers only sample, whole; hours
full:
    scripts/test-full

# what CI runs
ci:
    .ci/run

# format and lint
tidy:
    cargo fmt
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    cargo clippy --workspace --test '*' --all-features -- -D warnings

# measure the models' own speed
bench *ARGUMENTS:
    cargo bench --manifest-path benches/Cargo.toml -- {{ARGUMENTS}}

# stripped binaries for packages, with link-time optimisation, in target/dist
dist:
    cargo build --profile dist -p trimwise-cli -p trimwised

# `trimwise bench` and fio side by side on a file in a directory; the machine must be idle
against-fio *DIRECTORY:
    scripts/bench-against-fio.sh {{DIRECTORY}}

# accept what snapshot tests print now; read the diff before you commit it
snapshots:
    INSTA_UPDATE=always cargo test -p trimwise-cli
    git diff --stat -- '*.snap'
