//! The history: an embedded database of bounded size.
//!
//! Entries are kept in memory and written together, once a minute and on exit, so that an idle host is not woken. A
//! full disk only costs memory, which is bounded too.
//!
//! The database says whose it is (`application_id`) and of which version (`user_version`). One that is damaged, of a
//! newer version, or not ours is moved aside, neither repaired nor removed, and a new one is begun: losing history is
//! acceptable, losing what is somebody else's is not.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use serde::{Deserialize, Serialize};
use trimwise::units::Bytes;

use crate::places::open_own;
use trimwise_linux::files::with_ending;

/// Maximum number of entries waiting in memory; the oldest are dropped first.
const WAITING_MAX: usize = 2_000;
const PAGE_BYTES: u64 = 4096;
/// `application_id` of our databases: "trmw".
const APPLICATION: i64 = 0x7472_6d77;
const VERSION: i64 = 1;
/// Columns of the table, in order.
const COLUMNS: &str = "id,at_ms,mount,kind,text,bytes";
/// Maximum bytes of text in one answer; older entries are left out. The answer is held in memory.
const ANSWER_MAX: usize = 2 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub at_ms: i64,
    pub mount: String,
    /// `found`, `gone`, `reason`, `trimmed`, `online`, `paused`...
    pub kind: String,
    pub text: String,
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub struct History {
    waiting: VecDeque<Entry>,
    /// Number of entries, from the front, that are being written.
    in_flight: usize,
    problem: Option<String>,
}

impl History {
    pub fn add(&mut self, mount: &Path, kind: &str, text: String, bytes: u64) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        self.waiting.push_back(Entry {
            at_ms,
            mount: mount.display().to_string(),
            kind: kind.to_owned(),
            text,
            bytes,
        });
    }

    /// Returns the reason why entries cannot be written now, if so, without a full stop.
    pub fn problem(&self) -> Option<String> {
        self.problem.as_ref().map(|why| format!("{why}; {} entries wait in memory", self.waiting.len()))
    }

    /// Returns the entries to write now; `None` if there are none, or a write is in progress.
    pub(crate) fn next_batch(&mut self) -> Option<Vec<Entry>> {
        if self.waiting.is_empty() || self.in_flight > 0 {
            return None;
        }
        self.in_flight = self.waiting.len();
        Some(self.waiting.iter().cloned().collect())
    }

    pub fn written(&mut self, result: Result<(), String>) -> Option<&str> {
        let written = std::mem::take(&mut self.in_flight);
        let before = std::mem::replace(&mut self.problem, result.err());
        if self.problem.is_none() {
            self.waiting.drain(..written);
            self.waiting.shrink_to(64);
        }
        self.problem.as_deref().filter(|why| before.as_deref() != Some(*why))
    }

    /// Returns the last entries of a mount, at most `limit`: those read from the database, and those that wait.
    pub fn last(
        &self,
        mount: &Path,
        limit: u32,
        read: Result<Vec<Entry>, String>,
    ) -> Result<Vec<Entry>, String> {
        let mut entries = match read {
            Err(_) if !self.waiting.is_empty() => Vec::new(),
            read => read?,
        };
        let mount = mount.display().to_string();
        entries.extend(self.waiting.iter().filter(|entry| entry.mount == mount).cloned());
        let first = entries.len().saturating_sub(limit as usize);
        Ok(entries.split_off(first))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Database {
    pub path: PathBuf,
    pub max: Bytes,
}

impl Database {
    /// Writes entries to the database.
    pub fn add(&self, entries: &[Entry]) -> Result<(), String> {
        self.write(entries).map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn write(&self, entries: &[Entry]) -> rusqlite::Result<()> {
        self.unless_damaged(|connection| Self::write_to(connection, entries))
    }

    fn write_to(mut connection: Connection, entries: &[Entry]) -> rusqlite::Result<()> {
        /// Maximum number of quarters to delete, which is nearly everything.
        const QUARTERS_MAX: u32 = 16;
        let mut quarters = 0;
        loop {
            match insert(&mut connection, entries) {
                // At the size limit, delete the oldest quarter until the new entries fit.
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) && quarters < QUARTERS_MAX =>
                {
                    quarters += 1;
                    let oldest = "DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY id LIMIT \
                                  (SELECT COUNT(*) / 4 + 1 FROM entries))";
                    connection.execute(oldest, [])?;
                }
                done => return done,
            }
        }
    }

    /// Opens the database for one operation, so that it takes no memory in between.
    fn open(&self) -> rusqlite::Result<Connection> {
        // Opening a pipe could block forever. SQLite refuses a link as the database, but follows one next to it.
        let found = |path: &Path| fs::symlink_metadata(path).ok();
        // Nor may it be another file's second name, which would be written.
        let is_foreign = |found: fs::Metadata| !found.is_file() || found.nlink() > 1;
        if found(&self.path).is_some_and(|found| !found.is_symlink() && is_foreign(found)) {
            self.move_aside();
        }
        // These are not SQLite's, and the database is whole without them.
        for ending in BESIDE {
            let path = with_ending(&self.path, ending);
            let mut asides = self.asides().map(|aside| with_ending(&aside, ending));
            if found(&path).is_some_and(|found| !found.is_file())
                && let Some(to) = asides.find(|to| is_free(to))
            {
                drop(fs::rename(path, to));
            }
        }
        self.keep_private();
        self.open_once()
    }

    /// Creates the database, or changes the mode of an older one, so that only its owner reads it whatever the umask is.
    /// SQLite gives the files next to it the same mode.
    fn keep_private(&self) {
        let Ok(file) = open_own(&self.path, fs::File::options().read(true).write(true).create(true)) else {
            return; // opening it says why
        };
        if file.metadata().is_ok_and(|found| found.mode() & 0o077 != 0) {
            drop(file.set_permissions(fs::Permissions::from_mode(0o600)));
        }
    }

    /// Performs an operation on the database. If it is damaged or not ours, repeats it on a new one.
    fn unless_damaged<T>(
        &self,
        operation: impl Fn(Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.open().and_then(&operation).or_else(|error| {
            let is_damaged = matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::TypeMismatch)
            );
            // SQLite follows no link here.
            let is_link = fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_symlink());
            if !(is_damaged || is_link || matches!(error, rusqlite::Error::InvalidQuery))
                || !self.move_aside()
            {
                return Err(error);
            }
            self.open().and_then(&operation)
        })
    }

    fn open_once(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        let Some(version) = version(&connection)? else { return Err(rusqlite::Error::InvalidQuery) };
        let pages = (self.max.0 / PAGE_BYTES).max(16);
        connection.execute_batch(&format!("PRAGMA cache_size = 32; PRAGMA max_page_count = {pages};"))?;
        let held: u64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        if held > pages {
            self.shrink(&connection, held, pages)?;
        }
        if version != VERSION {
            let ours = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};");
            connection.execute_batch(&ours)?;
        }
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, mount TEXT NOT NULL, \
             kind TEXT NOT NULL, text TEXT NOT NULL, bytes INTEGER NOT NULL);
             CREATE INDEX IF NOT EXISTS by_mount ON entries (mount, id);",
        )?;
        Ok(connection)
    }

    /// Deletes the oldest entries and shrinks the file after the limit was lowered.
    fn shrink(&self, connection: &Connection, held: u64, pages: u64) -> rusqlite::Result<()> {
        // Keep an eighth less than fits, since pages are not full.
        let kept = format!(
            "DELETE FROM entries WHERE id NOT IN (SELECT id FROM entries ORDER BY id DESC LIMIT \
             (SELECT COUNT(*) * {} / {held} FROM entries))",
            pages - pages / 8
        );
        connection.execute(&kept, [])?;
        connection.execute_batch(&format!("VACUUM; PRAGMA max_page_count = {pages};"))
    }

    /// Returns the names of databases kept aside, in the order in which they are used.
    fn asides(&self) -> impl Iterator<Item = PathBuf> {
        let ending = |n: u32| if n == 0 { ".aside".to_owned() } else { format!(".aside-{n}") };
        (0..ASIDE_MAX).map(move |n| with_ending(&self.path, &ending(n)))
    }

    /// Moves the database and the files next to it to names that are free. Returns true if the database was moved.
    fn move_aside(&self) -> bool {
        let all_free =
            |path: &PathBuf| is_free(path) && BESIDE.iter().all(|ending| is_free(&with_ending(path, ending)));
        let Some(aside) = self.asides().find(all_free) else { return false };
        if fs::rename(&self.path, &aside).is_err() && !is_free(&self.path) {
            return false;
        }
        for ending in BESIDE {
            drop(fs::rename(with_ending(&self.path, ending), with_ending(&aside, ending)));
        }
        true
    }

    /// Returns the last entries of a mount, oldest first: at most `limit`, and together no more than 2 MiB.
    pub fn last(&self, mount: &Path, limit: u32) -> Result<Vec<Entry>, String> {
        self.read(mount, limit).map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn read(&self, mount: &Path, limit: u32) -> rusqlite::Result<Vec<Entry>> {
        self.unless_damaged(|connection| Self::read_from(&connection, mount, limit))
    }

    fn read_from(connection: &Connection, mount: &Path, limit: u32) -> rusqlite::Result<Vec<Entry>> {
        let mut statement = connection.prepare(
            "SELECT at_ms, mount, kind, text, bytes FROM entries WHERE mount = ?1 ORDER BY id DESC LIMIT ?2",
        )?;
        let rows = statement.query_map(params![mount.display().to_string(), limit], |row| {
            // Any column of any row can have any type.
            let number = |column| {
                Ok::<_, rusqlite::Error>(match row.get_ref(column)? {
                    ValueRef::Integer(number) => number,
                    ValueRef::Real(number) => number as i64,
                    _ => 0,
                })
            };
            let text = |column| {
                Ok::<_, rusqlite::Error>(match row.get_ref(column)? {
                    ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                        String::from_utf8_lossy(bytes).into_owned()
                    }
                    _ => String::new(),
                })
            };
            Ok(Entry {
                at_ms: number(0)?,
                mount: text(1)?,
                kind: text(2)?,
                text: text(3)?,
                bytes: number(4)?.unsigned_abs(),
            })
        })?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for row in rows {
            let entry = row?;
            bytes += entry.text.len() + entry.mount.len() + entry.kind.len() + 64;
            if bytes > ANSWER_MAX {
                break;
            }
            entries.push(entry);
        }
        entries.reverse();
        Ok(entries)
    }
}

fn is_free(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err()
}

/// Endings of the files that SQLite keeps next to a database.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];
/// Most databases kept aside. Beyond it, nothing is moved and the history reports a problem.
const ASIDE_MAX: u32 = 100;

/// Returns the version of the database, 0 for a new one; `None` if it is not ours, or newer than this program.
fn version(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let number =
        |pragma: &str| connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
    let objects: i64 = connection.query_row("SELECT COUNT(*) FROM sqlite_master", [], |row| row.get(0))?;
    let version = match (number("application_id")?, number("user_version")?) {
        (0, 0) if objects == 0 => return Ok(Some(0)),
        // Before version 1 neither was set.
        (APPLICATION, VERSION) => VERSION,
        (0, 0) => 0,
        _ => return Ok(None),
    };
    let is_table = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'entries'";
    let columns = "SELECT group_concat(name) FROM pragma_table_info('entries')";
    let is_table = connection.query_row(is_table, [], |row| row.get::<_, i64>(0))? == 1;
    let found: Option<String> = connection.query_row(columns, [], |row| row.get(0))?;
    Ok((is_table && found.as_deref() == Some(COLUMNS)).then_some(version))
}

fn insert(connection: &mut Connection, entries: &[Entry]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut statement = transaction
            .prepare("INSERT INTO entries (at_ms, mount, kind, text, bytes) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        for entry in entries {
            let bytes = i64::try_from(entry.bytes).unwrap_or(i64::MAX);
            statement.execute(params![entry.at_ms, entry.mount, entry.kind, entry.text, bytes])?;
        }
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries and their database, as the daemon and its worker have them.
    struct Both(History, Database);

    impl Both {
        fn add(&mut self, mount: &Path, kind: &str, text: String, bytes: u64) {
            self.0.add(mount, kind, text, bytes);
        }

        fn flush(&mut self) {
            if let Some(entries) = self.0.next_batch() {
                let result = self.1.add(&entries);
                self.0.written(result);
            }
        }

        fn last(&mut self, mount: &Path, limit: u32) -> Result<Vec<Entry>, String> {
            self.flush();
            self.0.last(mount, limit, self.1.last(mount, limit))
        }

        fn problem(&self) -> Option<String> {
            self.0.problem()
        }
    }

    fn history(folder: &Path, max: Bytes) -> Both {
        Both(History::default(), Database { path: folder.join("history.db"), max })
    }

    fn fill(history: &mut Both, from: u64, n: u64) {
        for i in from..from + n {
            history.add(Path::new("/home"), "reason", format!("entry {i} {}", "x".repeat(200)), i);
        }
    }

    #[test]
    fn regression_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        let mut one = history(folder.path(), Bytes::mib(1));
        fill(&mut one, 0, 1);
        one.flush();
        assert_eq!(format!("{:o}", mode()), "600"); // the test's umask would give 644
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(one.last(Path::new("/home"), 9).unwrap().len(), 1);
        assert_eq!(format!("{:o}", mode()), "600");
    }

    #[test]
    fn regression_a_second_name_of_another_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "").unwrap();
        fs::hard_link(&victim, folder.path().join("history.db")).unwrap();
        let mut one = history(folder.path(), Bytes::mib(1));
        fill(&mut one, 0, 1);
        one.flush();
        assert_eq!(fs::read(&victim).unwrap(), b"");
        assert_eq!(one.last(Path::new("/home"), 9).unwrap().len(), 1);
    }

    #[test]
    fn entries_of_a_mount_come_back_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = history(folder.path(), Bytes::mib(1));
        fill(&mut one, 0, 3);
        one.add(Path::new("/srv"), "trimmed", "other".into(), 5);
        one.flush();
        fill(&mut one, 3, 2);
        let mut again = history(folder.path(), Bytes::mib(1));
        assert_eq!(again.last(Path::new("/home"), 10).unwrap().len(), 3);
        let bytes: Vec<u64> =
            one.last(Path::new("/home"), 4).unwrap().iter().map(|entry| entry.bytes).collect();
        assert_eq!(bytes, [1, 2, 3, 4]);
    }

    #[test]
    fn the_oldest_are_dropped_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = history(folder.path(), Bytes::kib(512));
        for round in 0..20 {
            fill(&mut one, round * 500, 500);
            one.flush();
            assert_eq!(one.problem(), None);
        }
        let size = fs::metadata(folder.path().join("history.db")).unwrap().len();
        assert!(size <= 512 << 10, "{size}");
        let last = one.last(Path::new("/home"), 1_000_000).unwrap();
        assert_eq!(last.last().unwrap().bytes, 9_999);
        assert!(last.len() >= 500, "{}", last.len());
    }

    #[test]
    fn a_lower_limit_drops_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = history(folder.path(), Bytes::mib(2));
        for round in 0..4 {
            fill(&mut one, round * 1500, 1500);
            one.flush();
        }
        let size = || fs::metadata(folder.path().join("history.db")).unwrap().len();
        assert!(size() > 1 << 20, "{}", size());
        one.1.max = Bytes::kib(512);
        let last = one.last(Path::new("/home"), 100_000).unwrap();
        assert!(size() <= 512 << 10, "{}", size());
        assert_eq!(last.last().unwrap().bytes, 5_999);
        assert!(last.len() >= 1_000, "{}", last.len());
    }

    #[test]
    fn an_answer_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = history(folder.path(), Bytes::mib(16));
        for round in 0..10 {
            fill(&mut one, round * 2000, 2000);
            one.flush();
        }
        let last = one.last(Path::new("/home"), u32::MAX).unwrap();
        assert!((5_000..10_000).contains(&last.len()), "{}", last.len());
        assert_eq!(last.last().unwrap().bytes, 19_999);
    }

    #[test]
    fn a_corrupt_database_is_moved_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        fs::write(&path, vec![0x5a; 8192]).unwrap();
        let mut one = history(folder.path(), Bytes::mib(1));
        fill(&mut one, 0, 1);
        one.flush();
        assert_eq!(one.problem(), None);
        assert_eq!(one.last(Path::new("/home"), 9).unwrap().len(), 1);
        assert_eq!(fs::read(folder.path().join("history.db.aside")).unwrap(), vec![0x5a; 8192]);
    }

    /// Whatever lies in its place, the history goes on, and nothing is lost.
    #[test]
    fn a_foreign_or_newer_database_is_moved_aside_and_kept() {
        let ours = "CREATE TABLE entries (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, mount TEXT NOT NULL, kind \
                    TEXT NOT NULL, text TEXT NOT NULL, bytes INTEGER NOT NULL";
        let newer = format!("{ours}); PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 2;");
        for (what, sql) in [
            ("foreign", "CREATE TABLE photos (b BLOB); INSERT INTO photos VALUES ('precious');"),
            ("same name", "CREATE TABLE entries (foo TEXT); INSERT INTO entries VALUES ('precious');"),
            ("one more column", &format!("{ours}, host TEXT NOT NULL);")),
            (
                "a view",
                "CREATE VIEW entries AS SELECT 1 id, 2 at_ms, 'm' mount, 'k' kind, 't' text, 0 bytes;",
            ),
            ("newer", &newer),
            ("foreign id", &format!("{ours}); PRAGMA application_id = 7;")),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("history.db");
            let dump = |path: &Path| -> Vec<(String, String)> {
                let connection = Connection::open(path).unwrap();
                let mut all =
                    connection.prepare("SELECT name, sql FROM sqlite_master ORDER BY name").unwrap();
                let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
                rows.map(Result::unwrap).collect()
            };
            Connection::open(&path).unwrap().execute_batch(sql).unwrap();
            let before = dump(&path);
            for n in 0..2 {
                let mut one = history(folder.path(), Bytes::mib(1));
                fill(&mut one, n, 1);
                one.flush();
                assert_eq!(one.problem(), None, "{what}");
                assert_eq!(one.last(Path::new("/home"), 9).unwrap().len() as u64, n + 1, "{what}");
            }
            assert_eq!(dump(&folder.path().join("history.db.aside")), before, "{what}");
            assert!(!folder.path().join("history.db.aside-1").exists(), "{what}: moved once");
        }
    }

    #[test]
    fn a_database_from_before_versions_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut one = history(folder.path(), Bytes::mib(1));
        fill(&mut one, 0, 1);
        one.flush();
        let unversioned = "PRAGMA application_id = 0; PRAGMA user_version = 0;";
        Connection::open(&path).unwrap().execute_batch(unversioned).unwrap();
        fill(&mut one, 1, 1);
        assert_eq!(one.last(Path::new("/home"), 9).unwrap().len(), 2);
        let id = Connection::open(&path).unwrap();
        let id: i64 = id.query_row("PRAGMA application_id", [], |row| row.get(0)).unwrap();
        assert_eq!(id, APPLICATION);
    }

    #[test]
    fn odd_rows_and_a_damaged_page_do_not_end_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut one = history(folder.path(), Bytes::mib(1));
        fill(&mut one, 0, 200);
        one.flush();
        let odd = "INSERT INTO entries VALUES (9000000, 9e18, '/home', 'k', x'fffe00', -9223372036854775808)";
        Connection::open(&path).unwrap().execute_batch(odd).unwrap();
        assert_eq!(one.last(Path::new("/home"), 999).unwrap().len(), 201);
        let mut bytes = fs::read(&path).unwrap();
        bytes[4096..].fill(0xa5);
        fs::write(&path, &bytes).unwrap();
        fill(&mut one, 200, 1);
        assert_eq!(one.last(Path::new("/home"), 999).unwrap().last().unwrap().bytes, 200);
        assert_eq!(one.problem(), None);
        assert_eq!(fs::read(folder.path().join("history.db.aside")).unwrap(), bytes);
    }

    #[test]
    fn a_link_a_folder_and_a_pipe_are_moved_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let target = folder.path().join("target");
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let works = |n: u64| {
            let mut one = history(folder.path(), Bytes::mib(1));
            fill(&mut one, n, 1);
            assert_eq!(one.last(Path::new("/home"), 9).unwrap().len(), 1, "{n}: {:?}", one.problem());
        };
        works(0);
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert_eq!(fs::read_link(folder.path().join("history.db.aside")).unwrap(), target);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        works(1);
        assert!(folder.path().join("history.db.aside-1").is_dir());
    }

    #[test]
    fn entries_that_cannot_be_written_stay_in_memory_and_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        // No file can be created in a missing folder.
        let mut one = history(&folder.path().join("none"), Bytes::mib(1));
        fill(&mut one, 0, 5_000);
        one.flush();
        assert!(one.problem().unwrap().contains("2000 entries wait in memory"), "{:?}", one.problem());
        assert_eq!(one.last(Path::new("/home"), 3).unwrap().last().unwrap().bytes, 4_999);
        fs::create_dir(folder.path().join("none")).unwrap();
        one.flush();
        assert_eq!(one.problem(), None);
    }

    #[test]
    fn regression_a_pipe_in_place_of_the_database_is_moved_aside() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("history.db");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut one = history(folder.path(), Bytes::mib(1));
        fill(&mut one, 0, 1);
        assert_eq!(one.last(Path::new("/home"), 9).unwrap().len(), 1);
        assert!(pipe.is_file() && folder.path().join("history.db.aside").exists());
    }

    #[test]
    fn entries_added_during_a_write_are_neither_lost_nor_written_twice() {
        let mut history = History::default();
        let add = |history: &mut History, n| {
            (0..n).for_each(|i| history.add(Path::new("/"), "x", String::new(), i))
        };
        add(&mut history, 5);
        assert_eq!(history.next_batch().map(|entries| entries.len()), Some(5));
        add(&mut history, 3);
        assert_eq!(history.next_batch(), None, "the first are still being written");
        history.written(Ok(()));
        assert_eq!(history.next_batch().map(|entries| entries.len()), Some(3));
        add(&mut history, WAITING_MAX as u64); // drops the oldest, including those being written
        history.written(Ok(()));
        assert_eq!(history.waiting.len(), WAITING_MAX);
    }
}
