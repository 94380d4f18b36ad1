//! What depends on the configuration beside policies: sockets, metrics, and reading it again.

use std::io;

use super::{Service, ServiceError, cannot, log, warn};
use crate::Places;
use crate::metrics::Listener;
use crate::server::Server;
use trimwise_linux::daemon::config::{Config, StatusFor, group_number};

impl Service {
    /// Reads the configuration again; a broken one changes nothing.
    pub(super) fn reload(&mut self) -> Result<(), String> {
        self.notify.tell("RELOADING=1");
        let result = Config::load(&self.options.places.config).map_err(|errors| errors.to_string());
        let result = result.and_then(|config| self.apply(config));
        if let Err(error) = &result {
            warn(&format!("the configuration is kept as it was, since the new one is broken:\n{error}"));
        }
        self.config_problem = result.clone().err();
        self.notify.tell("READY=1");
        result
    }

    /// All that may fail comes before the first change.
    fn apply(&mut self, config: Config) -> Result<(), String> {
        let places = &self.options.places;
        let words = |error: ServiceError| error.to_string();
        let metrics = (config.metrics_listen != self.config.metrics_listen)
            .then(|| open_metrics(&config))
            .transpose()
            .map_err(words)?;
        if (config.group.as_ref(), config.status) != (self.config.group.as_ref(), self.config.status) {
            self.server = Some(open_server(places, &config).map_err(words)?);
        }
        if let Some(metrics) = metrics {
            self.metrics = metrics;
        }
        self.history.set_max(config.history_max);
        self.config = config;
        self.watch();
        self.discover();
        log("the configuration was read again");
        Ok(())
    }
}

pub fn open_server(places: &Places, config: &Config) -> Result<Server, ServiceError> {
    let group = config.group.as_ref().map(|name| {
        group_number(&places.host, name).ok_or_else(|| ServiceError::Io {
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

pub fn open_metrics(config: &Config) -> Result<Option<Listener>, ServiceError> {
    let open = |address| Listener::open(address).map_err(cannot(format!("metrics-listen = \"{address}\"")));
    config.metrics_listen.map(open).transpose()
}
