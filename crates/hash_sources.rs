// Hashes sources, for the build scripts of several crates, which include this file.
//
// Comments, tests and layout do not count. The hash only has to change when the code does, so it is FNV-1a.

/// Returns the name of a part of the code and the hash of its folders, which are given below that of all crates.
fn hash_of(name: &str, folders: &[&str]) -> String {
    let crates = std::path::PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..");
    let mut hash = Fnv::default();
    for folder in folders {
        println!("cargo::rerun-if-changed=../{folder}");
        hash.folder(&crates.join(folder));
    }
    format!("{name} {:06x}", (hash.0 ^ hash.0 >> 40) & 0xff_ffff)
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn word(&mut self, word: &str) {
        for byte in word.bytes().chain([b' ']) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn folder(&mut self, folder: &std::path::Path) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<std::path::PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                self.folder(&path);
            } else if name.ends_with(".toml") || (name.ends_with(".rs") && name != "tests.rs") {
                self.file(&name, &std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }

    fn file(&mut self, name: &str, text: &str) {
        self.word(name);
        let text = text.replace("\r\n", "\n");
        // Tests are at the end of their file.
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        lines.flat_map(str::split_whitespace).for_each(|word| self.word(word));
    }
}
