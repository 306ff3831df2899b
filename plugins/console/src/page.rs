//! Page: navigation, title and blocks, and its HTML.

use crate::block::{Block, Field, FieldKind, Form};
use crate::language::Language;
use crate::pager::MAX_PAGE_BYTES;
use crate::text::Text;
use crate::text_span::TextSpan;
use crate::texts;
use askama::Template;

/// Link of the navigation.
#[derive(Clone, Debug)]
pub struct NavLink {
    /// Path to which the link leads.
    pub href: &'static str,
    /// Text of the link.
    pub text: &'static str,
    /// Relation of the link to the current page.
    pub state: NavLinkState,
}

/// Relation of a link of the navigation to the current page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NavLinkState {
    /// Link to another page.
    Other,
    /// Link to the page that lists the object of the current page.
    Parent,
    /// Link to the current page.
    Current,
}

impl NavLinkState {
    /// Returns the value of the attribute `aria-current`; empty for another page.
    pub(crate) const fn aria_current(self) -> &'static str {
        match self {
            Self::Other => "",
            Self::Parent => "true",
            Self::Current => "page",
        }
    }
}

/// Signed-in person, with the CSRF token and the id for the forms of the page.
#[derive(Clone, Debug)]
pub struct SignedInUser {
    /// Name of the signed-in person.
    pub name: String,
    /// Name of the role.
    pub role: &'static str,
    /// CSRF token, which every form of the page must contain.
    pub form_token: String,
    /// Id of the forms of this page, so that none of them has an effect twice.
    pub form_id: String,
}

/// Page of the console.
#[derive(Clone, Debug, Template)]
#[template(path = "page.html")]
pub struct Page {
    /// Path below which the site's pages are, with a slash at both ends.
    pub root: &'static str,
    /// Language of the page.
    pub language: Language,
    /// Path of the page, to which the language switch returns.
    pub address: String,
    /// Query of the page, decoded.
    pub query: Vec<(String, String)>,
    /// Title of the page.
    pub title: Text,
    /// Links of the navigation.
    pub nav: Vec<NavLink>,
    /// Signed-in person; `None` on a page without a session, such as the sign-in page.
    pub user: Option<SignedInUser>,
    /// Path from which the blocks are read again every few seconds; `None` if the page is not updated.
    pub refresh_path: Option<&'static str>,
    /// Path of the event stream with the live figures of the page; `None` without live figures.
    pub events_path: Option<String>,
    /// Path to which the browser is redirected immediately; `None` for a page that stays.
    pub redirect_path: Option<String>,
    /// Blocks of the page, from top to bottom.
    pub blocks: Vec<Block>,
}

impl Page {
    /// Creates a page for persons who are not signed in.
    #[must_use]
    pub fn without_session(
        root: &'static str,
        language: Language,
        address: &str,
        title: &'static str,
        blocks: Vec<Block>,
    ) -> Self {
        Self {
            root,
            language,
            address: address.to_owned(),
            query: Vec::new(),
            title: title.into(),
            nav: Vec::new(),
            user: None,
            refresh_path: None,
            events_path: None,
            redirect_path: None,
            blocks,
        }
    }

    /// Renders the page as HTML. Long tables show as many rows as the size of a page permits; documents to print are
    /// complete.
    #[must_use]
    pub fn to_html(&self) -> String {
        if !self.starts_after_first_row() || self.is_print_document() {
            let html = self.render_all_rows();
            if html.len() <= MAX_PAGE_BYTES || self.is_print_document() {
                return html;
            }
        }
        self.with_limited_tables().render_all_rows()
    }

    /// Renders all rows. Rendering cannot fail, because the template uses only infallible members.
    pub(crate) fn render_all_rows(&self) -> String {
        self.render().unwrap_or_default()
    }

    /// Returns the path from which the blocks are read again, with the query of the page; `None` if the page is not
    /// updated.
    fn refresh_address(&self) -> Option<String> {
        let encode = crate::pages::percent_encode;
        let pairs = self.query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        self.refresh_path
            .map(|path| if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") })
    }

    /// Returns a text of the translation table in the language of the page.
    fn say(&self, text: &'static str) -> &'static str {
        texts::translate(text, self.language)
    }

    /// Returns the parts of the help text of a field.
    fn help_spans(&self, field: &Field) -> Vec<TextSpan> {
        Text::from(field.help).spans(self.language)
    }

    /// Returns the form that shows the values a person has typed, after a refusal; `None` if the page has none. Query
    /// forms do not count.
    fn restored_form(&self) -> Option<&Form> {
        self.blocks.iter().find_map(|block| match block {
            Block::Form(form) if form.is_restored && !form.is_query => Some(form),
            _ => None,
        })
    }

    fn form_token(&self) -> &str {
        self.user.as_ref().map(|user| &*user.form_token).unwrap_or_default()
    }

    fn form_id(&self) -> &str {
        self.user.as_ref().map(|user| &*user.form_id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Cell, CellState, NoticeKind, Table, Tile};
    use crate::chart::{BarChart, ChartSeries};

    const ATTACK: &str = "\"'><script>alert(1)</script>";

    #[test]
    fn every_text_is_escaped() {
        let data = || ATTACK.to_owned();
        let text = || Text::Data(data());
        let form = Form::new(data(), text(), text()).with_field(Field {
            value: data(),
            error: text(),
            ..Field::new("a", "b")
        });
        let lines =
            form.clone().with_field(Field::new("c", "d").with_kind(FieldKind::Lines).with_value(data()));
        let chart = BarChart {
            title: text(),
            unit: "",
            labels: vec![text()],
            series: vec![ChartSeries { name: text(), values: vec![1.0] }],
        };
        let row =
            vec![Cell::text(text()).with_exact_value(text()), Cell::link(text(), data()), Cell::button(form)];
        let table = Table {
            title: text(),
            headings: vec!["h"],
            rows: vec![row],
            empty_text: "",
            next: Some(data()),
            is_screen_only: true,
        };
        let tile = Tile { label: text(), value: text(), detail: text(), state: CellState::Bad };
        let page = Page {
            root: "/console/",
            language: Language::German,
            address: data(),
            query: vec![(data(), data())],
            title: text(),
            nav: Vec::new(),
            user: Some(SignedInUser { name: data(), role: "admin", form_token: data(), form_id: data() }),
            refresh_path: None,
            events_path: None,
            redirect_path: None,
            blocks: vec![
                Block::Notice(NoticeKind::Error, text()),
                Block::Secret(text(), data()),
                Block::Tiles(vec![tile]),
                Block::Table(table),
                Block::Chart(chart),
                Block::Form(lines),
                Block::Code(data()),
                Block::Heading(text()),
                Block::RunningHeader(text()),
                Block::Prose(text()),
                Block::Columns(vec![(text(), vec![text()])]),
                Block::Links(vec![(data(), text())]),
            ],
        };
        let html = page.to_html();
        assert!(html.len() > 2_000, "{html}");
        assert!(!html.contains("<script>"), "{html}");
        assert!(!html.contains("\"'>"), "{html}");
        // Adjacent expressions of a template keep the space between their words.
        for text in ["class=\"notice error\"", "class=\"tile bad\"", "(Administrator)"] {
            assert!(html.contains(text), "{text} in {html}");
        }
        assert!(!html.contains(";(Administrator)"), "{html}");
        for inline in [" style=", " onclick=", "javascript:"] {
            assert!(!html.contains(inline), "{inline}");
        }
    }
}
