//! Pages of a site: one row for each page, with the roles that may see it, and their rendering.

use super::actions;
use super::answer::{self, ConsoleAnswer, refusal_notice};
use super::flash::{self, FLASH_COOKIE, FlashMessage};
use super::navigation::nav;
use super::request::ConsoleRequest;
use super::session::{ActiveSession, run_blocking};
use super::{BackendRequest, Console, ConsoleBackend};
use crate::telemetry::request_id::RequestId;
use http::Method;
use penstock_console::{Block, Page, SignedInUser, Text};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::users::UserRole;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::OnceLock;

/// Number of rows on a page of a list, as the query parameter `limit`.
pub const ROWS_PER_PAGE: &str = "100";

/// Definition of a page of a console site: path, title, roles, and contents.
pub struct PageDefinition {
    /// Path; `{id}` stands for one segment.
    pub path: &'static str,
    /// Title of the page.
    pub title: &'static str,
    /// True if the navigation lists the page.
    pub in_nav: bool,
    /// Roles that may see the page.
    pub roles: &'static [UserRole],
    /// True if the page is updated every few seconds.
    is_live: bool,
    /// Function that reads the data of the page and builds its blocks.
    load: LoadContent<Vec<Block>>,
}

/// File of a site that is not a page, such as a CSV.
pub struct DownloadDefinition {
    /// Path; `{id}` stands for one segment.
    pub path: &'static str,
    /// Roles that may read the file.
    pub roles: &'static [UserRole],
    /// Function that reads the contents of the file.
    pub load: LoadContent<ConsoleAnswer>,
}

/// Boxed future of the data of a page or a file.
pub type ContentFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send + 'a>>;
/// Function that reads the data of a page or a file.
pub type LoadContent<T> = for<'a> fn(&'a PageContext<'a>) -> ContentFuture<'a, T>;

/// Context of a request for a page or a file.
pub struct PageContext<'a> {
    /// Site that answers the request.
    pub console: &'a Console,
    backend: &'a dyn ConsoleBackend,
    /// Request for the page.
    pub request: &'a ConsoleRequest,
    /// Session of the person.
    pub active: &'a ActiveSession,
    /// Decoded segment that the path has for `{id}`.
    pub id: String,
    /// Title that replaces the title of the page's definition.
    title: OnceLock<Text>,
}

impl PageDefinition {
    /// Creates a page that the navigation shows.
    pub const fn new(
        path: &'static str,
        title: &'static str,
        roles: &'static [UserRole],
        load: LoadContent<Vec<Block>>,
    ) -> Self {
        Self { path, title, in_nav: true, roles, is_live: false, load }
    }

    /// Marks the page as one that is updated every few seconds.
    pub const fn with_live_updates(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// Leaves the page out of the navigation.
    pub const fn hidden_in_navigation(mut self) -> Self {
        self.in_nav = false;
        self
    }
}

/// Returns the segment that the path has for `{id}`, still percent-encoded; empty for a pattern without `{id}`, and
/// `None` if the path does not match the pattern.
pub fn match_path<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let Some((before, after)) = pattern.split_once("{id}") else { return (pattern == path).then_some("") };
    let id = path.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// Handles a request for a page or a download.
///
/// # Errors
/// Returns 404 if there is no page, download or form with this path, 403 if the role may not read the download, and the
/// refusal of the download.
pub async fn handle_page_request(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
) -> Result<ConsoleAnswer, ApiError> {
    let downloads = console.site.downloads.iter();
    let found = downloads.filter_map(|row| Some((row, match_path(row.path, &request.path)?))).next();
    if let Some((row, id)) = found {
        if !row.roles.contains(&active.user.role) {
            return Err(forbidden_role_error(active.user.role));
        }
        let id = crate::proxy::endpoint::decode_segment(id).into_owned();
        let context = PageContext { console, backend, request, active, id, title: OnceLock::new() };
        return (row.load)(&context).await;
    }
    let is_page = console.site.pages.iter().any(|row| match_path(row.path, &request.path).is_some());
    if !is_page {
        let context = PageContext::for_form_link(console, backend, request, active);
        let link = actions::handle_form_get(&context).await?;
        return link.ok_or_else(|| ApiError::new(ErrorCode::NotFound));
    }
    // An automatic update of a page does not consume the message, so that the person still sees it.
    let cookie = request.cookie(FLASH_COOKIE).filter(|_| !request.is_update);
    let message = cookie.and_then(|value| FlashMessage::from_cookie(value, &active.record.form_token));
    let before = message.map(FlashMessage::into_block).into_iter().collect();
    let shown = render_page(console, backend, request, active, &request.path, 200, before).await?;
    Ok(match cookie {
        Some(_) => shown.with_cookie(flash::removal_cookie(console.site, console.is_secure())),
        None => shown,
    })
}

/// Renders the page with this path; the blocks in `before`, such as the result of an action, are shown above its own
/// blocks.
///
/// # Errors
/// Returns 404 if there is no such page.
pub async fn render_page(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
    path: &str,
    status: u16,
    before: Vec<Block>,
) -> Result<ConsoleAnswer, ApiError> {
    let path = path.split('?').next().unwrap_or(path);
    let (row, id) = find_page(console, path)?;
    let role = active.user.role;
    let title = title_of(row, &id);
    let context = PageContext { console, backend, request, active, id, title: OnceLock::new() };
    let loaded =
        if row.roles.contains(&role) { (row.load)(&context).await } else { Err(forbidden_role_error(role)) };
    let title = context.title.into_inner().unwrap_or(title);
    let (status, blocks) = match loaded {
        Ok(blocks) => (status, with_result(before, blocks)),
        Err(refusal) => (refusal.code.spec().status, with_refusal(before, &refusal)),
    };
    let shown = Shown { row, title, address: path.to_owned(), request };
    answer_with(console, active, shown, status, blocks).await
}

/// Renders the page with this path, but shows only the given blocks.
///
/// # Errors
/// Returns 404 if there is no such page.
pub async fn render_blocks(
    console: &Console,
    request: &ConsoleRequest,
    active: &ActiveSession,
    path: &str,
    status: u16,
    blocks: Vec<Block>,
) -> Result<ConsoleAnswer, ApiError> {
    let (row, id) = find_page(console, path)?;
    let (title, address) = (title_of(row, &id), path.to_owned());
    let shown = Shown { row, title, address, request };
    answer_with(console, active, shown, status, blocks).await
}

fn find_page(console: &Console, path: &str) -> Result<(&'static PageDefinition, String), ApiError> {
    let found = console.site.pages.iter().find_map(|row| Some((row, match_path(row.path, path)?)));
    let (row, id) = found.ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    Ok((row, crate::proxy::endpoint::decode_segment(id).into_owned()))
}

/// Returns the title of a page: that of its row. For the page of an object, the title also has the object's id.
fn title_of(row: &PageDefinition, id: &str) -> Text {
    match id {
        "" => row.title.into(),
        id => Text::with_values("{0} {1}", [row.title.into(), id.to_owned().into()]),
    }
}

/// Adds the refusal of a page to the result of a form, unless the result is the same refusal.
fn with_refusal(mut result: Vec<Block>, refusal: &ApiError) -> Vec<Block> {
    let text_of_page = Text::from_refusal(&refusal.message);
    let is_same = |block: &Block| matches!(block, Block::Notice(_, text) if *text == text_of_page);
    if !result.iter().any(is_same) {
        result.push(refusal_notice(refusal));
    }
    result
}

/// Merges the blocks of a form's result into those of its page. A refused form replaces the same form of the page;
/// other blocks are placed above the page. If the object was changed since the form was shown, the refused form also
/// shows the stored values that differ.
fn with_result(result: Vec<Block>, mut page: Vec<Block>) -> Vec<Block> {
    let mut above = Vec::new();
    for mut block in result {
        let action = match &block {
            Block::Form(form) => Some(form.action.clone()),
            _ => None,
        };
        let is_same =
            |other: &Block| matches!(other, Block::Form(form) if Some(&form.action) == action.as_ref());
        match page.iter().position(is_same).and_then(|index| page.get_mut(index)) {
            Some(existing) => {
                if let (Block::Form(refused), Block::Form(current)) = (&mut block, &*existing)
                    && refused.has_version_conflict()
                {
                    refused.show_stored_values(current);
                }
                *existing = block;
            }
            None => above.push(block),
        }
    }
    above.extend(page);
    above
}

/// Creates the page of a refusal for a signed-in person, with the navigation of the site.
pub fn refusal_page(
    console: &Console,
    request: &ConsoleRequest,
    active: &ActiveSession,
    refusal: &ApiError,
) -> ConsoleAnswer {
    let page = Page {
        nav: nav(console.site.pages, active.user.role, ""),
        user: Some(signed_in_user(active)),
        ..answer::refusal_content(console.site, request.language, refusal)
    };
    answer::page_answer(refusal.code.spec().status, &page).with_retry_after(refusal)
}

fn signed_in_user(active: &ActiveSession) -> SignedInUser {
    SignedInUser {
        name: active.user.name.clone(),
        role: active.user.role.name(),
        form_token: active.record.form_token.clone(),
        form_id: RequestId::random().as_str().to_owned(),
    }
}

/// Page to show: its row and title, the address of the page for links back to it, and the request for it.
struct Shown<'r> {
    row: &'r PageDefinition,
    title: Text,
    address: String,
    request: &'r ConsoleRequest,
}

/// Renders a page on a thread for blocking work, because a page of many rows would delay the requests of its thread.
async fn answer_with(
    console: &Console,
    active: &ActiveSession,
    shown: Shown<'_>,
    status: u16,
    blocks: Vec<Block>,
) -> Result<ConsoleAnswer, ApiError> {
    let (site, role) = (console.site, active.user.role);
    let Shown { row, title, address, request } = shown;
    let page = Page {
        root: site.root,
        language: request.language,
        address,
        query: request.query.clone(),
        title,
        nav: nav(site.pages, role, row.path),
        user: Some(signed_in_user(active)),
        redirect_path: None,
        refresh_path: (row.is_live && status == 200).then_some(row.path),
        events_path: console.events_path(row.path).filter(|_| status == 200),
        blocks,
    };
    run_blocking(move || Ok(answer::page_answer(status, &page))).await
}

/// Returns the refusal for a role that may not see or do something.
pub fn forbidden_role_error(role: UserRole) -> ApiError {
    let message = format!("The role {} may not do this; an administrator can change the role.", role.name());
    ApiError::with_message(ErrorCode::InsufficientScope, message)
}

impl<'a> PageContext<'a> {
    /// Creates the context of a request for a link to a form, which has no page of its own.
    pub const fn for_form_link(
        console: &'a Console,
        backend: &'a dyn ConsoleBackend,
        request: &'a ConsoleRequest,
        active: &'a ActiveSession,
    ) -> Self {
        Self { console, backend, request, active, id: String::new(), title: OnceLock::new() }
    }

    /// Renders another page of the site, with blocks above its own ones.
    ///
    /// # Errors
    /// Returns 404 if there is no such page.
    pub async fn render_page(
        &self,
        path: &str,
        status: u16,
        before: Vec<Block>,
    ) -> Result<ConsoleAnswer, ApiError> {
        render_page(self.console, self.backend, self.request, self.active, path, status, before).await
    }

    /// Sends a GET request to the admin API.
    ///
    /// # Errors
    /// Returns the refusal of the admin API.
    pub async fn get_from_admin_api(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, ApiError> {
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let actor = self.active.audit_actor(&self.request.address);
        let (method, path) = (Method::GET, path.to_owned());
        self.backend.call(BackendRequest { method, path, query, body: json!({}), actor: &actor }).await
    }

    /// Reads the page of a list that the query parameter `after` selects; the first page by default. `parameters` are
    /// further parameters of the admin request.
    ///
    /// # Errors
    /// Returns the refusal of the admin API.
    pub async fn get_list_page(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, ApiError> {
        let mut query = [&[("limit", ROWS_PER_PAGE)], parameters].concat();
        query.extend(self.request.query_parameter("after").map(|after| ("after", after)));
        self.get_from_admin_api(path, &query).await
    }

    /// Sets the title of the page, instead of that of its definition. Only the first call has an effect.
    pub fn set_title(&self, title: Text) {
        // A title that is already set is not replaced.
        self.title.set(title).ok();
    }

    /// Returns true if the person has one of these roles.
    pub fn has_role(&self, roles: &[UserRole]) -> bool {
        roles.contains(&self.active.user.role)
    }

    /// Returns true if the person sees amounts of money.
    pub fn can_see_amounts(&self) -> bool {
        can_see_amounts(self.active.user.role)
    }
}

/// Returns true if persons of this role see amounts of money.
pub fn can_see_amounts(role: UserRole) -> bool {
    role != UserRole::Viewer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_once_why_a_form_and_its_page_were_refused() {
        let missing = ApiError::new(ErrorCode::NotFound);
        assert_eq!(with_refusal(vec![refusal_notice(&missing)], &missing).len(), 1);
        assert_eq!(with_refusal(Vec::new(), &missing).len(), 1);
        let other = ApiError::with_message(ErrorCode::NotFound, "There is no account of this id.");
        assert_eq!(with_refusal(vec![refusal_notice(&other)], &missing).len(), 2);
    }
}
