use std::fmt::Write as _;

use trimwise::ssd::VictimPolicy;

/// Tables of a profile, in the order of the files in `profiles`; settings without a table come first.
const TABLES: [&str; 10] =
    ["", "geometry", "mapping", "nand", "link", "controller", "cache", "gc", "wear_levelling", "trim"];

/// The longest time in a profile: an hour.
pub(super) const NS_MAX: u64 = 3_600_000_000_000;
/// The highest rate in a profile; in effect no limit.
pub(super) const RATE_MAX: u64 = 1_000_000_000_000;

/// A profile under construction: settings, each with its source.
#[derive(Debug, Default)]
pub(super) struct Draft {
    settings: Vec<Setting>,
}

#[derive(Debug)]
struct Setting {
    table: &'static str,
    key: &'static str,
    value: toml::Value,
    source: String,
}

impl Draft {
    /// Sets `table.key` (a dotted name, or a key without a table).
    pub fn set(&mut self, name: &'static str, value: impl Into<toml::Value>, source: impl Into<String>) {
        let (table, key) = name.split_once('.').unwrap_or(("", name));
        self.settings.push(Setting { table, key, value: value.into(), source: source.into() });
    }

    pub fn number(&mut self, name: &'static str, value: u64, source: impl Into<String>) {
        // TOML cannot hold a larger number. No setting accepts the largest one, so it is rejected with its name.
        self.set(name, i64::try_from(value).unwrap_or(i64::MAX), source);
    }

    /// Sets the rule that chooses victims: a word, or the best of a number drawn at random.
    pub fn victim(&mut self, victim: VictimPolicy, source: &str) {
        let word = match victim {
            VictimPolicy::Greedy => "greedy",
            VictimPolicy::CostBenefit => "cost_benefit",
            VictimPolicy::Fifo => "fifo",
            VictimPolicy::Random => "random",
            VictimPolicy::DChoices(choices) => {
                self.number("gc.d_choices", choices.into(), source);
                "d_choices"
            }
        };
        self.set("gc.victim", word, source);
    }

    /// Sets the number of open superblocks: one of each part of the flash that works by itself.
    pub fn frontiers(&mut self, parts: u64, source: &str) {
        const MOST: u64 = 1024;
        let source = match parts {
            0..=MOST => source.to_owned(),
            _ => format!("{source}, of which there are {parts}; {MOST} are the most here"),
        };
        self.number("gc.host_frontiers", parts.min(MOST), source);
    }

    /// Sets values that the other simulator does not have.
    pub fn assume(&mut self, settings: &[(&'static str, toml::Value)], source: &str) {
        for (name, value) in settings {
            self.set(name, value.clone(), format!("assumed: {source}"));
        }
    }

    /// Sets a time of the flash to the mean over the kinds of pages. `times` has the parameter and time of each, in
    /// units of 1 / `per_ns` ns; `kinds` is the parameter that says which kinds there are.
    pub fn page_time(&mut self, name: &'static str, times: &[(String, u64)], per_ns: u64, kinds: &str) {
        let mean = times.iter().map(|(_, time)| time).sum::<u64>() / times.len().max(1) as u64 / per_ns;
        let names: Vec<&str> = times.iter().map(|(name, _)| name.as_str()).collect();
        let mean_of = if times.len() > 1 { "the mean of the kinds of pages" } else { "the kind of pages" };
        self.number(name, mean, format!("{}: {mean_of} of {kinds}", names.join(", ")));
    }

    /// Sets the TRIM of a usual NVMe drive, except where the simulator has its own.
    pub fn assume_trim(&mut self, because: &str, own: &[(&'static str, toml::Value, &str)]) {
        for (name, value, source) in own {
            self.set(name, value.clone(), *source);
        }
        let source = format!("assumed: {because}; as nvme-generic's");
        let settings: [(&'static str, toml::Value); 10] = [
            ("trim.kind", "nvme".into()),
            ("trim.max_ranges", 256.into()),
            ("trim.max_units_per_range", 536_870_911.into()),
            ("trim.granularity_units", 1.into()),
            ("trim.cost_per_command_ns", 20_000.into()),
            ("trim.cost_per_range_ns", 1_000.into()),
            ("trim.cost_per_unit_ns", 1.into()),
            ("trim.place", "background".into()),
            ("trim.slowdown_percent", 10.into()),
            ("trim.read_after", "zeros".into()),
        ];
        for (name, value) in settings.into_iter().filter(|(name, _)| own.iter().all(|(own, ..)| own != name))
        {
            self.set(name, value, source.as_str());
        }
    }

    /// Marks settings whose parameters are missing in the file as defaults of the simulator `of`.
    pub fn mark_defaults(&mut self, missing: &[String], of: &str) {
        for Setting { source, .. } in &mut self.settings {
            let is_word = |name: &&str| {
                let mut words = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                words.any(|word| word == *name)
            };
            // Sources name parameters without their section.
            let names = missing.iter().map(|name| name.rsplit('.').next().unwrap_or(name));
            let names: Vec<&str> = names.filter(is_word).collect();
            if !names.is_empty() {
                *source += &format!(" ({of}'s default: {})", names.join(", "));
            }
        }
    }

    /// The simulator collects nothing while the host is idle.
    pub fn without_idle_collection(&mut self, source: &str) {
        self.set("gc.idle", false, source);
        for name in ["gc.idle_threshold_ns", "gc.idle_free_superblocks"] {
            self.number(name, 0, "without idle collection of no effect");
        }
    }

    pub fn source(&self, name: &str) -> Option<&str> {
        let (table, key) = name.split_once('.').unwrap_or(("", name));
        let found = self.settings.iter().find(|setting| setting.table == table && setting.key == key);
        found.map(|setting| setting.source.as_str())
    }

    pub fn text(&self, name: &str, description: &str) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut text = format!("name = {}\ndescription = {}\n", quoted(name), quoted(description));
        for table in TABLES {
            let mut settings = self.settings.iter().filter(|setting| setting.table == table).peekable();
            if settings.peek().is_some() && !table.is_empty() {
                let _ = writeln!(text, "\n[{table}]");
            }
            for Setting { key, value, .. } in settings {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text += "\n[sources]\n";
        for table in TABLES {
            self.write_sources(table, &mut text);
        }
        text
    }

    /// Settings of a table that all have one source share a line.
    fn write_sources(&self, table: &str, text: &mut String) {
        let settings: Vec<&Setting> = self.settings.iter().filter(|setting| setting.table == table).collect();
        let Some(first) = settings.first() else { return };
        if !table.is_empty() && settings.iter().all(|setting| setting.source == first.source) {
            let _ = writeln!(text, "{table} = {}", toml::Value::from(first.source.as_str()));
            return;
        }
        for Setting { key, source, .. } in settings {
            let name = if table.is_empty() { (*key).to_owned() } else { format!("\"{table}.{key}\"") };
            let _ = writeln!(text, "{name} = {}", toml::Value::from(source.as_str()));
        }
    }
}
