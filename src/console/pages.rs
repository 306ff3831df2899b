//! Pages: one row for each, with the roles that may see it.

use super::answer::{self, ConsoleAnswer};
use super::request::ConsoleRequest;
use super::session::ActiveSession;
use super::{BackendRequest, Console, ConsoleBackend};
use http::Method;
use penstock_console::pages::{self as blocks, UsageView, encode};
use penstock_console::{Block, NavLink, NoticeKind, Page, SignedIn};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::users::UserRole::{self, Admin, Finance, Operator, Viewer};
use serde_json::{Value, json};
use std::pin::Pin;

/// Number of rows on a page of a list.
const PAGE_ROWS: &str = "100";
/// Number of changes on the page of the audit log.
const AUDIT_ROWS: u64 = 200;

/// Page of the console.
pub struct PageRow {
    /// Path; `{id}` stands for one segment.
    pub path: &'static str,
    /// Title.
    title: &'static str,
    /// True if the navigation shows it.
    in_nav: bool,
    /// Roles that may see it.
    pub roles: &'static [UserRole],
    /// True if it is updated every few seconds.
    is_live: bool,
    /// Reads its data.
    load: LoadBlocks,
}

type BlocksFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Block>, ApiError>> + Send + 'a>>;
type LoadBlocks = for<'a> fn(&'a PageContext<'a>) -> BlocksFuture<'a>;

/// Data of a request for a page.
pub struct PageContext<'a> {
    console: &'a Console,
    backend: &'a dyn ConsoleBackend,
    request: &'a ConsoleRequest,
    active: &'a ActiveSession,
    /// Segment for `{id}`, decoded.
    pub id: String,
}

const EVERYONE: &[UserRole] = &[Admin, Operator, Finance, Viewer];
const MONEY: &[UserRole] = &[Admin, Finance];
const OPERATION: &[UserRole] = &[Admin, Operator, Viewer];

/// Every page.
pub const PAGES: &[PageRow] = &[
    row("/console/", "Overview", EVERYONE, |page| Box::pin(overview(page))).live(),
    row("/console/providers", "Providers", EVERYONE, |page| Box::pin(providers(page))).live(),
    row("/console/usage", "Usage", EVERYONE, |page| Box::pin(usage(page))),
    row("/console/accounts", "Accounts", MONEY, |page| Box::pin(accounts(page))),
    row("/console/accounts/{id}", "Account", MONEY, |page| Box::pin(account(page))).hidden(),
    row("/console/batches", "Batches", OPERATION, |page| Box::pin(batches(page))),
    row("/console/files", "Files", OPERATION, |page| Box::pin(files(page))),
    row("/console/configuration", "Configuration", &[Admin, Operator], |page| Box::pin(configuration(page))),
    row("/console/audit", "Audit", OPERATION, |page| Box::pin(audit(page))),
    row("/console/users", "Users", &[Admin], |page| Box::pin(users(page))),
];

const fn row(
    path: &'static str,
    title: &'static str,
    roles: &'static [UserRole],
    load: LoadBlocks,
) -> PageRow {
    PageRow { path, title, in_nav: true, roles, is_live: false, load }
}

impl PageRow {
    const fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    const fn hidden(mut self) -> Self {
        self.in_nav = false;
        self
    }
}

/// Returns the segment for `{id}` if the path is of this pattern, still percent-encoded.
pub fn match_path<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let Some((before, after)) = pattern.split_once("{id}") else { return (pattern == path).then_some("") };
    let id = path.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// Answers a request for a page, with the blocks of an action before it.
///
/// # Errors
/// Returns 404 if there is no such page.
pub async fn answer(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
    before: Vec<Block>,
) -> Result<ConsoleAnswer, ApiError> {
    let path = request.path.clone();
    render(console, backend, request, active, &path, 200, before).await
}

/// Renders the page of a path, with the blocks of an action before it.
///
/// # Errors
/// Returns 404 if there is no such page.
pub async fn render(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
    path: &str,
    status: u16,
    before: Vec<Block>,
) -> Result<ConsoleAnswer, ApiError> {
    let found = PAGES.iter().find_map(|row| Some((row, match_path(row.path, path)?)));
    let (row, id) = found.ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    let role = active.user.role;
    let id = crate::proxy::endpoint::decode_segment(id).into_owned();
    let title = if id.is_empty() { row.title.to_owned() } else { format!("{} {id}", row.title) };
    let context = PageContext { console, backend, request, active, id };
    let loaded = if row.roles.contains(&role) { (row.load)(&context).await } else { Err(forbidden(role)) };
    let (status, blocks) = match loaded {
        Ok(blocks) => (status, before.into_iter().chain(blocks).collect()),
        Err(refusal) => {
            let notice = Block::Notice(NoticeKind::Error, refusal.message.to_string());
            (refusal.code.spec().status, before.into_iter().chain([notice]).collect())
        }
    };
    let page = Page {
        title,
        nav: nav(role, row.path),
        user: Some(SignedIn {
            name: active.user.name.clone(),
            role: role.name(),
            form_token: active.record.form_token.clone(),
        }),
        live: (row.is_live && status == 200).then_some(row.path),
        blocks,
    };
    Ok(answer::page(status, &page))
}

/// Refusal for a role that may not see or do something.
pub fn forbidden(role: UserRole) -> ApiError {
    let message = format!("The role {} may not do this; an administrator can change the role.", role.name());
    ApiError::with_message(ErrorCode::InsufficientScope, message)
}

fn nav(role: UserRole, current: &str) -> Vec<NavLink> {
    let shown = PAGES.iter().filter(|row| row.in_nav && row.roles.contains(&role));
    let link = |row: &PageRow| NavLink { href: row.path, text: row.title, is_current: row.path == current };
    shown.map(link).collect()
}

impl PageContext<'_> {
    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, ApiError> {
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let actor = self.active.actor(&self.request.address);
        let (method, path) = (Method::GET, path.to_owned());
        self.backend.call(BackendRequest { method, path, query, body: json!({}), actor: &actor }).await
    }

    /// Reads a page of a list.
    async fn list(&self, path: &str) -> Result<Value, ApiError> {
        let mut query = vec![("limit", PAGE_ROWS)];
        query.extend(self.request.query("after").map(|after| ("after", after)));
        self.get(path, &query).await
    }

    fn has_role(&self, roles: &[UserRole]) -> bool {
        roles.contains(&self.active.user.role)
    }

    fn sees_money(&self) -> bool {
        self.active.user.role != Viewer
    }
}

async fn overview(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let now = page.console.app.clock.unix_seconds();
    let yesterday = penstock_core::calendar::UtcDay::from_unix(now.saturating_sub(86_400)).to_string();
    let query = [("from", yesterday.as_str()), ("group_by", "hour,outcome")];
    let (status, hours) = (page.get("/status", &[]).await?, page.get("/admin/usage", &query).await?);
    Ok(blocks::overview_blocks(&status, &hours, now, page.sees_money()))
}

async fn providers(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    Ok(blocks::provider_blocks(&page.get("/admin/providers", &[]).await?))
}

async fn usage(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    usage_of(page, None, "/console/usage".to_owned()).await
}

async fn usage_of(
    page: &PageContext<'_>,
    account: Option<&str>,
    path: String,
) -> Result<Vec<Block>, ApiError> {
    let view = UsageView {
        path,
        from: page.request.query("from").unwrap_or_default().to_owned(),
        to: page.request.query("to").unwrap_or_default().to_owned(),
        by: page.request.query("by").unwrap_or("model").to_owned(),
        with_money: page.sees_money(),
    };
    let group_by = format!("day,{}", view.by);
    let mut query = vec![("group_by", group_by.as_str())];
    let optional =
        [("from", view.from.as_str()), ("to", view.to.as_str()), ("account", account.unwrap_or_default())];
    query.extend(optional.into_iter().filter(|(_, value)| !value.is_empty()));
    let mut form = blocks::usage_form(&view);
    match page.get("/admin/usage", &query).await {
        Ok(usage) => {
            let shown = [Block::Form(form)].into_iter();
            Ok(shown.chain(blocks::usage_blocks(&usage, &view)).collect())
        }
        Err(refusal) if refusal.param.is_some() => {
            form.restore(&[], refusal.param.as_deref().map(|field| (field, &*refusal.message)));
            Ok(vec![Block::Notice(NoticeKind::Error, refusal.message.to_string()), Block::Form(form)])
        }
        Err(refusal) => Err(refusal),
    }
}

async fn accounts(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let (accounts, balances) = (page.list("/admin/accounts").await?, page.get("/admin/credits", &[]).await?);
    let mut shown = blocks::accounts_blocks(&accounts, &balances);
    if page.has_role(&[Admin]) {
        shown.push(Block::Form(blocks::account_form()));
    }
    Ok(shown)
}

async fn account(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let id = page.id.as_str();
    let account = page.get(&format!("/admin/accounts/{}", encode(id)), &[]).await?;
    let balance = page.get("/admin/credits", &[("account", id)]).await?;
    let mut query = vec![("account", id), ("limit", PAGE_ROWS)];
    query.extend(page.request.query("after").map(|after| ("after", after)));
    let keys = page.get("/admin/keys", &query).await?;
    let is_admin = page.has_role(&[Admin]);
    let mut shown = blocks::account_blocks(&account, &balance, &keys, is_admin);
    if is_admin {
        shown.push(Block::Form(blocks::key_form(id)));
    }
    if page.has_role(MONEY) {
        let unique = format!("console-{}", crate::telemetry::request_id::RequestId::random().as_str());
        shown.push(Block::Form(blocks::grant_form(id, &unique)));
    }
    let path = format!("/console/accounts/{}", encode(id));
    shown.extend(usage_of(page, Some(id), path).await?);
    Ok(shown)
}

async fn batches(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let may_cancel = page.has_role(&[Admin, Operator]);
    Ok(blocks::batches_blocks(&page.list("/admin/batches").await?, may_cancel))
}

async fn files(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    Ok(blocks::files_blocks(&page.list("/admin/files").await?))
}

async fn configuration(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let live = page.console.app.live();
    let effective = live.settings.document.pretty_text();
    Ok(vec![
        Block::Notice(
            NoticeKind::Done,
            format!("The running configuration has the version {}.", live.settings.version.0),
        ),
        Block::Form(blocks::reload_form()),
        Block::Form(blocks::check_form()),
        Block::Code(effective),
    ])
}

async fn audit(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let check = page.get("/admin/audit/verify", &[]).await?;
    let last = check.get("entries").and_then(Value::as_u64).unwrap_or(0);
    let after = last.saturating_sub(AUDIT_ROWS).to_string();
    Ok(blocks::audit_blocks(&page.get("/admin/audit", &[("after", &after)]).await?, &check))
}

async fn users(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let mut shown = blocks::users_blocks(&page.get("/admin/users", &[]).await?);
    shown.push(Block::Form(blocks::user_form()));
    Ok(shown)
}
