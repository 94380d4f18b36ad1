# Everyday commands; `just` lists them.

# list the commands
default:
    @just --list

# compare TRIM policies with the built-in defaults
compare *ARGUMENTS:
    cargo run --release -- compare {{ARGUMENTS}}

# make the published experiments again
reproduce *ARGUMENTS='--all':
    cargo run --release -- reproduce {{ARGUMENTS}}

# run all tests
test:
    cargo test --workspace

# the experiments and grids that `just test` only samples, whole
full:
    # needs root and a kernel with a device mapper
    -cargo test --release -p trimwise-host --features device-mapper-tests --test mounted_verify linear
    # needs root: the daemon killed at 200 points, and 1,000 mounts
    -KILLS=200 MOUNTS=1000 cargo test --release -p trimwise-host --test daemon
    SET=full cargo test --release -p trimwise --test set
    CAPACITY=full cargo test --release -p trimwise --test capacity
    SANDFORCE=full cargo test --release -p trimwise --test sandforce
    KERNELS=full cargo test --release -p trimwise-cli --test kernels_experiment --test model_ext4 --test daemon_week \
        --features kernel-5-10-tests
    WRITE_AMPLIFICATION=full cargo test --release -p trimwise --test write_amplification the_grid -- --nocapture

# what CI runs
ci:
    .ci/run

# format and lint
tidy:
    cargo fmt
    cargo clippy --workspace --all-targets -- -D warnings

# measure the models' own speed
bench *ARGUMENTS:
    cargo bench -p trimwise -- {{ARGUMENTS}}

# `trimwise bench` and fio side by side on a file in a directory; the machine must be idle
against-fio *DIRECTORY:
    scripts/bench-against-fio.sh {{DIRECTORY}}

# accept what snapshot tests print now; read the diff before you commit it
snapshots:
    INSTA_UPDATE=always cargo test -p trimwise-cli
    git diff --stat -- '*.snap'
