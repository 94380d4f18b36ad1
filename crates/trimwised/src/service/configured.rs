//! The parts of the daemon that depend on the configuration, besides policies: sockets and metrics; and reloading.

use std::io;
use std::path::Path;

use super::looking::Looked;
use super::{Service, ServiceError, cannot};
use crate::Places;
use crate::look;
use crate::metrics::listen::{Address, Endpoint};
use crate::server::Server;
use crate::speak::{log, warn};
use trimwise_linux::daemon::config::{Config, StatusFor};
use trimwise_linux::daemon::control::Response;

impl Service {
    /// Reloads the configuration; an invalid one changes nothing. The result goes to `request`.
    pub(super) fn reload(&mut self, request: Option<u64>) {
        self.notify.tell("RELOADING=1");
        let places = &self.options.places;
        let ask = look::Ask::Configure { file: places.config.clone(), host: places.host.path("/") };
        if let Err(why) = self.looking.worker.ask(Looked::Configured(request), &ask) {
            self.configured(request, Err(format!("it cannot be read now: {why}")));
        }
    }

    pub(super) fn configured(&mut self, request: Option<u64>, read: Result<look::Texts, String>) {
        let result = read.and_then(|read| {
            let config = Config::parse(&read.texts).map_err(|errors| errors.to_string())?;
            self.apply(config, read.group)
        });
        if let Err(error) = &result {
            warn(&format!("the configuration is kept as it was, since the new one is invalid:\n{error}"));
        }
        self.config_problem = result.clone().err();
        self.notify.tell("READY=1");
        match result {
            Ok(()) => self.reloading.extend(request),
            Err(why) => self.answer_later(request, &Response::refused(why)),
        }
    }

    pub(super) fn tell_reloaded(&mut self) {
        for request in std::mem::take(&mut self.reloading) {
            let response = self.reloaded();
            self.answer_later(Some(request), &response);
        }
    }

    pub(super) fn answer_later(&mut self, request: Option<u64>, response: &Response) {
        if let Some((server, request)) = self.server.as_mut().zip(request) {
            server.answer_later(request, response);
        }
    }

    /// Applies a configuration. Everything that may fail comes before the first change.
    fn apply(&mut self, config: Config, group: Option<u32>) -> Result<(), String> {
        let places = &self.options.places;
        let words = |error: ServiceError| error.to_string();
        let wanted = addresses(&config, group);
        let is_new = |address: &&Address| !self.metrics.iter().any(|one| one.address() == *address);
        let open = |address: Address| {
            let is_ours = self.metrics.iter().any(|one| one.address().path() == address.path());
            Endpoint::open(address, &self.options.program, is_ours)
        };
        let new: Vec<Endpoint> = wanted.iter().filter(is_new).cloned().map(open).collect();
        if let Some(why) = new.iter().find_map(Endpoint::problem).map(str::to_owned) {
            new.into_iter().for_each(|one| one.end(&mut self.left));
            return Err(why);
        }
        if (config.group.as_ref(), config.status) != (self.config.group.as_ref(), self.config.status) {
            let mut server = open_server(places, &config, group).map_err(words)?;
            // The client that asked for the reload waits for the answer.
            self.server.take().into_iter().for_each(|before| server.take_over(before));
            self.server = Some(server);
        }
        let paths: Vec<_> = wanted.iter().filter_map(Address::path).collect();
        let before = self.metrics.iter().filter_map(|one| one.address().path());
        let gone = before.filter(|path| !paths.contains(path)).map(Path::to_owned).collect();
        self.remove(gone);
        let before = std::mem::replace(&mut self.metrics, new).into_iter();
        let (kept, ended): (Vec<_>, Vec<_>) = before.partition(|one| wanted.contains(one.address()));
        self.metrics.extend(kept);
        ended.into_iter().for_each(|one| one.end(&mut self.left));
        self.config = config;
        self.watch();
        self.looking.discover_at_once();
        log("the configuration was read again");
        Ok(())
    }
}

/// Opens the sockets for commands and for the status; `number` is the group's id, if the group exists.
pub(crate) fn open_server(
    places: &Places,
    config: &Config,
    number: Option<u32>,
) -> Result<Server, ServiceError> {
    let group = config.group.as_ref().map(|name| {
        number.ok_or_else(|| ServiceError::Io {
            what: format!("group = \"{name}\""),
            source: io::Error::other("there is no such group"),
        })
    });
    let status = places.status();
    let wanted = (config.status == StatusFor::All).then_some(status.as_path());
    let server = Server::open(&places.control(), wanted, group.transpose()?)
        .map_err(cannot(places.control().display().to_string()))?;
    if wanted.is_none() {
        drop(std::fs::remove_file(&status));
    }
    Ok(server)
}

/// Returns the addresses for metrics; `group` is the group's id, if the group exists.
pub fn addresses(config: &Config, group: Option<u32>) -> Vec<Address> {
    let loopback = config.metrics_listen.map(Address::Loopback);
    let socket = config.metrics_socket.clone().map(|path| Address::Socket(path, group));
    loopback.into_iter().chain(socket).collect()
}
