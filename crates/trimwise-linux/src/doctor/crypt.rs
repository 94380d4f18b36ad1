//! Explains why dm-crypt drops TRIM: what asks for discard, whether whatever opened the volume reads that, and the remedy
//! that lasts.
//!
//! A setting counts only for the volume that it names, and only where something reads it (systemd-cryptsetup-generator(8),
//! dracut.cmdline(7), crypttab(5)): systemd-gpt-auto-generator reads no `luks.options=`
//! (<https://github.com/systemd/systemd/issues/24386>), systemd in an initramfs of dracut no `rd.luks.allow-discards`
//! (<https://unix.stackexchange.com/questions/341442>), udisks no options of crypttab
//! (<https://github.com/storaged-project/udisks/issues/1409>), and ykfde has a file of its own
//! (<https://github.com/agherzan/yubikey-full-disk-encryption/issues/35>). The flag in a LUKS2 header counts whoever opens
//! the volume (cryptsetup-refresh(8), `--persistent`).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Finding;
use super::ending::Stack;
use super::graph::{Graph, Node};
use super::mapping::opened_to_trim;
use crate::block_device::devices_in_sysfs;
use crate::code::Code;
use crate::host_root::HostRoot;
use crate::mount::Mount;

/// Whatever opens a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opener {
    Systemd,
    GptAuto,
    /// dracut without systemd.
    Dracut,
    InitramfsTools,
    /// The hook `encrypt` of mkinitcpio.
    Encrypt,
    Ykfde,
    Udisks,
    Unknown,
}

/// A place that can ask for discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Crypttab,
    /// `luks.options=` and `rd.luks.options=` of this volume.
    LuksOptions,
    /// The same without a UUID: for volumes that the command line has opened and /etc/crypttab does not list.
    LuksOptionsOfAll,
    /// `rd.luks.options=`, of a volume that the initramfs does not open.
    LuksOptionsOfInitramfs,
    AllowDiscards,
    Cryptdevice,
    Cryptopts,
    Header,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Crypttab => "/etc/crypttab",
            Self::Header => "its LUKS2 header",
            _ => "the kernel's command line",
        }
    }
}

impl Opener {
    fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::GptAuto => "systemd-gpt-auto-generator (which found this volume)",
            Self::Dracut => "dracut without systemd",
            Self::InitramfsTools => "initramfs-tools",
            Self::Encrypt => "the hook `encrypt` of mkinitcpio",
            Self::Ykfde => "ykfde (which opens it by itself)",
            Self::Udisks => "udisks (which opened it)",
            Self::Unknown => "whatever opened it",
        }
    }

    fn reads(self, place: Place) -> bool {
        match (self, place) {
            (Self::Unknown, _) | (_, Place::Header) => true,
            (Self::Systemd, place) => [Place::Crypttab, Place::LuksOptions].contains(&place),
            (Self::Dracut, place) => [Place::Crypttab, Place::AllowDiscards].contains(&place),
            (Self::InitramfsTools, place) => [Place::Crypttab, Place::Cryptopts].contains(&place),
            (Self::Encrypt, place) => place == Place::Cryptdevice,
            (Self::GptAuto | Self::Ykfde | Self::Udisks, _) => false,
        }
    }

    /// Says how to ask for discard where this opener reads it.
    fn remedy(self, volume: &Volume<'_>, is_early: bool) -> String {
        let uuid = volume.dashed();
        match self {
            Self::Systemd if !is_early => "`discard` in its line in /etc/crypttab".to_owned(),
            Self::Systemd => format!("rd.luks.options={uuid}=discard on the kernel's command line"),
            Self::GptAuto => format!(
                "rd.luks.name={uuid}={} and rd.luks.options={uuid}=discard on the kernel's command line",
                volume.name
            ),
            Self::Dracut => "rd.luks.allow-discards on the kernel's command line".to_owned(),
            Self::Encrypt => {
                format!("cryptdevice=UUID={uuid}:{}:allow-discards on the kernel's command line", volume.name)
            }
            Self::Ykfde => {
                "YKFDE_LUKS_OPTIONS=--allow-discards in /etc/ykfde.conf, and a new initramfs (mkinitcpio -P)"
                    .to_owned()
            }
            Self::InitramfsTools => {
                "`discard` in its line in /etc/crypttab, and a new initramfs (update-initramfs -u)".to_owned()
            }
            Self::Udisks | Self::Unknown => "opening it with --allow-discards".to_owned(),
        }
    }
}

struct Volume<'a> {
    /// Name of the mapping.
    name: &'a str,
    format: &'a str,
    /// UUID without hyphens, as in the mapping's own; empty if it has none.
    uuid: String,
    /// UUID of the mapping.
    mapping: String,
}

impl Volume<'_> {
    fn is_named(&self, word: &str) -> bool {
        let is_uuid = !self.uuid.is_empty() && plain(word).eq_ignore_ascii_case(&self.uuid);
        !word.is_empty() && (word == self.name || is_uuid || self.name.strip_prefix("luks-") == Some(word))
    }

    /// Returns the UUID as commands and options take it.
    fn dashed(&self) -> String {
        let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)].map(|(from, to)| self.uuid.get(from..to));
        match parts.into_iter().collect::<Option<Vec<_>>>() {
            Some(parts) if self.uuid.len() == 32 => parts.join("-"),
            _ => "UUID".to_owned(),
        }
    }
}

fn plain(word: &str) -> String {
    word.strip_prefix("luks-").unwrap_or(word).replace('-', "")
}

fn has_discard(options: &str) -> bool {
    options.split(',').any(|one| one == "discard" || one == "allow-discards")
}

/// What /etc/crypttab, or its copy in an initramfs, says of a volume: `None` if it has no line for it, else whether that
/// asks for discard.
fn in_crypttab(table: &str, volume: &Volume<'_>) -> Option<bool> {
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is_its = |fields: &Vec<&str>| {
        let source = fields.get(1).and_then(|source| source.strip_prefix("UUID="));
        fields.first() == Some(&volume.name)
            || source.is_some_and(|uuid| volume.is_named(uuid.trim_matches('"')))
    };
    let mut its =
        lines.filter(|fields| fields.first().is_some_and(|first| !first.starts_with('#')) && is_its(fields));
    its.next().map(|fields| fields.get(3).is_some_and(|options| has_discard(options)))
}

/// Returns the places that ask for discard for this volume.
fn places(line: &str, crypttab: Option<bool>, is_early: bool, volume: &Volume<'_>) -> Vec<Place> {
    let mut found = Vec::new();
    if crypttab == Some(true) {
        found.push(Place::Crypttab);
    }
    for word in line.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        found.extend(match key {
            // `UUID=OPTIONS` or `OPTIONS`.
            "luks.options" | "rd.luks.options" => {
                let of_one = value
                    .split_once('=')
                    .filter(|(uuid, _)| uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'));
                let is_in_vain = key.starts_with("rd.") && !is_early;
                match of_one {
                    Some((uuid, options)) if volume.is_named(uuid) && has_discard(options) => {
                        Some(if is_in_vain { Place::LuksOptionsOfInitramfs } else { Place::LuksOptions })
                    }
                    None if has_discard(value) && !is_in_vain => Some(Place::LuksOptionsOfAll),
                    _ => None,
                }
            }
            // The beginning of a UUID is enough.
            "rd.luks.allow-discards" => {
                (value.is_empty() || volume.is_named(value) || volume.uuid.starts_with(&plain(value)))
                    .then_some(Place::AllowDiscards)
            }
            // DEVICE:NAME:OPTIONS
            "cryptdevice" => {
                let mut parts = value.rsplitn(3, ':');
                let options = parts.next().is_some_and(has_discard);
                (options && parts.next() == Some(volume.name)).then_some(Place::Cryptdevice)
            }
            // target=NAME,source=DEVICE,OPTIONS
            "cryptopts" => {
                let target =
                    value.split(',').find_map(|one| one.strip_prefix("target=")).unwrap_or("cryptroot");
                (target == volume.name && has_discard(value)).then_some(Place::Cryptopts)
            }
            _ => None,
        });
    }
    // Options without a UUID are those of any volume that the command line has opened.
    let opened = ["luks.uuid=", "rd.luks.uuid=", "luks.name=", "rd.luks.name="];
    let named = |word: &str| {
        let value = opened.iter().find_map(|key| word.strip_prefix(key));
        value.is_some_and(|value| volume.is_named(value.split('=').next().unwrap_or_default()))
    };
    if line.split_whitespace().any(named) && crypttab.is_none() {
        for place in &mut found {
            if *place == Place::LuksOptionsOfAll {
                *place = Place::LuksOptions;
            }
        }
    }
    found
}

/// Returns true if `/` or `/usr` lies on this device, so that the initramfs opens it.
fn is_opened_early(stack: &Stack<'_>, node: &Node) -> bool {
    let is_early = |mount: &&Mount| ["/", "/usr"].iter().any(|point| mount.mount_point == Path::new(point));
    stack.mounts.iter().filter(is_early).any(|mount| {
        let devices = devices_in_sysfs(stack.root, mount).unwrap_or_default();
        Graph::of(stack.root, &[], &devices).nodes.iter().any(|below| below.device == node.device)
    })
}

/// Finds out what opens this volume at boot, or has opened it.
fn opener(stack: &Stack<'_>, line: &str, is_listed: bool, is_early: bool, volume: &Volume<'_>) -> Opener {
    let root = stack.root;
    let point = &stack.mount.mount_point;
    let unlocked = root.whole_text("/run/udisks2/unlocked-crypto-dev").unwrap_or_default();
    let is_by_udisks = !volume.mapping.is_empty() && unlocked.contains(&volume.mapping);
    if is_by_udisks || point.starts_with("/run/media") || point.starts_with("/media") {
        return Opener::Udisks;
    }
    let unit = ["", ".early", ".late"].into_iter().find_map(|kind| {
        root.whole_text(format!("/run/systemd/generator{kind}/systemd-cryptsetup@{}.service", volume.name))
    });
    let is_systemd = crate::systemd::is_running(root);
    let value = |key: &str| line.split_whitespace().rev().find_map(|word| word.strip_prefix(key));
    // It names a mapping after where it mounts it (systemd-gpt-auto-generator(8)), and finds `/` unless root= does.
    let is_auto = || match volume.name {
        "root" => value("root=").is_none_or(|of| of.starts_with("gpt-auto")),
        name => ["home", "srv", "var"].contains(&name) && *point == Path::new("/").join(name),
    };
    let mentions = |word: &str| word.split(['=', ':', ',']).any(|part| volume.is_named(part));
    if unit.is_some_and(|unit| unit.contains("gpt-auto"))
        || is_systemd && is_auto() && !is_listed && !line.split_whitespace().any(mentions)
    {
        return Opener::GptAuto;
    }
    let otherwise = if is_systemd { Opener::Systemd } else { Opener::Unknown };
    if !is_early {
        return otherwise;
    }
    let has = |files: &[&str]| files.iter().any(|file| root.has(file));
    let hooks = root.whole_text("/etc/mkinitcpio.conf").unwrap_or_default();
    let hooks =
        hooks.lines().rfind(|line| line.trim_start().starts_with("HOOKS")).unwrap_or_default().to_owned();
    let has_hook = |name: &str| hooks.split(['(', ')', ' ', '"', '=']).any(|hook| hook == name);
    match () {
        () if has_hook("ykfde") => Opener::Ykfde,
        () if has_hook("sd-encrypt") => Opener::Systemd,
        () if has_hook("encrypt") => Opener::Encrypt,
        () if has(&["/usr/share/initramfs-tools/init", "/etc/initramfs-tools"]) => Opener::InitramfsTools,
        () if has(&["/usr/lib/dracut", "/etc/dracut.conf"]) && !is_systemd => Opener::Dracut,
        () => otherwise,
    }
}

/// The largest LUKS2 header (`LUKS2_HDR_OFFSET_MAX` in cryptsetup).
const HEADER_MAX: u64 = 4 << 20;

/// Reads from a LUKS2 header whether it asks for discard; `None` if it cannot be read.
fn in_header(root: &HostRoot, node: &Path) -> Option<bool> {
    let mut device = File::open(root.path(node)).ok()?;
    let mut head = [0; 4096];
    device.read_exact(&mut head).ok()?;
    // Magic, version 2, size of the header: all big-endian.
    let size = head
        .starts_with(b"LUKS\xba\xbe\x00\x02")
        .then(|| u64::from_be_bytes(head[8..16].try_into().unwrap_or_default()))?;
    let mut json = Vec::new();
    device.take(size.min(HEADER_MAX).checked_sub(4096)?).read_to_end(&mut json).ok()?;
    let json = json.split(|&byte| byte == 0).next()?;
    let header: serde_json::Value = serde_json::from_slice(json).ok()?;
    let flags = header["config"]["flags"].as_array().map(Vec::as_slice).unwrap_or_default();
    Some(flags.iter().any(|flag| flag == "allow-discards"))
}

/// Reports a dm-crypt mapping that drops TRIM.
pub(super) fn ending(stack: &Stack<'_>, node: &Node, name: &str, format: &str) -> Finding {
    let mapping = node.device.text("dm/uuid").unwrap_or_default();
    let uuid = mapping.split('-').nth(2).unwrap_or_default().to_owned();
    let volume = Volume { name, format, uuid, mapping };
    let line = stack.root.text("/proc/cmdline").unwrap_or_default();
    let listed = in_crypttab(&stack.root.whole_text("/etc/crypttab").unwrap_or_default(), &volume);
    let below = node.below.first().map(|&below| stack.graph.nodes[below].device.node());
    let flag = below.filter(|_| format == "LUKS2").and_then(|node| in_header(stack.root, &node));
    let is_early = is_opened_early(stack, node);
    let opener = opener(stack, &line, listed.is_some(), is_early, &volume);
    let mut asking = places(&line, listed, is_early, &volume);
    asking.extend((flag == Some(true)).then_some(Place::Header));
    let reads = |place: &Place| opener.reads(*place);
    let heard = asking.iter().copied().find(reads);
    let is_lasting = format == "LUKS2" && flag != Some(true);
    let (commands, undo) = opened_to_trim(name, format, is_lasting).unwrap_or_default();
    let (code, why, mend) = match (heard, asking.first()) {
        (Some(place), _) => (
            Code::CryptOpenedBeforeOption,
            format!("though {} asks for discard: it was opened before that, or by an older initramfs", place.name()),
            format!("let TRIM through {}", again(stack, &volume, place, is_early, is_lasting)),
        ),
        (None, Some(&place)) => (
            Code::CryptOptionNotHeard,
            format!("though {} asks for discard: {}", place.name(), unheard(place, opener, listed.is_some())),
            match is_lasting {
                true => {
                    "let TRIM through by the flag in its LUKS2 header, which counts for now and each boot, whatever opens \
                     it (cryptsetup asks for the passphrase)"
                        .to_owned()
                }
                false if commands.is_empty() => format!("let TRIM through by {}", by_hand(&volume)),
                false => format!(
                    "let TRIM through for now (it asks for the passphrase); for each boot by {}",
                    opener.remedy(&volume, is_early)
                ),
            },
        ),
        (None, None) => (
            if ["LUKS1", "LUKS2"].contains(&format) { Code::LuksDiscardsOff } else { Code::CryptDiscardsOff },
            "as it does by default: TRIM reveals which blocks are free, though not their contents".to_owned(),
            format!("if you accept that, let TRIM through {}. Otherwise leave it as it is", first_time(&volume)),
        ),
    };
    Finding::new(code, node.name.clone(), format!("dm-crypt ({name}) drops TRIM, {why}"))
        .mended_by(mend)
        .with_commands(commands, undo)
}

/// Says why what asks for discard is not heard.
fn unheard(place: Place, opener: Opener, is_listed: bool) -> String {
    match place {
        Place::LuksOptionsOfAll if opener == Opener::Systemd && is_listed => {
            "an option without a UUID does not count for volumes that /etc/crypttab lists".to_owned()
        }
        Place::LuksOptionsOfAll if opener == Opener::Systemd => {
            "an option without a UUID counts only for volumes that luks.uuid= or luks.name= names".to_owned()
        }
        Place::AllowDiscards if opener == Opener::Systemd => {
            "systemd in the initramfs does not read rd.luks.allow-discards, which only dracut without systemd does".to_owned()
        }
        Place::LuksOptionsOfInitramfs => {
            "rd.luks.options= counts only for volumes that the initramfs opens".to_owned()
        }
        Place::LuksOptionsOfAll | Place::LuksOptions => {
            format!("{} does not read luks.options= and rd.luks.options=", opener.name())
        }
        Place::AllowDiscards => format!("{} does not read rd.luks.allow-discards", opener.name()),
        Place::Cryptdevice => format!("{} does not read cryptdevice=", opener.name()),
        Place::Cryptopts => format!("{} does not read cryptopts=", opener.name()),
        Place::Crypttab | Place::Header => format!("{} does not apply it", opener.name()),
    }
}

/// Says how to open a volume to TRIM that cannot be refreshed.
fn by_hand(volume: &Volume<'_>) -> String {
    let kind = if volume.format == "BITLK" { "--type bitlk " } else { "" };
    format!(
        "closing it and opening it with `cryptsetup open {kind}--allow-discards DEVICE {}`{}",
        volume.name,
        if volume.format == "TCRYPT" {
            ", unless it hides a second volume, whose data TRIM would destroy"
        } else {
            ""
        }
    )
}

/// Says how to let TRIM through where nothing asks for it yet.
fn first_time(volume: &Volume<'_>) -> String {
    match volume.format {
        "LUKS2" => "for now and each boot (it asks for the passphrase)",
        "LUKS1" => {
            "for now (it asks for the passphrase); for each boot add `discard` to its line in /etc/crypttab, or for / add \
             rd.luks.options=discard to the kernel's command line"
        }
        "PLAIN" | "LOOPAES" => "for now; for each boot add `discard` to its line in /etc/crypttab",
        "TCRYPT" => {
            "by closing it and opening it with --allow-discards, unless it hides a second volume, whose data TRIM would \
             destroy"
        }
        _ => "by opening it with --allow-discards",
    }
    .to_owned()
}

/// Says how to let TRIM through where something already asks for it.
fn again(stack: &Stack<'_>, volume: &Volume<'_>, place: Place, is_early: bool, is_lasting: bool) -> String {
    let rebuild = match volume.format {
        "LUKS1" | "LUKS2" => {
            "for now (it asks for the passphrase); for each boot rebuild the initramfs (update-initramfs -u, dracut -f, \
             mkinitcpio -P), which has its own copy of /etc/crypttab"
                .to_owned()
        }
        _ => first_time(volume),
    };
    let looked = match place {
        Place::Crypttab if is_early => match in_initramfs(stack.root, volume) {
            Ok((file, Some(true))) => format!(". {file} has it too, so the next boot opens it with discard"),
            Ok((file, Some(false))) => format!(". {file} has an older copy, without it"),
            Ok((file, None)) => format!(". {file} does not list it"),
            Err(why) => format!(". What the initramfs holds was not looked at: {why}"),
        },
        _ => String::new(),
    };
    let flag = if is_lasting {
        ". The command also sets the flag in its LUKS2 header, which counts whatever opens it"
    } else {
        ""
    };
    match place {
        Place::Header => {
            "by refreshing it (it asks for the passphrase); the header has the flag for the next boot"
                .to_owned()
        }
        _ => format!("{rebuild}{looked}{flag}"),
    }
}

/// The largest initramfs that is read, in bytes after decompression.
const INITRAMFS_MAX: u64 = 1 << 30;

/// Looks in the initramfs of the running kernel for what its copy of crypttab says of a volume. Returns its name; an error
/// says why it was not looked at.
fn in_initramfs(root: &HostRoot, volume: &Volume<'_>) -> Result<(String, Option<bool>), String> {
    let kernel = root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let files = [
        format!("/boot/initrd.img-{kernel}"),
        format!("/boot/initramfs-{kernel}.img"),
        format!("/boot/initrd-{kernel}"),
        "/boot/initramfs-linux.img".to_owned(),
    ];
    let name = files.into_iter().find(|file| root.has(file)).ok_or("none was found in /boot")?;
    let file = root.resolved(&name).and_then(|path| File::open(root.path(path)).ok());
    let file = file.ok_or_else(|| format!("{name} cannot be read"))?;
    let table = crypttab_of(io::BufReader::new(file)).map_err(|why| format!("{name}: {why}"))?;
    Ok((name, table.and_then(|table| in_crypttab(&table, volume))))
}

/// Returns the copy of /etc/crypttab in an initramfs, if it has one. An initramfs is several archives of cpio, of which the
/// last may be compressed.
fn crypttab_of(mut file: impl io::BufRead) -> io::Result<Option<String>> {
    loop {
        let head = file.fill_buf()?;
        match head {
            [] => return Ok(None),
            [0, ..] => file.consume(1),
            [b'0', ..] => {
                if let Some(found) = crypttab_in(&mut file)? {
                    return Ok(Some(found));
                }
            }
            [0x1f, 0x8b, ..] => {
                return crypttab_in(&mut flate2::bufread::GzDecoder::new(file).take(INITRAMFS_MAX));
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                return crypttab_in(&mut zstd::Decoder::with_buffer(file)?.take(INITRAMFS_MAX));
            }
            _ => return Err(io::Error::other("its compression is neither gzip nor zstd")),
        }
    }
}

/// Reads one archive (cpio's format `newc`) to its end or to its crypttab.
fn crypttab_in(archive: &mut impl Read) -> io::Result<Option<String>> {
    const MAX: u64 = 1 << 20;
    let bad = || io::Error::other("it is no archive of cpio");
    loop {
        let mut head = [0; 110];
        archive.read_exact(&mut head)?;
        let head = std::str::from_utf8(&head).ok().filter(|head| head.starts_with("0707")).ok_or_else(bad)?;
        let number = |index: usize| -> io::Result<u64> {
            let digits = head.get(6 + 8 * index..14 + 8 * index).ok_or_else(bad)?;
            u64::from_str_radix(digits, 16).map_err(|_| bad())
        };
        let (size, name_size) = (number(6)?, number(11)?);
        // Both the name, together with the head, and the contents are padded to four bytes.
        let mut name = Vec::new();
        archive.take((110 + name_size).next_multiple_of(4) - 110).read_to_end(&mut name)?;
        let name = String::from_utf8_lossy(&name);
        let name = name.trim_end_matches('\0').trim_start_matches("./").trim_start_matches('/');
        if name == "TRAILER!!!" {
            return Ok(None);
        }
        let mut contents = archive.take(size.next_multiple_of(4));
        if ["etc/crypttab", "cryptroot/crypttab"].contains(&name) && size <= MAX {
            let mut text = Vec::new();
            contents.read_to_end(&mut text)?;
            return Ok(Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned()));
        }
        if io::copy(&mut contents, &mut io::sink())? < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
