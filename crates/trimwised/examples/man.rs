//! Prints the daemon's man page, for packages: `cargo run -p trimwised --example man >trimwised.8`.

use std::io::{self, Write as _};

use clap_mangen::Man;

fn main() -> io::Result<()> {
    let page = Man::new(trimwised::command::definition()).section("8").manual("System Administration");
    let mut text = Vec::new();
    page.render(&mut text)?;
    io::stdout().write_all(&text)
}
