//! The program `trimwise-lab`, which has the commands that need real kernels, emulated drives or experiments.
//!
//! It is found as git finds its commands: next to this program, or else in PATH. To run one of its commands, this
//! process is replaced by it, so the terminal, signals and exit codes are its own. If a comparison, an advice or a
//! sweep needs a kernel, the request goes to it over its standard input and output ([`trimwise_study::laboratory`]).
//!
//! Both programs contain the code of the models and of the requests, so they work together only if that code is the
//! same.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake};
use trimwise_study::advise::Advice;
use trimwise_study::caller::{Caller, Progress};
use trimwise_study::compare::{CompareRequest, Comparison};
use trimwise_study::laboratory::{Answer, Ask, Laboratory, Line, Said};
use trimwise_study::sweep::{Summary, SweepRequest};

pub const PROGRAM: &str = "trimwise-lab";

/// Its commands with their descriptions, for the common help. A test of that program compares them with its own.
pub const COMMANDS: [(&str, &str); 9] = [
    ("tournament", "Rank policies, and your own, over many weeks and drives"),
    ("reproduce", "Repeat a published experiment and show its figures next to ours"),
    ("crashtest", "Cut the power at many points and check that no policy loses data"),
    ("bench", "Test a drive: fill, random writes, HD Tach, ATTO, TRIM and others"),
    ("fit", "Measure a drive for half a minute and write a profile of it"),
    ("device", "Attach modelled drives to this host as block devices, or serve NBD"),
    ("kernel", "Build Linux kernels, and run programs on them in virtual time"),
    ("selftest", "Check the device models against a flat array under random commands"),
    ("generate", "Make man pages and shell completions"),
];

/// Hidden command that prints the program's [`Identity`].
pub const IDENTIFY: &str = "identity";
/// Hidden command that answers a request.
pub const ANSWER: &str = "answer";

const REMEDY: &str =
    "`cargo install --path crates/trimwise-lab`, or the Debian package trimwise, which has both programs";

/// How often to check whether the user wants to stop.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// Must be equal for two programs to work together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub version: String,
    /// Hash of the code that both programs contain.
    pub build: String,
}

impl Identity {
    /// Returns the identity of this program.
    pub fn own() -> Self {
        Self { version: trimwise::VERSION.to_owned(), build: env!("TRIMWISE_BUILD").to_owned() }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {} ({})", self.version, self.build)
    }
}

/// Path of the program, which is of the same build as this one.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

/// Why the program cannot be used.
#[derive(Clone, Debug)]
enum Missing {
    /// It is neither next to this program nor in PATH.
    Nowhere { beside: PathBuf },
    /// It was found but is unfit.
    Unfit(Failure),
}

impl Missing {
    /// Returns the error for `what`, which needs the program.
    fn failure(self, what: &str) -> Failure {
        match self {
            Self::Nowhere { beside } => {
                let beside = beside.display();
                let found = format!("which was not found as {beside}, nor in the folders of PATH");
                let why = format!("{what} needs the program {PROGRAM}, {found}");
                Mistake::that(why).expected(format!("it there: {REMEDY}")).fail()
            }
            Self::Unfit(failure) => failure,
        }
    }
}

impl Program {
    fn find() -> Result<Self, Missing> {
        let own =
            env::current_exe().map_err(|e| Missing::Unfit(Failure::run(format!("this program: {e}"))))?;
        let beside = own.with_file_name(PROGRAM);
        let path = env::var_os("PATH").unwrap_or_default();
        let others = env::split_paths(&path).map(|folder| folder.join(PROGRAM));
        let found = std::iter::once(beside.clone()).chain(others).find(|program| is_program(program));
        let program = found.ok_or(Missing::Nowhere { beside })?;
        expect_same(&program, &own).map_err(Missing::Unfit)?;
        Ok(Self(program))
    }

    /// Starts the program and has it answer a request.
    fn ask(&self, ask: Ask, caller: &dyn Caller) -> Result<Answer, Failure> {
        let failed = |e: std::io::Error| Failure::run(format!("{}: {e}", self.0.display()));
        let mut child = Command::new(&self.0)
            .arg(ANSWER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let answer = talk(&mut child, &ask, caller);
        // After an answer it ends by itself; otherwise it must be killed.
        if !matches!(answer, Ok(Some(_))) {
            let _ = child.kill();
        }
        let status = child.wait().map_err(failed)?;
        match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                Err(Failure::run(format!("{}: ended before it answered ({status})", self.0.display())))
            }
            Err(Broken::Said(line)) => Err(Failure::run(format!(
                "{}: sent a message that trimwise does not understand: {line}",
                self.0.display()
            ))),
            Err(Broken::Failed(failure)) => Err(failure),
        }
    }
}

/// Why the conversation ended without an answer.
enum Broken {
    /// A line that is not a [`Said`].
    Said(String),
    Failed(Failure),
}

/// Sends the request, shows notes and progress, and returns the answer; `None` if the program ended without one.
fn talk(
    child: &mut Child,
    ask: &Ask,
    caller: &dyn Caller,
) -> Result<Option<Result<Answer, Failure>>, Broken> {
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Ok(None) };
    let input = Arc::new(Mutex::new(input));
    // If the program ends before it has read everything, that shows when its output ends.
    send(&input, &Line::Ask(Box::new(ask.clone())))
        .map_err(|e| Broken::Failed(Mistake::that(e.to_string()).fail()))?;
    let mut displays: Vec<Arc<dyn Progress>> = Vec::new();
    let done = Done(Arc::default());
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return Err(Broken::Said("bytes that are not text".to_owned())) };
        let Ok(said) = serde_json::from_str::<Said>(&line) else {
            return Err(Broken::Said(shortened(&line)));
        };
        let show = |display: usize, act: &dyn Fn(&dyn Progress)| match displays.get(display) {
            Some(display) => {
                act(&**display);
                Ok(())
            }
            None => Err(Broken::Said(shortened(&line))),
        };
        match said {
            Said::Note(text) => caller.note(&text),
            Said::Stoppable(how) => {
                let flag = caller.stop(how).map_err(Broken::Failed)?;
                pass_on(flag, Arc::clone(&input), Arc::clone(&done.0)).map_err(Broken::Failed)?;
            }
            Said::Begin { display, runs, what } => {
                if display != displays.len() {
                    return Err(Broken::Said(shortened(&line)));
                }
                displays.push(caller.progress(runs, &what));
            }
            Said::Ageing { display, run } => show(display, &|progress| progress.begin_ageing(run))?,
            Said::Update { display, run, done, total } => {
                show(display, &|progress| progress.update(run, done, total))?;
            }
            Said::Doing { display, what } => show(display, &|progress| progress.say(what.clone()))?,
            Said::Expect { display, runs, left_ms } => {
                show(display, &|progress| progress.expect(runs, left_ms.map(Duration::from_millis)))?;
            }
            Said::Finish { display } => show(display, &|progress| progress.finish())?,
            Said::Answer(answer) => return Ok(Some(answer.map(|answer| *answer))),
        }
    }
    Ok(None)
}

/// When dropped, tells a thread that the conversation is over.
struct Done(Arc<AtomicBool>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Watches, on a separate thread, for the user's wish to stop, and passes it on.
fn pass_on(
    flag: Arc<AtomicBool>,
    input: Arc<Mutex<ChildStdin>>,
    done: Arc<AtomicBool>,
) -> Result<(), Failure> {
    let watch = move || {
        while !done.load(Ordering::SeqCst) {
            if flag.load(Ordering::SeqCst) {
                let _ = send(&input, &Line::Stop);
                return;
            }
            std::thread::sleep(LOOKED_EVERY);
        }
    };
    let thread = std::thread::Builder::new().name("stop".to_owned()).spawn(watch);
    thread.map(drop).map_err(|e| Failure::run(format!("cannot watch for Ctrl-C: {e}")))
}

/// Sends a line. Write errors are ignored: if the program is gone, reading its answer fails.
fn send(input: &Mutex<ChildStdin>, line: &Line) -> serde_json::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = input.write_all(&text).and_then(|()| input.flush());
    Ok(())
}

/// Returns the start of a line, for a message.
fn shortened(line: &str) -> String {
    const CHARS: usize = 80;
    let more = if line.chars().nth(CHARS).is_some() { "..." } else { "" };
    line.chars().take(CHARS).collect::<String>() + more
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Rejects a program from another build.
fn expect_same(program: &Path, own: &Path) -> Result<(), Failure> {
    let identity = Identity::own();
    let ended = Command::new(program).arg(IDENTIFY).stdin(Stdio::null()).output();
    let ended =
        ended.map_err(|e| Mistake::that(format!("{}: cannot be started: {e}", program.display())).fail())?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let found: Result<Identity, _> = serde_json::from_str(&said);
    let what = match found {
        Ok(found) if found == identity => return Ok(()),
        Ok(found) => found.to_string(),
        Err(_) => "a program that does not say its version".to_owned(),
    };
    let why = format!("{} is {what}, and {} is {identity}", program.display(), own.display());
    Err(Mistake::that(why).expected("both of the same build: install them together").fail())
}

/// Returns the laboratory's command that these arguments name, directly or after `help`.
pub fn wanted(words: &[OsString]) -> Option<&'static str> {
    let mut commands = words.iter().filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    let named = |word: &str| COMMANDS.iter().find(|(name, _)| *name == word).map(|(name, _)| *name);
    match commands.next()? {
        "help" => named(commands.next()?),
        command => named(command),
    }
}

/// Replaces this process with the program, run with the same arguments; returns only if that fails.
pub fn hand_over(what: &str) -> Failure {
    match Program::find() {
        Err(missing) => missing.failure(what),
        Ok(Program(path)) => {
            let error = Command::new(&path).args(env::args_os().skip(1)).exec();
            Failure::run(format!("{}: {error}", path.display()))
        }
    }
}

/// The program found next to this one, or in PATH.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside;

impl Beside {
    fn ask(ask: Ask, caller: &dyn Caller) -> Result<Answer, Failure> {
        Program::find().map_err(|missing| missing.failure("a real kernel"))?.ask(ask, caller)
    }
}

/// Returns the error for an answer that belongs to another kind of request.
fn unasked() -> Failure {
    Failure::run(format!("{PROGRAM}: sent the answer to another kind of request"))
}

impl Laboratory for Beside {
    fn missing(&self) -> Option<(String, String)> {
        match Program::find() {
            Err(Missing::Nowhere { .. }) => {
                Some((format!("no kernel can run without the program {PROGRAM}"), REMEDY.to_owned()))
            }
            _ => None,
        }
    }

    fn compare(&self, request: &CompareRequest, caller: &dyn Caller) -> Result<Comparison, Failure> {
        match Self::ask(Ask::Compare(request.clone()), caller)? {
            Answer::Compare(whole) => whole.into_comparison().map_err(Failure::run),
            _ => Err(unasked()),
        }
    }

    fn advise(&self, request: &CompareRequest, caller: &dyn Caller) -> Result<Advice, Failure> {
        match Self::ask(Ask::Advise(request.clone()), caller)? {
            Answer::Advise(whole) => whole.into_advice().map_err(Failure::run),
            _ => Err(unasked()),
        }
    }

    fn sweep(&self, request: &SweepRequest, caller: &dyn Caller) -> Result<Summary, Failure> {
        match Self::ask(Ask::Sweep(request.clone()), caller)? {
            Answer::Sweep { summary, ended_by, is_out } => Ok(Summary { ended_by, is_out, ..*summary }),
            _ => Err(unasked()),
        }
    }
}
