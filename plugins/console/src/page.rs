//! Page: navigation, title and blocks, and its HTML.

use crate::block::{Block, FieldKind};
use askama::Template;

/// Link of the navigation.
#[derive(Clone, Debug)]
pub struct NavLink {
    /// Path.
    pub href: &'static str,
    /// Text.
    pub text: &'static str,
    /// True for the current page.
    pub is_current: bool,
}

/// Signed-in person.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// Name.
    pub name: String,
    /// Name of the role.
    pub role: &'static str,
    /// Token that every form carries.
    pub form_token: String,
}

/// Page of the console.
#[derive(Clone, Debug, Template)]
#[template(path = "page.html")]
pub struct Page {
    /// Path of the pages on their listener, with a slash at both ends.
    pub root: &'static str,
    /// Title.
    pub title: String,
    /// Navigation.
    pub nav: Vec<NavLink>,
    /// Signed-in person; `None` on the page to sign in.
    pub user: Option<SignedIn>,
    /// Path that replaces the blocks every few seconds.
    pub live: Option<&'static str>,
    /// Path that the browser opens at once.
    pub opens: Option<&'static str>,
    /// Blocks in order.
    pub blocks: Vec<Block>,
}

impl Page {
    /// Writes the page as HTML. A template with these members always succeeds.
    #[must_use]
    pub fn to_html(&self) -> String {
        self.render().unwrap_or_default()
    }

    fn form_token(&self) -> &str {
        self.user.as_ref().map(|user| &*user.form_token).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Cell, CellState, Field, Form, NoticeKind, Table, Tile};
    use crate::chart::{BarChart, ChartSeries};

    const ATTACK: &str = "\"'><script>alert(1)</script>";

    #[test]
    fn every_text_is_escaped() {
        let text = || ATTACK.to_owned();
        let form = Form::new(text(), text(), text()).with(Field {
            value: text(),
            error: text(),
            ..Field::new("a", "b")
        });
        let lines = form.clone().with(Field::new("c", "d").kind(FieldKind::Lines).value(text()));
        let chart = BarChart {
            title: text(),
            unit: "",
            labels: vec![text()],
            series: vec![ChartSeries { name: text(), values: vec![1.0] }],
        };
        let row = vec![Cell::text(text()).with_exact(text()), Cell::link(text(), text()), Cell::button(form)];
        let table =
            Table { title: text(), headings: vec!["h"], rows: vec![row], empty: "", next: Some(text()) };
        let tile = Tile { label: text(), value: text(), detail: text(), state: CellState::Bad };
        let page = Page {
            root: "/console/",
            title: text(),
            nav: Vec::new(),
            user: Some(SignedIn { name: text(), role: "admin", form_token: text() }),
            live: None,
            opens: None,
            blocks: vec![
                Block::Notice(NoticeKind::Error, text()),
                Block::Secret(text(), text()),
                Block::Tiles(vec![tile]),
                Block::Table(table),
                Block::Chart(chart),
                Block::Form(lines),
                Block::Code(text()),
                Block::Heading(text()),
                Block::Prose(text()),
                Block::Columns(vec![(text(), vec![text()])]),
                Block::Links(vec![(text(), text())]),
            ],
        };
        let html = page.to_html();
        assert!(html.len() > 2_000, "{html}");
        assert!(!html.contains("<script>"), "{html}");
        assert!(!html.contains("\"'>"), "{html}");
        // Words that are next to each other in a template stay apart.
        for text in ["class=\"notice error\"", "class=\"tile bad\"", "(admin)"] {
            assert!(html.contains(text), "{text} in {html}");
        }
        assert!(!html.contains(";(admin)"), "{html}");
        for inline in [" style=", " onclick=", "javascript:"] {
            assert!(!html.contains(inline), "{inline}");
        }
    }
}
