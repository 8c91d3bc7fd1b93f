//! The adapter for the crate `log`.

use ::log::kv::{self, Key, Source, Value, VisitSource};

use super::{Field, Level, Log, Record};

/// Passes the records to the logger of the crate [`log`], with their fields as key-value
/// pairs. The target is `windlass_serve`.
///
/// ```
/// let config = windlass_serve::Config::new().log(&windlass_serve::log::ToLog);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ToLog;

const TARGET: &str = "windlass_serve";

fn level(level: Level) -> ::log::Level {
    match level {
        Level::Error => ::log::Level::Error,
        Level::Warn => ::log::Level::Warn,
        Level::Info => ::log::Level::Info,
        Level::Debug => ::log::Level::Debug,
    }
}

impl Log for ToLog {
    fn enabled(&self, wanted: Level) -> bool {
        ::log::log_enabled!(target: TARGET, level(wanted))
    }

    fn log(&self, record: &Record<'_>) {
        ::log::logger().log(
            &::log::Record::builder()
                .args(format_args!("{record}"))
                .level(level(record.level()))
                .target(TARGET)
                .module_path_static(Some(module_path!()))
                .key_values(&Pairs(record))
                .build(),
        );
    }
}

/// The fields as key-value pairs.
struct Pairs<'a>(&'a Record<'a>);

impl Source for Pairs<'_> {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), kv::Error> {
        let mut result = Ok(());
        self.0.fields(|name, field| {
            let value = match field {
                Field::Number(number) => Value::from(number),
                Field::Text(text) => Value::from(text),
                Field::Value(value) => Value::from_dyn_debug(value),
            };
            if result.is_ok() {
                result = visitor.visit_pair(Key::from(name), value);
            }
        });
        result
    }
}
