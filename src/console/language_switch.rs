//! Choice of the language: stores it in a cookie, and shows the page again with the values that were typed into its
//! form.

use super::actions;
use super::answer::{self, ConsoleAnswer};
use super::dashboard::scope::AccountBackend;
use super::pages;
use super::request::{ConsoleRequest, LANGUAGE_COOKIE};
use super::{Console, ConsoleBackend, LANGUAGE_SECONDS, dashboard, operators};
use penstock_console::{Block, Language};
use penstock_core::ApiError;

impl Console {
    /// Stores the chosen language in a cookie, and redirects to the page from which the form was sent. If that page has
    /// a refused form, the page is shown with what was typed.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub(super) async fn choose_language(
        &self,
        backend: &dyn ConsoleBackend,
        request: &ConsoleRequest,
    ) -> Result<ConsoleAnswer, ApiError> {
        let redirect = self.redirect_back(request);
        let Some(language) = Language::from_code(request.form_field("language")) else { return Ok(redirect) };
        let restored = self.restored_page(backend, request, language).await?;
        let (path, secure) = (self.site.root.trim_end_matches('/'), self.is_secure());
        let secure = if secure { "; Secure" } else { "" };
        Ok(restored.unwrap_or(redirect).with_cookie(format!(
            "{LANGUAGE_COOKIE}={}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={LANGUAGE_SECONDS}{secure}",
            language.code()
        )))
    }

    fn redirect_back(&self, request: &ConsoleRequest) -> ConsoleAnswer {
        let page = request.form_field("back");
        // The form contains only the path of its page; the query of that page comes from the `Referer` header.
        let is_of_page = |address: &&str| address.split('?').next() == Some(page);
        let back = request.referring_page().filter(is_of_page).unwrap_or(page);
        let is_own = back.starts_with(self.site.root) && back.bytes().all(|byte| byte.is_ascii_graphic());
        answer::redirect_answer(if is_own { back } else { self.site.root })
    }

    /// Returns the page of a refused form with the typed values; `None` if the request has no values of a known form,
    /// or if there is no session.
    async fn restored_page(
        &self,
        backend: &dyn ConsoleBackend,
        request: &ConsoleRequest,
        language: Language,
    ) -> Result<Option<ConsoleAnswer>, ApiError> {
        let Some(restored) = request.request_before_language_switch(language) else { return Ok(None) };
        let Some(active) = self.active_session(request).await? else { return Ok(None) };
        let scoped;
        let backend: &dyn ConsoleBackend = match &active.user.account {
            Some(account) => {
                scoped = AccountBackend { backend, account };
                &scoped
            }
            None => backend,
        };
        let (page, form) = if restored.path == operators::actions::CONFIGURATION_CHECK_PATH {
            let form = penstock_console::pages::check_configuration_form();
            (operators::actions::CONFIGURATION_PATH.to_owned(), Some(form))
        } else if restored.path == dashboard::playground::PLAYGROUND_PATH {
            // The playground page fills its form itself.
            (restored.path.clone(), None)
        } else {
            match actions::find_form(self, &restored) {
                Some((page, form)) => (page, Some(form)),
                None => return Ok(None),
            }
        };
        let blocks = form.map(|mut form| {
            form.restore_values(&restored.form, None);
            Block::Form(form)
        });
        let before = blocks.into_iter().collect();
        pages::render_page(self, backend, &restored, &active, &page, 200, before).await.map(Some)
    }
}
