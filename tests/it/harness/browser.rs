//! Simulated browser without JavaScript, for the operators' console or the dashboard: pages, forms and one cookie.

use super::gateway::Running;
use super::{Answer, Client};
use penstock_core::percent;
use serde_json::{Value, json};

/// Password of every user in the tests.
pub const PASSWORD: &str = "correct horse battery";

/// Browser with at most one cookie.
pub struct Browser {
    pub site: Client,
    pub root: &'static str,
    pub cookie: String,
}

impl Browser {
    /// A browser at the operators' console.
    pub fn new(running: &Running) -> Self {
        let site = Client { address: running.admin().address, key: String::new() };
        Self { site, root: "/console/", cookie: String::new() }
    }

    /// A browser at the dashboard.
    pub fn at_dashboard(running: &Running) -> Self {
        let site = Client { address: running.gateway.dashboard_addresses[0], key: String::new() };
        Self { site, root: "/dashboard/", cookie: String::new() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.site.send("GET", path, &[("cookie", &self.cookie)], b"").await
    }

    /// Sends a form as a page of the site does, and remembers the cookie of a session. Follows the redirect after a
    /// completed action, and returns the page with its message.
    pub async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Answer {
        let answer = self.post_from("same-origin", path, form).await;
        let Some(cookie) = answer.header("set-cookie") else { return answer };
        let cookie = cookie.split(';').next().unwrap().to_owned();
        if !cookie.starts_with("penstock_message=") {
            self.cookie = cookie;
            return answer;
        }
        assert_eq!(answer.status, 303, "{}", answer.text());
        let cookies = format!("{}; {cookie}", self.cookie);
        let location = answer.header("location").unwrap();
        let shown = self.site.send("GET", location, &[("cookie", cookies.as_str())], b"").await;
        assert!(shown.header("set-cookie").unwrap().starts_with("penstock_message=;"), "shown once");
        shown
    }

    /// Sends a form whose action has to be confirmed: first without the confirmation, to get the page that asks for
    /// it, then with it.
    pub async fn confirm(&mut self, path: &str, form: &[(&str, &str)]) -> Answer {
        let asked = self.post(path, form).await;
        assert_eq!(asked.status, 303, "{}", asked.text());
        let question = self.get(asked.header("location").unwrap()).await;
        assert!(
            question.status == 200 && question.text().contains("name=\"confirmed\""),
            "{}",
            question.text()
        );
        self.post(path, &[form, &[("confirmed", "yes")]].concat()).await
    }

    pub async fn post_from(&self, site: &str, path: &str, form: &[(&str, &str)]) -> Answer {
        let encode = |text: &str| percent::encode(text, percent::PATH_SEGMENT);
        let fields: Vec<String> =
            form.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        let kind = "application/x-www-form-urlencoded";
        let headers = [("cookie", self.cookie.as_str()), ("sec-fetch-site", site), ("content-type", kind)];
        self.site.send("POST", path, &headers, fields.join("&").as_bytes()).await
    }

    /// Token of the forms on a page.
    pub async fn token(&self, path: &str) -> String {
        between(&self.get(path).await.text(), "name=\"form_token\" value=\"", "\"")
    }
}

/// Text between two others.
pub fn between(text: &str, start: &str, end: &str) -> String {
    let rest = text.split_once(start).unwrap_or_else(|| panic!("{start} is missing in {text}")).1;
    rest.split_once(end).unwrap().0.to_owned()
}

/// Invites a user, and chooses a password for this user; returns the signed-in browser.
pub async fn signed_in(running: &Running, name: &str, role: &str) -> Browser {
    accept(running, Browser::new(running), json!({"name": name, "role": role})).await
}

/// Signs in a user of an account at the dashboard.
pub async fn holder(running: &Running, name: &str, account: &str) -> Browser {
    let user = json!({"name": name, "role": "account", "account": account});
    accept(running, Browser::at_dashboard(running), user).await
}

async fn accept(running: &Running, mut browser: Browser, user: Value) -> Browser {
    let invited = running.admin().post("/admin/users", &user).await;
    assert_eq!(invited.status, 201, "{}", invited.text());
    let path = format!("{}invitation/{}", browser.root, invited.json()["invitation"].as_str().unwrap());
    assert_eq!(browser.get(&path).await.status, 200);
    let chosen = browser.post(&path, &[("password", PASSWORD), ("again", PASSWORD)]).await;
    assert_eq!((chosen.status, chosen.header("location")), (303, Some(browser.root)), "{}", chosen.text());
    assert_eq!(browser.get(&path).await.status, 404, "an invitation is valid once");
    browser
}
