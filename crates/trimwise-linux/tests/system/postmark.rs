//! Random configurations, and Debian's `postmark` to run them.

use std::fmt::Write as _;
use std::process::Command;

use trimwise_testing::directory;

/// A small generator (SplitMix64), so that the configurations are the same on every run.
pub struct Draws(pub u64);

impl Draws {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize].clone()
    }
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }
}

/// The settings of one random configuration, without `run`. Locations are `a`, `b/c` and `d`.
pub fn random_settings(draws: &mut Draws) -> String {
    let mut text = String::new();
    let mut set = |args: std::fmt::Arguments<'_>| writeln!(text, "set {args}").unwrap();
    let low = draws.of(&[1u64, 77, 500, 4096, 9000]);
    match draws.next() % 4 {
        0 => set(format_args!("size {low}")),
        1 => set(format_args!("size {low} {}", low / 2)),
        _ => set(format_args!("size {low} {}", low + draws.between(1, 30_000))),
    }
    set(format_args!("number {}", draws.of(&[1u64, 2, 7, 40, 300])));
    set(format_args!("transactions {}", draws.of(&[10u64, 11, 60, 400, 900])));
    set(format_args!("seed {}", draws.of(&[1u64, 42, 4711, 2_147_483_647])));
    if draws.next().is_multiple_of(2) {
        set(format_args!("subdirectories {}", draws.of(&[1u64, 2, 13])));
    }
    set(format_args!("read {}", draws.of(&[1u64, 512, 4096, 5000, 100_000])));
    set(format_args!("write {}", draws.of(&[1u64, 512, 3000, 4096, 100_000])));
    set(format_args!("buffering {}", draws.of(&["true", "false"])));
    set(format_args!("bias read {}", draws.of(&["-1", "0", "3", "5", "10"])));
    set(format_args!("bias create {}", draws.of(&["-1", "0", "4", "5", "10"])));
    match draws.next() % 4 {
        0 => set(format_args!("location a")),
        1 => {
            set(format_args!("location a {}", draws.between(1, 5)));
            set(format_args!("location +b/c"));
            set(format_args!("location +d {}", draws.between(1, 5)));
            if draws.next().is_multiple_of(2) {
                set(format_args!("location -b/c"));
            }
        }
        _ => {}
    }
    text
}

/// Configurations at the edges of PostMark's range.
pub const EDGES: [&str; 10] = [
    "set number 1\nset transactions 10\n",
    "set number 1\nset transactions 10\nset bias create 10\n",
    "set number 2\nset transactions 30\nset bias create 0\n",
    "set number 20\nset transactions 100\nset size 1000\nset bias read 0\n",
    "set number 20\nset transactions 100\nset size 1000 10\nset bias read -1\nset bias create -1\n",
    "set number 50\nset transactions 500\nset bias create 10\nset size 10 5000\n",
    "set number 50\nset transactions 500\nset bias read 0\nset size 4096 8192\nset write 4096\nset buffering false\n",
    "set number 50\nset transactions 500\nset read 100000\nset write 100000\nset buffering false\n",
    "set number 16384\nset transactions 10\nset size 64\nset bias read -1\nset bias create -1\n",
    "set number 3000\nset transactions 5000\nset size 1 60000\nset read 4096\nset write 4096\n",
];

/// Returns the output of `postmark` (or `strace ... postmark`) for a configuration, run in a directory of its own.
pub fn postmark(command: &[&str], config: &str) -> String {
    let work = directory(true);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config).unwrap();
    let output = Command::new(command[0])
        .args(&command[1..])
        .arg(file.path())
        .current_dir(work.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}: {config}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
