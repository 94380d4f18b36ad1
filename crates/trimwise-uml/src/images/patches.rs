//! Patch sets: folders with a file `series` that names patches, in the order in which they are applied.
//!
//! A set is read once, whole, and everything afterwards works on those bytes. A line of `series` is
//!
//! - the name of a patch: a unified diff that patch(1) applies with `-p1`. patch(1) receives only the parts that were
//!   parsed here: names of files, and hunks;
//! - `FILE PATH`: this file of the folder becomes a new file of the tree, so that a driver that also builds outside of
//!   the tree is there once;
//! - the name of a file that ends in `.config`: options merged over the kernel's configuration, as those of a variant.
//!
//! Empty lines and those that begin with `#` are skipped.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{KernelError, RECIPE_BYTES, hex};
use trimwise_linux::kernel_name::check_set;

/// Maximum size of a patch, in bytes: patches are held in memory.
const PATCH_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltSet {
    pub name: String,
    pub hash: String,
    /// The folder that it was read from.
    pub folder: PathBuf,
}

#[derive(Clone, Debug)]
pub(super) struct PatchSet {
    pub(super) as_built: BuiltSet,
    pub(super) patches: Vec<Patch>,
    /// Lines of its `.config` files.
    pub(super) configuration: String,
}

#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) name: String,
    pub(super) diff: Vec<u8>,
    pub(super) files: Vec<PathBuf>,
}

impl PatchSet {
    /// Reads the set in this folder, and checks everything that can be checked without a kernel's source.
    pub(super) fn read(folder: &Path) -> Result<Self, KernelError> {
        let refuse = |what: String| KernelError::Set { folder: folder.to_owned(), what };
        let at = folder.canonicalize().map_err(|e| refuse(e.to_string()))?;
        let name = at.file_name().unwrap_or_default().to_string_lossy().into_owned();
        check_set(&name)?;
        let series = read(&at.join("series"))
            .and_then(|text| String::from_utf8(text).map_err(|e| e.to_string()))
            .map_err(|e| refuse(format!("series: {e}; expected a file that names the patches in order")))?;
        let mut hash = Sha256::new();
        let mut patches = Vec::new();
        let mut configuration = String::new();
        for line in series.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (file, place) =
                line.split_once(' ').map_or((line, None), |(file, place)| (file, Some(place.trim())));
            let in_folder = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
            if !in_folder {
                return Err(refuse(format!("series: '{file}' is outside the folder; expected a file in it")));
            }
            let refuse_file = |what: String| refuse(format!("{file}: {what}"));
            let text = read(&at.join(file)).map_err(refuse_file)?;
            for part in [line.as_bytes(), &text] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            if place.is_none() && file.ends_with(".config") {
                configuration += std::str::from_utf8(&text).map_err(|e| refuse_file(e.to_string()))?;
                configuration += "\n";
                continue;
            }
            let diff = place.map_or_else(|| Ok(text.clone()), |place| addition(&text, place));
            let (files, diff) = diff.and_then(|diff| parse(&diff)).map_err(refuse_file)?;
            patches.push(Patch { name: file.to_owned(), diff, files });
        }
        if patches.is_empty() {
            return Err(refuse("series: lists no patch".to_owned()));
        }
        let hash = hex(&hash.finalize()[..RECIPE_BYTES]);
        Ok(Self { as_built: BuiltSet { name, hash, folder: at }, patches, configuration })
    }
}

/// Reads a file of a set. Refuses pipes, which would block, and devices, which may be endless.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let found = fs::metadata(path).map_err(|e| e.to_string())?;
    if !found.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if found.len() > PATCH_BYTES_MAX {
        return Err(format!("is larger than {} MiB", PATCH_BYTES_MAX >> 20));
    }
    fs::read(path).map_err(|e| e.to_string())
}

/// Returns the diff that adds a file with this text to the tree.
fn addition(text: &[u8], place: &str) -> Result<Vec<u8>, String> {
    if !text.ends_with(b"\n") {
        return Err("does not end with a newline".to_owned());
    }
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    let mut diff =
        format!("--- /dev/null\n+++ b/{place}\n@@ -0,0 +1,{} @@\n", lines.clone().count()).into_bytes();
    lines.for_each(|line| diff.extend([b"+", line].concat()));
    Ok(diff)
}

/// Returns the files that a unified diff changes, each once, and the diff without the text around it.
///
/// Accepts only hunks below a pair of `---` and `+++` lines with names inside the tree. patch(1) understands more, such
/// as ed scripts, which it would run.
fn parse(text: &[u8]) -> Result<(Vec<PathBuf>, Vec<u8>), String> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut diff = Vec::new();
    let mut old_name: Option<(String, &[u8])> = None;
    // True if a hunk may begin; and true if one must, right after the names of a file.
    let (mut has_file, mut needs_hunk) = (false, false);
    let mut left = (0_u64, 0_u64);
    let mut changes = false;
    for (i, raw) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(raw);
        let line = line.trim_end_matches('\n').trim_end_matches('\r');
        let at = |what: String| format!("line {}: {what}", i + 1);
        if needs_hunk && !line.starts_with("@@ ") {
            return Err(at(format!("'{line}': expected a hunk of a unified diff, which begins with @@")));
        }
        if left != (0, 0) {
            diff.extend_from_slice(raw);
            changes |= line.starts_with(['+', '-']);
            let (old, new) = match line.bytes().next() {
                Some(b' ') | None => (1, 1),
                Some(b'-') => (1, 0),
                Some(b'+') => (0, 1),
                Some(b'\\') => (0, 0),
                _ => return Err(at(format!("'{line}': expected a line of the hunk, which is cut short"))),
            };
            let rest = left.0.checked_sub(old).zip(left.1.checked_sub(new));
            left = rest.ok_or_else(|| at("the hunk is longer than its @@ line says".to_owned()))?;
            if left == (0, 0) && !changes {
                return Err(at("the hunk changes nothing; expected lines that begin with + or -".to_owned()));
            }
        } else if let Some(name) = line.strip_prefix("--- ") {
            // In the message of a mailed patch, such a line is just text.
            old_name = Some((name.to_owned(), raw));
            has_file = false;
        } else if let (Some(new), Some((old, old_raw))) = (line.strip_prefix("+++ "), old_name.take()) {
            diff.extend_from_slice(old_raw);
            diff.extend_from_slice(raw);
            let names = [tree_path(&old).map_err(at)?, tree_path(new).map_err(at)?];
            let path = match names {
                [Some(old), Some(new)] if old != new => {
                    return Err(at(format!(
                        "from {} to {}: expected the same file, or /dev/null",
                        old.display(),
                        new.display()
                    )));
                }
                [old, new] => new.or(old).ok_or_else(|| at("names no file".to_owned()))?,
            };
            if !files.contains(&path) {
                files.push(path);
            }
            (has_file, needs_hunk) = (true, true);
        } else if line.starts_with("@@ ") {
            diff.extend_from_slice(raw);
            (needs_hunk, changes) = (false, false);
            left = counts(line).filter(|_| has_file).ok_or_else(|| {
                at(format!("'{line}': expected '@@ -LINE,COUNT +LINE,COUNT @@' below a pair of --- and +++"))
            })?;
        } else if has_file && line.starts_with('\\') {
            diff.extend_from_slice(raw); // the last line of the hunk has no end
        } else if ["rename from", "copy from", "GIT binary patch", "new file mode 12"]
            .iter()
            .any(|prefix| line.starts_with(prefix))
        {
            return Err(at(format!("'{line}': expected a unified diff of regular files, without renames")));
        }
    }
    match (left, files.is_empty()) {
        _ if needs_hunk => Err("ends before the first hunk".to_owned()),
        ((0, 0), false) => Ok((files, diff)),
        ((0, 0), true) => Err("changes no file; expected a unified diff".to_owned()),
        _ => Err("ends within a hunk".to_owned()),
    }
}

/// Parses the name in a `---` or `+++` line, without its first part (`-p1`); `None` is /dev/null.
fn tree_path(name: &str) -> Result<Option<PathBuf>, String> {
    let name = name.split('\t').next().unwrap_or_default().trim_end();
    if name == "/dev/null" {
        return Ok(None);
    }
    let refuse = || {
        format!("'{name}': expected the path of a file inside the kernel's tree, such as a/fs/ext4/super.c")
    };
    let is_plain = !name.starts_with(['/', '"']) && !name.contains(' ');
    let (_, path) = name.split_once('/').filter(|_| is_plain).ok_or_else(refuse)?;
    let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    // `components` skips `.` and doubled slashes, which patch(1) would not.
    let is_normal = !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if is_inside && is_normal { Ok(Some(PathBuf::from(path))) } else { Err(refuse()) }
}

/// Parses `@@ -12,3 +12,4 @@` as the numbers of lines: (3, 4).
fn counts(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let mut count = |sign| {
        let range = words.next()?.strip_prefix(sign)?;
        let (begin, count) = range.split_once(',').unwrap_or((range, "1"));
        begin.parse::<u64>().ok()?;
        count.parse().ok()
    };
    let both = (count('-')?, count('+')?);
    (words.next() == Some("@@")).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "From: somebody\n---\n a.c | 2 +-\n\n--- a/fs/a.c\n+++ b/fs/a.c\t2026\n@@ -1,2 +1,2 @@ f()\n one\n\
                        --- two\n+++ three\n--- /dev/null\n+++ b/fs/new.c\n@@ -0,0 +1 @@\n+int new;\n-- \n2.39\n";

    #[test]
    fn a_patch_says_which_files_it_changes() {
        let (files, diff) = parse(DIFF.as_bytes()).unwrap();
        assert_eq!(files, [Path::new("fs/a.c"), Path::new("fs/new.c")]);
        let (_, begin) = DIFF.split_once("2 +-\n\n").unwrap();
        assert_eq!(diff, begin.strip_suffix("-- \n2.39\n").unwrap().as_bytes(), "without the text around it");
        let unended = DIFF.replace("+int new;\n-- \n2.39\n", "+int new;\n\\ No newline at end of file\n");
        assert!(parse(unended.as_bytes()).unwrap().1.ends_with(b"end of file\n"));
    }

    #[test]
    fn what_leaves_the_tree_or_is_no_plain_diff_is_refused_with_its_line() {
        for (from, to, line) in [
            ("b/fs/new.c", "b/../../etc/passwd", "line 12"),
            ("b/fs/new.c", "/etc/passwd", "line 12"),
            ("b/fs/new.c", "b/./x", "line 12"),
            ("b/fs/new.c", "b//x", "line 12"),
            ("b/fs/new.c", "new.c", "line 12"),
            ("b/fs/a.c", "b/fs/b.c", "line 6"),
            ("@@ -0,0 +1 @@", "@@ -0,0 @@", "line 13"),
            ("+int new;\n", "", "line 14"),
            ("@@ -0,0 +1 @@", "@@ -0,0 +1,9 @@", "line 15"),
            ("From: somebody", "rename from x", "line 1"),
            ("+int new;\n-- \n2.39\n", "", "ends within a hunk"),
            ("@@ -0,0 +1 @@\n+int new;\n-- \n2.39\n", "", "ends before the first hunk"),
            ("--- two\n+++ three", " two", "line 9: the hunk changes nothing"),
        ] {
            let error = parse(DIFF.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(line), "{to}: {error}");
        }
        // An ed script, which patch(1) would run.
        assert!(parse(b"--- a/fs/a.c\n1d\n.\n").unwrap_err().contains("changes no file"));
        let named = parse(b"--- a/fs/a.c\n+++ b/fs/a.c\n0a\nint new;\n.\n").unwrap_err();
        assert!(named.contains("line 3: '0a': expected a hunk"), "{named}");
    }

    #[test]
    fn a_set_is_hashed_by_its_patches_and_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let set = dir.path().join("set");
        fs::create_dir(&set).unwrap();
        let error = PatchSet::read(&set).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("series"), "{error}");
        fs::write(set.join("a.patch"), DIFF).unwrap();
        fs::write(set.join("b.patch"), DIFF.replace("int new", "int other")).unwrap();
        let hash = |series: &str| {
            fs::write(set.join("series"), series).unwrap();
            PatchSet::read(&set).map(|set| (set.as_built.hash, set.patches.len()))
        };
        let both = hash("a.patch\nb.patch\n").unwrap();
        assert_eq!(hash("# both\na.patch\n\nb.patch").unwrap(), both, "comments do not count");
        assert_ne!(hash("b.patch\na.patch\n").unwrap().0, both.0);
        assert_eq!(hash("a.patch\n").unwrap().1, 1);
        for (series, words) in [("", "lists no patch"), ("../a.patch", "outside"), ("c.patch", "c.patch")] {
            let error = hash(series).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        fs::write(set.join("new.c"), "int one;\n\nint two;\n").unwrap();
        fs::write(set.join("x.config"), "CONFIG_X=y\n").unwrap();
        fs::write(set.join("series"), "new.c drivers/new.c\nx.config\n").unwrap();
        let read = PatchSet::read(&set).unwrap();
        assert_eq!(read.configuration.trim(), "CONFIG_X=y");
        assert_eq!(read.patches[0].files, [Path::new("drivers/new.c")]);
        let diff = "--- /dev/null\n+++ b/drivers/new.c\n@@ -0,0 +1,3 @@\n+int one;\n+\n+int two;\n";
        assert_eq!(read.patches[0].diff, diff.as_bytes());
        fs::write(set.join("x.config"), "CONFIG_X=m\n").unwrap();
        assert_ne!(PatchSet::read(&set).unwrap().as_built.hash, read.as_built.hash);
        for (series, words) in
            [("x.config", "lists no patch"), ("new.c ../x.c", "expected the path of a file")]
        {
            let error = hash(series).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        fs::write(set.join("a.patch"), DIFF.replace("int new", "int another")).unwrap();
        assert_ne!(hash("a.patch\nb.patch\n").unwrap().0, both.0);
    }
}
