//! Pages of the operators' console and of the account holders' dashboard: view models, formats of numbers and times,
//! charts, and their HTML.
//!
//! A page is a list of [`Block`]s that [`Page::to_html`] writes as HTML, in the language of the page ([`Text`]). All
//! text is escaped by the templates; no function of this crate builds HTML. Scripts and styles are files
//! ([`find_asset`]), so that a content security policy can forbid inline ones.

mod asset;
mod block;
mod cell;
mod chart;
mod chart_hover;
mod csv;
mod field;
mod format;
mod language;
mod line_chart;
mod page;
mod pager;
mod panel;
mod refusal;
mod text_span;

pub mod pages;
mod text;
mod texts;

pub use self::csv::{CsvColumn, CsvStyle, CsvStyleError, CsvTable, csv_record, escape_formula};
pub use asset::{Asset, find_asset};
pub use block::{
    Block, Cell, CellState, Field, FieldKind, Form, NoticeKind, Row, TYPED_VALUE_PREFIX, Table, Tile,
};
pub use chart::{BarChart, ChartSeries};
pub use format::{format_quantity, format_significant, unix_time_text};
pub use language::Language;
pub use line_chart::{LineChart, LineChartMetric};
pub use page::{NavLink, NavLinkState, Page, SignedInUser};
pub use text::Text;
pub use texts::find_english_text;
